# SPDX-License-Identifier: Apache-2.0
# unshard verify against cat of the same files: from storage, and from memory,
# where both sides only copy.  They take turns; the medians count.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_MIB:=512}" "${BENCH_ROUNDS:=5}"
[ -n "$PYTHON" ] || { echo "needs Python with NumPy"; exit 77; }
mkdir ckpt
"$PYTHON" "$TOP/tests/bench/dcp.py" split ckpt "$BENCH_MIB" 8 >/dev/null
sync
bytes=$(du -sb ckpt | cut -f1)

now() { date +%s%N; }
# GB/s of a command, cold or warm.
rate() {
	local from
	# read a moment ago, as a host's cache may have it
	cat ckpt/.metadata ckpt/* >/dev/null
	[ "$1" = warm ] ||
		for f in ckpt/* ckpt/.metadata; do
			dd of="$f" oflag=nocache conv=notrunc,fdatasync count=0 status=none
		done
	shift
	from=$(now)
	"$@" >/dev/null || exit 1
	awk -v b="$bytes" -v ns=$(($(now) - from)) 'BEGIN { printf "%.3f\n", b / ns }'
}

echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
from=$(now)
"$UNSHARD" seal ckpt || exit 1
echo "result seal $(awk -v b="$bytes" -v ns=$(($(now) - from)) 'BEGIN { printf "%.3f", b / ns }') GB/s"
for kind in cold warm; do
	for _ in $(seq "$BENCH_ROUNDS"); do
		rate $kind cat ckpt/.metadata ckpt/* >>$kind.cat
		rate $kind "$UNSHARD" verify ckpt >>$kind.verify
	done
	measured ${kind}_cat GB/s $kind.cat
	measured ${kind}_verify GB/s $kind.verify
	limit=
	[ $kind = warm ] || limit=">=0.95"
	compared ${kind}_verify_to_cat $kind.verify $kind.cat "$limit"
done
