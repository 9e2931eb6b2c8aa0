# SPDX-License-Identifier: Apache-2.0
# Checkpoints of several folders each, as accelerate and others leave them.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
requires cmp find du

CKPT=$here/tests/demo/checkpoint
T=tensors/model.lm_head.weight
RUN=$WORK/run
save() { # STEP FOLDER...
	local step=$1 f
	mkdir "$RUN/.$step"
	for f in "${@:2}"; do cp -r "$CKPT" "$RUN/.$step/$f"; done
	cp "$here"/tests/formats/torch/views/in/*.pt "$RUN/.$step/scheduler.bin"
	mv "$RUN/.$step" "$RUN/$step"
}
mkdir "$RUN"
save checkpoint-9 pytorch_model_fsdp_0 optimizer_0
save checkpoint-10 model optimizer scheduler
"$UNSHARD" ls "$RUN" >"$WORK/ls" || fail "ls: $(cat "$WORK/ls")"
grep -q '^complete .* checkpoint-10  (latest)  holds model, optimizer, sch' \
	"$WORK/ls" || fail "$(cat "$WORK/ls")"
mount_ckpt "$RUN"
[ "$(ls -A "$MNT" | tr '\n' ' ')" = \
	".unshard checkpoint-10 checkpoint-9 latest " ] || fail "$(ls -A "$MNT")"
[ "$(ls -A "$MNT/checkpoint-9" | tr '\n' ' ')" = \
	"hf optimizer_0 pytorch_model_fsdp_0 scheduler.bin shards " ] ||
	fail "$(ls -A "$MNT/checkpoint-9")"
diff -r "$MNT/checkpoint-9/shards" "$RUN/checkpoint-9" ||
	fail "shards of a folder of several"
[ "$(readlink "$MNT/latest")" = checkpoint-10 ] || fail latest
for d in checkpoint-9/pytorch_model_fsdp_0 checkpoint-9/optimizer_0 \
	latest/model latest/optimizer latest/scheduler; do
	(cd "$MNT/$d/tensors" && sha256sum --quiet -c \
		"$here/tests/demo/expected.sha256") || fail "$d"
done
[ ! -s "$MNT/.unshard/problems" ] || fail "$(cat "$MNT/.unshard/problems")"
stat -c %i "$MNT"/checkpoint-*/* | sort | uniq -d | grep . &&
	fail "one inode for two"
ls -lR "$MNT" >/dev/null || fail "ls -lR"
du -s "$MNT" >/dev/null || fail du
cp -r "$MNT/checkpoint-9" "$WORK/copy" || fail "cp -r"
chmod -R u+w "$WORK/copy"

# Parts come and go.
exec 7<"$MNT/checkpoint-9/optimizer_0/$T"
rm -rf "$RUN/checkpoint-9/optimizer_0"
wait_for 5 test ! -e "$MNT/checkpoint-9/optimizer_0" || fail "still there"
cat <&7 >"$WORK/rest" 2>"$WORK/err" &&
	cmp "$WORK/rest" "$MNT/latest/model/$T" || grep -q Stale "$WORK/err" ||
	fail "an open file: $(cat "$WORK/err")"
exec 7<&-
same "$MNT/checkpoint-9/pytorch_model_fsdp_0/$T" "$MNT/latest/model/$T"
rm "$RUN/checkpoint-10/model/.metadata"
wait_for 5 test "$(readlink "$MNT/latest")" = checkpoint-9 ||
	fail "latest lacks its model: $(readlink "$MNT/latest")"
grep -q 'error: checkpoint-10/model: ' "$MNT/.unshard/problems" ||
	fail "nothing said: $(cat "$MNT/.unshard/problems")"
save checkpoint-11 model
wait_for 5 test -e "$MNT/checkpoint-11/model/$T" || fail "a new one"
umount_ckpt

# hf is that of the only part that has one: not of an actor and a critic, nor where
# a checkpoint is called so.
leads() { [ "$(readlink "$MNT/$1")" = "$2" ]; }
rm -r "$RUN"
mkdir "$RUN"
save global_step_1 actor
save global_step_2 actor optimizer
for step in 1 2; do rm -r "$RUN/global_step_$step/scheduler.bin"; done
mount_ckpt "$RUN"
leads hf global_step_2/hf && leads latest/hf actor/hf &&
	leads global_step_1/hf actor/hf || fail "hf: $(ls -l "$MNT" "$MNT/latest/")"
same "$MNT/hf/model.safetensors" "$MNT/global_step_2/actor/hf/model.safetensors"
cp -r "$CKPT" "$RUN/global_step_2/critic"
gone() { [ ! -e "$MNT/$1" ] && [ ! -L "$MNT/$1" ]; }
wait_for 5 gone latest/hf && gone hf || fail "hf of two: $(ls -l "$MNT/latest/")"
leads global_step_1/hf actor/hf || fail "hf of the other"
rm -r "$RUN/global_step_2/critic"
wait_for 5 leads latest/hf actor/hf && leads hf global_step_2/hf || fail "hf again"
cp -r "$CKPT" "$RUN/global_step_2/hf"
own() { [ -d "$MNT/latest/hf/tensors" ] && [ ! -L "$MNT/latest/hf" ]; }
wait_for 5 own || fail "a part called hf: $(ls -l "$MNT/latest/")"
gone hf || fail "a part called hf is no model's folder: $(ls -l "$MNT")"
umount_ckpt
mount_ckpt "$RUN/global_step_1"
leads hf actor/hf || fail "hf of one step: $(ls -l "$MNT")"
umount_ckpt

# Nor is a part an optimizer by how its name begins, nor a step the latest that is not whole.
rm -r "$RUN"
mkdir "$RUN"
save global_step_1 optimized
cp -r "$CKPT" "$RUN/global_step_1/ema"
mount_ckpt "$RUN"
gone hf && gone latest/hf || fail "hf of two: $(ls -l "$MNT" "$MNT/latest/")"
umount_ckpt
rm -r "$RUN"
mkdir "$RUN"
cp -r "$CKPT" "$RUN/step-1"
rm "$RUN/step-1/__1_0.distcp"
mount_ckpt "$RUN"
gone latest && gone hf || fail "hf of what is not whole: $(ls -l "$MNT")"
umount_ckpt
done_ok
