#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# the reshards that this project was asked for, by their own numbers: which
# reads they take, and every value of every rank
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
cd "$WORK" || exit 1

seed() { "$PYTHON" "$TOP/tests/cmd/lib/seeds.py" "$@" || fail "$*"; }
# reads N CKPT MESH: that many; a mesh that is a file is given as FILE.json.
reads() {
	expect 0 '' "$UNSHARD" plan "$2" --json --reshard "$3"
	got=$(grep -c '"dest_shard"' out)
	[ "$got" = "$1" ] || fail "plan $2 --reshard $3: $got reads, not $1"
}
cut() { # CKPT MESH OUT
	rm -rf "$3"
	case $2 in
	*.json) expect 0 '' "$UNSHARD" export -o "reshard=$2" \
		"$1/reshard/${2%.json}" "$3" ;;
	*) expect 0 '' "$UNSHARD" export "$1/reshard/$2" "$3" ;;
	esac
}

# --- [[1,2,3,4],[5,6,7,8]] by [2,1] is two [1,4]
"$PYTHON" - <<'EOS'
import json, struct
head = json.dumps({"w": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}}).encode()
with open("eight.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + struct.pack("<8f", *range(1, 9)))
EOS
seed mesh two_by_one.json 2,1
seed strategy ms_two_by_one.json 2,1 1,0 w
for by in two_by_one.json ms_two_by_one.json dim0=2 dim0=2,dim1=1; do
	reads 2 eight.safetensors $by
	cut eight.safetensors $by o
	seed holds o/rank-00000.safetensors w 1,4 1 2 3 4
	seed holds o/rank-00001.safetensors w 1,4 5 6 7 8
done

# --- MindSpore's four [2,8] are two [4,8], and so are the moments
row4=$TOP/tests/formats/mindspore/2.10-row4/in
seed strategy to2.json 2 0,-1 weight moments.weight
cut "$row4" to2.json o
for name in weight moments.weight; do
	expect 0 '' "$UNSHARD" cat "$row4" $name
	mv out whole
	for rank in 0 1; do
		expect 0 '' "$UNSHARD" ls o/rank-0000$rank.safetensors
		grep -q "^float32 *\[4, 8\] *128 *ok *$name$" out ||
			fail "rank $rank: $(cat out)"
		expect 0 '' "$UNSHARD" cat o/rank-0000$rank.safetensors $name
		cat out
	done >parts
	same whole parts
done
[ "$(find o -name "rank-*" | wc -l)" = 2 ] || fail "ranks: $(ls o)"
# ... and from what was saved integrated, by one rank, without its strategy
mkdir integrated
cp "$TOP/tests/formats/mindspore/2.10-integrated/in/rank_0/net.ckpt" integrated
seed strategy from_whole.json 2 0,-1 a.weight moments.a.weight
reads 13 integrated from_whole.json # 2 of each of these two, 1 of 9 others
cut integrated from_whole.json o
for name in a.weight moments.a.weight; do
	expect 0 '' "$UNSHARD" cat integrated $name
	head -c 96 out >half
	expect 0 '' "$UNSHARD" cat o/rank-00000.safetensors $name
	same half out
done

# --- 64 stored, 1 and 56 wanted: FSDP gives two rows to half of them
seed make 64 w 64,3 64,1
reads 64 64 dim0=1
cut 64 dim0=1 o
seed parts o w 64,3 1,1
reads 64 64 dim0=56
cut 64 dim0=56 o
seed parts o w 64,3 56,1 ceil
# who wants equal parts is told whose dimension it is
expect 1 'w: dimension 0: 64 is no multiple of 56' \
	"$UNSHARD" plan 64 --reshard tp=56
seed strategy to56.json 56 0,-1 w
expect 1 'w: dimension 0: 64 is no multiple of 56' \
	"$UNSHARD" plan 64 --reshard to56.json

# --- stages of whole layers, that do not divide, times ranks of a gated layer
# and of groups of queries: embeddings on the first stage, the last norm on the last
seed megatron 7.safetensors 7
rules=rules=megatron,if=swiglu
for it in pp=2,tp=4,groups=4:3,4 pp=2,tp=2,layers=5+2:5,2 pp=3,tp=4:2,3,2 \
	pp=4,tp=1:1,2,2,2 pp=7,tp=2:1,1,1,1,1,1,1; do
	mesh=${it%:*} tp=${it#*tp=}
	cut 7.safetensors "$mesh,$rules" o
	seed stages o "${tp%%[,:]*}" "${it#*:}"
	"$UNSHARD" diff 7.safetensors o >out || fail "$mesh again: $(cat out)"
done
expect 1 'linear_qkv.*: dimension 0: 4 groups are no multiple of 8' \
	"$UNSHARD" plan 7.safetensors --reshard "pp=2,tp=8,groups=4,$rules"
expect 1 'weight: dimension [01]: [0-9]* is no multiple of 3' \
	"$UNSHARD" plan 7.safetensors --reshard "tp=3,$rules"
expect 1 'layers= make 6, the checkpoint has 7' \
	"$UNSHARD" plan 7.safetensors --reshard "pp=2,layers=3+3"

# --- from one piece to any mesh: one read for each part that has something
seed make 1 w 12,12
for nr in 1,1 2,2 3,4 12,1 1,12 4,6; do
	seed mesh any.json $nr
	reads $((${nr%,*} * ${nr#*,})) 1 any.json
	cut 1 any.json o
	seed parts o w 12,12 $nr
done
seed mesh any.json 5,7 # ceil: 3 rows, 2 columns; a fifth, a seventh are empty
reads $((4 * 6)) 1 any.json
cut 1 any.json o
seed parts o w 12,12 5,7 ceil

# --- 2 -> 4, 4 -> 2, (4,4) -> (2,2), (4,1) -> (2,2)
while read -r from to nr; do
	rm -rf c
	seed make c w 16,16 "$from"
	seed mesh m.json "$to"
	reads "$nr" c m.json
	cut c m.json o
	seed parts o w 16,16 "$to"
done <<'EOS'
2,1 4,1 4
4,1 2,1 4
4,4 2,2 16
4,1 2,2 8
EOS
done_ok
