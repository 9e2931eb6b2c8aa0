# SPDX-License-Identifier: Apache-2.0
# -o overlay=: the worker is killed, and what a write was answered for is there
# when it is mounted again, synced or not, closed or not; sums that had not
# followed are made right; a file that was being written anew is as it was.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
. "$(dirname "$0")/../lib/replace.sh"
requires python3 cmp dd

O=$WORK/over
problems() { cat "$MNT/.unshard/problems"; }
gone() { wait_for 10 not mounted || fail "still mounted"; }
killed() {
	kill -9 "$(worker_pid)"
	gone
}

# closed, and not synced: as somebody does it by hand
make_split "$WORK/ckpt" 1500 1000 4
cp "$WORK/whole.w" "$WORK/want"
mount_ckpt "$WORK/ckpt" "overlay=$O"
for at in 0 3 977 1400; do
	printf 'edit%d' $at >"$WORK/edit"
	dd if="$WORK/edit" of="$MNT/tensors/w" bs=1000 seek=$at conv=notrunc \
		status=none || fail "dd at $at"
	dd if="$WORK/edit" of="$WORK/want" bs=1000 seek=$at conv=notrunc \
		status=none
done
killed
"$UNSHARD" cat -o "overlay=$O" "$WORK/ckpt" w | cmp - "$WORK/want" ||
	fail "what was closed is lost"
mount_ckpt "$WORK/ckpt" "overlay=$O"
same "$MNT/tensors/w" "$WORK/want"
problems | grep -q cut && fail "it says: $(problems)"

# neither closed nor synced; a mount that does nothing in between changes nothing
python3 - "$MNT" "$(worker_pid)" "$WORK/want" <<'END' || fail "writes"
import os, random, signal, sys
rnd = random.Random(5)
fd = os.open(sys.argv[1] + "/tensors/w", os.O_WRONLY)
want = os.open(sys.argv[3], os.O_WRONLY)
size = os.fstat(fd).st_size
for i in range(40):
    at, n = rnd.randrange(size), rnd.choice([1, 999, 4096, 70000])
    data = rnd.randbytes(min(n, size - at))
    assert os.pwrite(fd, data, at) == len(data)
    os.pwrite(want, data, at)
os.kill(int(sys.argv[2]), signal.SIGKILL)
END
gone
for _ in 1 2; do
	mount_ckpt "$WORK/ckpt" "overlay=$O"
	same "$MNT/tensors/w" "$WORK/want"
	umount_ckpt
done

# of a file that is written anew nothing is kept before all of it is there
noise "$(stat -c %s "$WORK/whole.w")" 22 >"$WORK/new"
export UNSHARD_PUBLISH_FAULT=2
mount_ckpt "$WORK/ckpt" "overlay=$O,replace"
unset UNSHARD_PUBLISH_FAULT
for f in "$MNT/tensors/w" "$WORK/want"; do
	printf after | dd of="$f" bs=1 seek=5000 conv=notrunc status=none ||
		fail "dd"
done
cp "$WORK/new" "$MNT/tensors/w" 2>/dev/null && fail "it was not killed"
gone
mount_ckpt "$WORK/ckpt" "overlay=$O,replace"
same "$MNT/tensors/w" "$WORK/want"
problems | grep -q 'died within a write.* were cut off' ||
	fail "it does not say: $(problems)"
cp "$WORK/new" "$MNT/tensors/w" || fail cp
killed
"$UNSHARD" cat -o "overlay=$O" "$WORK/ckpt" w | cmp - "$WORK/new" ||
	fail "what was written anew is lost"
"$UNSHARD" cat "$WORK/ckpt" w | cmp - "$WORK/whole.w" || fail "a shard changed"

# sums: they follow at a close, which did not come
cp -r "$here/tests/formats/dcp/2.14-layouts/in" "$WORK/dcp"
mount_ckpt "$WORK/dcp" "overlay=$WORK/dcp.over"
t=$(ls -S "$MNT/tensors" | head -n 1)
tr '\0-\377' '\1-\377\0' <"$MNT/tensors/$t" >"$WORK/want"
python3 - "$MNT/tensors/$t" "$(worker_pid)" "$WORK/want" <<'END' || fail "sums"
import os, signal, sys
data = open(sys.argv[3], "rb").read()
fd = os.open(sys.argv[1], os.O_WRONLY)
assert os.pwrite(fd, data, 0) == len(data)
os.kill(int(sys.argv[2]), signal.SIGKILL)
END
gone
mount_ckpt "$WORK/dcp" "overlay=$WORK/dcp.over"
looked() { problems | grep -q 'its checksums were looked at, and [1-9]'; }
wait_for 10 looked || fail "sums: $(problems)"
same "$MNT/tensors/$t" "$WORK/want"
umount_ckpt
mount_ckpt "$WORK/dcp" "overlay=$WORK/dcp.over"
problems | grep -q 'checksums' && fail "again: $(problems)"
umount_ckpt
expect 0 '' "$UNSHARD" overlay apply "$WORK/dcp" "$WORK/dcp.over" "$WORK/new.dcp"
python3 "$here/tests/mount/lib/sums.py" "$WORK/new.dcp" || fail "sums"
"$UNSHARD" cat "$WORK/new.dcp" "$t" | cmp - "$WORK/want" || fail "applied"
done_ok
