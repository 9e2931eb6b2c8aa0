# SPDX-License-Identifier: Apache-2.0
# Files that are kept (-o cache), against a plain copy: a tensor that is cut
# along dim 1 over 8 shards, all in memory, read again by 1 MiB reads; and 8
# processes that load it at once, the first time and the second.  By turns; the
# medians count.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_MIB:=256}" "${BENCH_ROUNDS:=5}" "${BENCH_READERS:=8}"
[ -n "$PYTHON" ] || { echo "needs Python with NumPy"; exit 77; }
readfile=$BENCH_DIR/readfile loaders=$BENCH_DIR/loaders
w=$PWD/mnt/tensors/w

mkdir ckpt kept
"$PYTHON" "$TOP/tests/bench/dcp.py" split ckpt "$BENCH_MIB" 8 >/dev/null
start() { "$UNSHARD" mount "$PWD/ckpt" "$PWD/mnt" -o "cache=$1"; }
stop() { "$UNSHARD" umount mnt; }
trap 'stop 2>/dev/null || true' EXIT
told() { awk -v k="$1" '$1 == k { print $2 }' mnt/.unshard/stats; }
kept() { # reads it whole, and waits until that is kept; pages are at once
	cat "$w" >/dev/null
	[ "$(told cache_filled)" != 0 ] || return 0
	until [ "$(told cache_whole_files)" -ge 1 ]; do sleep 0.1; done
}

start "$PWD/kept"
cp "$w" plain
sync
stop
echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)," \
	"memory in large pages: $(cat /sys/kernel/mm/transparent_hugepage/shmem_enabled)"

again() { # NAME CACHE LIMIT
	start "$2"
	kept
	rm -f plain.gb mount.gb
	for _ in $(seq "$BENCH_ROUNDS"); do
		"$readfile" 1048576 plain >>plain.gb
		"$readfile" 1048576 "$w" >>mount.gb
	done
	echo "passthrough $(told cache_passthrough)"
	measured "$1" GB/s mount.gb
	compared "$1_to_plain" mount.gb plain.gb "$3"
	stop
}
again reread "$PWD/kept" ">=0.95"
again reread_memory "memory:$((2 * BENCH_MIB))M" ""

for how in read map; do
	rm -f plain.s first.s second.s
	for _ in $(seq "$BENCH_ROUNDS"); do
		"$loaders" $how "$BENCH_READERS" plain >>plain.s
		start "$PWD/kept"
		"$loaders" $how "$BENCH_READERS" "$w" >>first.s
		bytes=$(told source_bytes) held=$(told cache_held)
		kept
		"$loaders" $how "$BENCH_READERS" "$w" >>second.s
		stop
	done
	measured loaders_$how s first.s
	compared loaders_${how}_to_plain first.s plain.s "<=1.25"
	compared loaders_${how}_again_to_plain second.s plain.s "<=1.25"
	tell loaders_${how}_shard_bytes "$(ratio "$bytes" $((BENCH_MIB << 20)))" ratio "<=1.05"
	tell loaders_${how}_copies "$(ratio "$held" $((BENCH_MIB << 20)))" ratio "<=1.05"
done

# Who may not have the kernel pass through: root of a namespace of its own.
if [ "$(id -u)" = 0 ] && unshare -rm true 2>/dev/null; then
	export -f again start stop kept told
	export readfile w BENCH_MIB BENCH_ROUNDS
	unshare -rm bash -c '. "$TOP/tests/bench/lib/measure.sh"
		again reread_user "$PWD/kept" ">=0.6"'
fi
