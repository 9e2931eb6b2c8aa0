#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Mounts that follow each other at once do not end each other: the kernel gives
# a new mount the numbers of the old one.
. "$(dirname "$0")/lib/common.sh"
CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"

for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	mount_ckpt "$CKPT"
	same "$MNT/tensors/a" "$WORK/a.bin"
	umount_ckpt
done
# A lazy end, with a file open, below a new mount.
mount_ckpt "$CKPT"
super=$(supervisor_pid)
exec 5<"$MNT/tensors/a"
"$UNSHARD" umount -l "$MNT" || fail "umount -l"
mount_ckpt "$CKPT"
exec 5<&-
wait_for 10 gone "$super" || fail "the first supervisor stays"
same "$MNT/tensors/a" "$WORK/a.bin"
umount_ckpt

# Ten callers for one place: one gets it, the others are told.
for i in 1 2 3 4 5 6 7 8 9 10; do
	{
		"$UNSHARD" mount "$CKPT" "$MNT" -o "log=$LOG$SAN_OPTS" \
			2>"$WORK/err.$i"
		echo $? >"$WORK/rc.$i"
	} &
done
wait
[ "$(cat "$WORK"/rc.* | sort | uniq -c | tr -s ' \n' ' ')" = ' 1 0 9 3 ' ] ||
	fail "ten at once: $(cat "$WORK"/rc.* "$WORK"/err.*)"
[ "$(grep -l 'expected an empty' "$WORK"/err.* | wc -l)" = 9 ] ||
	fail "ten at once: $(cat "$WORK"/err.*)"
same "$MNT/tensors/a" "$WORK/a.bin"
umount_ckpt
none_left() { [ -z "$(worker_pid)" ]; }
wait_for 5 none_left || fail "workers stay"
[ -z "$(ls -A "$MNT")" ] || fail "something is left in the mount point"
done_ok
