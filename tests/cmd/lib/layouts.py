# SPDX-License-Identifier: Apache-2.0
"""Checkpoints whose sharding is written nowhere, each with its layout.

usage: layouts.py DIR        makes DIR/CASE/{ckpt,layout.json,want/NAME}

A tensor here is a nested list of numbers; it is cut by plain loops over
indices, so that what is expected comes from nothing that is tested.
"""
import io
import itertools
import json
import pathlib
import pickle
import struct
import sys
import types
import zipfile

TOP = pathlib.Path(sys.argv[1])


# ---- tensors: a shape and a function of the index ----

class Tensor:
    def __init__(self, shape, at):
        self.shape, self.at = tuple(shape), at

    def indices(self):
        return itertools.product(*map(range, self.shape))

    def values(self):
        return [self.at(i) for i in self.indices()]

    def cut(self, dim, start, stop):
        shape = list(self.shape)
        shape[dim] = stop - start
        return Tensor(shape, lambda i: self.at(
            i[:dim] + (i[dim] + start,) + i[dim + 1:]))

    def flat(self, start, stop, size=None):
        all_ = self.values()
        part = all_[start:stop]
        part += [-1.0] * ((size or len(part)) - len(part))
        return Tensor((len(part),), lambda i: part[i[0]])

    def reshape(self, *shape):
        v, n = self.values(), []
        for d in range(len(shape)):
            step = 1
            for s in shape[d + 1:]:
                step *= s
            n.append(step)
        return Tensor(shape, lambda i: v[sum(a * b for a, b in zip(i, n))])

    def bytes(self):
        v = self.values()
        return struct.pack("<%df" % len(v), *v)


def numbers(first, *shape):
    """Small enough for a float32 to hold each exactly."""
    return Tensor(shape, lambda i: first + sum(
        x * 1000 ** k for k, x in enumerate(reversed(i))))


def bounds(n, parts, how):
    """Where each part of n begins and ends."""
    if how == "even":
        assert n % parts == 0
        sizes = [n // parts] * parts
    elif how == "ceil":
        each, sizes, left = -(-n // parts), [], n
        for _ in range(parts):
            sizes.append(min(each, left))
            left -= sizes[-1]
    elif how == "balanced":
        sizes = [n // parts + (k < n % parts) for k in range(parts)]
    else:
        sizes = how
    ends = list(itertools.accumulate(sizes))
    return list(zip([0] + ends[:-1], ends))


# ---- files ----

def safetensors(tensors):
    head, data = {}, b""
    for name, t in tensors.items():
        b = t.bytes()
        head[name] = {"dtype": "F32", "shape": list(t.shape),
                      "data_offsets": [len(data), len(data) + len(b)]}
        data += b
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def torch_save(tree):
    """What torch.save writes, without torch."""
    def named(module, name):
        m = sys.modules.setdefault(module, types.ModuleType(module))
        if not hasattr(m, name):
            setattr(m, name, type(name, (), {"__module__": module}))
        return getattr(m, name)

    rebuild = named("torch._utils", "_rebuild_tensor_v2")
    storage = named("torch", "FloatStorage")
    blobs = []

    class Stored:
        def __init__(self, b):
            self.b = b

    class Leaf:
        def __init__(self, t):
            self.t = t

        def __reduce__(self):
            stride, n = [], 1
            for s in reversed(self.t.shape):
                stride.insert(0, n)
                n *= max(s, 1)
            return (rebuild, (Stored(self.t.bytes()), 0, self.t.shape,
                              tuple(stride), False, {}))

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            if not isinstance(obj, Stored):
                return None
            blobs.append(obj.b)
            return ("storage", storage, str(len(blobs) - 1), "cpu",
                    len(obj.b) // 4)

    def wrap(x):
        if isinstance(x, dict):
            return {k: wrap(v) for k, v in x.items()}
        return Leaf(x) if isinstance(x, Tensor) else x

    out, pkl = io.BytesIO(), io.BytesIO()
    Pickler(pkl, 2).dump(wrap(tree))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", pkl.getvalue())
        z.writestr("archive/byteorder", "little")
        for i, b in enumerate(blobs):
            z.writestr("archive/data/%d" % i, b)
        z.writestr("archive/version", "3\n")
    return out.getvalue()


def case(name, files, layout, want):
    top = TOP / name
    for path, data in files.items():
        (top / "ckpt" / path).parent.mkdir(parents=True, exist_ok=True)
        (top / "ckpt" / path).write_bytes(data)
    (top / "want").mkdir(parents=True)
    for tensor, t in want.items():
        (top / "want" / tensor).write_bytes(t.bytes())
    (top / "layout.json").write_text(
        json.dumps({"unshard_layout": 1, **layout}, indent=1))


def mesh(**axes):
    return {"axes": [{"name": n, "size": s} for n, s in axes.items()]}


def st_files(pattern):
    return [{"path": pattern, "kind": "safetensors"}]


# ---- cases ----

W, V, B = numbers(0, 8, 6), numbers(50000, 4, 12), numbers(9000, 7)

# rows, columns, and what every rank has
for where, suffix in (("beside", ""), ("option", "-o")):
    case("rows-columns-" + where, {
        **({"unshard-layout.json": b""} if suffix else {}),
        **{"rank-%05d.safetensors" % r: safetensors({
            "w": W.cut(0, *bounds(8, 2, "even")[r]),
            "v": V.cut(1, *bounds(12, 2, "even")[r]), "b": B})
           for r in range(2)}}, {
        "mesh": mesh(tp=2), "files": st_files("rank-{rank:05}.safetensors"),
        "tensors": [{"name": "w", "placement": {"tp": {"shard": 0}}},
                    {"name": "v", "placement": {"tp": {"shard": 1}}},
                    {"name": "b", "placement": {"tp": "replicate"}}]},
        {"w": W, "v": V, "b": B})

# two dimensions by two axes; folders
case("mesh-2d", {
    "dp%d/tp%d.safetensors" % (d, t): safetensors(
        {"w": W.cut(0, *bounds(8, 2, "even")[d])
             .cut(1, *bounds(6, 3, "even")[t])})
    for d in range(2) for t in range(3)}, {
    "mesh": mesh(dp=2, tp=3), "files": st_files("dp{dp}/tp{tp}.safetensors"),
    "tensors": [{"name": "w", "placement": {"tp": {"shard": 1},
                                            "dp": {"shard": 0}}}]},
    {"w": W})

# 7 by 3: torch.chunk, numpy.array_split, and sizes as they were; 7 by 5 leaves
# the last ceil part empty
for how in ("ceil", "balanced", [4, 0, 3]):
    label = how if isinstance(how, str) else "explicit"
    case("sizes-" + label, {
        "r%d.safetensors" % r: safetensors(
            {"b": B.cut(0, *bounds(7, 3, how)[r])}) for r in range(3)}, {
        "mesh": mesh(x=3), "files": st_files("r{x}.safetensors"),
        "tensors": [{"name": "b", "dtype": "float32",
                     "placement": {"x": {"shard": 0, "sizes": how}}}]},
        {"b": B})
case("ceil-empty-part", {
    "r%d.safetensors" % r: safetensors(
        {"b": B.cut(0, *bounds(7, 5, "ceil")[r])}) for r in range(5)}, {
    "mesh": mesh(x=5), "files": st_files("r{x}.safetensors"),
    "tensors": [{"name": "b", "shape": [7],
                 "placement": {"x": {"shard": 0, "sizes": "ceil"}}}]},
    {"b": B})

# two axes on one dimension, in either order
for label, order in (("mesh", None), ("list", ("tp", "dp"))):
    n, files = {"dp": 2, "tp": 2}, {}
    for d, t in itertools.product(range(2), range(2)):
        first, second = (d, t) if label == "mesh" else (t, d)
        part = W.cut(0, *bounds(8, 2, "even")[first])
        part = part.cut(0, *bounds(4, 2, [3, 1])[second])
        files["d%dt%d.safetensors" % (d, t)] = safetensors({"w": part})
    inner = "tp" if label == "mesh" else "dp"
    steps = {a: {"shard": 0, **({"sizes": [3, 1]} if a == inner else {})}
             for a in n}
    case("one-dim-order-" + label, files, {
        "mesh": mesh(**n), "files": st_files("d{dp}t{tp}.safetensors"),
        "tensors": [{"name": "w", "placement": steps if not order else
                     [{"axis": a, **steps[a]} for a in order]}]}, {"w": W})

# flat ranges of what tp left, padded to a multiple
case("flat", {
    "r%d.safetensors" % r: safetensors(
        {"w": W.cut(1, *bounds(6, 2, "even")[r // 5])
              .flat(*bounds(25, 5, "even")[r % 5], size=5)})
    for r in range(10)}, {
    "mesh": mesh(tp=2, dp=5), "files": st_files("r{rank}.safetensors"),
    "tensors": [{"name": "w", "shape": [8, 6], "placement": {
        "tp": {"shard": 1}, "dp": {"flat": True, "padded": 25}}}]}, {"w": W})

# a vocabulary that was padded
case("padded", {
    "r%d.safetensors" % r: safetensors({"b": Tensor(
        (3,), lambda i, r=r: B.at((3 * r + i[0],)) if 3 * r + i[0] < 7
        else -1.0)}) for r in range(3)}, {
    "mesh": mesh(tp=3), "files": st_files("r{tp}.safetensors"),
    "tensors": [{"name": "b", "shape": [7], "placement": {
        "tp": {"shard": 0, "padded": 9}}}]}, {"b": B})

# stages: each counts its layers from 0; ranks in an order of their own
layers = [numbers(100000 * k, 4, 6) for k in range(4)]
case("stages", {
    "node/%d.safetensors" % rank: safetensors(
        {"layers.%d.w" % k: layers[2 * pp + k]
         .cut(0, *bounds(4, 2, "even")[tp]) for k in range(2)})
    for rank, (pp, tp) in zip((7, 3, 5, 1), itertools.product(
        range(2), range(2)))}, {
    "mesh": {**mesh(pp=2, tp=2), "ranks": [7, 3, 5, 1]},
    "files": st_files("node/{rank}.safetensors"),
    "tensors": [{"regex": "layers\\.([0-9]+)\\.(w|v)",
                 "name": "model.layers.{$1+pp*2}.{$2}",
                 "placement": {"tp": {"shard": 0}}}]},
    {"model.layers.%d.w" % k: layers[k] for k in range(4)})

# raw: a file a tensor, and several in one at offsets that depend on the rank
case("raw", {
    **{"%s.tp%d.bin" % (n, r): b"\0" * 16 + t.cut(
        0, *bounds(t.shape[0], 2, "even")[r]).bytes()
       for n, t in (("w", W), ("v", V)) for r in range(2)},
    "all.dat": b"head" + B.bytes() + W.bytes()}, {
    "mesh": mesh(tp=2),
    "files": [{"path": "{key}.tp{tp}.bin", "kind": "raw", "offset": 16},
              {"path": "all.dat", "kind": "raw", "items": [
                  {"key": "b", "offset": 4, "dtype": "float32", "shape": [7]},
                  {"key": "copy", "offset": "{4+28}", "dtype": "float32"}]}],
    "tensors": [{"name": "w", "dtype": "float32", "shape": [8, 6],
                 "placement": {"tp": {"shard": 0}}},
                {"name": "v", "dtype": "float32", "shape": [4, 12],
                 "placement": {"tp": {"shard": 0}}},
                {"name": "b"}, {"name": "copy", "shape": [8, 6]}]},
    {"w": W, "v": V, "b": B, "copy": W})

# torch.save files with nested keys
case("torch", {
    "mp_%02d_of_2.pt" % r: torch_save(
        {"model": {"w": W.cut(1, *bounds(6, 2, "even")[r]), "b": B},
         "step": 3}) for r in range(2)}, {
    "mesh": mesh(tp=2), "files": [{"path": "mp_{tp:02}_of_2.pt",
                                   "kind": "torch"}],
    "tensors": [
        {"name": "b", "key": "model.b", "placement": {"tp": "replicate"}},
        {"regex": "model\\.(.*)", "name": "{$1}",
         "placement": {"tp": {"shard": 1}}}]},
    {"w": W, "b": B})

# the key says the rank; wildcards in the path
case("key-tells", {
    "part-%s.safetensors" % "abc"[k]: safetensors(
        {"w.%d" % (2 - k): V.cut(1, *bounds(12, 3, "even")[2 - k]),
         "skip.%d" % k: B}) for k in range(3)}, {
    "mesh": mesh(tp=3), "files": st_files("part-*.safetensors"),
    "tensors": [{"regex": "(w)\\.([0-9])", "name": "{$1}",
                 "at": {"tp": "{$2}"}, "placement": {"tp": {"shard": 1}}},
                {"glob": "skip.?", "ignore": True}]}, {"w": V})
case("key-template", {"all.safetensors": safetensors(
    {"w_tp%d" % r: W.cut(0, *bounds(8, 4, "even")[r]) for r in range(4)})}, {
    "mesh": mesh(tp=4), "files": st_files("all.safetensors"),
    "tensors": [{"name": "w", "key": "w_tp{tp}",
                 "placement": {"tp": {"shard": 0}}}]}, {"w": W})

# fused: thirds of one dimension, each cut by tp
Q = numbers(0, 3, 4, 5)
case("view", {
    "r%d.safetensors" % r: safetensors(
        {"qkv": Q.cut(1, *bounds(4, 2, "even")[r]).reshape(6, 5)})
    for r in range(2)}, {
    "mesh": mesh(tp=2), "files": st_files("r{tp}.safetensors"),
    "tensors": [{"name": "qkv", "shape": [12, 5], "view": [3, 4, 5],
                 "placement": {"tp": {"shard": 1}}}]}, {"qkv": Q})

case("view-empty-piece", {
    "r%d.pt" % r: torch_save({"w": W.cut(1, *bounds(6, 3, [4, 0, 2])[r])})
    for r in range(3)}, {
    "mesh": mesh(x=3), "files": [{"path": "r{x}.pt", "kind": "torch"}],
    "tensors": [{"name": "w", "shape": [8, 6], "view": [2, 4, 6],
                 "placement": {"x": {"shard": 2, "sizes": [4, 0, 2]}}}]},
    {"w": W})

# explicit boxes: raw bytes, keys, flat ranges; and by coordinates
left, right = W.cut(1, 0, 2), W.cut(1, 2, 6)
case("boxes", {
    "a.bin": b"xx" + left.bytes(), "b.safetensors": safetensors(
        {"right": right, "flat": Tensor((9,), lambda i: [0, 0, *B.values()][
            i[0]])})}, {
    "tensors": [
        {"name": "w", "dtype": "float32", "shape": [8, 6], "boxes": [
            {"file": "a.bin", "offset": 2, "start": [0, 0], "size": [8, 2]},
            {"file": "b.safetensors", "kind": "safetensors", "key": "right",
             "start": [0, 2], "size": [8, 4]}]},
        {"name": "wt", "dtype": "float32", "shape": [2, 8], "boxes": [
            {"file": "a.bin", "offset": 2, "start": [0, 0], "size": [2, 8],
             "stride": [1, 2]}]},
        {"name": "b", "boxes": [
            {"file": "b.safetensors", "kind": "safetensors", "key": "flat",
             "skip": 2, "start": [0], "size": [7]}]}]},
    {"w": W, "b": B, "wt": Tensor((2, 8), lambda i: left.at((i[1], i[0])))})
# fused queries, keys and values of other sizes, cut by tp each: stretches of a
# key that has more, the first from its beginning on
fused = numbers(0, 16, 6)
case("boxes-fused", {
    "tp%d.safetensors" % r: safetensors({"qkv": Tensor(
        (8, 6), lambda i, r=r: fused.at(([
            *range(4 * r, 4 * r + 4), *range(8 + 2 * r, 10 + 2 * r),
            *range(12 + 2 * r, 14 + 2 * r)][i[0]], i[1])))})
    for r in range(2)}, {
    "tensors": [{"name": "qkv", "dtype": "float32", "shape": [16, 6], "boxes": [
        {"file": "tp%d.safetensors" % r, "kind": "safetensors",
         "skip": skip * 6, "start": [first + rows * r, 0], "size": [rows, 6]}
        for r in range(2)
        for skip, first, rows in ((0, 0, 4), (4, 8, 2), (6, 12, 2))]}]},
    {"qkv": fused})
case("boxes-at", {
    "r%d.safetensors" % r: safetensors({"w": t})
    for r, t in enumerate((left, right))}, {
    "mesh": mesh(x=2), "files": st_files("r{rank}.safetensors"),
    "tensors": [{"name": "w", "boxes": [
        {"at": {"x": 1}, "start": [0, 2], "size": [8, 4]},
        {"at": {"rank": 0}, "start": [0, 0], "size": [8, 2]}]}]}, {"w": W})

# what is for others
case("write-section", {"m.safetensors": safetensors({"b": B})}, {
    "write": {"tensors": [{"name": "b"}], "align": 1}, "comment": "ours",
    "$schema": "x",
    "files": st_files("m.safetensors"), "tensors": [{"glob": "*"}]}, {"b": B})

# three axes on one dimension, each cut otherwise, in the order of a list
files = {}
for a, b, c in itertools.product(range(2), range(3), range(2)):
    part = numbers(0, 29, 3)
    for nr, at, how in (2, c, "ceil"), (3, b, "balanced"), (2, a, "ceil"):
        part = part.cut(0, *bounds(part.shape[0], nr, how)[at])
    files["%d%d%d.safetensors" % (a, b, c)] = safetensors({"w": part})
case("three-on-one", files, {
    "mesh": mesh(a=2, b=3, c=2), "files": st_files("{a}{b}{c}.safetensors"),
    "tensors": [{"name": "w", "shape": [29, 3], "placement": [
        {"axis": "c", "shard": 0, "sizes": "ceil"},
        {"axis": "b", "shard": 0, "sizes": "balanced"},
        {"axis": "a", "shard": 0, "sizes": "ceil"}]}]},
    {"w": numbers(0, 29, 3)})

# ranks in another order, columns and rows uneven
order, files = [5, 0, 3, 1, 4, 2], {}
for pos, rank in enumerate(order):
    part = numbers(0, 5, 11).cut(0, *bounds(5, 2, "ceil")[pos // 3])
    part = part.cut(1, *bounds(11, 3, "ceil")[pos % 3])
    files["rank-%03d.safetensors" % rank] = safetensors({"w": part})
case("ranks-permuted", files, {
    "mesh": {**mesh(a=2, b=3), "ranks": order},
    "files": st_files("rank-{rank:03}.safetensors"),
    "tensors": [{"name": "w", "placement": {
        "a": {"shard": 0, "sizes": "ceil"},
        "b": {"shard": 1, "sizes": "ceil"}}}]}, {"w": numbers(0, 5, 11)})

# fused thirds cut by tp each, what is left flat over dp and padded
files, fused = {}, numbers(0, 24, 7)
for dp, tp in itertools.product(range(3), range(2)):
    part = fused.reshape(3, 8, 7).cut(1, *bounds(8, 2, "even")[tp])
    files["r%d_%d.safetensors" % (dp, tp)] = safetensors(
        {"w": part.flat(29 * dp, min(29 * dp + 29, 84), size=29)})
case("view-flat-padded", files, {
    "mesh": mesh(dp=3, tp=2), "files": st_files("r{dp}_{tp}.safetensors"),
    "tensors": [{"name": "w", "shape": [24, 7], "view": [3, 8, 7],
                 "placement": [{"axis": "tp", "shard": 1},
                               {"axis": "dp", "flat": True, "padded": 87}]}]},
    {"w": fused})

# virtual stages: each rank has a chunk of layers twice; a pattern to leave out
# what is not there
case("virtual-stages", {
    "pp%d.safetensors" % pp: safetensors({
        "chunk%d.layers.%d" % (c, i): numbers(100 * (c * 6 + pp * 3 + i), 3)
        for c in range(2) for i in range(3)}) for pp in range(2)}, {
    "mesh": mesh(pp=2), "files": st_files("pp{pp}.safetensors"),
    "tensors": [{"regex": "chunk([0-9])\\.layers\\.([0-9]+)",
                 "name": "layers.{6*$1+3*pp+$2}"},
                {"glob": "*_extra_state", "ignore": True}]},
    {"layers.%d" % i: numbers(100 * i, 3) for i in range(12)})
