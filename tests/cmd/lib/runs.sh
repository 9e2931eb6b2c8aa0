# SPDX-License-Identifier: Apache-2.0
# Run folders as trainers leave them; $formats is tests/formats.

dcp=$formats/dcp/2.14-fsdp2-adamw/in
ranks=$formats/torch/dtensor-ranks/in
frameworks="hf_trainer hf_deepspeed torchtitan lightning olmo_core composer nemo2 automodel
	megatron verl_fsdp verl_megatron nemo_rl prime_rl torch_checkpointing"

copy() { mkdir -p "$1" && cp -r "$2"/. "$1"; }
make() { # FRAMEWORK STEP FOLDER: one step of it
	case $1 in
	hf_trainer) copy "$3/checkpoint-$2/pytorch_model_fsdp_0" "$dcp"
		copy "$3/checkpoint-$2/optimizer_0" "$dcp"
		echo '{}' >"$3/checkpoint-$2/trainer_state.json" ;;
	hf_deepspeed) copy "$3/checkpoint-$2/global_step$2" "$formats/deepspeed/zero3-five-ranks/in"
		echo '{}' >"$3/checkpoint-$2/trainer_state.json" ;;
	torchtitan) copy "$3/checkpoint/step-$2" "$dcp"
		mkdir -p "$3/tb" "$3/profile_trace"
		echo x >"$3/tb/events.1" ;;
	lightning) copy "$3/lightning_logs/version_0/checkpoints/epoch=$2-step=$2.ckpt" "$dcp" ;;
	olmo_core) copy "$3/step$2/model_and_optim" "$dcp"
		echo '{}' >"$3/step$2/config.json"
		mkdir -p "$3/step$2/train"
		echo x >"$3/step$2/train/rank0.txt" ;;
	composer) copy "$3/ep0-ba$2" "$dcp" ;;
	nemo2) copy "$3/default/checkpoints/model--step=$2/weights" "$dcp"
		mkdir -p "$3/default/checkpoints/model--step=$2/context"
		echo '{}' >"$3/default/checkpoints/model--step=$2/context/config.json" ;;
	automodel) copy "$3/epoch_0_step_$2/model" "$dcp"
		copy "$3/epoch_0_step_$2/optim" "$dcp" ;;
	megatron) copy "$3/iter_00000$2" "$dcp"
		echo "$2" >"$3/latest_checkpointed_iteration.txt" ;;
	verl_fsdp) local at=$3/project/exp/global_step_$2/actor n=0 f k
		mkdir -p "$at/huggingface"
		for f in "$ranks"/*; do
			for k in model optim extra_state; do
				cp "$f" "$at/${k}_world_size_2_rank_$n.pt"
			done
			n=$((n + 1))
		done
		echo '{}' >"$at/huggingface/config.json"
		echo "$2" >"$3/project/exp/latest_checkpointed_iteration.txt" ;;
	verl_megatron) copy "$3/project/exp/global_step_$2/actor/model/dist_ckpt" "$dcp"
		mkdir -p "$3/project/exp/global_step_$2/actor/huggingface"
		echo '{}' >"$3/project/exp/global_step_$2/actor/huggingface/config.json" ;;
	nemo_rl) copy "$3/results/step_$2/policy/weights" "$dcp"
		copy "$3/results/step_$2/policy/optimizer" "$dcp"
		mkdir -p "$3/results/step_$2/policy/tokenizer"
		echo '{}' >"$3/results/step_$2/policy/tokenizer/tokenizer_config.json" ;;
	prime_rl) copy "$3/checkpoints/step_$2/trainer" "$dcp"
		mkdir -p "$3/logs"
		echo x >"$3/logs/rank_0.log" ;;
	torch_checkpointing) copy "$3/checkpoint/step-$2" \
			"$formats/torch_checkpointing/fsdp2/in" ;;
	esac
}

make_mindformers() { # two steps, and strategies beside the folder of them
	mkdir -p mindformers/output/checkpoint mindformers/output/strategy
	cp -r "$formats"/mindspore/2.10-two-steps/in/node? mindformers/output/checkpoint
	cp "$formats"/mindspore/2.10-two-steps/in/strategy_train.ckpt \
		mindformers/output/strategy
}
