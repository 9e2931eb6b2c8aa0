# SPDX-License-Identifier: Apache-2.0
# A map of a tensor that is cut along dim 1 over 8 shards, all in memory, against
# a map of a plain copy of it: in order, twice, with each advice; then faults
# of 4 KiB at random by 32 threads.  Both sides take turns; the medians count.

: "${BENCH_MIB:=1024}" "${BENCH_ROUNDS:=5}"
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

column() { # N FILE: the median of that column
	awk -v c="$1" '{ print $c }' "$2" | sort -n |
		awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

# DONTNEED leaves a plain file's pages on their way to disk: it is read again.
for _ in $(seq "$BENCH_ROUNDS"); do
	for how in order sequential populate willneed; do
		"$mapfile" "$how" mnt/tensors/w >>"mount.$how"
	done
	cat plain ckpt/*.distcp >/dev/null
	"$mapfile" order plain >>plain.order
done
first=$(column 2 plain.order)
echo "result plain $first GB/s"
for how in order sequential populate willneed; do
	got=$(column 1 "mount.$how")
	echo "result $how $got GB/s"
	limit=
	[ $how = willneed ] || limit=">=0.25"
	echo "result ${how}_to_plain $(ratio "$got" "$first") ratio $limit"
done
echo "result again_to_plain $(ratio "$(column 2 mount.order)" "$first") ratio >=0.9"
read -r median most longest < <("$mapfile" random 500 32 mnt/tensors/w)
echo "result fault $median us"
echo "result fault_99 $most us <=5000"
echo "result fault_longest $longest us <=1000000"
