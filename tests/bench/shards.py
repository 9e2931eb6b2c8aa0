# SPDX-License-Identifier: Apache-2.0
"""shards.py FOLDER MIB ROWS: float32 tensors layers.N.weight of 4 MiB and so
many rows in four shards; the elements of tensor N count up from N."""
import json
import pathlib
import struct
import sys

import numpy

folder, each, rows = pathlib.Path(sys.argv[1]), int(sys.argv[2]) // 16, int(sys.argv[3])
folder.mkdir()
index = {}
for shard in range(4):
    file = f"model-{shard + 1:05}-of-00004.safetensors"
    numbers = range(shard * each, (shard + 1) * each)
    head = {}
    for i, n in enumerate(numbers):
        name = f"layers.{n}.weight"
        head[name] = {"dtype": "F32", "shape": [rows, (1 << 20) // rows],
                      "data_offsets": [i << 22, i + 1 << 22]}
        index[name] = file
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / file, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for n in numbers:
            f.write((numpy.arange(1 << 20) + n).astype("<f4").tobytes())
json.dump({"metadata": {}, "weight_map": index},
          open(folder / "model.safetensors.index.json", "w"))
