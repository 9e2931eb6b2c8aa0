#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# export where there is no room: said before anything is written
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
[ -n "${COMMON_PRIVATE-}" ] || skip "needs mounts of its own"
"$PYTHON" "$here/tests/cmd/lib/safetensors.py" "$WORK/m.safetensors" \
	a U8 8,1048576 b U8 2,1048576
mkdir "$WORK/small"
mount -t tmpfs -o size=6M tmpfs "$WORK/small" || skip "no tmpfs here"
rc=0
"$UNSHARD" export "$WORK/m.safetensors" "$WORK/small/o" 2>"$WORK/err" || rc=$?
[ $rc = 3 ] || fail "exit $rc"
grep -qE '/small: 10[0-9]{6} bytes are needed, 6[0-9]{6} are free$' \
	"$WORK/err" || fail "$(cat "$WORK/err")"
[ -z "$(ls -A "$WORK/small")" ] || fail "left: $(ls -A "$WORK/small")"
"$UNSHARD" export "$WORK/m.safetensors/tensors/b" "$WORK/small/o" >/dev/null ||
	fail "what fits"
rm "$WORK/small/o"

# More than it looked, for each small file takes a page: what is written counts
# when there is room.
sizes=()
for i in $(seq 1500); do sizes+=(t$i U8 1); done
"$PYTHON" "$here/tests/cmd/lib/safetensors.py" "$WORK/n.safetensors" \
	a U8 9,1048576 b U8 2,1048576 "${sizes[@]}"
mount -o remount,size=14M "$WORK/small" || fail "remount"
rc=0
"$UNSHARD" export --to tensors "$WORK/n.safetensors" "$WORK/small/o" \
	2>"$WORK/err" || rc=$?
[ $rc = 3 ] || fail "full: exit $rc: $(cat "$WORK/err")"
grep -qE ': No space left on device; [0-9]+ of 11535836 bytes are written, the same command goes on once there is room for [0-9]+ more$' \
	"$WORK/err" || fail "full: $(cat "$WORK/err")"
[ ! -e "$WORK/small/o" ] || fail "full: it is there"
mount -o remount,size=40M "$WORK/small" || fail "remount"
"$UNSHARD" export --json --to tensors "$WORK/n.safetensors" "$WORK/small/o" \
	>"$WORK/out" || fail "with room"
grep -qE '"resumed_nbytes": [1-9][0-9]{5,},' "$WORK/out" || fail "$(cat "$WORK/out")"
grep -q '"rewritten_nbytes": 0,' "$WORK/out" || fail "$(cat "$WORK/out")"
"$UNSHARD" cat "$WORK/n.safetensors" a | cmp - "$WORK/small/o/a" || fail "a"
[ "$(ls -A "$WORK/small/o" | wc -l)" = 1502 ] || fail "not all of it"
[ -z "$(find "$WORK/small" -name '*unshard*')" ] || fail "left behind"
done_ok
