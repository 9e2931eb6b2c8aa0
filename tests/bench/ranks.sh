# SPDX-License-Identifier: Apache-2.0
# How long it takes to mount 100 ranks of each framework that saves by rank:
# 240 tensors a rank, ten a layer, all small, so that what counts is files and
# pieces and not bytes.  Warm; the median of three mounts.

. "$TOP/tests/bench/lib/measure.sh"
[ -n "$PYTHON" ] || { echo "needs Python"; exit 77; }
: "${BENCH_RANKS:=100}"
now() { date +%s.%N; }

echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
# make KIND: writes the folder, prints the options that its mount needs.
make() {
	if [ "$1" = nnscaler ]; then
		"$PYTHON" "$TOP/tests/formats/make_nnscaler.py" nn plan=10 \
			units=$((BENCH_RANKS / 10)) zero=1 layers=24
		mv nn/ck nnscaler
	else
		"$PYTHON" "$TOP/tests/bench/ranks.py" "$1" "$PWD/$1" \
			"$BENCH_RANKS"
	fi
}

# nnscaler, zero1, zero3 and megatron have their optimizers' states; ColossalAI's
# are whole tensors in shards, which bench/colossalai.sh mounts; OneFlow's have
# two files a tensor, and with states of an optimizer 144,000
for kind in layout mindspore mindspore_optim oneflow colossalai nnscaler zero1 \
	zero3 megatron; do
	opts=$(make $kind)
	for _ in 1 2 3; do
		start=$(now)
		"$UNSHARD" mount ${opts:+-o "$opts"} "$PWD/$kind" "$MNT"
		awk -v a="$start" -v b="$(now)" 'BEGIN { printf "%.3f\n", b - a }'
		[ "$(ls "$MNT/tensors" | wc -l)" -ge 200 ] ||
			{ echo "$kind: no tensors" >&2; exit 1; }
		[ ! -s "$MNT/.unshard/problems" ] ||
			! grep -q '^error' "$MNT/.unshard/problems" ||
			{ head -n 3 "$MNT/.unshard/problems" >&2; exit 1; }
		"$UNSHARD" umount "$MNT"
	done >$kind.times
	echo "$kind: $(find $kind -type f | wc -l) files, $(du -sk --apparent-size $kind | cut -f1) KiB"
	measured "${kind}_${BENCH_RANKS}_ranks_mount" s $kind.times "<=1"
	rm -rf "${kind:?}"
done
