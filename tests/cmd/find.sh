#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# find: all run folders together, each step a line; what is damaged, copied, or no
# checkpoint; links are not followed; ten thousand files are a matter of seconds.
LIMIT=180
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" find
formats=$(cd "$(dirname "$0")/../formats" && pwd)
cd "$WORK" || exit 1
. "$(dirname "$0")/lib/runs.sh"

mkdir runs && cd runs || exit 1
for framework in $frameworks; do
	make $framework 10 $framework
	make $framework 20 $framework
done
make_mindformers
chmod -R u+w .
cd .. || exit 1
expect 0 '' "$UNSHARD" find runs
[ ! -s "$WORK/err" ] || fail "$(cat "$WORK/err")"
sed 's/  same as .*//' "$WORK/out" >lines
for framework in $frameworks; do
	[ "$(grep -c "^complete .* [12]0 .* runs/$framework/" lines)" = 2 ] ||
		fail "$framework: expected two steps: $(grep $framework "$WORK/out")"
done
for epoch in 4 10; do # the step is that of the epoch
	grep -q "^complete .*  ${epoch}_32 .* runs/mindformers/.*/CKP_1-${epoch}_32.ckpt" \
		"$WORK/out" || fail "mindformers: $(grep mindformers "$WORK/out")"
done
grep -q '^30 checkpoints, .* of models, .* of optimizers$' "$WORK/out" ||
	fail "$(tail -n 1 "$WORK/out")"
[ "$(wc -l <"$WORK/out")" = 32 ] || fail "other lines: $(cat "$WORK/out")"

# the paths are one column, whatever a format is called
[ "$(awk '{ print /^STATE/ ? index($0, "PATH") : index($0, "runs/") }' <(head -n 31 "$WORK/out") |
	sort -u | wc -l)" = 1 ] || fail "columns: $(cat "$WORK/out")"

# figures, parts and options as JSON
expect 0 '' "$UNSHARD" find --json --sort age runs
"$PYTHON" - "$WORK/out" <<'EOS' || fail "--json"
import json, os, sys
found = json.load(open(sys.argv[1]))["checkpoints"]
by = {c["path"]: c for c in found}
c = by["runs/hf_trainer/checkpoint-10"]
assert (c["state"], c["step"]) == ("complete", 10), c
assert [os.path.basename(p["path"]) for p in c["parts"]] == \
    ["optimizer_0", "pytorch_model_fsdp_0"], c
assert [p["model_nbytes"] == 0 for p in c["parts"]] == [True, False], c
size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(c["path"])
           for f in fs if f.endswith(".distcp"))
assert c["stored_nbytes"] == size, (c, size)
assert c["model_nbytes"] + c["optimizer_nbytes"] <= size, c
assert sorted((c["epoch"], c["step"]) for c in found if "epoch" in c) == \
    [(4, 32), (10, 32)], found
assert len(found) == 30
assert [c["mtime"] for c in found] == sorted((c["mtime"] for c in found), reverse=True)
EOS
expect 2 '--sort: expected path, size or age, found "name"' "$UNSHARD" find --sort name .

# a copy is said to be one, and no longer when a byte in it is another
mkdir two
cp -r "$dcp" two/step-1 && cp -r "$dcp" two/step-2 && chmod -R u+w two
expect 0 '' "$UNSHARD" find two
grep -q 'two/step-2  same as two/step-1$' "$WORK/out" || fail "$(cat "$WORK/out")"
for f in two/step-2/*.distcp; do printf X | dd of="$f" bs=1 conv=notrunc status=none; done
"$UNSHARD" find two >out 2>&1
if grep -q 'same as' out; then fail "another byte: $(cat out)"; fi

# what is damaged, or newer than what lies beside it
rm "$(find two/step-1 -name '*.distcp' | head -n 1)"
expect 0 '' "$UNSHARD" find two
grep -q '^incomplete .* 1 .* two/step-1  .* missing' "$WORK/out" || fail "$(cat "$WORK/out")"
echo text >two/step-2/.metadata
expect 0 '' "$UNSHARD" find two
grep -q '^unreadable .* two/step-2  .metadata: byte 0' "$WORK/out" ||
	fail "$(cat "$WORK/out")"

# a checkpoint in the folder itself, others in it, files that are each one
mkdir mix
cp -r "$formats/hf/llama/in/." mix && chmod -R u+w mix
cp -r "$dcp" mix/checkpoint-500
mkdir mix/files
cp "$formats"/torch/views/in/*.pt mix/files/epoch-7.pt
expect 0 '' "$UNSHARD" find mix/
for want in 'complete .* - .* mix' 'complete .* 500 .* mix/checkpoint-500' \
	'complete .* mix/files/epoch-7.pt\|complete .* mix/files'; do
	grep -q "^$want\$" "$WORK/out" || fail "no $want: $(cat "$WORK/out")"
done

# links are not followed, hidden folders and what is no folder not looked into
mkdir links && ln -s ../two links/out && ln -s . links/loop && mkdir links/.hidden
cp -r "$dcp" links/.hidden/step-1
mkfifo links/fifo.safetensors
expect 0 '' "$UNSHARD" find links
grep -q 'two\|hidden' "$WORK/out" && fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" find "$WORK/links/.hidden" two
[ "$(tail -n 1 "$WORK/out" | cut -d, -f 1)" = "3 checkpoints" ] || fail "$(cat "$WORK/out")"
mkdir $'od\e[31md' && cp -r "$dcp" $'od\e[31md/step-1'
expect 0 '' "$UNSHARD" find $'od\e[31md'
grep -qF 'od\x1b[31md/step-1' "$WORK/out" || fail "a terminal obeys: $(cat -v "$WORK/out")"

# what is in several of the folders, or has several names, counts once
ln -s step-1 two/latest
for dirs in "two two" "two two/step-1" "two/step-1 two" "two/latest two/step-1 ./two"; do
	expect 0 '' "$UNSHARD" find $dirs
	[ "$(tail -n 1 "$WORK/out")" = "$("$UNSHARD" find two | tail -n 1)" ] ||
		fail "$dirs: $(cat "$WORK/out")"
done
rm two/latest

# 10,000 files and 500 folders around them
"$PYTHON" - <<'EOS'
import os
for d in range(500):
    os.makedirs(f"many/{d // 20}/{d}")
    for f in range(20):
        open(f"many/{d // 20}/{d}/{f}.json", "w").close()
EOS
cp -r "$dcp" many/7/143/step-3
start=$(date +%s)
expect 0 '' "$UNSHARD" find --json many
grep -q '"path": "many/7/143/step-3", "state": "complete", "step": 3,' "$WORK/out" ||
	fail "$(head -c 300 "$WORK/out")"
grep -q '"folders": 527}' "$WORK/out" || fail "$(tail -n 1 "$WORK/out")"
[ $(($(date +%s) - start)) -le 20 ] || fail "10,000 files took too long"

# any bytes are no checkpoint that cannot be read
mkdir -p bytes/x
head -c 300 /dev/zero >bytes/weights.bin
cp bytes/weights.bin bytes/x/data.pt
expect 0 '' "$UNSHARD" find bytes
[ "$(tail -n 1 "$WORK/out")" = "0 checkpoints, 0 bytes of models, 0 bytes of optimizers" ] ||
	fail "$(cat "$WORK/out")"

# a number that is none of a step
mkdir -p far/step-18446744073709551617 far/step-7
cp -r "$formats/safetensors/metadata/in/." far/step-7
cp -r "$formats/safetensors/metadata/in/." far/step-18446744073709551617
expect 0 '' "$UNSHARD" find far
[ "$(awk '/ far/ { print $3 }' "$WORK/out" | xargs)" = "7 -" ] ||
	fail "steps: $(cat "$WORK/out")"

expect 1 'none: No such file' "$UNSHARD" find none
expect 1 'expected a folder' "$UNSHARD" find mix/config.json
"$UNSHARD" find mix | awk '{ $4 = ""; print }' >"$WORK/there" # without ages
(cd mix && "$UNSHARD" find -h) | awk '{ $4 = ""; print }' | sed 's| \./| mix/|; s| \.$| mix|' |
	diff "$WORK/there" - ||
	fail "find of this folder is another"
done_ok
