#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which folders and files are MindSpore's ranks: joined, or refused; never each
# for itself.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cp sha256sum

M=$TOP/tests/formats/mindspore
ROW=$M/2.10-row4
cd "$WORK" || exit 1
cp "$ROW/in/strategy_train.ckpt" "$M/2.10-grid/in/strategy.ckpt" .
chmod u+w ./*.ckpt
WEIGHT=$(sed -n 's/ weight$//p' "$ROW/sums")

# lay DIR PATTERN: the tutorial's ranks under those names
lay() {
	local r f
	rm -rf "$1"
	for r in 0 1 2 3; do
		# shellcheck disable=SC2059
		printf -v f "$2" "$r"
		mkdir -p "$(dirname "$1/$f")"
		cp "$ROW/in/node$r/CKP_1-4_32.ckpt" "$1/$f"
	done
	chmod -R u+w "$1"
}
joined() { # DIR OPTION...
	expect 0 '' "$UNSHARD" cat "$@" weight
	[ "$(sha256sum <"$WORK/out" | cut -d' ' -f1)" = "$WEIGHT" ] ||
		fail "$*: other bytes"
}

# ---- with a strategy: given, or beside ----
for names in rank_%d/a.ckpt node%d/a.ckpt device%d/a.ckpt device_%d/a.ckpt \
	%d/a.ckpt ckpt_%d/a-1_9.ckpt train_parallel%d/ckpt_0/a-1_9.ckpt \
	rank_%d/ckpt/a.ckpt node0/rank_%d/a.ckpt a_rank_%d.ckpt a-%d.ckpt \
	%d.ckpt a_rank_%d-4_32.ckpt; do
	lay c "$names"
	joined c -o strategy=strategy_train.ckpt
	expect 1 '/nonexistent: there is no such file' \
		"$UNSHARD" ls c -o strategy=/nonexistent
	expect 1 'is for 8 ranks' "$UNSHARD" ls c -o strategy=strategy.ckpt
	cp strategy_train.ckpt c/
	joined c
	# as a saver that was killed leaves it
	head -c 20 strategy_train.ckpt >c/strategy_train.ckpt.tmp
	joined c
done

# ---- without: never shown as if whole ----
for names in rank_%d/a.ckpt device%d/a.ckpt device_%d/a.ckpt %d/a.ckpt \
	ckpt_%d/a-1_9.ckpt ckpt_%d/a.ckpt rank_%d/ckpt/a.ckpt a_rank_%d.ckpt; do
	lay c "$names"
	expect 1 'strategy=FILE.*-o integrated=yes' "$UNSHARD" ls c
	# said to be copies, those that are not are refused by name
	expect 1 'tensor weight: .* hold copies of it that differ' \
		"$UNSHARD" ls c -o integrated=yes
	grep -q ' global_step$' out || fail "$names: no global_step"
done

# ---- numbers that are no ranks' ----
lay c step_%d/a.ckpt
expect 0 '' "$UNSHARD" ls c
grep -q ' step_3 ' out || fail "steps are not listed: $(cat out)"
expect 1 '4 of its 4' "$UNSHARD" ls c -o strategy=strategy_train.ckpt
grep -q 'is for 4 ranks, and no name says which of them a.ckpt is' out ||
	fail "a step with a strategy: $(cat out)"
lay c %d/a.ckpt
mv c/3 c/7
cp strategy_train.ckpt c/
expect 1 'is for 4 ranks \(0 to 3\), and the numbers' "$UNSHARD" ls c
rm c/strategy_train.ckpt
expect 1 'rank 7 is there' "$UNSHARD" ls c -o strategy=strategy_train.ckpt
lay c a-%d.ckpt
rm c/a-1.ckpt
expect 1 'is for 4 ranks \(0 to 3\), and the numbers' \
	"$UNSHARD" ls c -o strategy=strategy_train.ckpt
lay c device%d/a.ckpt
rm -r c/device2
expect 1 'those without a file of a.ckpt: 2' \
	"$UNSHARD" ls c -o strategy=strategy_train.ckpt
lay c a-%d_7.ckpt # epochs
expect 1 'no name says which of them' \
	"$UNSHARD" ls c/a-1_7.ckpt -o strategy=strategy_train.ckpt
lay c rank_%d/one/a.ckpt
mkdir c/rank_1/two
cp c/rank_1/one/a.ckpt c/rank_1/two
expect 1 'rank_1/one and rank_1/two both hold files of rank 1' \
	"$UNSHARD" ls c -o strategy=strategy_train.ckpt

# ---- one rank by itself ----
mkdir one
cp "$ROW/in/node1/CKP_1-4_32.ckpt" one
expect 1 'no name says which of them CKP_1-4_32.ckpt is of' \
	"$UNSHARD" ls one -o strategy=strategy_train.ckpt
expect 1 'no name says which' \
	"$UNSHARD" ls one/CKP_1-4_32.ckpt -o strategy=strategy_train.ckpt
expect 1 'there is no such file' "$UNSHARD" ls one -o strategy=/nonexistent
expect 1 'there is no such file' "$UNSHARD" ls one -o strategy=other.ckpt
cp strategy_train.ckpt one/
expect 0 '' "$UNSHARD" ls one
grep -q "warning: strategy_train.ckpt: it is for 4 ranks, of which no others" \
	err || fail "a rank's folder: $(cat err)"
expect 0 '' "$UNSHARD" ls one -o integrated=yes
[ -s err ] && fail "whole: $(cat err)"

# ---- several saves in each ----
for names in 'device%d/CKP-%d_8.ckpt' 'rank_%d/ckpt/CKP-%d_8.ckpt'; do
	rm -rf c
	for r in 0 1 2 3; do
		for e in 9 10; do
			# shellcheck disable=SC2059
			printf -v f "$names" $r $e
			mkdir -p "c/$(dirname "$f")"
			cp "$ROW/in/node$r/CKP_1-4_32.ckpt" "c/$f"
		done
	done
	cp strategy_train.ckpt c/
	expect 0 '' "$UNSHARD" ls c
	grep -q 'complete .* CKP-10_8.ckpt  (latest)$' out ||
		fail "saves: $(cat out)"
	joined c -o file=CKP-9_8.ckpt
done

# ---- data parallel: whole tensors in each rank, no strategy ----
mkdir dp
cp -r "$M"/2.10-integrated/in/rank_? dp
chmod -R u+w dp
expect 1 'say -o integrated=yes' "$UNSHARD" ls dp
expect 0 '' "$UNSHARD" ls dp -o integrated=yes
expect 0 '' "$UNSHARD" verify --replicas dp -o integrated=yes
printf '\001' | dd of=dp/rank_2/net.ckpt bs=1 conv=notrunc status=none \
	seek=$(($(grep -abo a.weight dp/rank_2/net.ckpt | head -n 1 |
		cut -d: -f1) + 40))
expect 1 'tensor a.weight: rank_0/net.ckpt and rank_2/net.ckpt hold copies of it that differ' \
	"$UNSHARD" ls dp -o integrated=yes

# ---- options of another framework ----
lay c rank_%d/a.ckpt
expect 1 "-o sbp= says how OneFlow's ranks join, and these are MindSpore's: -o strategy=FILE" \
	"$UNSHARD" ls c -o 'sbp=split(0)'
expect 1 "-o strategy= says how MindSpore's ranks join, and these are OneFlow's: -o sbp=FILE" \
	"$UNSHARD" ls "$TOP/tests/formats/oneflow/local-rows/in" \
	-o strategy=strategy_train.ckpt
expect 1 'and this is read as hf, with no such ranks' \
	"$UNSHARD" ls "$TOP/tests/formats/hf/indexed/in" \
	-o strategy=strategy_train.ckpt

# ---- a strategy with optimizer shards, of ranks that hold copies ----
# shards COPIES...: of weight, of which those ranks hold what rank 0 does
shards() {
	lay c rank_%d/a.ckpt
	"$PYTHON" - "$@" <<-'EOS'
		import sys
		def field(nr, data):
		    return bytes([nr << 3 | 2, len(data)]) + data
		none = b"\x08" + b"\xff" * 9 + b"\x01"
		def item(name, first, shards):
		    return field(3, field(1, name) + field(2, field(1, b"\x08\x04") + field(2, first + none) +
		                 field(3, b"") + field(4, b"") + b"\x28\x00\x30\x00\x38" + shards))
		op = field(2, field(1, b"Mul_weight") + field(2, b"\x08\x00"))
		open("c/strategy.ckpt", "wb").write(b"\x08\x01" + op + item(b"weight", none, none[1:]) +
		                                    item(b"moments.weight", b"\x08\x00", b"\x00"))
		def at(data):
		    return data.index(b"\x1a\x40", data.index(b"\n\x06weight")) + 2
		own = open("c/rank_0/a.ckpt", "rb").read()
		own = own[at(own):at(own) + 64]
		for rank in sys.argv[1:]:
		    name = "c/rank_" + rank + "/a.ckpt"
		    data = open(name, "rb").read()
		    open(name, "wb").write(data[:at(data)] + own + data[at(data) + 64:])
	EOS
}
shards
joined c
[ -s err ] && fail "shards: $(cat err)"
shards 1 2 3
expect 1 'all that should differ so hold the same \(such as weight\)' \
	"$UNSHARD" ls c
expect 0 '' "$UNSHARD" ls c -o integrated=no
shards 2
expect 0 '' "$UNSHARD" ls c
grep -q "warning: weight: the strategy says that the optimizer's shards of it in rank_0/a.ckpt and rank_2/a.ckpt differ" \
	err || fail "two shards: $(cat err)"

# ---- folders of ranks, and of steps, that are links to other disks ----
lay disk rank_%d/a.ckpt
mkdir linked
ln -s "$WORK"/disk/rank_* linked
cp strategy_train.ckpt linked
expect 1 'linked/rank_0: a link to .*-o follow=' "$UNSHARD" ls linked
joined linked -o "follow=$WORK/disk"
ln -s rank_1 linked/newest
joined linked -o "follow=$WORK/disk"
mkdir -p run store/step-2
cp "$TOP/tests/formats/safetensors/llama-tied/in/"* store/step-2
ln -s ../store/step-2 run/step-2
expect 1 'run/step-2: a link to .*-o follow=' "$UNSHARD" ls run
expect 0 '' "$UNSHARD" ls run -o "follow=$WORK/store"
grep -q '^complete .* step-2' "$WORK/out" || fail "step: $(cat "$WORK/out")"

mkdir run/step-1 "$WORK/store/logs-2"
cp store/step-2/* run/step-1
ln -s ../store/logs-2 run/logs-2
ln -s "$WORK/run/step-1" run/step-3
expect 1 'incomplete: 1 of its 2 checkpoints' "$UNSHARD" ls run
grep -q '^unreadable .* step-2 .*a link to .*-o follow=' "$WORK/out" ||
	fail "a linked step passed over: $(cat "$WORK/out")"

# Parts of a save that are links to files, called otherwise there.
mkdir -p parts store/blobs
for f in "$TOP"/tests/formats/safetensors/llama-tied/in/*.safetensors; do
	cp "$f" store/blobs/1
done
cp "$TOP/tests/formats/torch/state_dict/in/"*.pt store/blobs/2
ln -s ../store/blobs/1 parts/model.safetensors
ln -s ../store/blobs/2 parts/lr_scheduler
expect 1 'incomplete' "$UNSHARD" ls parts
[ "$(grep -c '^unreadable .*a link to .*-o follow=' "$WORK/out")" = 2 ] ||
	fail "parts: $(cat "$WORK/out")"
expect 0 '' "$UNSHARD" ls parts -o "follow=$WORK/store"
grep -q '^complete .* model' "$WORK/out" ||
	fail "a part: $(cat "$WORK/out")"

# ---- what ranks printed, beside their saves, is no checkpoint ----
lay mf/checkpoint rank_%d/a.ckpt
for r in 0 1 2 3; do
	mkdir -p "mf/log/rank_$r"
	echo step >"mf/log/rank_$r/info.log"
done
expect 0 '' "$UNSHARD" ls mf -o strategy=strategy_train.ckpt
mkdir mf/logs && echo step >mf/logs/rank_0.log
expect 0 '' "$UNSHARD" ls mf -o strategy=strategy_train.ckpt
grep -q log "$WORK/out" && fail "logs: $(cat "$WORK/out")"
rm mf/checkpoint/rank_*/a.ckpt
expect 1 '' "$UNSHARD" ls mf -o strategy=strategy_train.ckpt
done_ok
