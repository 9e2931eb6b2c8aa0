# SPDX-License-Identifier: Apache-2.0
# Checkpoints that unshard-layout.json describes: mounted, each byte, and as
# one of many.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cmp find
"$PYTHON" "$here/tests/cmd/lib/layouts.py" "$WORK/cases" || fail "no cases"

# Every tensor of the mount $1 is the one of $2, and there is no other.
whole() {
	local t
	[ "$(ls "$1/tensors" | wc -l)" = "$(find "$2" -type f | wc -l)" ] ||
		fail "$2: $(ls "$1/tensors")"
	for t in "$2"/*; do same "$1/tensors/$(basename "$t")" "$t"; done
	cat "$1"/npy/* "$1/model.safetensors" "$1/model.pt" >/dev/null ||
		fail "$2: views"
	find "$1" >/dev/null || fail "$2: find"
}

nr=0
mkdir "$WORK/all"
for c in "$WORK"/cases/*; do
	nr=$((nr + 1))
	cp -r "$c/ckpt" "$WORK/all/run-$nr"
	cp "$c/layout.json" "$WORK/all/run-$nr/unshard-layout.json"
	[ $((nr % 4)) = 1 ] || continue # all of them are below
	mount_ckpt "$c/ckpt" "layout=$c/layout.json"
	whole "$MNT" "$c/want"
	umount_ckpt
done
[ $nr -ge 20 ] || fail "only $nr cases"

mount_ckpt "$WORK/all"
nr=0
for c in "$WORK"/cases/*; do
	nr=$((nr + 1))
	whole "$MNT/run-$nr" "$c/want"
done
[ "$(readlink "$MNT/latest")" = run-$nr ] || fail latest

# One that another takes the place of, and one that does not fit any more.
cp "$WORK/all/run-1/unshard-layout.json" "$WORK/layout.json"
echo '{"version": 1}' >"$WORK/all/run-1/.new"
mv "$WORK/all/run-1/.new" "$WORK/all/run-1/unshard-layout.json"
gone() { ! ls "$MNT/run-1/tensors" >/dev/null 2>&1; }
wait_for 5 gone || fail "a layout that is none is still used"
grep -q 'run-1: .*unshard-layout.json' "$MNT/.unshard/problems" ||
	fail "nothing said: $(cat "$MNT/.unshard/problems")"
mv "$WORK/layout.json" "$WORK/all/run-1/unshard-layout.json"
again() { ls "$MNT/run-1/tensors" >/dev/null 2>&1; }
wait_for 5 again || fail "the layout is back: $(ls "$MNT/run-1")"
set -- "$WORK"/cases/*
whole "$MNT/run-1" "$1/want"
umount_ckpt
done_ok
