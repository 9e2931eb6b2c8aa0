# SPDX-License-Identifier: Apache-2.0
# Ordinary tools on tensors of several shards, in each way of delivery.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"
requires cmp dd tar sha256sum find du cp

make_split "$WORK/ckpt"
W=$WORK/whole.w

# The copies have the folders' modes too, which let nobody write.
no_out() {
	[ ! -e "$WORK/out" ] || chmod -R u+w "$WORK/out"
	rm -rf "$WORK/out"
}

try_all() {
	local t=$MNT/tensors/w n bs
	same "$t" "$W"
	same "$t" "$W" # again, from whatever was cached
	same "$MNT/tensors/cut.rows" "$WORK/whole.rows"
	for bs in 1 7 512 4096 4097 65536 1000000 1048576 1048577 9000000; do
		n=$((bs < 512 ? 3000 : 30))
		dd if="$t" bs=$bs count=$n 2>/dev/null |
			cmp - <(dd if="$W" bs=$bs count=$n 2>/dev/null) ||
			fail "dd bs=$bs"
	done
	dd if="$t" bs=3001 skip=999 2>/dev/null | cmp - <(tail -c 3001 "$W") ||
		fail "dd of the last row"
	dd if="$t" bs=4096 skip=100000 2>/dev/null | cmp - /dev/null ||
		fail "bytes past the end"
	dd if="$t" iflag=direct bs=1M 2>/dev/null | cmp - "$W" ||
		fail "O_DIRECT"
	tail -c 1000 "$t" | cmp - <(tail -c 1000 "$W") || fail "tail"
	cp -f "$t" "$WORK/copy" || fail "cp"
	same "$WORK/copy" "$W"
	cp -f --sparse=always "$t" "$WORK/copy" || fail "cp --sparse"
	same "$WORK/copy" "$W"
	cat "$t" | cmp - "$W" || fail "cat"
	[ "$(sha256sum <"$t")" = "$(sha256sum <"$W")" ] || fail "sha256sum"
	no_out && mkdir "$WORK/out"
	tar -C "$MNT" -cf - tensors | tar -C "$WORK/out" -xf - ||
		fail "tar"
	same "$WORK/out/tensors/w" "$W"
	[ "$(find "$MNT/tensors" -type f | wc -l)" = 2 ] || fail "find"
	[ "$(du -k "$MNT/tensors/w" | cut -f1)" = $(((3001000 + 1023) / 1024)) ] ||
		fail "du: $(du -k "$MNT/tensors/w")"
}

for direct in auto on off; do
	mount_ckpt "$WORK/ckpt" "direct=$direct"
	try_all
	umount_ckpt
done
mount_ckpt "$WORK/ckpt" threads=1,engine=plain
try_all
umount_ckpt
if command -v rsync >/dev/null; then
	mount_ckpt "$WORK/ckpt"
	no_out
	rsync -a "$MNT/tensors/" "$WORK/out/" || fail "rsync"
	same "$WORK/out/w" "$W"
	rsync -a --itemize-changes "$MNT/tensors/" "$WORK/out/" >"$WORK/again" ||
		fail "rsync"
	[ ! -s "$WORK/again" ] || fail "rsync again: $(cat "$WORK/again")"
	umount_ckpt
fi
done_ok
