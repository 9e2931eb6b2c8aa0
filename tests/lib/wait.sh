# SPDX-License-Identifier: Apache-2.0
# wait.sh - waiting for what comes, in scripts of tests; sourced by common.sh
#
# No test sleeps for a time and hopes: it waits for what must happen, and where
# something must not happen, for what comes after it.

# wait_for SECONDS COMMAND...: until it succeeds; else 1.  The seconds only end
# a test that fails: longer by $UNSHARD_SLOW.
wait_for() {
	local n=$(($1 * 20 * ${UNSHARD_SLOW:-1}))
	shift
	while ! "$@"; do
		[ $((n -= 1)) -gt 0 ] || return 1
		sleep 0.05
	done
}
not() { ! "$@"; }
# A zombie is gone: whoever reaps it may be slow.
gone() { ! grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status"; }
# stop PID...: kill -STOP, which returns while a thread may still answer somebody.
stopped() { ! cat "/proc/$1"/task/*/status | grep '^State:' | grep -qv '[Tt] ('; }
stop() {
	local p
	for p; do
		kill -STOP "$p" && wait_for 10 stopped "$p" || return
	done
}
# asleep PID: it waits for something.
asleep() { grep -qs '^State:[[:space:]]*S' "/proc/$1/status"; }
