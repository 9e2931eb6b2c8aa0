# SPDX-License-Identifier: Apache-2.0
# Sourced by the common.sh of scripts: their last line, without which
# tests/run-scripts takes one that ended with 0 for cut short.
done_ok() {
	[ -z "${UNSHARD_TEST-}" ] || : >"$UNSHARD_TEST/ended"
	say ok
	exit 0
}
