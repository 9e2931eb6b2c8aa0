#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# export: every view as files, whole or not at all, resumed, read back if asked
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cmp sha256sum
CKPT=$TOP/tests/demo/checkpoint
cd "$WORK" || exit 1

# --- what is written is what the view holds
expect 0 '' "$UNSHARD" export "$CKPT" m.safetensors
grep -q '^./m.safetensors: 1 file, .* GB/s$' out || fail "said $(cat out)"
"$UNSHARD" diff "$CKPT" m.safetensors >out || fail "other tensors: $(cat out)"
expect 0 '' "$UNSHARD" export --to tensors "$CKPT" raw
(cd raw && sha256sum --quiet -c "$TOP/tests/demo/expected.sha256") ||
	fail "raw: other bytes"
[ "$(find raw -type f | wc -l)" = 12 ] || fail "raw: $(ls -A raw)"
mkdir npy # empty: as good as absent
expect 0 '' "$UNSHARD" export "$CKPT/npy/" npy
name=model.model.layers.0.mlp.down_proj.weight
"$PYTHON" -c "import numpy, sys
numpy.load('npy/$name.npy').tofile('x')" || fail "numpy cannot open it"
cmp x raw/$name || fail "npy: other bytes"
mkdir into
expect 0 '' "$UNSHARD" export --json "$CKPT/tensors/$name" into
cmp into/$name raw/$name || fail "one file: other bytes"
"$PYTHON" -c "import json; d = json.load(open('out'))
assert (d['files'], d['nbytes'], d['verified']) == (1, 1872, False), d" ||
	fail "--json: $(cat out)"
expect 0 '1 file, .*, read back and compared$' "$UNSHARD" export --verify "$CKPT" n.safetensors
cmp m.safetensors n.safetensors && rm n.safetensors || fail "--verify: other bytes"

# --to ckpt, and rank files likewise, are checkpoints of the same tensors
expect 0 '' "$UNSHARD" export --to ckpt "$CKPT" m.ckpt
"$UNSHARD" diff "$CKPT" m.ckpt >out || fail "ckpt: other tensors: $(cat out)"
expect 0 '' "$UNSHARD" export -o reshard-container=ckpt "$CKPT/reshard/dim0=2" ms
[ "$(ls -A ms | xargs)" = "rank-00000.ckpt rank-00001.ckpt unshard-layout.json" ] ||
	fail "$(ls -A ms)"
"$UNSHARD" diff "$CKPT" ms >out || fail "rank files: other tensors: $(cat out)"

# parameters of an optimizer by number, and why not
opt=$TOP/tests/formats/dcp
expect 0 '1, shown with 2 groups' "$UNSHARD" export --to pt -o optimizer=ids \
	"$opt/2.15-flattened/in" f.pt
"$UNSHARD" ls f.pt >out || fail "flattened: $(cat out)"
[ "$(grep -c 'optimizer\.state\.[012]\.momentum_buffer$' out)" = 3 ] &&
	grep -q 'optimizer\.param_groups\.1\.params$' out ||
	fail "flattened: $(cat out)"
expect 0 '' "$UNSHARD" export --to pt -o optimizer=ids "$opt/2.14-fsdp2-adamw/in" n.pt
[ ! -s err ] || fail "numbered: $(cat err)"
expect 0 '' "$UNSHARD" export --to pt -o optimizer=ids "$CKPT" s.pt
grep -q 'note: -o optimizer=ids: parameters are not numbered, for no list' err ||
	fail "not said: $(cat err)"

# hf/ with the files of another folder, cut small
mkdir conf && echo '{"model_type": "llama"}' >conf/config.json
expect 0 '' "$UNSHARD" export -o config=conf,hf-shard-size=12000 "$CKPT/hf" hf
cmp conf/config.json hf/config.json || fail "hf: no config.json"
[ "$(ls hf/*.safetensors | wc -l)" -ge 3 ] || fail "hf: $(ls hf)"
expect 0 '' "$UNSHARD" cat hf ${name#model.}
cmp out raw/$name || fail "hf: other bytes"

# a folder of a view, and a file in one
expect 0 '' "$UNSHARD" export "$CKPT/reshard/dim0=3" cut
[ "$(ls -A cut | xargs)" = "rank-00000.safetensors rank-00001.safetensors rank-00002.safetensors unshard-layout.json" ] ||
	fail "reshard: $(ls -A cut)"
"$UNSHARD" diff "$CKPT" cut >out || fail "reshard: other tensors: $(cat out)"
expect 0 '' "$UNSHARD" export "$CKPT/reshard/dim0=3/rank-00001.safetensors" into
cmp into/rank-00001.safetensors cut/rank-00001.safetensors || fail "reshard: file"
for i in 0 1 2; do
	expect 0 '' "$UNSHARD" cat cut/rank-0000$i.safetensors $name
	cat out
done >x
cmp x raw/$name || fail "reshard: other bytes"

# whatever the mesh, what is written is read as the whole tensors again: uneven,
# empty, replicated, in pieces along rows, along columns and along both
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" gpt2.safetensors \
	h.0.attn.c_attn.weight F32 8,24 h.0.attn.c_attn.bias BF16 24 \
	h.0.mlp.c_fc.weight BF16 8,32 h.0.ln_1.weight F32 8 wte.weight F32 10,8
cat >pieces.json <<'END'
{"mesh": {"shape": [2, 2, 2]},
 "placements": {"*attn.c_attn*": ["strided(0, 2)", "shard(0)", "replicate"],
		"*c_fc*": ["strided(1, 2)", "shard(1)", "shard(0)"],
		"*ln_1*": ["replicate", "strided(0, 3)", "replicate"],
		"wte*": ["strided(1, 2)", "replicate", "strided(0, 3)"]}}
END
for it in safetensors/tp=2,dim0=3 safetensors/dim0=11 safetensors/pieces \
	ckpt/dim1=5 ckpt/pieces; do
	form=${it%/*} mesh=${it#*/}
	"$UNSHARD" export -o reshard=pieces.json,reshard-container=$form \
		gpt2.safetensors/reshard/$mesh back >out 2>err || fail "$it: $(cat err)"
	[ -e back/unshard-layout.json ] || fail "$it: no layout"
	"$UNSHARD" diff gpt2.safetensors back >out || fail "$it: $(cat out)"
	rm -r back
done
"$UNSHARD" plan gpt2.safetensors --json --reshard pieces.json >out || fail plan
"$PYTHON" - <<'END' || fail "plan: $(cat out)"
import json
plan = json.load(open("out"))
one, = (s for s in plan["shards"] if s["fqn"] == "wte.weight" and s["shard"] == 4)
assert one["size"] == [5, 4] and one["pieces"] == [
    {"dim": 0, "runs": [[0, 2], [4, 6], [8, 9]]}, {"dim": 1, "runs": [[2, 4], [6, 8]]}
], one
reads = [r for r in plan["reads"] if r["fqn"] == "wte.weight" and r["dest_shard"] == 4]
assert sorted((r["dest_offsets"], r["storage_offsets"], r["lengths"]) for r in reads) == [
    ([a, c], [b, d], [n, 2]) for a, b, n in ((0, 0, 2), (2, 4, 2), (4, 8, 1))
    for c, d in ((0, 2), (2, 6))], reads
END

# no layout holds a tensor without a name: none, rather than one of no use
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" nameless.safetensors '' U8 4 u U8 4
expect 0 '' "$UNSHARD" export nameless.safetensors/reshard/dim0=2 back
[ ! -e back/unshard-layout.json ] || fail "a layout with no name"
grep -q 'note: no layout can say' err || fail "not said: $(cat err)"
expect 0 '' "$UNSHARD" ls back/rank-00001.safetensors
rm -r back nameless.safetensors
for no in nofile.json no/file; do
	expect 2 "--reshard: $no: No such file" \
		"$UNSHARD" plan gpt2.safetensors --reshard $no
done

# --- nothing is overwritten, nothing wrong is made
before=$(find . | sort)
expect 2 'm.safetensors: is there already' \
	"$UNSHARD" export "$CKPT" m.safetensors
"$UNSHARD" export "$CKPT" - | cmp - m.safetensors || fail "to standard output"
[ ! -e ./- ] || fail "a file called -"
expect 2 'npy: is there already, and not empty' "$UNSHARD" export "$CKPT/npy" npy
mkdir own
cp gpt2.safetensors own/
for out in own own/m.safetensors; do
	expect 2 "own/m.*.safetensors: lies in the checkpoint itself" \
		"$UNSHARD" export own $out
done
expect 0 '' "$UNSHARD" export own/npy own/npy
rm -r own
expect 2 'no file, and no view' "$UNSHARD" export "$CKPT/nothing" y
expect 2 'has no file "nothing"' "$UNSHARD" export "$CKPT/npy/nothing" y
for no in "tp=x: expected numbers" 'tp=0: expected numbers' \
	'dim0=3,dim0=2: dim0= is given twice' 'foo: no -o reshard= file' \
	'foo=3: expected dimN=K' 'pp=2,layers=5: layers=: expected 2 numbers' \
	'layers=1: layers= is of stages: expected pp=K'; do
	expect 2 "reshard: $no" "$UNSHARD" export "$CKPT/reshard/${no%%:*}" y
done
expect 1 'reshard: tp=5: model.lm_head.weight: dimension 0: 149 is no multiple' \
	"$UNSHARD" export "$CKPT/reshard/tp=5" y
expect 1 'pp=1,layers=5: layers= make 5, the checkpoint has 1' \
	"$UNSHARD" export "$CKPT/reshard/pp=1,layers=5" y
echo '{"mesh": {"shape": [2]}, "partition_spec": {"*": [0, 0]}}' >m.json
expect 1 'reshard: m: model.lm_head.weight: partition_spec: axis 0 cuts' \
	"$UNSHARD" export -o reshard=m.json "$CKPT/reshard/m" y
rm m.json
expect 2 'reshard: expected a folder' "$UNSHARD" export "$CKPT/reshard" y
expect 2 'no such view' "$UNSHARD" export --to nothing "$CKPT" y
expect 2 'and --to another' "$UNSHARD" export --to npy "$CKPT/npy" y
expect 2 'expected FORM' "$UNSHARD" export "$CKPT" y --to
expect 2 'none: expected a folder to write into: No such file' \
	"$UNSHARD" export "$CKPT" none/y
[ ! -e none ] || fail "a parent was made"
: >file
expect 2 'file: expected a folder to write into: Not a dir' \
	"$UNSHARD" export "$CKPT" file/y
rm file
cp -r "$CKPT" torn
truncate -s 20000 torn/__3_0.distcp
expect 1 'incomplete: tensor .* is torn' "$UNSHARD" export torn y
expect 0 '' "$UNSHARD" export "torn/tensors/$name" one
rm -r torn one

# a .pt has the sums that the mount's cannot have, of pieces of several
# members and members of several pieces, when it was gone on with too
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" sums.safetensors a F32 3 \
	b F32 2200000 c U8 5 d F32 0,4 e U8 8500001 f F32 7
sums() {
	"$PYTHON" - "$@" <<'EOS' || fail "sums of $*"
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
assert z.testzip() is None, z.testzip()
assert sum(bool(i.CRC) for i in z.infolist()) >= 6, z.infolist()
EOS
}
expect 0 'read back and compared' "$UNSHARD" export --verify --to pt sums.safetensors sums.pt
sums sums.pt
expect 0 '' "$UNSHARD" export --to pt sums.safetensors again.pt
cmp sums.pt again.pt || fail "other sums"
"$UNSHARD" diff sums.safetensors sums.pt >out || fail "other tensors: $(cat out)"
rm sums.pt again.pt sums.safetensors

# what a form cannot hold is left out, and the exit code says so
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" e8.safetensors e F8_E8M0 4 u U8 4
expect 1 'e8.safetensors: model.ckpt cannot hold 1 tensor, which is left out: e: M' \
	"$UNSHARD" export --to ckpt e8.safetensors e8.ckpt
"$UNSHARD" ls e8.ckpt | grep -q 'u$' || fail "the rest is not there"
expect 1 'reshard cannot hold 1 tensor' "$UNSHARD" export --json \
	-o reshard-container=ckpt e8.safetensors/reshard/dim0=2 e8.cut
grep -q '"left_out": 1,' out || fail "--json: $(cat out)"
expect 0 '' "$UNSHARD" export --json --to npy e8.safetensors e8
grep -q '"left_out": 0,' out || fail "--json: $(cat out)"
[ ! -s err ] || fail "npy holds all: $(cat err)"
rm -r e8*
# each is named where there are several, also what a view could not hold
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" f8.safetensors a F8_E8M0 4 b F8_E8M0 2 u U8 4
expect 1 'cannot hold 2 tensors, .*: the first is a: MindSpore .*; then b$' \
	"$UNSHARD" export --to ckpt f8.safetensors f8.ckpt
expect 0 '' "$UNSHARD" export --to dcp f8.safetensors f8.dcp
echo '{"views": {"v": {}, "meta": {"rename": [{"from": "u", "to": "__metadata__"}]}}}' >f8.json
expect 1 'safetensors reserves the name __metadata__' "$UNSHARD" export -o views=f8.json \
	f8.dcp/views/meta f8.out
DTYPES=$TOP/tests/formats/dcp/2.14-dtypes/in
echo '{"views": {"all": {}}}' >f8.json
expect 1 'views cannot hold 10 tensors, .* the first is empty0.complex128: .*, zero_d.complex32$' "$UNSHARD" export \
	-o views=f8.json "$DTYPES/views/all/dcp" f8.all
expect 0 '' "$UNSHARD" export --to dcp "$DTYPES" f8.whole
rm -r f8*
# ... and where that is all of it, nothing is written
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" e8.safetensors e F8_E8M0 4
expect 1 'model.ckpt can hold none of its 1 tensors: ' \
	"$UNSHARD" export --to ckpt e8.safetensors e8.ckpt
[ -z "$(ls -A | grep '^\.\?e8\.ckpt')" ] || fail "left: $(ls -A)"
rm e8*
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" adam.safetensors \
	optimizer.state.w.exp_avg F32 4 optimizer.state.w.step F32 1
expect 1 'adam.safetensors: has no view hf: none of its tensors is a model' \
	"$UNSHARD" export adam.safetensors/hf adam
rm adam*

# a tensor that was refused is in no view: none is written without it
"$PYTHON" - <<'EOS'
import json, struct
def shard(i, **tensors):
    head, at = {}, 0
    for name, size in tensors.items():
        head[name] = {"dtype": "U8", "shape": [size],
                      "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    with open(f"lost/{i}.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + bytes(at))
import os
os.mkdir("lost")
shard(1, a=5, b=6)
with open("lost/model.safetensors.index.json", "w") as f:
    json.dump({"metadata": {"total_size": 31}, "weight_map": {
        "a": "1.safetensors", "b": "1.safetensors",
        "c": "2.safetensors", "d": "2.safetensors"}}, f)
EOS
for form in '' /hf /dcp /tensors /model.pt /reshard/dim0=2; do
	expect 1 'lost: incomplete: left out is tensor c: .*, and [0-9]+ more' \
		"$UNSHARD" export lost$form y
done
expect 0 '' "$UNSHARD" export lost/tensors/a one
rm -r lost one
[ "$(find . | sort)" = "$before" ] || fail "left behind: $(ls -A)"

# --- goes on where it was: as much as may be written of the 40 MiB
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" big.safetensors big U8 40,1048576
head -c -100 big.safetensors >big && "$PYTHON" - <<'EOS'
import random
with open("big.safetensors", "r+b") as f:
    for i in range(4000, 41000000, 4001):
        f.seek(i)
        f.write(bytes([i * 7 % 251]))
EOS
expect 0 '' "$UNSHARD" cat big.safetensors big
mv out want
(ulimit -f $((20 * 1024)) && "$UNSHARD" export big.safetensors/tensors/big y \
	>out 2>err) && fail "it was written past the limit"
grep -q 'big: File too large\|y: File too large' err || fail "limit: $(cat err)"
[ ! -e y ] || fail "y is there before it is whole"
cp -r .y.unshard-part saved
expect 0 '' "$UNSHARD" export big.safetensors/tensors/big y
grep -q 'were there from before' out || fail "it began anew: $(cat out)"
cmp want y || fail "resumed: other bytes"
[ ! -e .y.unshard-part ] || fail "left behind: .y.unshard-part"
rm y

# sources that are decoded have no name
expect 0 '' "$UNSHARD" export "$TOP/tests/formats/dcp/2.14-zstd/in" zstd.st
expect 0 '' "$UNSHARD" diff "$TOP/tests/formats/dcp/2.14-zstd/in" zstd.st

# what an export before had written and is otherwise now is written again
for way in byte short none; do
	cp -r saved .y.unshard-part
	case $way in
	byte) printf x | dd of=.y.unshard-part/y bs=1 seek=5000 conv=notrunc \
		status=none ;;
	short) truncate -s 9000000 .y.unshard-part/y ;;
	none) rm .y.unshard-part/y ;;
	esac
	expect 0 '' "$UNSHARD" export big.safetensors/tensors/big y
	cmp want y || fail "$way: other bytes"
	[ $way != byte ] || grep -q ' 8.0 MiB from before were damaged and' out ||
		fail "$way: $(cat out)"
	rm y
done
# the same name and size of another view are another export
echo '{"views": {"v": {"dtype": "bfloat16"}, "w": {"dtype": "float16"}}}' >vw.json
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" f.safetensors f F32 10,1048576
(ulimit -f $((10 * 1024)) && "$UNSHARD" export -o views=vw.json \
	f.safetensors/views/v half >out 2>err) && fail "written past the limit"
expect 2 'of another export' "$UNSHARD" export -o views=vw.json \
	f.safetensors/views/w half
sed -i s/bfloat16/float16/ vw.json
expect 2 'of another export' "$UNSHARD" export -o views=vw.json \
	f.safetensors/views/v half
sed -i s/float16/bfloat16/ vw.json
expect 0 '' "$UNSHARD" export --json -o views=vw.json \
	f.safetensors/views/v half
grep -q '"resumed_nbytes": 8388608' out || fail "half: $(cat out)"
rm -r half f.safetensors
cp -r saved .y.unshard-part
# what says how far it was is damaged: anew
for at in 3 20 40 64 70; do
	rm -r .y.unshard-part && cp -r saved .y.unshard-part
	for f in .unshard-export .unshard-export.2; do
		was=$(od -An -tu1 -j $at -N 1 .y.unshard-part/$f)
		printf "\\$(printf %o $((255 - was)))" |
			dd of=.y.unshard-part/$f bs=1 seek=$at conv=notrunc \
				status=none
	done
	rm -f y
	expect 0 '' "$UNSHARD" export big.safetensors/tensors/big y
	cmp want y || fail "damaged at $at: other bytes"
	grep -q 'from before' out && fail "damaged at $at: believed"
	mkdir -p .y.unshard-part
done
# a checkpoint that changed meanwhile is another export, whatever its mtime says
rm -rf y .y.unshard-part && cp -r saved .y.unshard-part
touch -r big.safetensors then
touch big.safetensors
for when in now then; do
	[ $when = now ] || touch -r then big.safetensors
	expect 2 'of another export, or the checkpoint has changed' \
		"$UNSHARD" export big.safetensors/tensors/big y
done
done_ok
