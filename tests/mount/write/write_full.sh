# SPDX-License-Identifier: Apache-2.0
# No room for the manifest while tensors are written: the bytes are taken, verify
# and .unshard/problems say so, and the next mount for writing makes it good.
. "$(dirname "$0")/../lib/common.sh"
requires python3 cmp
[ -n "${COMMON_PRIVATE-}" ] || skip "needs root and its own mounts"

mkdir "$WORK/m"
mount -t tmpfs -o size=4m t "$WORK/m" || skip "no tmpfs"
ckpt=$WORK/m/ckpt
python3 "$here/tests/mount/lib/copies.py" "$ckpt" 2 30 30000 2 || fail copies
"$UNSHARD" seal "$ckpt" >/dev/null || fail seal
head -c 900000 /dev/zero | tr '\0' x >"$WORK/new"
mount_ckpt "$ckpt" rw
head -c 1 "$MNT/tensors/w" | dd of="$MNT/tensors/w" conv=notrunc status=none ||
	fail "a first write"
cat /dev/zero >"$WORK/m/fill" 2>/dev/null
dd if="$WORK/new" of="$MNT/tensors/w" bs=1M conv=notrunc,fsync status=none ||
	fail "there is room for the bytes"
grep -q 'the manifest could not follow .*No space left' \
	"$MNT/.unshard/problems" || fail "$(cat "$MNT/.unshard/problems")"
umount_ckpt
"$UNSHARD" verify "$ckpt" >"$WORK/out" 2>&1 && fail "verify is content"
rm "$WORK/m/fill"
mount_ckpt "$ckpt" rw
same "$MNT/tensors/w" "$WORK/new"
umount_ckpt
"$UNSHARD" verify -r "$ckpt" >"$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
grep -q 'as they were sealed' "$WORK/out" || fail "$(cat "$WORK/out")"
umount "$WORK/m"
done_ok
