#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# unshard mounts: what is mounted where, that it serves, and what is dead
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
make_safetensors "$WORK/one two/model.safetensors"
mkdir "$WORK/b"

mine() { "$UNSHARD" mounts | grep -F " $WORK/"; }
[ -z "$(mine)" ] || fail "before: $(mine)"
expect 0 '' "$UNSHARD" mount "$WORK/one two" "$MNT"
expect 0 '' "$UNSHARD" mount -o overlay="$WORK/edits" "$WORK/one two" "$WORK/b"
pid=$(getfattr --only-values -n user.unshard.pid "$MNT" 2>/dev/null) || pid='[1-9][0-9]*'
mine >"$WORK/out"
[ "$(wc -l <"$WORK/out")" = 2 ] || fail "$(cat "$WORK/out")"
grep -q "^serves   ro  *$pid  $MNT  $WORK/one two\$" "$WORK/out" || fail "$(cat "$WORK/out")"
grep -q "^serves   rw  *[1-9][0-9]*  $WORK/b  $WORK/one two\$" "$WORK/out" ||
	fail "$(cat "$WORK/out")"
"$UNSHARD" mounts --json | "$PYTHON" -c '
import json, sys
m = {m["mount"]: m for m in json.load(sys.stdin)["mounts"]}[sys.argv[1]]
assert (m["source"], m["state"], m["mode"]) == (sys.argv[2], "serves", "ro"), m
assert m["pid"] > 1, m' "$MNT" "$WORK/one two" || fail "--json"
expect 0 '' "$UNSHARD" umount "$MNT"
expect 0 '' "$UNSHARD" umount "$WORK/b"
[ -z "$(mine)" ] || fail "after: $(mine)"
expect 2 'expected no argument, found 1' "$UNSHARD" mounts "$MNT"
done_ok
