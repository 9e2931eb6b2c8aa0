#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ls: a line a tensor, hostile names, JSON, and the exit code of what is torn
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
CKPT=$TOP/tests/demo/checkpoint

expect 0 '' "$UNSHARD" ls "$CKPT"
grep -qE '^float32 +\[149, 18\] +10728 +ok +model.lm_head.weight$' \
	"$WORK/out" || fail "no lm_head: $(head -n 2 "$WORK/out")"
[ "$(wc -l <"$WORK/out")" = "$(wc -l <"$TOP/tests/demo/expected.sha256")" ] ||
	fail "other number of tensors"

expect 0 '' "$UNSHARD" ls --json "$CKPT"
"$PYTHON" - "$WORK/out" <<-'EOS' || fail "JSON"
	import json, sys
	d = json.load(open(sys.argv[1]))
	t = {t["name"]: t for t in d["tensors"]}["model.lm_head.weight"]
	assert t == {"name": "model.lm_head.weight",
	             "file": "model.lm_head.weight", "dtype": "float32",
	             "shape": [149, 18], "nbytes": 10728, "state": "ok"}, t
EOS

# What a terminal would obey is shown, not sent.
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" "$WORK/m.safetensors" \
	$'red\x1b[31m' U8 4 $'two\nlines' BF16 2,2 s I64 ''
expect 0 '' "$UNSHARD" ls "$WORK/m.safetensors"
grep -qF 'red\x1b[31m' "$WORK/out" || fail "escape: $(cat -v "$WORK/out")"
grep -qF 'two\x0alines' "$WORK/out" || fail "newline: $(cat -v "$WORK/out")"
grep -qE '^int64 +\[\] +8 +ok +s$' "$WORK/out" || fail "scalar"

# Torn and missing: all is listed, then one line and 1.
cp -r "$CKPT" "$WORK/torn"
truncate -s -2000 "$WORK/torn/__3_0.distcp"
expect 1 'incomplete: [0-9]+ torn' "$UNSHARD" ls "$WORK/torn"
grep -qE ' torn +model' "$WORK/out" || fail "nothing torn is listed"
grep -qE ' ok +model' "$WORK/out" || fail "nothing whole is listed"
rm "$WORK/torn/__3_0.distcp"
expect 1 'incomplete: ' "$UNSHARD" ls "$WORK/torn"
expect 1 'incomplete: ' "$UNSHARD" ls --json "$WORK/torn"
"$PYTHON" -m json.tool "$WORK/out" >/dev/null || fail "JSON of what is torn"

# A trainer's file beside the weights, and a part of a save by itself.
T=$(echo "$TOP"/tests/formats/torch/views/in/*.pt)
mkdir "$WORK/beside" "$WORK/alone" "$WORK/alone/model" "$WORK/alone/optimizer"
cp "$TOP/tests/formats/safetensors/aside-damaged/in/model.safetensors" "$WORK/beside"
echo '{}' >"$WORK/beside/config.json"
for name in optimizer.bin scheduler.pt rng_state_0.pth random_states_0.pkl; do
	cp "$T" "$WORK/beside/$name"
	expect 0 '' "$UNSHARD" ls "$WORK/beside"
	truncate -s -30 "$WORK/beside/$name"
	expect 1 'incomplete: 1 error' "$UNSHARD" ls "$WORK/beside"
	: >"$WORK/beside/$name"
	expect 1 'incomplete: 1 error' "$UNSHARD" inspect "$WORK/beside"
	grep -q "error: file $name: torn" "$WORK/out" || fail "$name is not said"
	rm "$WORK/beside/$name"
done
cp "$T" "$WORK/alone/model/a.pt"
cp "$T" "$WORK/alone/optimizer/a.pt"
expect 0 '' "$UNSHARD" ls "$WORK/alone"
grep -q latest "$WORK/out" && fail "an optimizer is the newest"
truncate -s -30 "$WORK/alone/optimizer/a.pt"
expect 1 'incomplete: 1 of its 2 parts' "$UNSHARD" ls "$WORK/alone"

# Several runs are a line each, and what lists their checkpoints is named; the parts of
# one checkpoint are no run.
for run in a b; do
	mkdir -p "$WORK/runs/$run"
	cp -r "$CKPT" "$WORK/runs/$run/step-1"
done
expect 0 '' "$UNSHARD" ls "$WORK/runs/a"
[ ! -s "$WORK/err" ] || fail "of one run: $(cat "$WORK/err")"
expect 0 '' "$UNSHARD" ls "$WORK/runs"
grep -q "runs: 2 runs .unshard find lists the checkpoints of each" "$WORK/err" ||
	fail "of two runs: $(cat "$WORK/err")"
for step in 1 2; do
	mkdir -p "$WORK/one/global_step_$step" "$WORK/one/checkpoint-$step"
	cp -r "$CKPT" "$WORK/one/global_step_$step/actor"
	cp -r "$CKPT" "$WORK/one/global_step_$step/critic"
	cp -r "$CKPT" "$WORK/one/checkpoint-$step/pytorch_model_fsdp_0"
done
expect 0 '' "$UNSHARD" ls "$WORK/one"
[ ! -s "$WORK/err" ] || fail "of checkpoints of parts: $(cat "$WORK/err")"

# Counts say what there is, in words that agree.
mkdir "$WORK/few" && cp -r "$WORK/beside" "$WORK/few/step-1"
: >"$WORK/few/step-1/rng_state_0.pth"
expect 1 'few: incomplete: its only checkpoint$' "$UNSHARD" ls "$WORK/few"
grep -qE '^incomplete .* step-1  1 error$' "$WORK/out" || fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" find "$WORK/few"
grep -qE '^incomplete .*/step-1  1 error$' "$WORK/out" || fail "$(cat "$WORK/out")"

# A part of which the index alone is left is still a part.
cp "$T" "$WORK/alone/optimizer/a.pt"
for kind in model.safetensors pytorch_model.bin; do
	rm "$WORK/alone/model/"*
	echo '{"weight_map": {"w": "model-00001"}}' \
		>"$WORK/alone/model/$kind.index.json"
	expect 1 'incomplete: 1 of its 2 parts' "$UNSHARD" ls "$WORK/alone"
	grep -q '^incomplete .* model ' "$WORK/out" ||
		fail "$kind: $(cat "$WORK/out")"
done

# Parts that are files of one save: each fits the other, or it is said.
P=$TOP/tests/formats/colossalai
mkdir "$WORK/pair" "$WORK/pairs"
cp "$P"/parts/in/* "$WORK/pair"
expect 0 '' "$UNSHARD" ls "$WORK/pair"
cp "$P/parts/in/model.bin" "$WORK/pair/optimizer.bin"
expect 1 'incomplete: 1 of its 3 parts' "$UNSHARD" ls "$WORK/pair"
grep -q '^incomplete .* optimizer  it holds no states of an optimizer' \
	"$WORK/out" || fail "$(cat "$WORK/out")"
cp "$P/parts/in/optimizer.bin" "$WORK/pair/optimizer.bin"
cp "$P/parts/in/optimizer.bin" "$WORK/pair/model.bin"
expect 1 'incomplete: 1 of its 3 parts' "$UNSHARD" ls "$WORK/pair"
grep -q '^incomplete .* model  it holds the states of an optimizer' \
	"$WORK/out" || fail "$(cat "$WORK/out")"
rm "$WORK/pair/model.bin"
cp -r "$P/bad-dist-missing-stage/in" "$WORK/pair/model"
expect 1 'incomplete: 1 of its 3 parts' "$UNSHARD" ls "$WORK/pair"
grep -q '^incomplete .* model  it has .* a stage of the model is missing' \
	"$WORK/out" || fail "$(cat "$WORK/out")"
cp -r "$WORK/pair" "$WORK/pairs/step-2"
mkdir "$WORK/pairs/step-1"
cp "$P"/parts/in/* "$WORK/pairs/step-1"
expect 1 'incomplete: 1 of its 2 checkpoints' "$UNSHARD" ls "$WORK/pairs"
grep -q '^complete .* step-1  (latest)' "$WORK/out" || fail "$(cat "$WORK/out")"
grep -q '^incomplete .* step-2  holds .*; model: it has ' "$WORK/out" ||
	fail "$(cat "$WORK/out")"

# A directory of checkpoints is as good as the worst of them.
S=$WORK/steps
mkdir "$S" "$S/step-1" "$S/step-2"
cp "$T" "$S/step-1/a.pt"
cp "$T" "$S/step-2/a.pt"
expect 0 '' "$UNSHARD" ls "$S"
truncate -s -30 "$S/step-2/a.pt"
for c in ls inspect "ls --json"; do
	expect 1 'incomplete: 1 of its 2 checkpoints' "$UNSHARD" $c "$S"
	grep -q 'step-1' "$WORK/out" || fail "$c: $(cat "$WORK/out")"
done

# Where one is wanted, the only one is meant, and none of several.
for c in verify "verify --replicas" seal "layout show" plan export; do
	set -- $c
	case $1 in
	export) set -- export "$S" "$WORK/export" ;;
	plan) set -- plan "$S" any ;;
	*) set -- "$@" "$S" ;;
	esac
	expect 1 'holds 2 checkpoints .step-1, step-2.: name one' "$UNSHARD" "$@"
done
mv "$S/step-2" "$WORK/apart"
expect 0 '' "$UNSHARD" verify "$S"
# a layout's files are named from the directory that was given
expect 1 'holds 1 checkpoint .step-1.: name it' "$UNSHARD" layout show "$S"
expect 0 '' "$UNSHARD" diff "$S" "$S/step-1"
expect 0 '' "$UNSHARD" export "$S" "$WORK/export"
[ -s "$WORK/export" ] || fail "$(ls "$WORK")"
expect 0 '' "$UNSHARD" seal "$S"
[ -e "$S/step-1/.unshard-manifest" ] && [ ! -e "$S/.unshard-manifest" ] ||
	fail "sealed elsewhere: $(ls -A "$S")"
expect 0 '' "$UNSHARD" verify "$S"
grep -q 'not sealed' "$WORK/out" && fail "$(cat "$WORK/out")"
mkdir "$WORK/run"
mv "$S" "$WORK/run/checkpoints"
expect 0 '' "$UNSHARD" verify "$WORK/run"
grep -q 'not sealed' "$WORK/out" && fail "$(cat "$WORK/out")"

# DeepSpeed's marker of a folder that is gone
echo step-1 >"$WORK/run/checkpoints/latest"
"$UNSHARD" ls "$WORK/run/checkpoints" >"$WORK/out" 2>"$WORK/err" ||
	fail "$(cat "$WORK/err")"
[ -s "$WORK/err" ] && fail "a right marker: $(cat "$WORK/err")"
echo step-7 >"$WORK/run/checkpoints/latest"
for cmd in ls inspect; do
	"$UNSHARD" $cmd "$WORK/run/checkpoints" >"$WORK/out" 2>"$WORK/err" ||
		fail "$(cat "$WORK/err")"
	grep -q 'warning: .*"step-7", the latest is step-1' "$WORK/err" ||
		fail "a marker of nothing, $cmd: $(cat "$WORK/err")"
done

# Warnings of one are told of the directory, and its JSON counts them.
mkdir "$WORK/warns"
cp -r "$TOP/tests/formats/megatron/bad-optim-copied/in" "$WORK/warns/iter_0000001"
"$UNSHARD" ls "$WORK/warns" >"$WORK/out" 2>"$WORK/err" ||
	fail "$(cat "$WORK/err")"
grep -q 'warning: 1 warning in iter_0000001 ' "$WORK/err" ||
	fail "warnings are lost: $(cat "$WORK/err")"
"$UNSHARD" ls --json "$WORK/warns" 2>/dev/null | grep -q '"warnings": 1' ||
	fail "warnings are lost in JSON"

# Megatron's older name of a rank's file; other names are refused as slices.
S=$TOP/tests/formats/megatron/experts-tp2-pp2-ep2/in
mkdir "$WORK/mg" "$WORK/mg/iter_0000001"
cp -r "$S/." "$WORK/mg/iter_0000001"
chmod -R u+w "$WORK/mg"
for dir in "$WORK/mg/iter_0000001"/mp_*; do
	mv "$dir/model_optim_rng.pt" "$dir/model_rng.pt"
done
for dir in "$S" "$WORK/mg/iter_0000001"; do
	"$UNSHARD" ls "$dir" >"$WORK/ls.${dir##*/}" || fail "$dir"
done
same "$WORK/ls.in" "$WORK/ls.iter_0000001"
for dir in "$WORK/mg/iter_0000001"/mp_*; do
	mv "$dir/model_rng.pt" "$dir/mine.pt"
done
expect 1 'incomplete: its only checkpoint' "$UNSHARD" ls "$WORK/mg"
for dir in "$WORK/mg/iter_0000001"/mp_*; do
	mv "$dir/mine.pt" "$dir.pt" && rmdir "$dir"
done
expect 1 'incomplete: ' "$UNSHARD" ls "$WORK/mg/iter_0000001"
grep -q ^complete "$WORK/out" && fail "slices: $(cat "$WORK/out")"

# nnScaler's and DeepSpeed's under names that are not theirs
mkdir "$WORK/nn" "$WORK/ds"
for f in "$TOP"/tests/formats/nnscaler/tp2-dp2/in/?.ckpt; do
	n=${f##*/}
	cp "$f" "$WORK/nn/model-${n%.ckpt}-of-4.ckpt"
done
expect 1 'incomplete: 4 of its 4 checkpoints' "$UNSHARD" ls "$WORK/nn"
grep -q ^complete "$WORK/out" && fail "slices: $(cat "$WORK/out")"
"$UNSHARD" ls "$WORK/nn/model-0-of-4.ckpt" 2>"$WORK/err" >/dev/null ||
	fail "a file that was asked for: $(cat "$WORK/err")"
grep -q "warning: .*one rank's of nnScaler" "$WORK/err" ||
	fail "not said: $(cat "$WORK/err")"
i=0
for f in "$TOP"/tests/formats/deepspeed/zero2-3ranks/in/*optim_states.pt; do
	cp "$f" "$WORK/ds/optim_$((i++)).pt"
done
"$UNSHARD" ls "$WORK/ds" >/dev/null 2>"$WORK/err" || fail "$(cat "$WORK/err")"
grep -q "warning: 3 warnings in optim_0.pt, " "$WORK/err" ||
	fail "not said: $(cat "$WORK/err")"

# What is left out is named, three of them, and counted.
T=$TOP/tests/formats/torch
expect 1 'ls: tensor coo: sparse.pt: a sparse tensor, which is not read: ' \
	"$UNSHARD" ls "$T/sparse/in"
[ "$(grep -c '^unshard ls: tensor c.*: a sparse tensor' "$WORK/err")" = 3 ] ||
	fail "$(cat "$WORK/err")"
grep -q 'incomplete: 4 tensors left out, 4 errors noted' "$WORK/err" ||
	fail "$(cat "$WORK/err")"
expect 1 'ls: tensor m: meta.pt: a tensor of the meta device' \
	"$UNSHARD" ls "$T/meta/in"

(cd "$CKPT" && "$UNSHARD" ls) >"$WORK/here" || fail "ls of this folder"
"$UNSHARD" ls "$CKPT" | cmp - "$WORK/here" || fail "ls of this folder is another"
expect 2 'unknown option --frob' "$UNSHARD" ls --frob "$CKPT"
expect 1 '.' "$UNSHARD" ls "$WORK/none"
mkdir "$WORK/empty"
expect 1 'no checkpoint' "$UNSHARD" ls "$WORK/empty"
"$UNSHARD" ls "$CKPT" >/dev/full 2>"$WORK/err" && fail "full disk: exit 0"
grep -q 'standard output' "$WORK/err" || fail "full disk: $(cat "$WORK/err")"

# MindFormers' folders: strategy/ beside checkpoint/ is no checkpoint.
mkdir -p "$WORK/output/checkpoint" "$WORK/output/strategy"
M=$TOP/tests/formats/mindspore/2.10-nested/in
cp -r "$M"/rank_* "$WORK/output/checkpoint"
cp "$M"/strategy.ckpt "$M"/strategy.json "$WORK/output/strategy"
expect 0 '' "$UNSHARD" ls "$WORK/output/checkpoint" \
	-o "strategy=$WORK/output/strategy"
expect 0 '' "$UNSHARD" ls "$WORK/output" -o "strategy=$WORK/output/strategy"
grep -q '^complete .* checkpoint  (latest)' "$WORK/out" || fail "$(cat "$WORK/out")"
[ "$(wc -l <"$WORK/out")" = 1 ] || fail "$(cat "$WORK/out")"
# nor is a strategy beside saves one; weights in a folder called so are
mkdir "$WORK/mix"
cp -r "$WORK/output/checkpoint" "$WORK/mix/run-1"
cp "$M/strategy.ckpt" "$WORK/mix/run-1"
cp "$M/strategy.ckpt" "$WORK/mix/strategy_train.ckpt"
cp -r "$TOP/tests/formats/mindspore/1.0-row4/in/." "$WORK/mix/strategy-2"
expect 0 '' "$UNSHARD" ls "$WORK/mix"
[ "$(awk '{ print $1, $4 }' "$WORK/out")" = "complete run-1
complete strategy-2" ] || fail "$(cat "$WORK/out")"

# Folders of devices are ranks, a level down too.
mkdir -p "$WORK/devices/X"
for r in "$WORK"/output/checkpoint/rank_*; do
	cp -r "$r" "$WORK/devices/X/device${r##*_}"
done
expect 0 '' "$UNSHARD" ls "$WORK/devices" -o "strategy=$WORK/output/strategy"
grep -q '^complete .* X ' "$WORK/out" || fail "$(cat "$WORK/out")"
expect 1 'incomplete: its only checkpoint' "$UNSHARD" ls "$WORK/devices"
# but a log by that name is no sign
rm -r "$WORK/devices/X/"*
mkdir "$WORK/devices/X/device0"
echo a >"$WORK/devices/X/device0/a.bin"
expect 1 'no checkpoint found' "$UNSHARD" ls "$WORK/devices"
# nor is a link what is wrong with a folder of anything
mkdir "$WORK/any"
echo a >"$WORK/any/a.conf"
ln -s /etc/passwd "$WORK/any/link"
expect 1 'no checkpoint found in .*/any: expected .metadata .* lists$' \
	"$UNSHARD" ls "$WORK/any"
# but where one may be of a checkpoint
ln -s /etc "$WORK/any/rank_0"
expect 1 'no checkpoint found in .*/any: expected .metadata .*; .*link' \
	"$UNSHARD" verify "$WORK/any"
rm "$WORK/any/rank_0"
# what is further down is found by another command
mkdir -p "$WORK/any/a/b/c/d/e/f"
expect 1 'no checkpoint found in .*/any: .*; unshard find looks below it$' \
	"$UNSHARD" ls "$WORK/any"

# A folder of many is not a page of names.
for i in 1 2 3 4 5 6 7 8 9 10; do
	mkdir -p "$WORK/many/all/save_$i"
	cp "$TOP"/tests/demo/checkpoint/.metadata "$TOP"/tests/demo/checkpoint/* \
		"$WORK/many/all/save_$i"
done
mkdir "$WORK/many/other" # or the steps would be those of all/
cp -r "$WORK/many/all/save_1" "$WORK/many/other"
expect 0 '' "$UNSHARD" ls "$WORK/many"
grep -q 'holds save_.*, save_[0-9]* and 2 more$' "$WORK/out" || fail "$(cat "$WORK/out")"

# What is no path, and one that is not there.
for url in s3://bucket/ckpt gs://bucket hf-x://a:b; do
	expect 1 "^unshard ls: $url: expected a path: " "$UNSHARD" ls "$url"
done
expect 1 '^unshard ls: .*/none: No such file or directory$' \
	"$UNSHARD" ls "$WORK/none"

# Two files a rank: what is not shown is named.
for r in "$WORK"/output/checkpoint/rank_*; do
	for f in "$r"/*.ckpt; do cp "$f" "$r/adam.ckpt"; break; done
done
"$UNSHARD" ls "$WORK/output/checkpoint" \
	-o "strategy=$WORK/output/strategy" >"$WORK/out" 2>"$WORK/err"
grep -q 'warning: .* there is .*adam.ckpt too' "$WORK/err" ||
	fail "$(cat "$WORK/err")"
# one of either, lost in one rank, is named whichever is shown
NET=$(basename "$(ls "$WORK"/output/checkpoint/rank_1/[!a]*.ckpt)")
for lost in "$NET" adam.ckpt; do
	rm -rf "$WORK/two"
	cp -r "$WORK/output/checkpoint" "$WORK/two"
	rm "$WORK/two/rank_1/$lost"
	expect 1 'incomplete: ' "$UNSHARD" ls "$WORK/two" \
		-o "strategy=$WORK/output/strategy"
	grep -q "rank 1 has no $lost, and [0-9]* of .* is shown" "$WORK/err" ||
		fail "$lost: $(cat "$WORK/err")"
done
# what one rank alone has may be its own
for r in "$WORK"/two/rank_*; do
	[ "${r##*_}" != 1 ] || cp "$r/$NET" "$r/best.ckpt"
	rm -f "$r/adam.ckpt"
done
expect 0 '' "$UNSHARD" ls "$WORK/two" -o "strategy=$WORK/output/strategy"
grep -q 'warning: rank 0 has no best.ckpt, and 1 of ' "$WORK/err" ||
	fail "$(cat "$WORK/err")"

# An option that nothing used is a line, in each format and of several.
F=$TOP/tests/formats
vain() { # OPTION CKPT
	expect 0 '' "$UNSHARD" ls -o "$1" "$2"
	grep -q "warning: -o $1: .*\(makes use of it\|no use for it\)" \
		"$WORK/err" || fail "-o $1 $2: $(cat "$WORK/err")"
}
vain fused=7+9 "$F/colossalai/padded-vocab/in"
vain fused=3 "$F/colossalai/optim-async/in"
vain fused=3 "$F/deepspeed/zero2-3ranks/in"
vain ties=0:x "$F/deepspeed/zero2-3ranks/in"
vain crc=check "$F/mindspore/2.10-row4/in"
vain integrated=no "$F/mindspore/2.10-unified/in"
vain "strategy=$F/mindspore/2.10-row4/in/strategy_train.ckpt" \
	"$F/mindspore/2.10-unified/in"
vain shards=3 "$F/hf/llama/in"
vain file=config.json "$F/hf/llama/in"
vain unflatten "$F/dcp/2.14-fsdp2-adamw/in"
expect 0 '' "$UNSHARD" ls -o crc=check "$F/mindspore/2.10-crc/in"
[ ! -s "$WORK/err" ] || fail "crc=: $(cat "$WORK/err")"
expect 0 '' "$UNSHARD" ls -o fused=3 "$F/colossalai/fused-given/in"
grep -q 'fused=' "$WORK/err" && fail "fused=: $(cat "$WORK/err")"
mkdir "$WORK/hfs"
cp -r "$F/hf/llama/in" "$WORK/hfs/step-1"
cp -r "$F/hf/llama/in" "$WORK/hfs/step-2"
expect 0 '' "$UNSHARD" ls -o fused=3 "$WORK/hfs"
grep -q 'warning: -o fused: none of its checkpoints makes use of it' \
	"$WORK/err" || fail "$(cat "$WORK/err")"
mkdir "$WORK/some"
cp -r "$F/colossalai/fused-given/in" "$WORK/some/step-1"
cp -r "$F/hf/llama/in" "$WORK/some/step-2"
expect 0 '' "$UNSHARD" ls -o fused=3 "$WORK/some"
grep -q 'none of its' "$WORK/err" && fail "$(cat "$WORK/err")"

# What nothing would tell is a note.
cp -r "$TOP/tests/formats/mindspore/2.10-unified/in" "$WORK/unified"
"$UNSHARD" inspect "$WORK/unified" | grep -q '^problems *none' ||
	fail "unified: $("$UNSHARD" inspect "$WORK/unified")"
rm "$WORK/unified/hyper_param.safetensors"
"$UNSHARD" inspect "$WORK/unified" >"$WORK/out" || fail "unified"
grep -q 'note: no hyper_param.safetensors is beside' "$WORK/out" ||
	fail "$(cat "$WORK/out")"
# files of stages may lack the last one's, a merged one does not
P=$TOP/tests/formats/mindspore/2.10-pipeline
grep -q 'how many stages there were' "$P/want" "${P}-stages/want" ||
	fail "no note of stages"
grep -q 'how many stages there were' "$P/want" && fail "a merged strategy"

# Without the map nothing tells whether there was a last part.
cp -r "$TOP/tests/formats/hf/bad-mindspore-parts-gap/in" "$WORK/parts"
rm -f "$WORK/parts/part2.safetensors"
"$UNSHARD" ls "$WORK/parts" >"$WORK/out" 2>"$WORK/err"
grep -q 'warning: part.*no index (param_name_map.json)' "$WORK/err" ||
	fail "$(cat "$WORK/err")"
done_ok
