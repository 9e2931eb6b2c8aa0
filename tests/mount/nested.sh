#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# views of views: what views/NAME shows, cut, cast and in other containers, and
# the mount's own folders mounted again
. "$(dirname "$0")/lib/common.sh"
requires cmp "${PYTHON:=python3}"
CKPT=$here/tests/demo/checkpoint
cat >"$WORK/v.json" <<'EOS'
{"views": {"half": {"part": "model", "dtype": "bfloat16", "keep": ["*norm*"]},
           "named": {"rename": [{"from": "^model[.]model[.]", "to": "net."}],
                     "exclude": ["*lm_head*", "*embed*"]},
           "turned": {"transpose": ["*_proj.weight"], "dtype": "float64"},
           "bad": {"rename": [{"from": ".*", "to": "x"}]}}}
EOS
cat >"$WORK/grid.json" <<'EOS'
{"mesh": {"shape": [2, 3], "axes": ["x", "y"]},
 "partition_spec": {"*norm*": [["y", "x"]], "*": ["x", "y"]}}
EOS
mount_ckpt "$CKPT" "views=$WORK/v.json,reshard=$WORK/grid.json"
views=$MNT/views

# Nothing lists them, and they are there.
[ "$(ls "$views/half" | xargs)" = model.safetensors ] || fail "half: $(ls "$views/half")"
for view in half named turned; do
	want=$views/$view/model.safetensors
	for it in dcp hf model.pt model.ckpt reshard/dim0=3 reshard/dim0=2,dim1=3 \
		reshard/dim1=5 reshard/grid; do
		[ -e "$views/$view/$it" ] || fail "$view/$it is not there"
		[ "$it" = hf ] && [ $view != half ] && continue # no model names
		"$UNSHARD" diff "$views/$view/$it" "$want" >"$WORK/out" 2>&1 ||
			fail "$view/$it: $(cat "$WORK/out")"
	done
done
[ "$(ls "$views/half/reshard")" = grid ] || fail "reshard: $(ls "$views/half/reshard")"
[ "$views/half/dcp/.." -ef "$views/half" ] || fail ".. of dcp"
[ "$views/half/reshard/grid/../../.." -ef "$views" ] || fail ".. of grid"
for none in nothing shards .unshard views views/half dcp/nothing reshard/x; do
	[ ! -e "$views/half/$none" ] || fail "half/$none is there"
done
[ ! -e "$views/bad/dcp" ] || fail "bad/dcp is there"
ls "$views/half/reshard/tp=7" 2>/dev/null && fail "tp=7"
grep -q 'note: views/half: reshard: tp=7' "$MNT/.unshard/problems" ||
	fail "$(cat "$MNT/.unshard/problems")"
(: >>"$views/half/model.pt") 2>/dev/null && fail "opened for writing"

# One element, small pieces and large ones, by several readers at once.
"$PYTHON" - "$views/turned" <<'EOS' || fail "parts of files"
import concurrent.futures, json, os, random, struct, sys
def head(f):
    n = struct.unpack("<Q", f.read(8))[0]
    return json.loads(f.read(n)), 8 + n
with open(sys.argv[1] + "/model.safetensors", "rb") as f:
    whole, at = head(f)
    data = f.read()
def rows(name, rank):
    shape, (a, b) = whole[name]["shape"], whole[name]["data_offsets"]
    each = -(-shape[0] // 3)
    row = (b - a) // shape[0]
    return data[a + min(shape[0], rank * each) * row:a + min(shape[0], (rank + 1) * each) * row]
def read(rank):
    path, r = f"{sys.argv[1]}/reshard/dim0=3/rank-{rank:05}.safetensors", random.Random(rank)
    with open(path, "rb") as f:
        mine, at = head(f)
        for name, t in mine.items():
            if name == "__metadata__":
                continue
            want, start = rows(name, rank), at + t["data_offsets"][0]
            assert os.pread(f.fileno(), len(want), start) == want, name
            for _ in range(20):
                i = r.randrange(len(want) + 1)
                n = r.choice((1, 3, 8, 100, 4097))
                assert os.pread(f.fileno(), min(n, len(want) - i), start + i) == want[i:i + n]
with concurrent.futures.ThreadPoolExecutor() as pool:
    list(pool.map(read, [0, 1, 2] * 4))
EOS

# Mounted again: the folders of a mount are checkpoints.
mkdir "$WORK/again"
for it in views/named views/half/dcp dcp reshard/dim0=3 views/named/reshard/dim1=2 hf; do
	"$UNSHARD" mount "$MNT/$it" "$WORK/again" || fail "mount of $it"
	"$UNSHARD" diff "$WORK/again/model.safetensors" "$MNT/$it" >"$WORK/out" 2>&1 ||
		fail "$it again: $(cat "$WORK/out")"
	"$UNSHARD" diff "$WORK/again/reshard/dim0=2" "$MNT/$it" >"$WORK/out" 2>&1 ||
		fail "$it again, cut: $(cat "$WORK/out")"
	"$UNSHARD" umount "$WORK/again" || fail umount
done
"$UNSHARD" ls "$MNT" >"$WORK/out" 2>&1
[ $? = 1 ] || fail "ls of a mount: expected 1"
grep -q 'is the mount of a checkpoint: give one of its folders' "$WORK/out" ||
	fail "ls of a mount: $(cat "$WORK/out")"
umount_ckpt

# What is written in a mount is not shown a second time: none are there.
cp -r "$CKPT" "$WORK/copy"
mount_ckpt "$WORK/copy" "rw,views=$WORK/v.json"
[ ! -e "$MNT/views/half/dcp" ] || fail "rw: dcp is there"
umount_ckpt

# Bytes that are gone are an error however deep they are read from.
mount_ckpt "$WORK/copy" "views=$WORK/v.json"
cat "$MNT/views/turned/reshard/dim0=2/rank-00001.safetensors" >"$WORK/whole" ||
	fail "before"
truncate -s 20000 "$WORK/copy/__3_0.distcp"
cat "$MNT/views/turned/reshard/dim0=2/rank-00001.safetensors" >"$WORK/part" 2>"$WORK/err" &&
	fail "read what is gone"
grep -q 'Input/output error\|Stale file handle' "$WORK/err" || fail "$(cat "$WORK/err")"
cmp -n "$(stat -c %s "$WORK/part")" "$WORK/whole" "$WORK/part" || fail "zeros"
grep -q '__3_0.distcp' "$MNT/.unshard/problems" || fail "$(cat "$MNT/.unshard/problems")"
umount_ckpt

# Of a directory of checkpoints, more than stay parsed: an open file reads on.
mkdir "$WORK/runs"
for i in $(seq 40); do cp -r "$CKPT" "$WORK/runs/step-$i"; done
mount_ckpt "$WORK/runs" "views=$WORK/v.json"
exec 5<"$MNT/step-1/views/half/reshard/dim0=3/rank-00001.safetensors"
for i in $(seq 2 40); do
	cmp "$MNT/step-$i/views/half/reshard/dim0=3/rank-00001.safetensors" \
		"$MNT/step-1/views/half/reshard/dim0=3/rank-00001.safetensors" ||
		fail "step-$i"
done
cmp - "$MNT/step-2/views/half/reshard/dim0=3/rank-00001.safetensors" <&5 || fail "open file"
exec 5<&-
umount_ckpt
done_ok
