# SPDX-License-Identifier: Apache-2.0
# How long a mount takes of what 100 ranks left, in each form that ColossalAI
# has: distributed (29,100 pieces, 12,900 of them copies that are compared), and
# states of an optimizer in 100 shards (9,000 tensors).

. "$TOP/tests/bench/lib/measure.sh"
[ -n "$PYTHON" ] || { echo "needs Python"; exit 77; }

echo "$(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
for kind in dist bin optim async; do
	"$PYTHON" "$TOP/tests/bench/colossalai.py" "$kind" "$PWD/$kind"
	for _ in 1 2 3; do
		"$BENCH_DIR/cost" "$UNSHARD" mount "$PWD/$kind" "$PWD/mnt" \
			>>"$kind.cost"
		"$UNSHARD" umount mnt
	done
	measured ${kind}_mount s $kind.cost "<=1"
	peak ${kind}_parser_peak $kind.cost
done
