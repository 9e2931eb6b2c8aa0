# SPDX-License-Identifier: Apache-2.0
"""join.py DIR NAME OUT: a tensor of split.py's shards, without our reader."""
import json
import os
import struct
import sys

top, name, out = sys.argv[1:]
pieces = []
for f in sorted(os.listdir(top)):
    if not f.endswith(".safetensors"):
        continue
    data = open(os.path.join(top, f), "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + n])
    at = json.loads(head["__metadata__"]["DCP_SHARDING_INFO"])[name]["saved_offsets"]
    a, b = head[name]["data_offsets"]
    pieces.append((at, head[name]["shape"], data[8 + n + a : 8 + n + b]))
size = {"U8": 1, "I16": 2}[head[name]["dtype"]]
if any(at[0] for at, _, _ in pieces):  # cut along dim 0
    whole = b"".join(p[2] for p in sorted(pieces))
else:  # along dim 1
    pieces.sort()
    rows = pieces[0][1][0]
    whole = b"".join(
        p[2][r * len(p[2]) // rows : (r + 1) * len(p[2]) // rows]
        for r in range(rows)
        for p in pieces
    )
open(out, "wb").write(whole)
