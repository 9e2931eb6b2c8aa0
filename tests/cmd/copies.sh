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
# the manifest tells which is right
"$UNSHARD" cat -o verify "$C" $N >"$WORK/now" || fail "-o verify"
same "$WORK/now" "$WORK/was"
