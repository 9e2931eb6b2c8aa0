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
done_ok
