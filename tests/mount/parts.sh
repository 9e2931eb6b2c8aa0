# SPDX-License-Identifier: Apache-2.0
# A model, an optimizer and a scheduler that are files of one save of
# ColossalAI: a tree for each, by itself and in each of several steps.
LIMIT=60
. "$(dirname "$0")/lib/common.sh"
requires cmp

IN=$here/tests/formats/colossalai/parts/in
names() { ls "$1" | tr '\n' ' '; }
mount_ckpt "$IN"
[ "$(names "$MNT")" = "lr_scheduler model optimizer " ] || fail "$(names "$MNT")"
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
[ "$(names "$MNT")" = "latest step-1 step-2 " ] || fail "$(names "$MNT")"
for step in step-1 step-2; do
	[ "$(names "$MNT/$step")" = "lr_scheduler model optimizer shards " ] ||
		fail "$step: $(names "$MNT/$step")"
	cmp "$MNT/$step/optimizer/tensors/1.exp_avg" "$WORK/exp_avg" ||
		fail "$step"
done
umount_ckpt

# all in one folder, told by their names; and in each of several steps
F=$here/tests/formats
mkdir -p "$WORK/one" "$WORK/runs/s1" "$WORK/runs/s2"
cp "$F/hf/index-prefix/in/"* "$F/colossalai/optim-async/in/"* \
	"$IN/lr_scheduler" "$WORK/one"
"$UNSHARD" ls "$WORK/one" >"$WORK/ls" || fail "ls: $(cat "$WORK/ls")"
[ "$(grep -c ^complete "$WORK/ls")" = 3 ] || fail "$(cat "$WORK/ls")"
cp "$WORK/one/"* "$WORK/runs/s1"
cp "$WORK/one/"* "$WORK/runs/s2"
for at in one runs; do
	mount_ckpt "$WORK/$at"
	top=$MNT
	[ "$at" = one ] || top=$MNT/latest
	for part in model optimizer; do
		from=colossalai/optim-async
		[ "$part" = optimizer ] || from=hf/index-prefix
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
	[ ! -s "$MNT/.unshard/problems" ] ||
		fail "$(cat "$MNT/.unshard/problems")"
	umount_ckpt
done
mount_ckpt "$WORK/run"
# beside another trainer's files, they are not
cp "$IN/model.bin" "$WORK/run/step-1/random_states_0.pkl"
wait_for 5 test ! -e "$MNT/step-1/optimizer" || fail "$(names "$MNT/step-1")"
umount_ckpt
done_ok
