# SPDX-License-Identifier: Apache-2.0
"""readonce_make.py FOLDER MIB: a model of so many MiB in four safetensors files, tensors
of 400 KiB to 16 MiB, and nothing of it in the page cache."""
import json
import os
import pathlib
import struct
import sys

FILES = 4
SHAPES = [(200, 1024), (1024, 4096), (2048, 4096), (800, 512), (4096, 1024), (512, 512)]


def write(path, names, shapes, block):
    head, at = {}, 0
    for name, shape in zip(names, shapes):
        size = 2 * shape[0] * shape[1]
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        while at:
            at -= f.write(block[: min(at, len(block))])
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


folder, each = pathlib.Path(sys.argv[1]), int(sys.argv[2]) * (1 << 20) // FILES
folder.mkdir(parents=True, exist_ok=True)
block, where = os.urandom(8 << 20), {}
for nr in range(FILES):
    names, shapes, left = [], [], each
    while left > 0:
        shapes.append(SHAPES[len(shapes) % len(SHAPES)])
        names.append(f"layers.{nr}.{len(names)}.weight")
        left -= 2 * shapes[-1][0] * shapes[-1][1]
    file = f"model-{nr + 1:05}-of-{FILES:05}.safetensors"
    write(folder / file, names, shapes, block)
    where.update(dict.fromkeys(names, file))
(folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
