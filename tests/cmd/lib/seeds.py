# SPDX-License-Identifier: Apache-2.0
"""seeds.py make OUT NAME ROWS,COLUMNS [GRID]   float32 0, 1, 2, ... as a layout:
                                            one file for each part of GRID
seeds.py mesh OUT N,N                       a placement file: every tensor over x, y
seeds.py strategy OUT DEVICES MAP NAME...   MindSpore's strategy in JSON
seeds.py holds FILE NAME SHAPE VALUE...     values: numbers, or A:B
seeds.py parts FOLDER NAME ROWS,COLUMNS GRID [ceil]  each rank has its part of make's
seeds.py megatron OUT LAYERS                a model of Megatron's with swiglu and four groups
seeds.py stages FOLDER TP LAYERS,LAYERS,... each rank has its part of that model"""
import json
import os
import struct
import sys


def numbers(text):
    return [int(n) for n in text.split(",")]


def make(out, name, shape, grid="1,1"):
    shape, grid = numbers(shape), numbers(grid)
    size = [n // k for n, k in zip(shape, grid)]
    boxes = []
    os.mkdir(out)
    for i in range(grid[0]):
        for j in range(grid[1]):
            file, start = f"s{i}-{j}.bin", [i * size[0], j * size[1]]
            with open(os.path.join(out, file), "wb") as f:
                f.write(part(shape, start, size))
            boxes.append({"file": file, "offset": 0, "start": start, "size": size})
    tensors = [{"name": name, "dtype": "float32", "shape": shape, "boxes": boxes}]
    with open(os.path.join(out, "unshard-layout.json"), "w") as f:
        json.dump({"unshard_layout": 1, "tensors": tensors}, f)


def part(shape, start, size):
    rows = range(start[0], start[0] + size[0])
    columns = range(start[1], start[1] + size[1])
    values = [r * shape[1] + c for r in rows for c in columns]
    return struct.pack(f"<{len(values)}f", *values)


def mesh(out, shape):
    json.dump({"mesh": {"shape": numbers(shape), "axes": ["x", "y"]},
               "partition_spec": {"*": ["x", "y"]}}, open(out, "w"))


def strategy(out, devices, tensor_map, *names):
    item = {"dev_matrix": numbers(devices), "tensor_map": numbers(tensor_map),
            "field": 0, "opt_weight_shard_step": 0, "opt_weight_shard_size": 0}
    json.dump({"current_stage": 1, "parallel_strategy_item": {},
               "parallel_layout_item": {n: item for n in names}}, open(out, "w"))


def load(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        head = json.loads(f.read(n))
        data = f.read()
    return {k: (t["shape"], data[slice(*t["data_offsets"])])
            for k, t in head.items() if k != "__metadata__"}


def holds(path, name, shape, *values):
    got, data = load(path)[name]
    want = []
    for v in values:
        a, _, b = v.partition(":")
        want += range(int(a), int(b)) if b else [int(a)]
    assert got == numbers(shape), got
    assert data == struct.pack(f"<{len(want)}f", *want), struct.unpack(f"<{len(data) // 4}f", data)


def parts(folder, name, shape, grid, how=""):
    shape, grid = numbers(shape), numbers(grid)
    ranks = [f for f in os.listdir(folder) if f != "unshard-layout.json"]
    assert len(ranks) == grid[0] * grid[1], ranks
    each = [-(-n // k) for n, k in zip(shape, grid)]
    assert how == "ceil" or all(n % k == 0 for n, k in zip(shape, grid))
    for i in range(grid[0]):
        for j in range(grid[1]):
            start = [min(p * e, n) for p, e, n in zip((i, j), each, shape)]
            size = [min(e, n - s) for e, n, s in zip(each, shape, start)]
            rank = os.path.join(folder, f"rank-{i * grid[1] + j:05}.safetensors")
            got = load(rank)[name]
            assert got == (size, part(shape, start, size)), (rank, got[0], size)


WIDE, HIDDEN, GROUPS, ROWS = 24, 16, 4, 8  # rows of a group: queries, key, value


def model(layers):
    """name -> shape, and how tp cuts it: a dimension, or "gated"."""
    out = {"embedding.word_embeddings.weight": ([20, HIDDEN], 0)}
    for i in range(layers):
        at = f"decoder.layers.{i}."
        out[at + "self_attention.linear_qkv.weight"] = [GROUPS * ROWS, HIDDEN], 0
        out[at + "self_attention.linear_qkv.layer_norm_weight"] = [HIDDEN], None
        out[at + "self_attention.linear_proj.weight"] = [HIDDEN, HIDDEN], 1
        out[at + "mlp.linear_fc1.weight"] = [2 * WIDE, HIDDEN], "gated"
        out[at + "mlp.linear_fc2.weight"] = [HIDDEN, WIDE], 1
    out["decoder.final_layernorm.weight"] = [HIDDEN], None
    out["output_layer.weight"] = [20, HIDDEN], 0
    return out


def megatron(out, layers):
    head, at = {}, 0
    for name, (shape, _) in model(int(layers)).items():
        n = 4 * shape[0] * (shape + [1])[1]
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head).encode()
    with open(out, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for shape, _ in model(int(layers)).values():
            f.write(part((shape + [1])[:2], [0, 0], (shape + [1])[:2]))


def stages(folder, tp, layers):
    tp, layers = int(tp), numbers(layers)
    last = len(layers) - 1
    for rank in range(tp * len(layers)):
        stage, i = divmod(rank, tp)
        want = {}
        for name, (shape, how) in model(sum(layers)).items():
            word = name.split(".")
            if word[1] == "layers":
                here = sum(layers[:stage]) <= int(word[2]) < sum(layers[:stage + 1])
            else:
                here = stage == (0 if word[0] == "embedding" else last)
            if not here:
                continue
            size, start = (shape + [1])[:2], [0, 0]
            if how == "gated":
                size = [WIDE // tp, HIDDEN]
                want[name] = [2 * size[0], HIDDEN], b"".join(
                    part(shape, [half + i * size[0], 0], size) for half in (0, WIDE))
                continue
            if how is not None:
                size[how] //= tp
                start[how] = i * size[how]
            want[name] = size[:len(shape)], part((shape + [1])[:2], start, size)
        got = load(os.path.join(folder, f"rank-{rank:05}.safetensors"))
        assert got == want, (rank, sorted(got), sorted(want))


globals()[sys.argv[1]](*sys.argv[2:])
