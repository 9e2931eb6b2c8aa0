#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# views/ in a mount: as exported, at any offset, in many sizes, not written to
. "$(dirname "$0")/lib/common.sh"
requires cmp "${PYTHON:=python3}"
CKPT=$here/tests/demo/checkpoint
cat >"$WORK/v.json" <<'EOS'
{"views": {"half": {"part": "model", "dtype": "float16"},
           "wide": {"dtype": "float64"},
           "turned": {"transpose": ["*_proj.weight"]},
           "both": {"transpose": ["*.mlp.*"], "dtype": "float64"},
           "bad": {"rename": [{"from": ".*", "to": "x"}]}}}
EOS
mount_ckpt "$CKPT" "views=$WORK/v.json"
[ "$(ls "$MNT/views" | xargs)" = "both half turned wide" ] || fail "there is $(ls "$MNT/views")"
grep -q 'views.bad: .* would both be called x' "$MNT/.unshard/problems" ||
	fail "problems: $(cat "$MNT/.unshard/problems")"
for v in half wide turned both; do
	f=$MNT/views/$v/model.safetensors
	"$UNSHARD" export -o "views=$WORK/v.json" "$CKPT/views/$v" "$WORK/$v" \
		>/dev/null || fail "export $v"
	same "$f" "$WORK/$v/model.safetensors"
	"$PYTHON" - "$f" "$WORK/$v/model.safetensors" <<-'EOS' || fail "$v: parts"
		import os, random, sys
		want = open(sys.argv[2], "rb").read()
		fd, r = os.open(sys.argv[1], os.O_RDONLY), random.Random(7)
		for _ in range(300):
		    at = r.randrange(len(want))
		    n = r.choice((1, 2, 3, 7, 8, 100, 5000))
		    assert os.pread(fd, n, at) == want[at:at + n], (at, n)
	EOS
done
"$PYTHON" - "$MNT" <<-'EOS' || fail "transposed"
	import json, struct, sys
	def load(path):
	    data = open(path, "rb").read()
	    n = struct.unpack("<Q", data[:8])[0]
	    head = json.loads(data[8:8 + n])
	    head.pop("__metadata__")
	    return {k: (h["dtype"], h["shape"], data[8 + n + h["data_offsets"][0]:8 + n + h["data_offsets"][1]])
	            for k, h in head.items()}
	def turn(shape, data, size):
	    rows, cols = shape
	    return b"".join(data[(r * cols + c) * size:(r * cols + c + 1) * size]
	                    for c in range(cols) for r in range(rows))
	plain = load(sys.argv[1] + "/model.safetensors")
	wide = load(sys.argv[1] + "/views/wide/model.safetensors")
	for view, want, size in ("turned", plain, 2), ("both", wide, 8):
	    got = load(sys.argv[1] + "/views/" + view + "/model.safetensors")
	    nr = 0
	    for name, (dtype, shape, data) in got.items():
	        type, from_shape, bytes = want[name]
	        assert dtype == type, name
	        if "mlp" in name or (view == "turned" and "_proj.weight" in name):
	            nr += 1
	            from_shape, bytes = from_shape[::-1], turn(from_shape, bytes, size if dtype in ("BF16", "F64") else 4)
	        assert (shape, data) == (from_shape, bytes), (view, name)
	    assert nr, view
EOS
(: >>"$MNT/views/half/model.safetensors") 2>/dev/null && fail "opened for writing"
umount_ckpt

# A document that is wrong for any tensors is said before anything is mounted.
echo '{"views": {"half": {"dtyp": "bfloat16"}}}' >"$WORK/bad.json"
expect 3 'bad.json: views.half: unknown member "dtyp"$' "$UNSHARD" mount \
	"$CKPT" "$MNT" -o "views=$WORK/bad.json"
mounted && fail "it is mounted"
done_ok
