# SPDX-License-Identifier: Apache-2.0
# A map of a tensor that is cut along dim 1 over 8 shards, all in memory, against
# a map of a plain copy of it: in order, twice, with each advice; then faults
# of 4 KiB at random by 32 threads.  Both sides take turns; the medians count.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_MIB:=512}" "${BENCH_ROUNDS:=5}"
[ -n "$PYTHON" ] || { echo "needs Python with NumPy"; exit 77; }
mapfile=$BENCH_DIR/mapfile

mkdir ckpt
"$PYTHON" "$TOP/tests/bench/dcp.py" split ckpt "$BENCH_MIB" 8 >/dev/null
"$UNSHARD" mount "$PWD/ckpt" "$PWD/mnt"
trap '"$UNSHARD" umount mnt' EXIT
cp mnt/tensors/w plain
sync
echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
grep -E '^(transport|mmap|libfuse|read_ahead_kib)' mnt/.unshard/stats

# DONTNEED leaves a plain file's pages on their way to disk: it is read again.
for _ in $(seq "$BENCH_ROUNDS"); do
	for how in order sequential populate willneed; do
		"$mapfile" "$how" mnt/tensors/w >>"mount.$how"
	done
	cat plain ckpt/*.distcp >/dev/null
	"$mapfile" order plain >>plain.order
done
# The second pass through the same map.
cut -d' ' -f2 plain.order >plain.again
cut -d' ' -f2 mount.order >mount.again
measured plain GB/s plain.again
for how in order sequential populate willneed; do
	measured $how GB/s "mount.$how"
	limit=
	[ $how = willneed ] || limit=">=0.25"
	compared ${how}_to_plain "mount.$how" plain.again "$limit"
done
compared again_to_plain mount.again plain.again ">=0.9"
faults=$("$mapfile" random 500 32 mnt/tensors/w) # which has ended, then
read -r median most longest <<<"$faults"
echo "result fault $median us"
echo "result fault_99 $most us <=5000"
echo "result fault_longest $longest us <=1000000"
