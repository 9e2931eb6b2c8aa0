#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Reading ahead: files read in order have the right bytes, whatever the block,
# and nothing that was fetched early hides a file that changed.
. "$(dirname "$0")/lib/common.sh"
requires cmp dd

SIZE=$((24 << 20))
mkdir "$WORK/c"
head='{"w":{"dtype":"U8","shape":['$SIZE'],"data_offsets":[0,'$SIZE']}}'
head -c "$SIZE" /dev/urandom >"$WORK/w.bin"
{
	printf "\\x$(printf %02x ${#head})\\0\\0\\0\\0\\0\\0\\0%s" "$head"
	cat "$WORK/w.bin"
} >"$WORK/c/model.safetensors"

mount_ckpt "$WORK/c"
w=$MNT/tensors/w
for bs in 4k 128k 200000 1M 3M; do
	dd if="$w" bs=$bs status=none | cmp - "$WORK/w.bin" || fail "bs=$bs"
done

# two readers of one file, and of one descriptor
cmp "$w" "$WORK/w.bin" & cmp "$w" "$WORK/w.bin" || fail "two readers"
wait $! || fail "two readers"
exec 5<"$w"
for i in 0 1 2; do
	dd bs=1M count=8 status=none <&5
done | cmp - "$WORK/w.bin" || fail "one descriptor"
exec 5<&-

# closed while the next block is being fetched
for i in $(seq 100); do
	dd if="$w" bs=1M count=3 status=none >/dev/null || fail "close $i"
done

# a jump, there and back
for skip in 5 4 12 13 14 0 1 2 23; do
	dd if="$w" bs=1M skip=$skip count=2 status=none |
		cmp - <(dd if="$WORK/w.bin" bs=1M skip=$skip count=2 status=none) ||
		fail "skip $skip"
done

# cut while it is read in order: the two blocks that were being fetched at
# most, and no old bytes any more
exec 5<"$w"
dd bs=1M count=4 status=none <&5 >/dev/null || fail "before the cut"
truncate -s $((1 << 20)) "$WORK/c/model.safetensors"
nr=0
while dd bs=1M count=1 status=none <&5 >/dev/null 2>&1; do
	[ $((nr += 1)) -le 2 ] || fail "read what was cut off"
done
exec 5<&-
umount_ckpt
done_ok
