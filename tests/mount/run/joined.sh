#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint whose files lie on several nodes' disks: A:B is one.
. "$(dirname "$0")/../lib/common.sh"
requires cmp diff

IN=$here/tests/demo/checkpoint
A=$WORK/a B="$WORK/b:c" WHOLE=$WORK/whole
mkdir "$A" "$B" "$WORK/other"
cp "$IN/.metadata" "$IN"/__0_0.distcp "$IN"/__1_0.distcp "$A"
cp "$IN/.metadata" "$IN"/__2_0.distcp "$IN"/__3_0.distcp "$B"

mount_ckpt "$IN"
cp -r "$MNT/tensors" "$WHOLE"
umount_ckpt

# --- joined by name; a colon in a name is escaped
mount_ckpt "$A:${B/:/\\:}"
diff -r "$MNT/tensors" "$WHOLE" || fail "tensors differ"
[ "$(find "$MNT/shards" -type f | wc -l)" = 5 ] ||
	fail "shards/ has $(ls -A "$MNT/shards")"
same "$MNT/shards/__3_0.distcp" "$IN/__3_0.distcp"
[ ! -s "$MNT/.unshard/problems" ] || fail "$(cat "$MNT/.unshard/problems")"
umount_ckpt

# --- one of the disks is not there: its parts are missing, and named
mount_ckpt "$A:$WORK/other"
grep -q __2_0.distcp "$MNT/.unshard/problems" || fail "no word of __2_0.distcp"
umount_ckpt

# --- the same name with another size
echo >>"$B/.metadata"
"$UNSHARD" mount "$A:${B/:/\\:}" "$MNT" 2>"$WORK/err" && fail "mounted"
grep -q "$A/.metadata has .* bytes, $B/.metadata has" "$WORK/err" ||
	fail "$(cat "$WORK/err")"

# --- the same name and size with other bytes
cp "$IN/.metadata" "$B/.metadata"
printf '\377' | dd of="$B/.metadata" bs=1 seek=100 conv=notrunc status=none
"$UNSHARD" mount "$A:${B/:/\\:}" "$MNT" 2>"$WORK/err" && fail "mounted"
grep -q "$A/.metadata has 0x.. at byte 100, $B/.metadata has 0xff" \
	"$WORK/err" || fail "$(cat "$WORK/err")"

# --- steps: an entry is joined too
mkdir "$WORK/s1" "$WORK/s2"
cp "$IN/.metadata" "$B/.metadata"
mv "$A" "$WORK/s1/step-7"
mv "$B" "$WORK/s2/step-7"
mount_ckpt "$WORK/s1:$WORK/s2"
diff -r "$MNT/latest/tensors" "$WHOLE" || fail "tensors of a step differ"
umount_ckpt

# --- a mount for writing makes a directory that is new, and none of the names of several
cd "$WORK" || fail cd
mount_ckpt s1:s2 rw
diff -r "$MNT/latest/tensors" "$WHOLE" || fail "tensors differ when mounted for writing"
umount_ckpt
"$UNSHARD" mount s1:nowhere "$MNT" -o rw 2>"$WORK/err" && fail "mounted"
grep -q 'nowhere: No such' "$WORK/err" || fail "$(cat "$WORK/err")"
[ -z "$(ls -d s1:*)" ] || fail "made $(ls -d s1:*)"
mount_ckpt at-12:30 rw
umount_ckpt
mount_ckpt 's1\:30' rw
umount_ckpt
rmdir at-12:30 s1:30 || fail "not made, or by another name"
done_ok
