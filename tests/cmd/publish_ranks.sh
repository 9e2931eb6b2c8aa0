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
asks='how many there are: unshard publish --ranks N$'

# ---- OneFlow: a folder a rank
OF=$TOP/tests/formats/oneflow
rows=$OF/local-rows/in
stage "$rows/model_0"
expect 1 "files of 1 rank are there.*$asks" publish
"$UNSHARD" status "$SRC" | grep -q "$asks" || fail "status of one rank"
expect 1 'expected the files of 2 ranks, found 1: missing rank 1$' publish --ranks 2
cp -r "$rows/model_1" "$SRC/.staging-s/files"
expect 1 "split; .*files of 2 ranks are there.*$asks" publish
expect 1 'expected the files of 3 ranks, found 2: missing rank 2$' publish --ranks 3
published --ranks 2
# a word says how they are split, not over how many
stage "$rows"/model_*
expect 1 "files of 2 ranks are there.*$asks" publish -o 'sbp=split(0)'
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
expect 1 "files of 2 ranks are there.*$asks" publish -o 'sbp=split(0)'
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
expect 1 "files of 1 rank are there.*$asks" publish
published --ranks 1
exit 0
