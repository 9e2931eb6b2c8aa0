#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layout: each kind of placement against plain loops, every mismatch with its
# file, and the layout of any checkpoint
LIMIT=180
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
"$PYTHON" "$TOP/tests/cmd/lib/layouts.py" "$WORK/cases" || fail "no cases"

# All tensors of a checkpoint, byte by byte: contents CKPT WANT [OPTION...]
contents() {
	local ckpt=$1 want=$2 t
	shift 2
	"$UNSHARD" ls "$@" "$ckpt" >"$WORK/out" || fail "$ckpt: ls"
	[ "$(wc -l <"$WORK/out")" = "$(find "$want" -type f | wc -l)" ] ||
		fail "$ckpt: tensors: $(cat "$WORK/out")"
	for t in "$want"/*; do
		"$UNSHARD" cat "$@" "$ckpt" "$(basename "$t")" >"$WORK/t" ||
			fail "$ckpt: cat $(basename "$t")"
		same "$WORK/t" "$t"
	done
}

nr=0
for c in "$WORK"/cases/*; do
	expect 0 '' "$UNSHARD" layout check "$c/layout.json" "$c/ckpt"
	grep -q ' fits: ' "$WORK/out" || fail "$c: $(cat "$WORK/out")"
	contents "$c/ckpt" "$c/want" -o "layout=$c/layout.json"
	# What show prints says the same; given as a file, and put beside.
	"$UNSHARD" layout show -o "layout=$c/layout.json" "$c/ckpt" \
		>"$WORK/shown" || fail "$c: show"
	contents "$c/ckpt" "$c/want" -o "layout=$WORK/shown"
	cp "$c/layout.json" "$c/ckpt/unshard-layout.json"
	contents "$c/ckpt" "$c/want"
	nr=$((nr + 1))
done
[ $nr -ge 20 ] || fail "only $nr cases"

# What does not fit is counted as what came of it.
L=$TOP/tests/formats/layout
while read -r case counts; do
	expect 1 "does not fit .*: $counts\$" "$UNSHARD" layout check \
		"$L/$case/in/unshard-layout.json" "$L/$case/in"
done <<-'EOS'
	bad-shape 2 problems, 1 left out tensor
	bad-copies-differ 1 problem, 1 left out tensor
	file-missing 3 problems, 2 incomplete tensors
	file-short 2 problems, 1 incomplete tensor
	bad-unmatched 2 problems
EOS

# What was refused is in no layout, and counted.
expect 1 'left out 7 tensors or pieces' "$UNSHARD" layout show \
	"$TOP/tests/formats/hf/missing-shard/in"
grep -q '"unshard_layout"' "$WORK/out" || fail "the rest is not shown"

# One that is given decides, also where another format's rules lie in the folder.
RULED=$TOP/tests/formats/oneflow/rules-found/in
"$UNSHARD" layout show "$RULED" >"$WORK/ruled" || fail "show $RULED"
expect 0 '' "$UNSHARD" ls "$RULED"
cp "$WORK/out" "$WORK/ruled.ls"
expect 0 '' "$UNSHARD" ls -o "layout=$WORK/ruled" "$RULED"
same "$WORK/out" "$WORK/ruled.ls"

# The layout of a checkpoint of another format, written into itself.
cp -r "$TOP/tests/demo/checkpoint" "$WORK/demo"
"$UNSHARD" layout show "$WORK/demo" >"$WORK/demo/unshard-layout.json" ||
	fail "show demo"
"$UNSHARD" ls --json "$WORK/demo" | grep -q '"layout"' || fail "not chosen"
"$UNSHARD" ls "$TOP/tests/demo/checkpoint" >"$WORK/a"
"$UNSHARD" ls "$WORK/demo" >"$WORK/b"
same "$WORK/a" "$WORK/b"
while read -r sum name; do
	"$UNSHARD" cat "$WORK/demo" "${name#\*}" | sha256sum >"$WORK/sum"
	[ "$sum" = "$(cut -d' ' -f1 <"$WORK/sum")" ] || fail "demo: $name"
done < <(sed 's|tensors/||' "$TOP/tests/demo/expected.sha256")

# A piece whose place nobody can tell, because its item is cut off or missing,
# is left out; it is never said to be where something else is.
for damage in 'truncate -s 13000' rm; do
	rm -rf "$WORK/torn"
	cp -r "$TOP/tests/demo/checkpoint" "$WORK/torn"
	$damage "$WORK/torn/__2_0.distcp"
	expect 1 'left out [0-9]+ tensors or pieces' \
		"$UNSHARD" layout show "$WORK/torn"
	mv "$WORK/out" "$WORK/torn.json"
	while read -r sum name; do
		name=${name#\*}
		"$UNSHARD" cat "$WORK/torn" "$name" >"$WORK/t" 2>/dev/null
		a=$?
		"$UNSHARD" cat -o "layout=$WORK/torn.json" "$WORK/torn" \
			"$name" >"$WORK/t" 2>/dev/null
		[ $? = $a ] || fail "$damage: $name: not $a"
		[ $a != 0 ] || [ "$(sha256sum <"$WORK/t")" = "$sum  -" ] ||
			fail "$damage: $name differs"
	done <"$TOP/tests/demo/expected.sha256"
done

# ---- what does not fit: a line each, with file, expected and found ----
D=$WORK/cases/rows-columns-option
cp -r "$D" "$WORK/bad"
D=$WORK/bad
rm "$D/ckpt/unshard-layout.json"
edit() { # JQ-LIKE PYTHON
	"$PYTHON" - "$D/layout.json" "$WORK/l.json" "$1" <<-'EOS'
		import json, sys
		d = json.load(open(sys.argv[1]))
		t = {t["name"]: t for t in d["tensors"]}
		exec(sys.argv[3])
		json.dump(d, open(sys.argv[2], "w"))
	EOS
}
mismatch() { # PYTHON PATTERN...: exactly these lines
	edit "$1" || fail "edit $1"
	expect 1 'does not fit' "$UNSHARD" layout check "$WORK/l.json" "$D/ckpt"
	[ "$(wc -l <"$WORK/out")" = $(($# - 1)) ] ||
		fail "$1: lines: $(cat "$WORK/out")"
	shift
	for p; do
		grep -qE -e "$p" "$WORK/out" || fail "no /$p/: $(cat "$WORK/out")"
	done
}
refused() { # PYTHON PATTERN
	edit "$1" || fail "edit $1"
	expect 1 "l\.json: .*$2" "$UNSHARD" layout check "$WORK/l.json" "$D/ckpt"
}
mismatch 't["w"]["shape"] = [8, 7]' \
	'tensor w: rank-00000.safetensors: w: expected shape \[4, 7\], found \[4, 6\]' \
	'tensor w: file rank-00001.safetensors: w: expected shape \[4, 7\], found \[4, 6\]'
mismatch 't["w"]["dtype"] = "bfloat16"' 'expected bfloat16, found float32' \
	'rank-00001.*expected bfloat16, found float32'
mismatch 't["w"]["placement"]["tp"]["sizes"] = [5, 3]' \
	'rank-00000.*expected shape \[5, 6\], found \[4, 6\]' \
	'rank-00001.*expected shape \[3, 6\], found \[4, 6\]'
mismatch 'del t["b"]["placement"]' \
	'tensor b: rank-00001.*rank-00000.*does not say what tp does'
mismatch 'd["tensors"].remove(t["b"])' \
	'rank-00000.*b: no member of "tensors"' 'rank-00001.*b: no member'
mismatch 'd["tensors"].append({"name": "gone", "shape": [2], "dtype": "int8"})' \
	'tensor gone: tensors\[3\]: expected in a file, found in none' \
	'tensor gone: 2 of 2 elements .* stored nowhere'
mismatch 't["v"]["shape"] = [4, 13]' 'dim 1, cut by tp: 13 do not make 2 even' \
	'rank-00001.*13 do not make 2'
mismatch 'd["mesh"]["axes"][0]["size"] = 3; d["tensors"] = [t["w"],
	{"glob": "[vb]", "ignore": True}]' \
	'rank-00002.safetensors: the file does not exist' \
	'tensor w: file rank-00002.*: 96 of its 288 bytes'
refused 't["w"]["placment"] = 1' 'tensors\[0\]: unknown member "placment"'
refused 't["w"]["placement"]["pp"] = "replicate"' \
	'tensors\[0\].placement.pp: is no axis of the mesh'
refused 't["w"]["placement"]["tp"]["sizes"] = [8]' \
	'tensors\[0\].placement.tp.sizes: expected 2 sizes.* found 1'
refused 't["w"]["placement"]["tp"]["sizes"] = "evn"' \
	'expected "even", "ceil", "balanced" or a list, found "evn"'
refused 'd["unshard_layout"] = 2' 'unshard_layout: expected 1.* found 2'
refused 'd["files"][0]["path"] = "{rnk}"' \
	'files\[0\].path: \{rnk\}: "rnk" is no axis of the mesh'
refused 'd["files"].append(dict(d["files"][0]))' 'files\[1\].path: names rank-0'
refused 'd["tensors"].append({"regex": "(a"})' 'tensors\[3\].regex: "\(a"'
refused 'd["tensors"].append({"regex": "a{2}"})' 'repetition'
refused 'd["tensors"].append({"regex": "(a)", "name": "{$2}"})' '\$2: there is'
# Never out of the checkpoint.
edit 'd["files"][0]["path"] = "../../ckpt/rank-{rank:05}.safetensors"'
expect 1 '"\.\."|outside|\.\./' "$UNSHARD" layout check "$WORK/l.json" "$D/ckpt"

# A missing file costs its parts only.
cp -r "$WORK/cases/rows-columns-beside" "$WORK/missing"
rm "$WORK/missing/ckpt/rank-00001.safetensors"
expect 1 'incomplete' "$UNSHARD" ls "$WORK/missing/ckpt"
"$UNSHARD" cat "$WORK/missing/ckpt" b >"$WORK/t" || fail "the replica"
same "$WORK/t" "$WORK/missing/want/b"
"$UNSHARD" cat "$WORK/missing/ckpt" 'w[0:4]' >"$WORK/t" || fail "what is there"
head -c 96 "$WORK/missing/want/w" | cmp - "$WORK/t" || fail "the first half"
expect 1 '.' "$UNSHARD" cat "$WORK/missing/ckpt" w

# A raw file that is longer than its tensor.
cp -r "$WORK/cases/raw" "$WORK/long"
echo >>"$WORK/long/ckpt/w.tp1.bin"
expect 1 'does not fit' "$UNSHARD" layout check "$WORK/long/layout.json" \
	"$WORK/long/ckpt"
grep -q 'w.tp1.bin: expected 112 bytes, found 113' "$WORK/out" ||
	fail "$(cat "$WORK/out")"

expect 2 'expected' "$UNSHARD" layout
expect 2 'expected check FILE CKPT, or show CKPT' "$UNSHARD" layout frob a
expect 1 'no such file' "$UNSHARD" layout check "$WORK/none" "$D/ckpt"
expect 1 'a format of its own' "$UNSHARD" ls \
	-o "format=hf,layout=$D/layout.json" "$D/ckpt"
"$UNSHARD" layout check --json "$WORK/l.json" "$D/ckpt" >"$WORK/out" 2>/dev/null
expect 1 'give the directory' "$UNSHARD" ls \
	"$WORK/cases/flat/ckpt/unshard-layout.json"

# The manual's example of flat with skip and offset, as it stands there.
mkdir "$WORK/flat"
"$PYTHON" - "$TOP/docs/man/unshard-layout.5.scd" "$WORK/flat" <<-'EOS' || fail "manual"
	import json, struct, sys
	text = open(sys.argv[1]).read().split("from its first byte on:")[1]
	out = sys.argv[2]
	json.dump(json.loads(text.split("```")[1]), open(out + "/unshard-layout.json", "w"))
	head = json.dumps({"x": {"dtype": "F32", "shape": [9],
	                         "data_offsets": [0, 36]}}).encode()
	first = struct.pack("<9f", -1, -2, 0, 1, 2, 3, 4, 5, -9)
	open(out + "/first.safetensors", "wb").write(
	    struct.pack("<Q", len(head)) + head + first)
	open(out + "/last.bin", "wb").write(struct.pack("<4f", 6, 7, 8, 9))
	open(out + "/../flat.want", "wb").write(struct.pack("<10f", *range(10)))
EOS
expect 0 '' "$UNSHARD" layout check "$WORK/flat/unshard-layout.json" "$WORK/flat"
"$UNSHARD" cat "$WORK/flat" b >"$WORK/t" || fail "cat b"
same "$WORK/t" "$WORK/flat.want"

# A mesh that is too small for the files of a pattern.
mkdir "$WORK/small"
for tp in 0 1 2; do
	for key in a b; do
		printf 12345678 >"$WORK/small/$key.tp$tp.bin"
	done
done
small() { # PATH MORE
	cat >"$WORK/small.json" <<-EOS
		{"unshard_layout": 1, "mesh": {"axes": [{"name": "tp", "size": 2}]},
		 "files": [{"path": "$1", "kind": "raw", $2}], "tensors": [
		  {"glob": "*", "dtype": "float32", "shape": [4],
		   "placement": {"tp": {"shard": 0}}}]}
	EOS
	expect 1 'does not fit .*: 1 problem$' "$UNSHARD" layout check \
		"$WORK/small.json" "$WORK/small"
	grep -q 'warning: file a.tp2.bin: files\[0\].path would name it were' \
		"$WORK/out" || fail "a mesh too small: $(cat "$WORK/out")"
}
small '{key}.tp{tp}.bin' '"offset": 0'
small 'a*.tp{tp}.bin' '"items": [{"key": "a", "offset": 0, "shape": [2]}]'
rm "$WORK"/small/*.tp2.bin
expect 0 '' "$UNSHARD" layout check "$WORK/small.json" "$WORK/small"

# Every example is what the schema says, and the schema refuses something.
"$PYTHON" -c 'import jsonschema' 2>/dev/null ||
	skip "the schema alone: needs jsonschema for Python; all else passed"
"$PYTHON" - "$TOP/docs/layout.schema.json" "$WORK"/cases/*/layout.json \
	"$WORK/shown" "$WORK/demo/unshard-layout.json" \
	"$WORK/flat/unshard-layout.json" "$WORK/small.json" <<-'EOS' || fail "schema"
	import json, sys, jsonschema
	schema = json.load(open(sys.argv[1]))
	cls = jsonschema.validators.validator_for(schema)
	cls.check_schema(schema)
	v = cls(schema)
	for path in sys.argv[2:]:
	    for e in v.iter_errors(json.load(open(path))):
	        sys.exit("%s: %s: %s" % (path, list(e.path), e.message))
	good = {"unshard_layout": 1, "tensors": [{"name": "w"}]}
	assert v.is_valid(good)
	for bad in ({"unshard_layout": 2}, {"tensros": []}, {"mesh": {}},
	            {"tensors": [{}]}, {"files": [{"path": "x"}]},
	            {"tensors": [{"name": "w", "placement": {"tp": {}}}]},
	            {"tensors": [{"name": "w", "boxes": [{"start": [0]}]}]}):
	    assert not v.is_valid({**good, **bad}), bad
EOS
done_ok
