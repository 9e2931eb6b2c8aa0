# SPDX-License-Identifier: Apache-2.0
# A checkpoint that is called "latest" has that name, and no link has it too.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
requires cmp

ALL=$WORK/all
mkdir "$ALL"
for s in step-1 step-2; do
	make_safetensors "$ALL/$s/model.safetensors"
done
make_safetensors "$WORK/own/own.safetensors"
sed -i 's/"b.c"/"own"/' "$WORK/own/own.safetensors"
mount_ckpt "$ALL"
names() { ls "$MNT" | tr '\n' ' '; }
problems() { cat "$MNT/.unshard/problems"; }

[ "$(readlink "$MNT/latest")" = step-2 ] || fail "no link: $(names)"
problems | grep -q latest && fail "said of the link: $(problems)"

mv "$WORK/own" "$ALL/latest"
shown() { [ -d "$MNT/latest" ] && [ ! -L "$MNT/latest" ]; }
wait_for 5 shown || fail "not the folder: $(ls -l "$MNT")"
[ "$(names)" = "hf latest step-1 step-2 " ] || fail "$(names)"
[ -f "$MNT/latest/tensors/own" ] || fail "$(ls "$MNT/latest/tensors")"
same "$MNT/latest/tensors/a" "$WORK/a.bin"
ls -lR "$MNT" >/dev/null || fail "ls -lR"
problems | grep -q '^warning: latest: .*step-2' || fail "$(problems)"
grep -q '"file": "latest"' "$MNT/.unshard/problems.json" || fail json

rm -rf "$ALL/latest"
linked() { [ "$(readlink "$MNT/latest")" = step-2 ]; }
wait_for 5 linked || fail "no link again: $(ls -l "$MNT")"
[ "$(names)" = "hf latest step-1 step-2 " ] || fail "$(names)"
problems | grep -q latest && fail "still said: $(problems)"

# A link in the source is no checkpoint: ours is shown.
ln -s step-1 "$ALL/latest"
linked || fail "a link of the source: $(ls -l "$MNT")"
[ "$(names)" = "hf latest step-1 step-2 " ] || fail "$(names)"
umount_ckpt
done_ok
