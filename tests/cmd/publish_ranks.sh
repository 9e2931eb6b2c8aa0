# SPDX-License-Identifier: Apache-2.0
# Steps that several ranks write, and no file says how many: none is published
# before it was said, and then when all are there.
. "$(dirname "$0")/lib/common.sh"

SRC=$WORK/src
mkdir "$SRC"
# stage FILE...: a new step, as a mount that is gone leaves it
stage() {
	rm -rf "$SRC/.staging-s" "$SRC/s"
	mkdir -p "$SRC/.staging-s/files"
	[ $# = 0 ] || cp -r "$@" "$SRC/.staging-s/files"
}
publish() { "$UNSHARD" publish "$@" "$SRC/s"; }
# published [OPTION...]
published() {
	publish "$@" >"$WORK/out" 2>&1 || fail "publish $*: $(cat "$WORK/out")"
	[ -d "$SRC/s" ] || fail "publish $*: is not there"
}
asks='files of . ranks are there.*how many there are: unshard publish --ranks N$'
asks_of() { echo "$1 may be of one rank of several.*unshard publish --ranks N"; }

# ---- OneFlow: a folder a rank
OF=$TOP/tests/formats/oneflow
rows=$OF/local-rows/in
stage "$rows/model_0"
expect 1 "$(asks_of model_0)" publish
"$UNSHARD" status "$SRC" | grep -q "$(asks_of model_0)" || fail "status of one rank"
expect 1 'expected the files of 2 ranks, found 1: missing rank 1$' publish --ranks 2
cp -r "$rows/model_1" "$SRC/.staging-s/files"
expect 1 "split; .*; $asks" publish
expect 1 'expected the files of 3 ranks, found 2: missing rank 2$' publish --ranks 3
published --ranks 2
# a word says how they are split, not over how many
stage "$rows"/model_*
expect 1 "$asks" publish -o 'sbp=split(0)'
expect 1 'missing rank 2$' publish -o 'sbp=split(0)' --ranks 3
published -o 'sbp=split(0)' --ranks 2
stage "$rows/model_0"
published --ranks 1
# one damaged
stage "$rows"/model_*
truncate -s 5 "$SRC/.staging-s/files/model_1/pickled_data"
expect 1 'not complete' publish --ranks 2
# a file a rank, as of 1.0
stage "$OF/single-1.0-ranks/in"/graph_*
expect 1 'not complete' publish
expect 1 "$asks" publish -o 'sbp=split(0)'
published --ranks 2
# rules say how many
stage "$OF/rules-found/in/." # unshard-layout.json
published
stage "$OF/rules-found/in/."
rm "$SRC/.staging-s/files/graph_save_load_global_1"
expect 1 'rank [0-9]* is missing' publish
# what is no rank's
for whole in 0.9-module/in legacy/in 0.9-graph/in; do
	stage "$OF/$whole/."
	published
	[ $whole != 0.9-graph/in ] || continue
	stage
	cp -r "$OF/$whole" "$SRC/.staging-s/files/model"
	published
done
stage
cp -r "$OF/0.9-module/in" "$SRC/.staging-s/files/model_40"
expect 1 "$(asks_of model_40)" publish
published --ranks 1

# ---- torch.save by rank: pieces of a DTensor tell of all ranks
stage "$TOP/tests/formats/torch/dtensor-ranks/in/."
published
# plain tensors tell nothing: equal ones may be copies of more
ranks() { python3 "$TOP/tests/cmd/lib/ranks.py" "$SRC/.staging-s/files" "$@" || fail ranks.py; }
stage
ranks 4 4 +1 rank_0.pt rank_1.pt
expect 1 "$asks" publish
published --ranks 2
expect 0 '' "$UNSHARD" cat "$SRC/s" w
# and others are parts, or anything, but no copies; large ones too, of which
# some bytes are compared
for size in '4 4' '700 700'; do
	stage
	ranks $size 1 rank_0.pt rank_1.pt rank_2.pt
	expect 1 "w: rank_0.pt and rank_1.pt hold different ones.*; $asks" publish
	published --ranks 3
	for what in "cat $SRC/s w" "heal $SRC/s w" "heal --from rank_0.pt $SRC/s w"; do
		expect 1 'w: refused: rank_0.pt and rank_1.pt hold different' \
			"$UNSHARD" $what
	done
	for what in heal 'heal --from rank_0.pt' 'heal --sealed'; do
		expect 1 '1 tensor left out' "$UNSHARD" $what "$SRC/s"
		grep -q '^w: left as it is: .* nothing says which part' "$WORK/out" ||
			fail "$what: $(cat "$WORK/out")"
	done
	"$UNSHARD" verify "$SRC/s" >"$WORK/out" 2>&1
	grep -q ': as they were sealed' "$WORK/out" || fail "verify: $(cat "$WORK/out")"
done

# ---- a number that is no rank's
expect 2 'expected 1 or more, found 0' publish --ranks 0
for name in adapter_rank16.safetensors lora_rank8.pt; do
	stage
	if [ $name = lora_rank8.pt ]; then
		ranks 4 4 1 $name
	else
		python3 "$TOP/tests/cmd/lib/safetensors.py" \
			"$SRC/.staging-s/files/$name" w F32 4
	fi
	expect 1 "$(asks_of $name)" publish
	expect 1 "the files of 2 ranks, found rank" publish --ranks 2
	published --ranks 1
done
stage
ranks 4 4 1 lora_rank8.pt lora_rank16.pt
published --ranks 1
stage
ranks 4 4 1 frank2.pt
published
done_ok
