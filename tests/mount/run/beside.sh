# SPDX-License-Identifier: Apache-2.0
# A model with DeepSpeed's part of the same save and a trainer's files beside
# it, as transformers' Trainer writes them: the model's views, and a tree for
# each of the others.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
requires cmp

IN=$here/tests/formats/safetensors/trainer-deepspeed/in
OWN="dcp global_step4 hf model.ckpt model.pt model.safetensors npy reshard \
rng_state_0.pth rng_state_1.pth scheduler.pt shards tensors "
names() { ls "$1" | tr '\n' ' '; }
is_all() { # DIR
	[ "$(names "$1")" = "$OWN" ] || fail "$(names "$1")"
	ls -lR "$1" >/dev/null || fail "ls -lR $1"
	[ "$(ls "$1/tensors" | wc -l)" = 21 ] || fail "$(names "$1/tensors")"
	"$UNSHARD" cat "$IN/global_step4" fp32.lm_head.weight >"$WORK/t" ||
		fail "cat"
	cmp "$1/global_step4/tensors/fp32.lm_head.weight" "$WORK/t" ||
		fail "a tensor of DeepSpeed's"
	cmp "$1/global_step4/shards/mp_rank_00_model_states.pt" \
		"$IN/global_step4/mp_rank_00_model_states.pt" || fail shards
	grep -q '"last_epoch"' "$1/scheduler.pt/.unshard/catalog.json" ||
		fail "no scheduler"
	[ -s "$1/rng_state_1.pth/tensors/cpu" ] || fail "no random numbers"
	diff -r "$1/shards" "$IN" || fail "shards/"
	grep -q '^note: .*(global_step4)' "$1/.unshard/problems" ||
		fail "not said: $(cat "$1/.unshard/problems")"
}
mount_ckpt "$IN"
is_all "$MNT"
[ ! -e "$MNT/optimizer.pt" ] || fail "what is not there"
umount_ckpt

# each of several steps; a step is whole without looking into what is beside
mkdir "$WORK/run"
cp -r "$IN" "$WORK/run/checkpoint-2"
cp -r "$IN" "$WORK/run/checkpoint-4"
mount_ckpt "$WORK/run"
[ "$(names "$MNT")" = "checkpoint-2 checkpoint-4 hf latest " ] ||
	fail "$(names "$MNT")"
is_all "$MNT/checkpoint-2"
is_all "$MNT/latest"
umount_ckpt

# saves of before, beside the model that the run ended with
cp "$IN"/*.json "$IN/model.safetensors" "$WORK/run"
mount_ckpt "$WORK/run"
cmp "$MNT/checkpoint-4/global_step4/tensors/fp32.lm_head.weight" "$WORK/t" ||
	fail "two levels down"
[ -s "$MNT/hf/config.json" ] || fail "$(names "$MNT/hf")"
umount_ckpt

# damage is said where it is, and what DeepSpeed's marker names must be there
cut -c -100 <<<"" >"$WORK/run/checkpoint-4/global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt"
mount_ckpt "$WORK/run/checkpoint-4"
grep -q 'error: .*zero_pp_rank_1' "$MNT/global_step4/.unshard/problems" ||
	fail "nothing said: $(cat "$MNT/global_step4/.unshard/problems")"
umount_ckpt
rm -r "$WORK/run/checkpoint-4/global_step4"
"$UNSHARD" inspect "$WORK/run/checkpoint-4" >"$WORK/said" || fail inspect
grep -q 'warning: file latest: names global_step4' "$WORK/said" ||
	fail "$(cat "$WORK/said")"

# accelerate's save_state: what a program registered has a tree too
mount_ckpt "$here/tests/formats/safetensors/accelerate/in"
[ "$(stat -c %s "$MNT/custom_checkpoint_0.pkl/tensors/ema")" = 12 ] &&
	[ "$(stat -c %s "$MNT/optimizer.bin/tensors/state.0.exp_avg")" = 120 ] &&
	[ "$(stat -c %s "$MNT/tensors/a.weight")" = 120 ] ||
	fail "accelerate: $(names "$MNT")"
umount_ckpt

# for writing it is one tree
cp -r "$IN" "$WORK/rw"
mount_ckpt "$WORK/rw" rw
[ ! -e "$MNT/global_step4" ] && [ -s "$MNT/model.safetensors" ] ||
	fail "$(names "$MNT")"
umount_ckpt
done_ok
