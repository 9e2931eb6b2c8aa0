# SPDX-License-Identifier: Apache-2.0
"""A safetensors file from words NAME DTYPE DIM,DIM,...; bytes count up."""
import json
import sys

SIZES = {"U8": 1, "F8_E8M0": 1, "BF16": 2, "F32": 4, "I64": 8}
header, off = {}, 0
for name, dtype, dims in zip(*[iter(sys.argv[2:])] * 3):
    shape = [int(d) for d in dims.split(",") if d]
    n = SIZES[dtype]
    for d in shape:
        n *= d
    header[name] = {"dtype": dtype, "shape": shape,
                    "data_offsets": [off, off + n]}
    off += n
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(len(text).to_bytes(8, "little") + text)
    f.write(bytes(i % 251 for i in range(off)))
