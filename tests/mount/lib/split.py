# SPDX-License-Identifier: Apache-2.0
"""split.py DIR OUT ROWS COLUMNS PIECES: a checkpoint and what it holds.

DIR gets what DCP's Hugging Face writer leaves for a uint8 tensor "w" that is
cut along dim 1 and an int16 tensor "cut.rows" of [ROWS, 3, 2] cut along
dim 0; OUT.w and OUT.rows the same whole.  Only the standard library.
"""
import json
import os
import random
import struct
import sys

out, whole = sys.argv[1:3]
rows, columns, pieces = map(int, sys.argv[3:])
os.makedirs(out, exist_ok=True)
rng = random.Random(7)
w = b"".join(rng.randbytes(min(1 << 24, rows * columns - a)) for a in range(0, rows * columns, 1 << 24))
r = rng.randbytes(rows * 12)
open(whole + ".w", "wb").write(w)
open(whole + ".rows", "wb").write(r)
for k in range(pieces):
    a, b = columns * k // pieces, columns * (k + 1) // pieces
    c, d = rows * k // pieces, rows * (k + 1) // pieces
    piece = b"".join(w[i * columns + a : i * columns + b] for i in range(rows))
    part = r[12 * c : 12 * d]
    head = {
        "__metadata__": {
            "format": "pt",
            "DCP_VERSION": "1.0",
            "DCP_SHARDING_INFO": json.dumps(
                {"w": {"saved_offsets": [0, a]}, "cut.rows": {"saved_offsets": [c, 0, 0]}}
            ),
        },
        "w": {"dtype": "U8", "shape": [rows, b - a], "data_offsets": [0, len(piece)]},
        "cut.rows": {
            "dtype": "I16",
            "shape": [d - c, 3, 2],
            "data_offsets": [len(piece), len(piece) + len(part)],
        },
    }
    text = json.dumps(head).encode()
    name = f"shard-{k + 1:05}-model-00001-of-00001.safetensors"
    with open(os.path.join(out, name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + piece + part)
