#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plan: doing what it says gives what cat gives
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
CKPT=$TOP/tests/demo/checkpoint

follow() { # CKPT NAME: plan --json is in $WORK/out
	"$PYTHON" - "$1" "$WORK/out" >"$WORK/got" <<-'EOS' || fail "$2: plan"
		import json, os, sys
		p = json.load(open(sys.argv[2]))
		out, seen = bytearray(p["nbytes"]), 0
		for r in p["ranges"]:
		    path = sys.argv[1]
		    if os.path.isdir(path):
		        path = os.path.join(path, r["file"])
		    with open(path, "rb") as f:
		        f.seek(r["offset"])
		        part = f.read(r["nbytes"])
		    assert len(part) == r["nbytes"], r
		    out[r["dst"]:r["dst"] + len(part)] = part
		    seen += len(part)
		assert seen == p["nbytes"] and p["not_stored"] == 0, p
		sys.stdout.buffer.write(out)
	EOS
}
agree() { # CKPT NAME
	expect 0 '' "$UNSHARD" plan --json "$1" "$2"
	follow "$1" "$2"
	expect 0 '' "$UNSHARD" cat "$1" "$2"
	same "$WORK/got" "$WORK/out"
}

head=model.model.embed_tokens.weight
for name in $head "$head[2:5,:]" "$head[-40:, 3:17]" "$head[7]" \
	"$head[:, -1]" "$head[3:3]" model.model.norm.weight; do
	agree "$CKPT" "$name"
done
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" "$WORK/m.safetensors" \
	cube BF16 5,6,7 s F32 ''
agree "$WORK/m.safetensors" cube
expect 2 steps "$UNSHARD" plan "$WORK/m.safetensors" 'cube[1:3, ::, 2]'
agree "$WORK/m.safetensors" 'cube[1:3, :, 2]'
agree "$WORK/m.safetensors" s

# For people: one line for what repeats; whole rows of one file are one run.
expect 0 '' "$UNSHARD" plan "$WORK/m.safetensors" 'cube[:, 2]'
grep -qE ' 14 +0 +m.safetensors +x 5 every 84 -> 14$' "$WORK/out" ||
	fail "repeat: $(cat "$WORK/out")"
expect 0 '' "$UNSHARD" plan "$WORK/m.safetensors" cube
[ "$(wc -l <"$WORK/out")" = 3 ] || fail "one run: $(cat "$WORK/out")"

# --reshard: pairs that meet, for a mesh in words or a file.
DATA=$TOP/tests/mount/data/reshard/torch_xla
pairs() { grep -o '"fqn"[^}]*"dest_offsets"' "$WORK/out" | wc -l; }
for mesh in dim1=4 dim0=2,dim1=2 tp=1; do
	expect 0 '' "$UNSHARD" plan "$DATA/10_seed_4x1" --json --reshard $mesh
	echo "$mesh $(pairs)"
done >"$WORK/pairs"
printf 'dim1=4 12\ndim0=2,dim1=2 8\ntp=1 4\n' | cmp - "$WORK/pairs" ||
	fail "reads: $(cat "$WORK/pairs")"
expect 0 '' "$UNSHARD" plan "$DATA/10_seed_4x1" --reshard=dim0=2
[ "$(tail -n 1 "$WORK/out")" = '4 reads for 2 shards of 2 ranks' ] ||
	fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" plan "$WORK/m.safetensors" --reshard dim0=3
[ "$(tail -n 1 "$WORK/out")" = '4 reads for 4 shards of 3 ranks' ] ||
	fail "one read a shard: $(cat "$WORK/out")"
expect 2 'expected dimN=K' "$UNSHARD" plan "$DATA/10_seed_4x1" --reshard x
expect 1 'fc.weight: dimension 0: 8' "$UNSHARD" plan "$DATA/10_seed_4x1" \
	--reshard tp=3
printf '%s' '{"mesh": {"shape": [2]}, "partition_spec": {"fc.w*": [0], "cf*": [0],' \
	' "x": null}}' >"$WORK/some.json"
expect 0 '' "$UNSHARD" plan "$DATA/10_seed_4x1" --reshard "$WORK/some.json"
grep -q 'some.json: fits no tensor: partition_spec "cf\*", partition_spec "x"$' \
	"$WORK/err" || fail "not said: $(cat "$WORK/err")"
! grep -q 'warning' "$WORK/err" || fail "a warning: $(cat "$WORK/err")"
# Where none does, it is of another model, and nothing would be cut.
printf '%s' '{"mesh": {"shape": [2]}, "partition_spec": {"cf*": [0]}}' \
	>"$WORK/none.json"
printf '%s' '{"rules": [{"key": "cf*", "placement": {"device": "cpu",' \
	' "ranks": [0, 1]}, "sbp": ["S(0)"]}]}' >"$WORK/none.sbp.json"
for f in none.json none.sbp.json; do
	vain="$f: fits no tensor: .* \"cf\*\": every rank has all of every tensor\$"
	expect 0 '' "$UNSHARD" plan "$DATA/10_seed_4x1" --reshard "$WORK/$f"
	grep -q "warning: .*$vain" "$WORK/err" ||
		fail "plan, $f: $(cat "$WORK/err")"
	expect 0 '' "$UNSHARD" ls -o reshard="$WORK/$f" "$DATA/10_seed_4x1"
	grep -q "warning: -o reshard=.*$vain" "$WORK/err" ||
		fail "ls, $f: $(cat "$WORK/err")"
done
expect 0 '' "$UNSHARD" ls -o reshard="$WORK/some.json" "$DATA/10_seed_4x1"
! grep -q 'warning' "$WORK/err" || fail "ls: $(cat "$WORK/err")"
# Of two heads of keys four ranks have a whole one each, which is said.
mkdir "$WORK/heads"
python3 "$TOP/tests/cmd/lib/safetensors.py" "$WORK/heads/model.safetensors" \
	h.0.self_attn.q_proj.weight F32 16,4 h.0.self_attn.k_proj.weight F32 4,4
echo '{"num_attention_heads": 8, "num_key_value_heads": 2}' \
	>"$WORK/heads/config.json"
expect 0 '' "$UNSHARD" plan "$WORK/heads" --reshard tp=4
grep -q 'note: tp=4: 2 heads for 4 ranks, so that each is whole on 2: h.0.self_attn.k' \
	"$WORK/err" || fail "heads: $(cat "$WORK/err")"
grep -q 'k_proj.weight  rank 3  at \[2, 0\] size \[2, 4\]' "$WORK/out" ||
	fail "half a head: $(cat "$WORK/out")"
expect 1 'k_proj.weight: dimension 0: 2 heads' "$UNSHARD" plan "$WORK/heads" \
	--reshard tp=3
mkdir "$WORK/other"
echo '{"num_attention_heads": 4, "num_key_value_heads": 4}' \
	>"$WORK/other/config.json"
expect 0 '' "$UNSHARD" plan -o config="$WORK/other" "$WORK/heads" --reshard tp=4
[ ! -s "$WORK/err" ] || fail "heads that divide: $(cat "$WORK/err")"
# a path that is not absolute, from where the sandbox cannot look it up
(cd "$WORK" && expect 0 '' "$UNSHARD" plan -o config=other heads --reshard tp=4) ||
	exit 1
expect 2 'CKPT alone' "$UNSHARD" plan "$DATA/10_seed_4x1" x --reshard tp=2
expect 2 'twice' "$UNSHARD" plan "$CKPT" --reshard tp=2 --reshard tp=1
expect 2 'CKPT NAME' "$UNSHARD" plan "$CKPT"

# What is not there is said, with 1, and the rest is still planned.
cp -r "$CKPT" "$WORK/part"
rm "$WORK/part/__3_0.distcp"
expect 1 'cannot be read' "$UNSHARD" plan --json "$WORK/part" $head
grep -q '"error": "missing"' "$WORK/out" || fail "no error in the plan"
grep -q '"file": "__0_0.distcp", "offset"' "$WORK/out" || fail "nothing left"
expect 1 'cannot be read' "$UNSHARD" plan "$WORK/part" $head
grep -q 'ERROR: missing' "$WORK/out" || fail "no error for people"

expect 1 'part: incomplete: [0-9]+ missing' "$UNSHARD" plan "$WORK/part" \
	--reshard dim0=1
grep -q ' reads for ' "$WORK/out" || fail "nothing left of the mesh"

expect 2 'no tensor' "$UNSHARD" plan "$CKPT" nothing
expect 2 'expected CKPT NAME' "$UNSHARD" plan "$CKPT"
done_ok
