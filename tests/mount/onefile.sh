#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One file as a checkpoint: itself, by a link, replaced while mounted.
. "$(dirname "$0")/lib/common.sh"
requires cmp

ONE=$WORK/dir/one.safetensors
make_safetensors "$ONE"
echo secret >"$WORK/dir/beside"

mount_ckpt "$ONE"
same "$MNT/tensors/a" "$WORK/a.bin"
[ "$(ls "$MNT/shards")" = one.safetensors ] ||
	fail "shards/ has $(ls "$MNT/shards")"
same "$MNT/shards/one.safetensors" "$ONE"
[ ! -e "$MNT/shards/beside" ] || fail "a neighbour is shown"
umount_ckpt

# --- a link to it; the place may lie beside it
ln -s dir/one.safetensors "$WORK/link"
mkdir "$WORK/dir/mnt"
"$UNSHARD" mount "$WORK/link" "$WORK/dir/mnt" -o "log=$LOG$SAN_OPTS" ||
	fail "mount of a link gave $?"
same "$WORK/dir/mnt/tensors/b.c" "$WORK/b.bin"
"$UNSHARD" umount "$WORK/dir/mnt" || fail "umount"

# --- replaced while mounted: never other bytes, and said by its name
mount_ckpt "$ONE"
cp "$ONE" "$WORK/dir/new"
mv "$WORK/dir/new" "$ONE"
cat "$MNT/tensors/a" >/dev/null 2>"$WORK/err" && fail "read a replaced file"
grep -q 'Stale file handle' "$WORK/err" || fail "not ESTALE: $(cat "$WORK/err")"
grep -q one.safetensors "$MNT/.unshard/problems" ||
	fail "problems: $(cat "$MNT/.unshard/problems")"
umount_ckpt

# What is wrong with it is said with its name once.
make_safetensors "$WORK/alone.safetensors"
mount_ckpt "$WORK/alone.safetensors" direct=on
rm "$WORK/alone.safetensors"
cat "$MNT/tensors/a" >/dev/null 2>&1 && fail "read although it is gone"
grep -q "$WORK/alone.safetensors: No such file" "$MNT/.unshard/problems" ||
	fail "said: $(cat "$MNT/.unshard/problems")"
umount_ckpt
done_ok
