# SPDX-License-Identifier: Apache-2.0
# A tensor of BENCH_MIB MiB that is cut along dim 1 over 8 shards, read whole in blocks
# of 1 MiB: warm against a FUSE file that answers nothing, cold against the
# shards themselves.  Both sides take turns; the medians count.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_MIB:=1024}" "${BENCH_ROUNDS:=5}"
requires_python() { [ -n "$PYTHON" ] || { echo "needs Python with NumPy"; exit 77; }; }
requires_python
block=1048576
read_file=$BENCH_DIR/readfile

mkdir ckpt null
"$PYTHON" "$TOP/tests/bench/dcp.py" split ckpt "$BENCH_MIB" 8 >/dev/null
sync
"$UNSHARD" mount "$PWD/ckpt" "$PWD/mnt"
tensor=$PWD/mnt/tensors/w
size=$(stat -c %s "$tensor")
"$BENCH_DIR/nullfs" null "$size" &
server=$!
for _ in $(seq 50); do mountpoint -q null && break; sleep 0.1; done
trap 'umount null; "$UNSHARD" umount mnt; wait $server' EXIT

echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
grep -E '^(engine|transport|mmap|libfuse|threads_max|sandbox)' mnt/.unshard/stats

# Element i is i: right before fast.
"$PYTHON" - "$tensor" <<'END'
import sys, numpy
t = numpy.memmap(sys.argv[1], "<u4", "r")
for at in range(0, len(t), 1 << 24):
    part = t[at : at + (1 << 24)]
    assert numpy.array_equal(part, numpy.arange(at, at + len(part), dtype=numpy.uint64).astype("<u4")), at
END

# The worker: what gigabytes more add to it.
for p in /proc/[0-9]*; do
	[ "$(cat "$p/comm" 2>/dev/null)" != unshard-worker ] ||
		! tr '\0' ' ' <"$p/cmdline" | grep -qF "$PWD/mnt" || worker=$p
done
resident() { awk '/^VmRSS/ { print $2 }' "$worker/status"; }
before=$(resident)

cat ckpt/*.distcp >/dev/null
for _ in $(seq "$BENCH_ROUNDS"); do
	"$read_file" $block null/file >>warm.null
	"$read_file" $block "$tensor" >>warm.mount
	"$read_file" $block ckpt/*.distcp >>warm.shards
done
for what in null shards mount; do
	measured warm_$what GB/s warm.$what
done
compared warm_mount_to_null warm.mount warm.null ">=0.6"
echo "result worker_resident $(resident) KiB"
# two blocks ahead of 1 MiB each, a ring, and what malloc keeps for its threads
echo "result worker_resident_growth $(($(resident) - before)) KiB <=6144"
# Single blocks of 4 KiB at random: what one request takes.
for _ in $(seq "$BENCH_ROUNDS"); do
	"$read_file" -r 20000 4096 null/file | cut -d' ' -f1 >>small.null
	"$read_file" -r 20000 4096 "$tensor" | cut -d' ' -f1 >>small.mount
	"$read_file" -r 20000 4096 mnt/shards/__0_0.distcp | cut -d' ' -f1 >>small.shard
done
measured small_null us small.null
measured small_mount us small.mount "<=20"
measured small_shard us small.shard
# Other users are asked for, at each open.
if [ "$(id -u)" = 0 ]; then
	mkdir asked
	"$UNSHARD" mount "$PWD/ckpt" "$PWD/asked" -o allow_other
	for _ in $(seq 9); do
		"$BENCH_DIR/openfile" "$tensor" 1000 0 >>open.alone
		"$BENCH_DIR/openfile" asked/tensors/w 1000 0 >>open.root
		"$BENCH_DIR/openfile" asked/tensors/w 1000 1001 >>open.user
	done
	"$UNSHARD" umount asked
	paste open.alone open.user | awk '{ print $2 - $1 }' >open.asked
	measured open us open.alone
	measured open_allow_other us open.root
	measured open_allow_other_user us open.user
	measured open_asked us open.asked "<=50"
fi
echo "result warm_mmap $("$read_file" -m $block "$tensor") GB/s"

forget=
for f in ckpt/*.distcp; do forget="$forget -f $f"; done
for _ in $(seq "$BENCH_ROUNDS"); do
	"$read_file" -c $block ckpt/*.distcp >>cold.shards
	"$read_file" -c $forget $block "$tensor" >>cold.mount
done
measured cold_shards GB/s cold.shards
measured cold_mount GB/s cold.mount
compared cold_mount_to_shards cold.mount cold.shards ">=0.9"
