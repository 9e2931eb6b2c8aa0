#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# diff: names, shapes, types, elements; digests; against numpy
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
CKPT=$TOP/tests/demo/checkpoint

expect 0 '' "$UNSHARD" diff "$CKPT" "$CKPT"
[ "$(cat "$WORK/out")" = '12 equal, 0 differ, 0 only in A, 0 only in B' ] ||
	fail "equal: $(cat "$WORK/out")"

cd "$WORK" || exit 1
"$PYTHON" "$TOP/tests/cmd/lib/diff.py" write a.safetensors b.safetensors
"$UNSHARD" diff --json -a a.safetensors b.safetensors >out 2>err
[ $? = 1 ] || fail "they differ, exit code $?"
"$PYTHON" "$TOP/tests/cmd/lib/diff.py" check a.safetensors b.safetensors <out ||
	fail "other differences than numpy's"
"$UNSHARD" diff a.safetensors b.safetensors >out 2>err
cat >want <<'EOS'
- gone  float32 [64, 50]
~ half  float32 [64, 50] -> float16
~ i64  int64 [10]: 1 of 10 elements differ, by at most 4.61168602e+18, at [4]
~ lost  float32 [64, 50]: 172 of 3200 elements differ, first at [60, 7], 172 are NaN in one of them
~ nan  float32 [64, 50]: 2 of 3200 elements differ, by at most 0.5, at [3, 7], first at [1, 1], 1 is NaN in one of them
~ shape  float32 [64, 50] -> [50, 64]
+ new  float32 [64, 50]
EOS
grep -E ' (gone|half|i64|nan|lost|shape|new) ' out | diff want - >&2 ||
	fail "other lines"
tail -n 1 out | grep -q ' equal, .* 1 only in A, 1 only in B$' || fail summary

# a glob, many pieces, several threads: one element of 12 MiB at each end
# differ CODE PATTERN ARG...: in the output; a difference is no error
differ() {
	"$UNSHARD" diff "${@:3}" >out 2>err
	[ $? = "$1" ] || fail "${*:3}: exit code is not $1: $(cat err)"
	[ ! -s err ] || fail "${*:3}: on stderr: $(cat err)"
	grep -q -- "$2" out || fail "${*:3}: no $2: $(cat out)"
}
differ 0 '^1 equal' a.safetensors b.safetensors same
differ 1 'big .* 2 of 6291456 elements differ, by at most 3, at \[6291455\], first at \[0\]$' \
	a.safetensors b.safetensors 'b*g'
differ 1 'cast  float32 \[64, 50\] -> float16: 44 of 3200 elements differ, by at most [0-9.]*, at \[5, ' \
	a.safetensors b.safetensors 'cast'

# integers that float64 rounds are not the floats that they would become
"$PYTHON" - <<'EOS'
import json, struct
for file, dtype, data in (
        ("whole", "I64", struct.pack("<3q", 2 ** 53 + 1, 2 ** 63 - 1, 3)),
        ("float", "F64", struct.pack("<3d", 2 ** 53, 2 ** 63, 3))):
    head = json.dumps({"x": {"dtype": dtype, "shape": [3],
                             "data_offsets": [0, 24]}}).encode()
    with open(file + ".safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)
EOS
differ 1 'x .* 2 of 3 elements differ, by at most 1, at \[0\]' \
	whole.safetensors float.safetensors
differ 1 '2 of 3 elements differ' float.safetensors whole.safetensors

expect 2 'no tensor of A or B has a name like "nothing\*"' \
	"$UNSHARD" diff --json a.safetensors b.safetensors 'nothing*'

# what cannot be read is said, the rest is compared
head -c -100 a.safetensors >torn.safetensors
expect 1 'torn.safetensors.*1 tensor cannot be read' \
	"$UNSHARD" diff a.safetensors torn.safetensors
grep -q '^! mixed .*torn.safetensors' out || fail "torn: $(cat out)"
grep -q '1 cannot be read$' out || fail "torn: $(cat out)"
expect 2 'expected A B' "$UNSHARD" diff a.safetensors
expect 1 . "$UNSHARD" diff a.safetensors "$WORK/none"

# What was refused is in no list of tensors, and yet neither equal nor absent.
EX=$TOP/tests/formats
q=model.layers.0.self_attn.q_proj.weight
refused() { # NAME A B [GLOB]: one, as a line and as JSON
	expect 1 '1 tensor cannot be read$' "$UNSHARD" diff "${@:2}"
	[ "$(grep -c '^[-+~!] ' out)" = 1 ] &&
		grep -q "^! $1.*: refused: " out &&
		grep -q ' 0 only in A, 0 only in B, 1 cannot be read$' out ||
		fail "$*: $(cat out)"
	expect 1 '1 tensor cannot be read$' "$UNSHARD" diff --json "${@:2}"
	"$PYTHON" -c 'import json, sys
d = json.load(sys.stdin)
t, = d["tensors"]
assert t["name"] == sys.argv[1] and t["status"] == "unreadable", t
assert None in (t["a"], t["b"]) and ": refused: " in t["reason"], t
assert d["unreadable"] == 1, d' "$1" <out || fail "$*: $(cat out)"
}
d=$EX/colossalai/bad-dist-global-shape
refused $q "$d" "$d"
refused fc.weight "$EX/mindspore/bad-strategy-axis" \
	"$EX/mindspore/bad-strategy-axis"
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" q.safetensors $q U8 2
refused $q "$d" q.safetensors $q
refused $q q.safetensors "$d" $q
expect 0 '' "$UNSHARD" diff "$d" "$d" '*.o_proj.weight'

# An error that names no tensor may have cost any; a line for each of both.
d=$EX/deepspeed/bad-optim-as-model
"$UNSHARD" diff "$d" "$d" >out 2>err
[ $? = 1 ] || fail "an error that names no tensor: equal"
[ "$(grep -c 'incomplete: mp_rank_00_model_states.pt: ' err)" = 2 ] ||
	fail "an error that names no tensor: $(cat err)"

# Digests that agree save the reading: what is not read cannot be found wrong.
mkdir p q
cp a.safetensors p/ && cp a.safetensors q/
touch -d '1 hour ago' p/* q/*
"$UNSHARD" seal p >out && "$UNSHARD" seal q >out || fail seal
printf x | dd of=q/a.safetensors bs=1 seek=5000 conv=notrunc status=none
touch -d '1 hour ago' q/*.safetensors
differ 0 ' 0 differ' p q
differ 1 ' 1 differ' --read-all p q
touch q/*.safetensors
differ 1 ' 1 differ' p q
done_ok
