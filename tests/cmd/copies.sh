#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Small replicas that differ: named at mount, never served from one of them.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cp

# ---- a norm that both tensor-parallel ranks of DeepSpeed saved ----
C=$WORK/autotp
cp -r "$TOP/tests/formats/deepspeed/autotp/in" "$C"
chmod -R u+w "$C"
"$UNSHARD" inspect --json "$C" >"$WORK/json" || fail inspect
flip() { # TENSOR COPY: a byte of that replica
	"$PYTHON" - "$C" "$WORK/json" "$1" "$2" <<-'EOS'
		import json, sys
		at, doc, name, nr = sys.argv[1:]
		t = [t for t in json.load(open(doc))["tensors"] if t["name"] == name][0]
		s = t["sources"][int(nr)]
		assert "replica_of" in t["sources"][1], t
		with open(at + "/" + s["file"], "r+b") as f:
		    f.seek(s["offset"])
		    b = f.read(1)
		    f.seek(s["offset"])
		    f.write(bytes([b[0] ^ 1]))
	EOS
}
N=exp_avg.layers.0.norm.bias
"$UNSHARD" cat "$C" $N >"$WORK/was" || fail "cat"
"$UNSHARD" seal "$C" >/dev/null || fail seal
flip $N 0
expect 1 '1 error noted' "$UNSHARD" ls "$C"
grep -q " $N\$" "$WORK/out" && fail "served from one of two"
expect 1 "$N: refused: its copies in zero_pp_rank_1_mp_rank_00_optim_states.pt and zero_pp_rank_1_mp_rank_01_optim_states.pt differ" \
	"$UNSHARD" cat "$C" $N
"$UNSHARD" cat "$C" exp_avg.layers.0.norm.weight >/dev/null ||
	fail "others are refused too"
# the manifest tells which is right; but what these files hold of other files
# is in that block too
expect 1 'zero_pp_rank_1_mp_rank_00_optim_states.pt: block 0, .*not what was sealed' \
	"$UNSHARD" cat -o verify "$C" $N
expect 0 '' "$UNSHARD" heal --sealed "$C"
expect 0 '' "$UNSHARD" verify --replicas "$C" # the zip's own sum, too
"$UNSHARD" cat -o verify "$C" $N >"$WORK/now" || fail "-o verify"
same "$WORK/now" "$WORK/was"

# ---- one rank's file under the name of another, which nothing in it denies ----
twins() { # CASE OPTIONS A B
	C=$TOP/tests/formats/$1/in
	shift
	expect 0 '' "$UNSHARD" ls $1 "$C"
	grep -q "warning: $3: holds the same bytes as $2 where" "$WORK/err" ||
		fail "$C: ls: $(cat "$WORK/err")"
	expect 0 '' "$UNSHARD" inspect $1 "$C"
	grep -q "warning: file $3: holds the same bytes as $2 " "$WORK/out" ||
		fail "$C: inspect: $(cat "$WORK/out")"
	expect 0 '' "$UNSHARD" verify --replicas $1 "$C"
	grep -q "^$2, $3: all bytes of all [0-9]* pieces are the same" \
		"$WORK/out" || fail "$C: verify: $(cat "$WORK/out")"
	expect 0 '' "$UNSHARD" verify --replicas --json $1 "$C"
	grep -q "\"twins\": \[{\"files\": \[\"$2\", \"$3\"\], \"pieces\": [0-9]*}\]" \
		"$WORK/out" || fail "$C: verify --json: $(cat "$WORK/out")"
}
twins mindspore/bad-rank-copied '' node1/CKP_1-4_32.ckpt node2/CKP_1-4_32.ckpt
twins colossalai/bad-dist-rank-copied '' pytorch_model-dist-00000.safetensors \
	pytorch_model-dist-00001.safetensors
twins oneflow/bad-rank-copied '-osbp=split(0)' model_0 model_1

# ---- DeepSpeed's, whose vectors are compared as the files have them ----
alike() { # CASE A B
	expect 0 '' "$UNSHARD" inspect "$TOP/tests/formats/deepspeed/$1/in"
	grep -q "warning: file $3: holds the same bytes as $2 where the two should" \
		"$WORK/out" || fail "$1: inspect: $(cat "$WORK/out")"
}
Z=zero_pp_rank_1_mp_rank_00_optim_states.pt
O=bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt
M=zero_pp_rank_%d_mp_rank_00_model_states.pt
alike bad-zero3-rank-copied "${O/\%d/0}" "${O/\%d/2}"
alike bad-zero3-rank-copied "${M/\%d/1}" "${M/\%d/2}"
alike bad-layer-copied layer_01-model_states.pt layer_02-model_states.pt
"$UNSHARD" inspect "$TOP/tests/formats/deepspeed/bad-legacy-rank-copied/in" \
	>"$WORK/out" 2>&1 && fail "a legacy file of another rank is read"
grep -q "file bf16_$Z: holds the same bytes as bf16_${Z/_1_/_0_} where" \
	"$WORK/out" || fail "legacy: $(cat "$WORK/out")"
# the same files where nothing was copied
"$PYTHON" - "$TOP/tests/formats/deepspeed/zero3-frozen/in" "$WORK/apart" <<'EOS'
import pathlib, sys, zipfile
src, to = map(pathlib.Path, sys.argv[1:])
to.mkdir()
for f in src.iterdir():
    with zipfile.ZipFile(f) as z, zipfile.ZipFile(to / f.name, "w") as out:
        for i in z.infolist():
            out.writestr("archive/" + i.filename.split("/", 1)[1], z.read(i))
EOS
expect 0 '' "$UNSHARD" ls "$WORK/apart"
[ ! -s "$WORK/err" ] || fail "apart: $(cat "$WORK/err")"
# in the middle they are alike, and the rest tells that they are not
"$PYTHON" - "$WORK" <<'EOS'
import json, struct, sys
at = sys.argv[1] + "/large"
import os
os.makedirs(at)
for r in range(2):
    head = json.dumps({"w": {"dtype": "U8", "shape": [65536], "data_offsets": [0, 65536]}}).encode()
    body = bytearray(i * 7 % 251 for i in range(65536))
    body[9] = r
    name = f"model-dist-{r:05d}-shard-00000.safetensors"
    with open(f"{at}/{name}", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + body)
    with open(f"{at}/pytorch_model-meta-dist-{r:05d}.index.json", "w") as f:
        json.dump({"metadata": {"w": {"offsets": [65536 * r], "lengths": [65536],
                   "global_shape": [131072], "file": name, "rank": r}}}, f)
EOS
expect 0 '' "$UNSHARD" verify --replicas "$WORK/large"
grep -q '^warning: .*holds the same bytes as' "$WORK/out" || fail "large: $(cat "$WORK/out")"
grep -q 'all bytes of all' "$WORK/out" && fail "large: $(cat "$WORK/out")"
done_ok
