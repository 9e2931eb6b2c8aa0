# SPDX-License-Identifier: Apache-2.0
# A tensor that is cut along dim 1 over 8 shards, overwritten in blocks of 1
# MiB by one writer and by two, against a plain file of its size; the shards
# themselves, and a tensor in a zip with its checksum, for comparison; and what
# FUSE allows: a file that forgets what is written, one that writes it to
# another file, a call a request, and one that writes it to as many files as
# there are shards, in the same rows, a call for each, and does nothing else:
# from their first bytes on ("floor"), and behind a header as the shards have
# one ("floor_at"), where a row is in two pages.  All take turns, synced in
# between; the medians count.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_ROWS:=8192}" "${BENCH_ROUNDS:=5}"
block=1048576
header=331 # bytes of a shard before the tensor
write_file=$BENCH_DIR/writefile

python3 "$TOP/tests/mount/lib/split.py" ckpt whole "$BENCH_ROWS" 32768 8
mv whole.w plain
mkdir zip
cp -r ckpt raw # overwritten from the first byte on
python3 - zip/model.pt "$(stat -c %s plain)" <<'END'
import sys, zipfile
n = int(sys.argv[2])
pkl = (
    b"\x80\x02}q\x00X\x01\x00\x00\x00xq\x01ctorch._utils\n_rebuild_tensor_v2\n"
    b"q\x02((X\x07\x00\x00\x00storageq\x03ctorch\nByteStorage\nq\x04X\x01\x00"
    b"\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06J" + n.to_bytes(4, "little") +
    b"tq\x07QK\x00J" + n.to_bytes(4, "little") +
    b"\x85q\x08K\x01\x85q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cR"
    b"q\x0ds."
)
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("model/data.pkl", pkl)
    with z.open("model/data/0", "w") as f:
        for at in range(0, n, 1 << 24):
            f.write(bytes(min(1 << 24, n - at)))
    z.writestr("model/version", b"3\n")
END
sync
"$UNSHARD" mount "$PWD/ckpt" "$PWD/mnt" -o "rw${BENCH_OPTS:+,$BENCH_OPTS}"
mkdir zmnt
"$UNSHARD" mount "$PWD/zip" "$PWD/zmnt" -o rw
mkdir null pass floor floor_at parts parts_at
cp plain passed
for i in $(seq 8); do
	head -c $(($(stat -c %s plain) / 8)) plain >parts/"$i"
	head -c $(($(stat -c %s plain) / 8 + 4096)) plain >parts_at/"$i"
done
"$BENCH_DIR/nullfs" null "$(stat -c %s plain)" &
"$BENCH_DIR/nullfs" pass "$(stat -c %s plain)" passed &
"$BENCH_DIR/nullfs" floor "$(stat -c %s plain)" cut 0 parts/* &
"$BENCH_DIR/nullfs" floor_at "$(stat -c %s plain)" cut $header parts_at/* &
end_all() {
	"$UNSHARD" umount mnt
	"$UNSHARD" umount zmnt
	umount null
	umount pass
	umount floor
	umount floor_at
	wait
}
trap end_all EXIT
for m in null pass floor floor_at; do
	until mountpoint -q $m; do sleep 0.1; done
done
tensor=$PWD/mnt/tensors/w

echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
grep -E '^(engine|transport|mmap|libfuse|threads_max|sandbox)' mnt/.unshard/stats

try() { # NAME WRITERS FILE...
	sync
	"$write_file" "$2" $block "${@:3}" >>"$1"
}
sync
# as they would be read from storage, in the same kind of pages
for f in plain passed parts/* parts_at/* ckpt/* raw/* zip/*; do
	dd if="$f" of=/dev/null iflag=nocache count=0 status=none
done
cat plain passed parts/* parts_at/* raw/* ckpt/*.safetensors zip/model.pt >/dev/null
for _ in $(seq "$BENCH_ROUNDS"); do
	try plain1 1 plain
	try mount1 1 "$tensor"
	try plain2 2 plain
	try mount2 2 "$tensor"
	try null1 1 null/file
	try null2 2 null/file
	try pass1 1 pass/file
	try pass2 2 pass/file
	try floor1 1 floor/file
	try floor2 2 floor/file
	try floor_at1 1 floor_at/file
	try floor_at2 2 floor_at/file
	try shards 1 raw/*
	try zip1 1 "$PWD/zmnt/tensors/x"
done
"$write_file" 2 $block "$tensor" >/dev/null
measured write_plain GB/s plain1
measured write_plain_two GB/s plain2
measured write_shards GB/s shards
for what in null pass floor floor_at; do
	measured write_$what GB/s ${what}1
	measured write_${what}_two GB/s ${what}2
	compared write_${what}_to_plain ${what}1 plain1
	compared write_${what}_two_to_plain ${what}2 plain2
done
measured write_mount GB/s mount1
measured write_mount_two GB/s mount2
measured write_zip GB/s zip1
compared write_one_to_plain mount1 plain1 ">=0.45"
compared write_two_to_plain mount2 plain2 ">=0.95"
compared write_two_to_floor mount2 floor2
compared write_two_to_floor_at mount2 floor_at2
compared write_one_to_floor_at mount1 floor_at1
compared write_one_to_pass mount1 pass1
END_CHECK=$(python3 - "$tensor" <<'END'
import sys
data = open(sys.argv[1], "rb").read()
half = len(data) // 2
print(data[:half] == b"\1" * half and data[half:] == b"\2" * half)
END
)
[ "$END_CHECK" = True ] || { echo "wrong bytes"; exit 1; }
