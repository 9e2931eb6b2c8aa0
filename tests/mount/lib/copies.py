# SPDX-License-Identifier: Apache-2.0
"""copies.py DIR COPIES ROWS COLUMNS PIECES: a uint8 tensor "w", stored often.

It is cut along dim 1; each piece is in COPIES files, and a layout says so.  Only
the standard library.
"""
import json
import os
import random
import struct
import sys

top = sys.argv[1]
copies, rows, columns, pieces = map(int, sys.argv[2:])
width = columns // pieces
os.makedirs(top)
for tp in range(pieces):
    part = random.Random(tp).randbytes(rows * width)
    head = {"w": {"dtype": "U8", "shape": [rows, width], "data_offsets": [0, len(part)]}}
    text = json.dumps(head).encode()
    for dp in range(copies):
        with open(f"{top}/dp{dp}-tp{tp}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + part)
layout = {
    "unshard_layout": 1,
    "mesh": {"axes": [{"name": "dp", "size": copies}, {"name": "tp", "size": pieces}]},
    "files": [{"path": "dp{dp}-tp{tp}.safetensors", "kind": "safetensors"}],
    "tensors": [{"name": "w", "placement": {"tp": {"shard": 1}, "dp": "replicate"}}],
}
with open(top + "/unshard-layout.json", "w") as f:
    json.dump(layout, f)
