#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Limits that the caller's shell sets, and those of core/base/limits.h that a small
# file can reach: a line each.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
CKPT=$TOP/tests/demo/checkpoint
cp -r "$CKPT" "$WORK/ckpt"

# ---- processor time: less than the parser would get
"$PYTHON" - "$WORK" <<'P'
import json, struct, sys
top = sys.argv[1]
def write(name, text):
    with open(f"{top}/{name}.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
write("slow", b"{" + b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i
                               for i in range(1300000)) + b"}")
def one(name, **more):
    write(name, json.dumps({"t": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0], **more}},
                           ).encode())
one("rank64", shape=[0] * 64)
one("rank65", shape=[0] * 65)
text = lambda n: json.dumps({"n" * n: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode()
write("name", text(64 << 10))
write("longer-name", text((64 << 10) + 1))
head = b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"__metadata__":{"x":"%s"}}'
write("header", head % (b"x" * (100000000 - len(head) + 2)))
write("longer-header", head % (b"x" * (100000000 - len(head) + 3)))
for n in 64, 65:
    with open(f"{top}/json-{n}.json", "w") as f:
        f.write("[" * n + "]" * n)
P
for t in 1 2; do
	(ulimit -t $t; expect 0 '' "$UNSHARD" ls "$CKPT") || exit
	(ulimit -t $t; expect 1 "the 1 s of processor time that the caller's limit leaves it \(ulimit -t\)" \
		"$UNSHARD" ls "$WORK/slow.safetensors") || exit
done

# ---- sizes of files; what is said goes to a pipe, which has none
small() { # BLOCKS COMMAND...
	local blocks=$1
	shift
	(ulimit -f "$blocks"; "$@" 2>&1; echo "exit $?") | cat >"$WORK/out"
	grep -q 'ile too large' "$WORK/out" && grep -q '^exit [13]$' "$WORK/out" ||
		fail "$*: $(cat "$WORK/out")"
}
small 0 "$UNSHARD" ls "$WORK/ckpt"
grep -q "by the caller's limit (ulimit -f)$" "$WORK/out" && grep -q '^exit 3$' "$WORK/out" ||
	fail "said of a limit that is not the checkpoint's: $(cat "$WORK/out")"
small 4 "$UNSHARD" export "$WORK/ckpt" "$WORK/new"
cp -r "$CKPT" "$WORK/many" # its manifest is larger than the catalog was
small 0 "$UNSHARD" seal "$WORK/many"
[ ! -e "$WORK/many/.unshard-manifest" ] || fail "half a manifest"

# ---- what docs/errors.md says: the most, and one more
ok() { expect 0 '' "$UNSHARD" ls "$WORK/$1.safetensors"; }
ok rank64
expect 1 64 "$UNSHARD" ls "$WORK/rank65.safetensors"
ok name
expect 1 'name' "$UNSHARD" ls "$WORK/longer-name.safetensors"
ok header
expect 1 '100000000' "$UNSHARD" ls "$WORK/longer-header.safetensors"
done_ok
