#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# inspect: the summary, the picture, the pieces; what is torn, missing, bad
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
CKPT=$TOP/tests/demo/checkpoint
down=model.model.layers.0.mlp.down_proj.weight

expect 0 '' "$UNSHARD" inspect "$CKPT"
for line in 'format    dcp' 'tensors   12, ' 'cut       dim0=4' 'files     4, ' \
	'problems  none'; do
	grep -q "^$line" "$WORK/out" || fail "summary: no \"$line\""
done

expect 0 '' env COLUMNS=80 "$UNSHARD" inspect "$CKPT" $down
for line in '  down: axis 0, across: axis 1' '     0        13       26' \
	'   0 +--------+--------+' '     | rank 0 | rank 1 |' \
	'     | rank 2 | rank 3 |'; do
	grep -qxF "$line" "$WORK/out" || fail "picture: no \"$line\":" \
		"$(cat "$WORK/out")"
done

# The offsets are those of the bytes themselves, not of the items.
expect 0 '' "$UNSHARD" inspect --json "$CKPT" $down
cp "$WORK/out" "$WORK/one.json"
expect 0 '' "$UNSHARD" inspect --json "$CKPT"
expect_cat() { "$UNSHARD" cat "$CKPT" $down; }
"$PYTHON" - "$CKPT" "$WORK/one.json" "$WORK/out" <(expect_cat) <<-'EOS' ||
	import json, sys
	one = json.load(open(sys.argv[2]))
	all = json.load(open(sys.argv[3]))
	assert len(one["tensors"]) == 1 and one["objects"] == []
	t = one["tensors"][0]
	assert t in all["tensors"] and len(all["tensors"]) == 12
	rows, cols = t["shape"]
	out = bytearray(t["nbytes"])
	for s in t["sources"]:
	    assert "deferred" not in s and "stride" not in s
	    (r0, r1), (c0, c1) = s["box"]
	    with open(sys.argv[1] + "/" + s["file"], "rb") as f:
	        f.seek(s["offset"])
	        b = f.read(s["nbytes"])
	    w = (c1 - c0) * 4
	    assert len(b) == (r1 - r0) * w
	    for i in range(r1 - r0):
	        at = ((r0 + i) * cols + c0) * 4
	        out[at:at + w] = b[i * w:i * w + w]
	assert out == open(sys.argv[4], "rb").read()
EOS
	fail "JSON"

# A missing file, by name; the rest is drawn.
cp -r "$CKPT" "$WORK/part"
rm "$WORK/part/__3_0.distcp"
expect 1 'incomplete' "$UNSHARD" inspect "$WORK/part"
grep -qE '^ +__3_0.distcp +MISSING' "$WORK/out" || fail "files: no MISSING"
grep -qE 'error: .*__3_0.distcp' "$WORK/out" || fail "problems: no file"
expect 1 'cannot be read' "$UNSHARD" inspect "$WORK/part" $down
grep -q 'rank 3 missing' "$WORK/out" || fail "picture: not missing"
grep -q '__3_0.distcp .*, MISSING$' "$WORK/out" || fail "pieces: not missing"
expect 1 'cannot be read' "$UNSHARD" inspect --json "$WORK/part" $down
grep -q '"state": "missing"' "$WORK/out" || fail "JSON: not missing"

# A damaged item: found here, though the index knows nothing of it.
rm -r "$WORK/part"
cp -r "$CKPT" "$WORK/part"
off=$("$UNSHARD" plan --json "$CKPT" $down | "$PYTHON" -c '
import json, sys
print(min(r["offset"] for r in json.load(sys.stdin)["ranges"]
          if r["file"] == "__2_0.distcp"))')
head -c 300 /dev/zero | dd of="$WORK/part/__2_0.distcp" bs=1 \
	seek=$((off - 700)) conv=notrunc status=none
expect 1 'incomplete: [0-9]+ error' "$UNSHARD" inspect "$WORK/part"
grep -q '__2_0.distcp' <(sed -n '/^problems/,$p' "$WORK/out") ||
	fail "bad item: $(tail -n 3 "$WORK/out")"

# Long file names get keys, and a table of what they stand for.
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" \
	"$WORK/model-with-a-long-name-00001.safetensors" x F32 2,3
expect 0 '' "$UNSHARD" inspect "$WORK"/model-with-* x
grep -qx '  | A |' "$WORK/out" || fail "no key: $(cat "$WORK/out")"
grep -q '^  A  *model-with-a-long-name' "$WORK/out" || fail "no legend"

# Options of other formats, and of another reader's file.
echo 'whole *' >"$WORK/rules"
expect 0 '' "$UNSHARD" inspect -o "sbp=broadcast,rules=$WORK/rules" "$CKPT"
grep -qx '  warning: -o sbp=broadcast: .* it is for oneflow' "$WORK/out" ||
	fail "in vain: $(cat "$WORK/out")"
grep -qx '  note: -o rules=.*, and for reshard/tp=K' "$WORK/out" ||
	fail "in vain: $(cat "$WORK/out")"

expect 2 'no tensor' "$UNSHARD" inspect "$CKPT" nothing
expect 2 'takes slices' "$UNSHARD" inspect "$CKPT" "$down[1]"
expect 2 'expected CKPT' "$UNSHARD" inspect
expect 1 '.' "$UNSHARD" inspect "$WORK/none"
done_ok
