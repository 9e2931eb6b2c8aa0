#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# -o views=: tensors chosen, renamed, cut and cast, against numpy
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cmp
cd "$WORK" || exit 1
"$PYTHON" "$TOP/tests/cmd/lib/views.py" make . || fail "make"
view() { # SOURCE VIEW OUT
	expect 0 '' "$UNSHARD" export -o views=views.json \
		"$1.safetensors/views/$2" "$3"
}
view flat preset flat.out
view stacked preset stacked.out
for v in bf16 fp16 some; do view plain $v $v; done
"$PYTHON" "$TOP/tests/cmd/lib/views.py" check . || fail "other tensors"

no() { # SOURCE VIEW PATTERN
	local doc=views.json

	[ ! -e "$2.json" ] || doc=$2.json
	expect 1 "$doc: views.$2: .*$3" "$UNSHARD" export \
		-o views=$doc "$1.safetensors/views/$2" x
}
no plain clash 'model.a.bias and model.a.weight would both be called model.x'
no plain member 'unknown member "inclde"'
no plain dtype 'dtype: expected float64'
echo '{"views": {"over": {"dtype": "float8_e5m2", "overflow": "inf"}}}' >over.json
no plain over 'overflow: expected nan or saturate'
echo '{"views": {"over": {"dtype": "float16", "overflow": "saturate"}}}' >over.json
no plain over 'overflow: is for a dtype of float8_e4m3fn or float8_e5m2'
no plain regex 'rename\[0\].from: '
no plain rows 'rows: model.a.bias has no first 8 of them'
no plain turned 'transpose: model.a.bias is not a matrix'
no plain none 'no tensor is left'
no flat heads 'linear_qkv.weight: expected "heads"'
no plain norule 'model.a.bias: the preset has no rule for it'
no flat unknown 'preset.name: expected megatron-llama'
# what config.json says otherwise is no such model
mkdir config
with_config() { # KEY NUMBER
	"$PYTHON" -c 'import json, sys
json.dump({"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 24,
           "vocab_size": 21} | {sys.argv[1]: int(sys.argv[2])},
          open("config/config.json", "w"))' $1 $2
}
with_config vocab_size 21
expect 0 '' "$UNSHARD" ls -o views=views.json,config=config \
	flat.safetensors/views/preset
expect 0 '' "$UNSHARD" export -o views=views.json,config=config \
	flat.safetensors/views/preset agrees
while read -r key number why; do
	with_config $key $number
	expect 1 "views.preset: $why, but config.json says $key $number" \
		"$UNSHARD" export -o views=views.json,config=config \
		stacked.safetensors/views/preset x
done <<'EOS'
num_attention_heads 8 preset.heads is 6
num_key_value_heads 6 preset.kv_heads is 2
hidden_size 32 the width of embeddings is 24
vocab_size 24 preset.vocab is 21
EOS
padded() { # SOURCE OUT
	"$UNSHARD" export -o views=views.json,config=config \
		$1.safetensors/views/padded $2
}
with_config vocab_size 21
expect 1 'rows of embeddings is 24, but .* vocab_size 21: .* give "vocab": 21 ' \
	padded flat x
with_config vocab_size 25
expect 1 'rows of embeddings is 24, but config.json says vocab_size 25$' \
	padded stacked x
with_config vocab_size 24
expect 0 '' padded flat all_rows
echo '{"num_attention_heads": ' >config/config.json
expect 0 '' "$UNSHARD" export -o views=views.json,config=config \
	flat.safetensors/views/preset broken
no flat kvheads 'preset: unknown member "kvheads"'
no flat noheads 'preset.heads: expected a positive integer'
no plain both 'include\[0\] and exclude\[1\] are both "\*"'
no plain glob 'keep\[0\]: expected a pattern'
no plain text 'part: expected model'
no plain many 'exclude: expected a list of up to 256'
no plain zero 'rename\[0\]: expected \{"from"'
no plain more 'rename\[0\]: unknown member "form"'
no plain from0 'rename\[0\]: expected \{"from"'
no plain group 'rename\[0\].to: has \\9, but "from" has 2 groups'
# what would take minutes
costly() { # REGEX WHY
	"$PYTHON" -c 'import json, sys
rename = [{"from": eval(sys.argv[1]), "to": "c"}]
json.dump({"views": {"v": {"rename": rename}}}, open("costly.json", "w"))' "$1"
	expect 1 "rename.0..from: $2" "$UNSHARD" ls -o views=costly.json \
		plain.safetensors/views/v
}
costly '"a" * 1025' 'over 1024 bytes'
costly '"(" * 600 + ")" * 600' 'over 1024 bytes'
costly '"(a{1,200}){1,200}b"' '.. repeat over 1000 times in all'
costly '"a{99999999999999999999}"' '.. repeat over 1000 times'
costly '"((a*)*)*" + chr(92) + "1"' '.1 is for "to" only'
rm costly.json
no plain slash 'rename\[0\].to: ends in a backslash'
no plain to0 'rename: model.a.bias cannot be called so: safetensors reserves the name'
no plain to1 'rename\[0\]: model.a.bias would have a name of 0 bytes'
no plain to2 'model.a.bias would be called /x, which begins with /'
no plain to3 'would be called ../x, which .* has a part \.\.'
no plain to4 'would be called a/.., which .* has a part \.\.'
no plain to5 'rename: model.a.bias cannot be called so: its name is not UTF-8'
view plain unused unused
grep -q 'note: views.json: views.unused: fits no tensor: rename\[0\], include\[1\], keep\[0\], rows\[1\]$' \
	err || fail "not said: $(cat err)"
expect 2 'no file "nothing"|no folder "nothing"' "$UNSHARD" export \
	-o views=views.json plain.safetensors/views/nothing x
echo '{"views": {"a/b": {}}}' >bad.json
expect 1 '"a/b" is no name' "$UNSHARD" export -o views=bad.json \
	plain.safetensors/views/x x
printf '{"views": {"a\\u0000b": {}}}' >bad.json
expect 1 '"a" is no name' "$UNSHARD" export -o views=bad.json \
	plain.safetensors/views/a x
echo '{"views": {' >bad.json
expect 1 'bad.json: ' "$UNSHARD" export -o views=bad.json \
	plain.safetensors/views/x x

# CKPT/views/NAME is a checkpoint for what reads, and has views itself.
O=(-o views=views.json)
expect 0 '' "$UNSHARD" export "${O[@]}" plain.safetensors/views/bf16/reshard/dim0=2 two
"$UNSHARD" diff two bf16 >out || fail "reshard of a view: $(cat out)"
for form in dcp pt ckpt; do
	expect 0 '' "$UNSHARD" export "${O[@]}" --to $form plain.safetensors/views/bf16 as-$form
	"$UNSHARD" diff "${O[@]}" as-$form plain.safetensors/views/bf16 >out ||
		fail "$form: $(cat out)"
done
expect 0 '' "$UNSHARD" export "${O[@]}" plain.safetensors/views/bf16/dcp of-dcp
cmp of-dcp/.metadata as-dcp/.metadata || fail "views/bf16/dcp: other bytes"
expect 2 'views/bf16: has no file "views/fp16"' "$UNSHARD" export "${O[@]}" \
	plain.safetensors/views/bf16/views/fp16 x
"$UNSHARD" ls bf16 >want || fail "ls"
expect 0 '' "$UNSHARD" ls "${O[@]}" plain.safetensors/views/bf16/
cmp out want || fail "ls of a view: $(cat out)"
name=$(awk 'NR == 1 { print $NF }' want)
expect 0 '' "$UNSHARD" cat bf16 "$name"
mv out want
expect 0 '' "$UNSHARD" cat "${O[@]}" plain.safetensors/views/bf16 "$name"
cmp out want || fail "cat of a view"
expect 0 '' "$UNSHARD" inspect "${O[@]}" plain.safetensors/views/bf16 "$name"
echo '{"views": {"few": {"exclude": ["no*"]}, "none": {"include": ["no*"]}}}' \
	>notes.json
echo '{"mesh": {"shape": [2]}, "partition_spec": {"no": [0]}}' >m2.json
for what in ls inspect; do
	expect 0 '' "$UNSHARD" $what -o views=notes.json,reshard=m2.json \
		plain.safetensors
	cat out err >both
	for line in 'views: notes.json: views.few: fits no tensor: exclude.0' \
		'views: notes.json: views.none: no tensor is left' \
		'reshard: m2: fits no tensor: partition_spec "no"'; do
		grep -q "note: $line" both || fail "$what: no $line: $(cat both)"
	done
	expect 0 '' "$UNSHARD" $what -o views=notes.json plain.safetensors/views/few
done
rm notes.json m2.json both
expect 0 '' "$UNSHARD" plan "${O[@]}" plain.safetensors/views/bf16 --reshard dim0=2
grep -q ' of 2 ranks$' out || fail "plan of a view: $(cat out)"
expect 1 'views.json: views.clash: ' "$UNSHARD" ls "${O[@]}" plain.safetensors/views/clash
expect 1 'describes no view "nothing"' "$UNSHARD" ls "${O[@]}" plain.safetensors/views/nothing
expect 1 'without -o views=' "$UNSHARD" ls plain.safetensors/views/bf16
expect 2 'names a view, and --to another' "$UNSHARD" export "${O[@]}" --to pt \
	plain.safetensors/views/bf16/dcp x
expect 2 'no file "nothing"|no folder "nothing"' "$UNSHARD" export "${O[@]}" \
	plain.safetensors/views/bf16/nothing x
expect 1 'Not a directory' "$UNSHARD" seal "${O[@]}" plain.safetensors/views/bf16
# Matrices over the 8 MiB that an export reads at once, in as many threads.
printf '{"views": {"t": {"transpose": ["*"], "dtype": "float64"}}}' >t.json
"$PYTHON" - <<-'EOS' || fail "make t"
	import json, numpy as np
	a = np.arange(1777 * 2101, dtype="<f4")
	h = {n: {"dtype": "F32", "shape": s, "data_offsets": o} for n, s, o in (
	    ("a", [1777, 2101], [0, a.nbytes]),
	    ("b", [2101, 1777], [a.nbytes, 2 * a.nbytes]))}
	h = json.dumps(h).encode()
	with open("t.safetensors", "wb") as f:
	    f.write(len(h).to_bytes(8, "little") + h)
	    f.write(a.tobytes() + a[::-1].tobytes())
EOS
expect 0 '' "$UNSHARD" export -o views=t.json t.safetensors/views/t/tensors t.out
"$PYTHON" - <<-'EOS' || fail "transposed by an export"
	import numpy as np
	a = np.arange(1777 * 2101, dtype="<f4")
	for name, m in (("a", a.reshape(1777, 2101)), ("b", a[::-1].reshape(2101, 1777))):
	    got = np.fromfile("t.out/" + name, "<f8").reshape(m.T.shape)
	    assert np.array_equal(got, m.T), name
EOS
rm -r t.json t.safetensors t.out
[ ! -e x ] || fail "x was made"
done_ok
