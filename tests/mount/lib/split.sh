# SPDX-License-Identifier: Apache-2.0
# split.sh - sourced after common.sh: a tensor in several files

# make_split DIR [ROWS COLUMNS PIECES]: see split.py; $WORK/whole.w, .rows.
make_split() {
	requires python3
	python3 "$here/tests/mount/lib/split.py" "$1" "$WORK/whole" \
		"${2:-1000}" "${3:-3001}" "${4:-5}" || fail "split.py"
}
