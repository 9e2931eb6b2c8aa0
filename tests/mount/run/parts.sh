# SPDX-License-Identifier: Apache-2.0
# A model, an optimizer and a scheduler that are files of one save of
# ColossalAI: a tree for each, by itself and in each of several steps.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
requires cmp

IN=$here/tests/formats/colossalai/parts/in
names() { ls "$1" | tr '\n' ' '; }
mount_ckpt "$IN"
[ "$(names "$MNT")" = "hf lr_scheduler model optimizer " ] || fail "$(names "$MNT")"
[ -e "$MNT/model/tensors/a.weight" ] || fail "$(names "$MNT/model/tensors")"
[ -e "$MNT/optimizer/tensors/0.exp_avg" ] ||
	fail "$(names "$MNT/optimizer/tensors")"
grep -q '"param_groups.0.lr"' "$MNT/optimizer/.unshard/catalog.json" ||
	fail "no groups"
[ -z "$(names "$MNT/lr_scheduler/tensors")" ] || fail "tensors of a scheduler"
grep -q '"last_epoch"' "$MNT/lr_scheduler/.unshard/catalog.json" ||
	fail "no scheduler"
[ ! -s "$MNT/.unshard/problems" ] || fail "$(cat "$MNT/.unshard/problems")"
cmp "$MNT/optimizer/shards/optimizer.bin" "$IN/optimizer.bin" || fail shards
cp "$MNT/optimizer/tensors/1.exp_avg" "$WORK/exp_avg"
umount_ckpt

# one that is damaged is said of the whole, before anybody looks into it
cp -r "$IN" "$WORK/torn"
: >"$WORK/torn/lr_scheduler"
mount_ckpt "$WORK/torn"
grep -q '^error: lr_scheduler: .* empty' "$MNT/.unshard/problems" ||
	fail "not said: $(cat "$MNT/.unshard/problems")"
umount_ckpt

# and so is one of which all weights are lost
mkdir -p "$WORK/index/model" "$WORK/index/optimizer"
cp "$IN/lr_scheduler" "$WORK/index"
cp "$IN/optimizer.bin" "$WORK/index/optimizer"
echo '{"weight_map": {"w": "model-00001.safetensors"}}' \
	>"$WORK/index/model/model.safetensors.index.json"
mount_ckpt "$WORK/index"
grep -q '^error: model: ' "$MNT/.unshard/problems" ||
	fail "not said: $(cat "$MNT/.unshard/problems")"
umount_ckpt

# an option that none of them has a use for is said when they are mounted
mount_ckpt "$IN" crc=check 2>"$WORK/err"
umount_ckpt
grep -q 'warning: -o crc: none of its checkpoints makes use of it$' \
	"$WORK/err" || fail "in vain: $(cat "$WORK/err")"

# one that has warnings is named
mkdir "$WORK/warns"
cp -r "$here/tests/formats/megatron/bad-optim-copied/in" \
	"$WORK/warns/iter_0000001"
mount_ckpt "$WORK/warns"
grep -q '^warning: iter_0000001: it has warnings' "$MNT/.unshard/problems" ||
	fail "not said: $(cat "$MNT/.unshard/problems")"
umount_ckpt

mkdir -p "$WORK/run/step-1" "$WORK/run/step-2/model"
cp "$IN"/* "$WORK/run/step-1"
cp "$IN/model.bin" "$WORK/run/step-2/model"
cp "$IN/optimizer.bin" "$IN/lr_scheduler" "$WORK/run/step-2"
mount_ckpt "$WORK/run"
[ "$(names "$MNT")" = "hf latest step-1 step-2 " ] || fail "$(names "$MNT")"
for step in step-1 step-2; do
	[ "$(names "$MNT/$step")" = "hf lr_scheduler model optimizer shards " ] ||
		fail "$step: $(names "$MNT/$step")"
	cmp "$MNT/$step/optimizer/tensors/1.exp_avg" "$WORK/exp_avg" ||
		fail "$step"
done
umount_ckpt

# in each other's place; an optimizer of another run beside a model of which the
# last stage is lost; and so in one of several steps, which is not the latest
mkdir -p "$WORK/swapped" "$WORK/lost"
cp "$IN/model.bin" "$WORK/swapped/optimizer.bin"
cp "$IN/optimizer.bin" "$WORK/swapped/model.bin"
cp "$IN/lr_scheduler" "$WORK/swapped"
cp -r "$here/tests/formats/colossalai/bad-dist-missing-stage/in" \
	"$WORK/lost/model"
cp "$IN/optimizer.bin" "$IN/lr_scheduler" "$WORK/lost"
mount_ckpt "$WORK/swapped"
[ "$(cat "$MNT/.unshard/problems")" = "\
error: optimizer: it holds no states of an optimizer: it is in the place of another
error: model: it holds the states of an optimizer: it is in the place of another" ] ||
	fail "swapped: $(cat "$MNT/.unshard/problems")"
umount_ckpt
mount_ckpt "$WORK/lost"
grep -q '^error: model: it has .* and the optimizer states of ' \
	"$MNT/.unshard/problems" || fail "lost: $(cat "$MNT/.unshard/problems")"
umount_ckpt
cp -r "$WORK/lost" "$WORK/run/step-3"
mount_ckpt "$WORK/run"
[ "$(readlink "$MNT/latest")" = step-2 ] ||
	fail "latest is $(readlink "$MNT/latest")"
grep -q '^error: step-3/model: it has .*a stage of the model is missing' \
	"$MNT/.unshard/problems" || fail "$(cat "$MNT/.unshard/problems")"
grep -q '^error: step-[12]' "$MNT/.unshard/problems" && fail "of the others"
# it fits once the optimizer is another
grep '^error: step-3' "$MNT/.unshard/problems" | grep -q step-3/optimizer &&
	fail "the optimizer"
rm -r "$WORK/run/step-3/model"
cp "$IN/model.bin" "$WORK/run/step-3"
fits() { [ "$(readlink "$MNT/latest")" = step-3 ]; }
wait_for 10 fits || fail "latest stays $(readlink "$MNT/latest")"
grep -q '^error' "$MNT/.unshard/problems" &&
	fail "stays: $(cat "$MNT/.unshard/problems")"
umount_ckpt
rm -r "$WORK/run/step-3"

# all in one folder, told by their names; and in each of several steps
F=$here/tests/formats
for at in hf/index-prefix runs/s1 runs/s2; do
	mkdir -p "$WORK/$at"
	cp "$F/colossalai/optim-async/in/"* "$IN/lr_scheduler" "$WORK/$at"
done
cp "$F/hf/index-prefix/in/"* "$WORK/hf/index-prefix"
cp "$F/torch/index-prefix/in/"* "$WORK/runs/s1"
cp "$F/torch/index-prefix/in/"* "$WORK/runs/s2"
"$UNSHARD" ls "$WORK/runs/s1" >"$WORK/ls" || fail "ls: $(cat "$WORK/ls")"
[ "$(grep -c ^complete "$WORK/ls")" = 3 ] || fail "$(cat "$WORK/ls")"
for at in hf/index-prefix runs; do
	mount_ckpt "$WORK/$at"
	top=$MNT model=$at
	[ "$at" != runs ] || { top=$MNT/latest model=torch/index-prefix; }
	for part in model optimizer; do
		from=colossalai/optim-async
		[ "$part" = optimizer ] || from=$model
		for name in $(ls "$top/$part/tensors"); do
			"$UNSHARD" cat "$F/$from/in" "$name" >"$WORK/t" ||
				fail "cat $name"
			cmp "$top/$part/tensors/$name" "$WORK/t" || fail "$name"
		done
		[ -n "$name" ] || fail "no tensors in $part"
		diff -r "$top/$part/shards" "$F/$from/in" || fail "shards/"
	done
	grep -q '"last_epoch"' "$top/lr_scheduler/.unshard/catalog.json" ||
		fail "no scheduler in $at"
	# the optimizer is that of the other
	[ "$(cut -c -23 "$MNT/.unshard/problems")" = \
		"$([ "$at" = runs ] || echo 'error: model: it has no')" ] ||
		fail "$(cat "$MNT/.unshard/problems")"
	umount_ckpt
done
mount_ckpt "$WORK/run"
# beside another trainer's files, they are not
cp "$IN/model.bin" "$WORK/run/step-1/random_states_0.pkl"
wait_for 5 test ! -e "$MNT/step-1/optimizer" || fail "$(names "$MNT/step-1")"
umount_ckpt
done_ok
