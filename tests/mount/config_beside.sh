# SPDX-License-Identifier: Apache-2.0
# Where trainers leave config.json: in a folder of the checkpoint, beside it or above.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"

write() { # FOLDER: a checkpoint
	mkdir -p "$1"
	"$PYTHON" - "$1/model.safetensors" <<-'PY'
	import json, struct, sys
	head = json.dumps({"model.norm.weight": {
	    "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
	open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + bytes(8))
	PY
}
config='{"architectures": ["LlamaForCausalLM"]}'
shown() { ls "$1" | tr '\n' ' '; }
try() { # FOLDER CONFIG: of checkpoint FOLDER, the config is in CONFIG
	rm -rf "$WORK/run"
	write "$WORK/run/step_7/$1"
	mkdir -p "$WORK/run/step_7/$2"
	echo "$config" >"$WORK/run/step_7/$2/config.json"
	echo '{}' >"$WORK/run/step_7/$2/tokenizer.json"
	mount_ckpt "$WORK/run/step_7/$1"
	[ "$(shown "$MNT/hf")" = "config.json model.safetensors tokenizer.json " ] ||
		fail "$1, with its config in $2: $(shown "$MNT/hf")"
	same "$MNT/hf/config.json" "$WORK/run/step_7/$2/config.json"
	"$UNSHARD" umount "$MNT"
}
try actor actor/huggingface
try weights context
try weights weights/model
try policy/weights policy
try actor/model/dist_ckpt actor/huggingface

# of a run, through its steps
write "$WORK/runs/step_7"
mkdir "$WORK/runs/step_7/huggingface"
echo "$config" >"$WORK/runs/step_7/huggingface/config.json"
mount_ckpt "$WORK/runs"
[ -e "$MNT/step_7/hf/config.json" ] || fail "a step: $(ls "$MNT" "$MNT/step_7")"
"$UNSHARD" umount "$MNT"

# in the folder of a run that keeps its steps in checkpoint/, or parts of each in
# checkpoint-10/, and in no other above
for at in checkpoint/step- checkpoint-10/pytorch_model_fsdp_ others/step-; do
	rm -rf "$WORK/titan"
	write "$WORK/titan/${at}0"
	echo "$config" >"$WORK/titan/config.json"
	mount_ckpt "$WORK/titan/${at}0"
	[ -e "$MNT/hf/config.json" ] && found=check || found=other
	[ $found = ${at:0:5} ] || fail "$at: $(shown "$MNT/hf")"
	"$UNSHARD" umount "$MNT"
done

# what is no model's config is left alone, and so is any where the folder has one
echo '{"other": 1}' >"$WORK/run/step_7/actor/huggingface/config.json"
mount_ckpt "$WORK/run/step_7/actor/model/dist_ckpt"
[ "$(shown "$MNT/hf")" = "model.safetensors " ] || fail "another's: $(shown "$MNT/hf")"
"$UNSHARD" umount "$MNT"
echo '{"architectures": ["Own"]}' >"$WORK/run/step_7/actor/model/dist_ckpt/config.json"
echo "$config" >"$WORK/run/step_7/actor/huggingface/config.json"
mount_ckpt "$WORK/run/step_7/actor/model/dist_ckpt"
grep -q Own "$MNT/hf/config.json" || fail "not its own: $(cat "$MNT/hf/config.json")"
done_ok
