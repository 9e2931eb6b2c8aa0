# SPDX-License-Identifier: Apache-2.0
# Run folders as trainers leave them, from the run's root: every step is found, is
# complete, and the last is the latest; without a part of it, it is neither.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
formats=$(cd "$(dirname "$0")/../formats" && pwd)
cd "$WORK" || exit 1
. "$(dirname "$0")/lib/runs.sh"

for framework in $frameworks; do
	make $framework 10 $framework
	make $framework 20 $framework
	"$UNSHARD" ls $framework >out 2>err ||
		fail "$framework: $(cat out err)"
	[ "$(grep -c '^complete  *[0-9]* ' out)" = 2 ] && [ "$(wc -l <out)" = 2 ] ||
		fail "$framework: expected two steps: $(cat out)"
	grep -q '20.*(latest)' out || fail "$framework: the latest: $(cat out)"
done

# strategies lie beside the folder of checkpoints
make_mindformers
expect 0 '' "$UNSHARD" ls mindformers/output/checkpoint
[ "$(grep -c '^complete ' "$WORK/out")" = 2 ] && grep -q latest "$WORK/out" ||
	fail "mindformers: $(cat "$WORK/out")"

# a step of which a file is missing is not complete, nor the latest
rm "$(find torchtitan/checkpoint/step-20 -name '*.distcp' | head -n 1)"
rm verl_fsdp/project/exp/global_step_20/actor/optim_world_size_2_rank_1.pt
rm "$(find nemo_rl/results/step_20/policy/weights -name '*.distcp' | head -n 1)"
rm torch_checkpointing/checkpoint/step-20/optimizer_1.pt
for framework in torchtitan verl_fsdp nemo_rl torch_checkpointing; do
	expect 1 'incomplete: 1 of its 2 checkpoints' "$UNSHARD" ls $framework
	grep -q '10.*(latest)' "$WORK/out" && grep -q '^incomplete .*20' "$WORK/out" ||
		fail "$framework: $(cat "$WORK/out")"
done
rm verl_fsdp/project/exp/global_step_10/actor/model_world_size_2_rank_1.pt
expect 1 'incomplete: 2 of its 2 checkpoints' "$UNSHARD" ls verl_fsdp
if grep -q latest "$WORK/out"; then fail "a latest: $(cat "$WORK/out")"; fi
done_ok
