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
done_ok
