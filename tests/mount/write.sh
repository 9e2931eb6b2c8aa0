# SPDX-License-Identifier: Apache-2.0
# Writes to tensors go to the shards, in each way of delivery; what does not
# change a tensor's bytes within its size is refused with the right errno.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"
requires python3

make_split "$WORK/ckpt" 600 4097 5
cp "$WORK/whole.w" "$WORK/model.w"

for o in direct=auto direct=off engine=plain; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	python3 "$here/tests/mount/lib/errnos.py" "$MNT" >"$WORK/said" 2>&1 ||
		fail "with -o $o: $(cat "$WORK/said")"
	python3 "$here/tests/mount/lib/random_writes.py" "$MNT/tensors/w" \
		"$WORK/model.w" 300 || fail "random writes with -o $o"
	# dd as people use it
	head -c 100000 /dev/urandom >"$WORK/new"
	dd if="$WORK/new" of="$MNT/tensors/w" bs=4099 seek=7 conv=notrunc \
		status=none || fail dd
	dd if="$WORK/new" of="$WORK/model.w" bs=4099 seek=7 conv=notrunc \
		status=none
	same "$MNT/tensors/w" "$WORK/model.w"
	umount_ckpt
done

# what was written is in the shards, as a mount that cannot write sees them
mount_ckpt "$WORK/ckpt"
same "$MNT/tensors/w" "$WORK/model.w"
same "$MNT/tensors/cut.rows" "$WORK/whole.rows"
python3 - "$MNT/tensors/w" <<'END' || fail "a mount that is not for writing"
import errno, os, sys
try:
    os.open(sys.argv[1], os.O_RDWR)
except OSError as e:
    sys.exit(e.errno != errno.EROFS)
sys.exit(1)
END
done_ok
