#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves of random meshes by MindSpore, OneFlow and ColossalAI, cut element by element.

usage: meshes.py mindspore|oneflow|colossalai DIR SEED

Writes DIR/ckpt, DIR/want/NAME for each tensor (its bytes), DIR/opts.  Which
rank has which element is decided for every single one, by the frameworks' rules
as they are documented, with no arithmetic in common with the reader.
"""
import itertools, json, pathlib, pickle, random, struct, sys, types

kind, top, seed = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
rnd = random.Random(seed)
(top / "ckpt").mkdir(parents=True)
(top / "want").mkdir()
TYPES = [("Float32", "kFloat", "f", 4), ("Float64", "kDouble", "d", 8), ("Int32", "kInt32", "i", 4), ("Int64", "kInt64", "q", 8),
         ("Int8", "kInt8", "b", 1), ("UInt8", "kUInt8", "B", 1), ("Float16", "kFloat16", "e", 2)]


def element(index, shape, fmt, salt):
    n = salt
    for i, d in zip(index, shape):
        n = n * d + i
    return struct.pack("<" + fmt, n % 100)


def product(sizes):
    n = 1
    for s in sizes:
        n *= s
    return n


def whole(name, shape, fmt, salt):
    raw = b"".join(element(i, shape, fmt, salt) for i in itertools.product(*map(range, shape)))
    (top / "want" / name).write_bytes(raw)


def varint(n):
    out, n = b"", n & (1 << 64) - 1
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(key, n):
    return varint(key << 3) + varint(n)


def coordinate(n, sizes):
    out = []
    for s in reversed(sizes):
        out.insert(0, n % s)
        n //= s
    return out


class Layout:
    """A parameter of one stage: which device has which rows of each dimension."""

    def __init__(self, devices, rank):
        self.devices = devices
        axes = list(range(len(devices)))
        rnd.shuffle(axes)
        self.axes = []  # of each dimension, from the left; the most significant first
        nested = rnd.random() < 0.3
        for d in range(rank):
            take = rnd.choice([0, 1, 1, 2]) if nested else rnd.choice([0, 1])
            self.axes.append([axes.pop() for _ in range(min(take, len(axes)))])
        self.nested = any(len(a) > 1 for a in self.axes)
        self.parts = [product(devices[a] for a in dim) for dim in self.axes]
        copies = product(s for a, s in enumerate(devices) if not any(a in dim for dim in self.axes))
        sizes = [s for s in range(2, copies + 1) if copies % s == 0]
        self.shards, self.written = (1, 0)
        if rank and sizes and rnd.random() < 0.4:
            self.shards = rnd.choice(sizes)
            self.written = -1 if self.shards == copies and rnd.random() < 0.5 else self.shards
        self.shape = [p * (self.shards if d == 0 else 1) * rnd.randint(1, 3) for d, p in enumerate(self.parts)]

    def slice_of(self, device):
        at = coordinate(device, self.devices)
        out = []
        for dim in self.axes:
            n = 0
            for a in dim:
                n = n * self.devices[a] + at[a]
            out.append(n)
        return out

    def has(self, device, index):
        mine = self.slice_of(device)
        if any(i // (n // p) != m for i, n, p, m in zip(index, self.shape, self.parts, mine)):
            return False
        if self.shards == 1:
            return True
        same = [d for d in range(product(self.devices)) if self.slice_of(d) == mine]
        rows = self.shape[0] // self.parts[0]
        return index[0] % rows // (rows // self.shards) == same.index(device) % self.shards

    def map(self):
        last = len(self.devices) - 1
        return [[last - a for a in dim] or [-1] for dim in self.axes]

    def proto(self):
        out = field(1, b"".join(number(1, d) for d in self.devices))
        if self.nested:  # a map for each dimension, and an empty one after a single
            out += b"".join(field(2, b"".join(number(1, m) for m in dim)) for dim in self.map() + [[]] * (len(self.axes) == 1))
        else:
            out += field(2, b"".join(number(1, m[0]) for m in self.map()))
        return out + field(3, b"") + field(4, b"") + number(5, 0) + number(6, 0) + number(7, self.written)

    def json(self):
        return {"dev_matrix": self.devices, "field": 0, "opt_weight_shard_size": self.written, "opt_weight_shard_step": 0,
                "tensor_map": [m[0] for m in self.map()], "tensor_shape": self.shape}


def mindspore():
    stages = rnd.choice([1, 1, 2])
    size = rnd.choice([2, 4, 6, 8])
    shapes = {2: [[2]], 4: [[4], [2, 2]], 6: [[6], [2, 3], [3, 2]], 8: [[8], [2, 4], [4, 2], [2, 2, 2]]}[size]
    files = [b""] * (stages * size)
    proto = rnd.random() < 0.5
    described = [{} for _ in range(stages)]
    for t in range(rnd.randint(2, 5)):
        stage, (name, _, fmt, _) = t if t < stages else rnd.randrange(stages), rnd.choice(TYPES)
        l = Layout(rnd.choice(shapes), rnd.randint(1, 3))
        while l.nested and not proto:  # JSON writes such dimensions apart
            l = Layout(rnd.choice(shapes), len(l.axes))
        for tensor in (f"w{t}", f"moments.w{t}"):
            salt = rnd.randint(1, 50)
            whole(tensor, l.shape, fmt, salt)
            described[stage][tensor] = l
            for d in range(size):
                raw = b"".join(element(i, l.shape, fmt, salt) for i in itertools.product(*map(range, l.shape)) if l.has(d, i))
                dims = [n // p // (l.shards if k == 0 else 1) for k, (n, p) in enumerate(zip(l.shape, l.parts))]
                body = b"".join(number(1, n) for n in dims) + field(2, name.encode()) + field(3, raw)
                files[stage * size + d] += field(1, field(1, tensor.encode()) + field(2, body))
    for r, data in enumerate(files):
        at = top / "ckpt" / f"rank_{r}"
        at.mkdir()
        # a rank of a stage without parameters still saves its counter
        step = field(1, field(1, b"step_num") + field(2, number(1, 1) + field(2, b"Int32") + field(3, struct.pack("<i", 7))))
        (at / "net-2_5.ckpt").write_bytes(data + step)
    (top / "want" / "step_num").write_bytes(struct.pack("<i", 7))
    for s, layouts in enumerate(described):
        end = f"_stage{s}" if stages > 1 else ""
        if proto:
            items = b"".join(field(2, field(1, b"MatMul_" + n.encode()) + field(2, number(1, s))) for n in layouts)
            out = number(1, 1) + items + b"".join(field(3, field(1, n.encode()) + field(2, l.proto())) for n, l in layouts.items())
            (top / "ckpt" / f"strategy{end}.ckpt").write_bytes(out)
        else:
            (top / "ckpt" / f"strategy{end}.json").write_text(json.dumps({"current_stage": s, "parallel_strategy_item": {
                "MatMul_" + n: {"parallel_strategy": [[1]], "stage": s} for n in layouts},
                "parallel_layout_item": {n: l.json() for n, l in layouts.items()}}))
    (top / "opts").write_text("")


class FlowTensor:
    def __init__(self, path):
        self.__dict__["path"] = path


FlowTensor.__module__, FlowTensor.__qualname__, FlowTensor.__name__ = "oneflow", "Tensor", "Tensor"
sys.modules["oneflow"] = types.ModuleType("oneflow")
sys.modules["oneflow"].Tensor = FlowTensor


def balanced(rows, parts):
    """The first ones have one more."""
    return [rows // parts + (1 if p < rows % parts else 0) for p in range(parts)]


def box_of(shape, hierarchy, sbp, at):
    """[first, end) of each dimension, axis of the hierarchy after axis."""
    box = [[0, n] for n in shape]
    for size, how, here in zip(hierarchy, sbp, at):
        if how < 0:
            continue
        first, end = box[how]
        rows = balanced(end - first, size)
        box[how] = [first + sum(rows[:here]), first + sum(rows[: here + 1])]
    return box


def nest(flat, hierarchy):
    if len(hierarchy) == 1:
        return flat
    step = len(flat) // hierarchy[0]
    return [nest(flat[i * step : (i + 1) * step], hierarchy[1:]) for i in range(hierarchy[0])]


def oneflow():
    world = rnd.choice([2, 3, 4, 6, 8])
    states, rules, counts = [{} for _ in range(world)], [], [0] * world
    stand_ins = rnd.random() < 0.5
    words = rnd.random() < 0.5
    wanted, t = rnd.randint(2, 5), 0
    while len(rules) < wanted:
        t += 1
        used = rnd.choice([n for n in range(1, world + 1) if n in (1, 2, 3, 4, 6, 8)])
        ranks = sorted(rnd.sample(range(world), used))
        hierarchy = rnd.choice([[used]] + [[a, used // a] for a in range(2, used) if used % a == 0])
        shape = [rnd.randint(1, 9) for _ in range(rnd.randint(1, 3))]
        sbp = [rnd.choice([-1] + list(range(len(shape)))) for _ in hierarchy]
        _, name, fmt, width = rnd.choice(TYPES)
        salt, tensor = rnd.randint(1, 50), f"m.layer{t}.weight"
        boxes = [box_of(shape, hierarchy, sbp, coordinate(i, hierarchy)) for i in range(used)]
        if any(lo == hi for b in boxes for lo, hi in b):
            continue  # an empty part
        whole(tensor, shape, fmt, salt)
        for r in range(world):
            if r not in ranks and not stand_ins:
                continue
            box = boxes[ranks.index(r)] if r in ranks else [[0, 0]] * len(shape)
            raw = b"".join(element(i, shape, fmt, salt) for i in itertools.product(*(range(*b) for b in box)))
            counts[r] += rnd.randint(1, 3)
            at = top / "ckpt" / f"save_{r}" / f"tensor_{counts[r]}"
            at.mkdir(parents=True)
            (at / "meta").write_text("shape {\n" + "".join(f"  dim: {hi - lo}\n" for lo, hi in box) + "}\ndata_type: " + name + "\n")
            (at / "out").write_bytes(raw)
            states[r][tensor] = FlowTensor(at.name)
        flat = ranks[:]
        rnd.shuffle(flat)
        text = [("B" if words else "broadcast") if s < 0 else f"S({s})" if words else f"split({s})" for s in sbp]
        rules.append({"key": tensor, "placement": {"type": "cpu", "ranks": nest(flat, hierarchy)}, "sbp": text})
    for r, state in enumerate(states):
        at = top / "ckpt" / f"save_{r}"
        at.mkdir(exist_ok=True)
        (at / "pickled_data").write_bytes(pickle.dumps({"protocol_version": 1, "data": state}, rnd.choice([2, 3, 4])))
    (top / "sbp.json").write_text(json.dumps({"world_size": world, "path": "save_{rank}", "rules": rules}))
    (top / "opts").write_text(f"sbp={top}/sbp.json")


def safetensors(path, tensors):
    head, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def parameters(tp, stage, stages):
    """(name, shape, the dimension that is split or None, rows of padding) of what a stage has."""
    rows = rnd.randint(1, 5)
    if stage == 0:  # a vocabulary is padded in one piece only: it must divide otherwise
        yield "model.embed_tokens.weight", [rows * tp, rnd.randint(1, 4)], 0 if tp > 1 else None, rnd.randint(0, 6) if tp == 1 else 0
    for layer in range(stage * 2, stage * 2 + rnd.randint(1, 2)):
        for i in range(rnd.randint(2, 5)):
            shape, axis = [rnd.randint(1, 5) for _ in range(rnd.randint(0, 3))], None
            if shape and rnd.random() < 0.7:
                axis = rnd.randrange(len(shape))
                shape[axis] *= tp
            elif shape and rnd.random() < 0.1:
                shape[0] = 0
            yield f"model.layers.{layer}.w{i}.weight", shape, axis if tp > 1 else None, 0
    if stage == stages - 1:
        yield "model.norm.weight", [rows], None, 0


def piece(shape, axis, rank, tp, pad, fmt, salt):
    """The box of a rank, and its bytes: those of its elements, padding after them."""
    box = [[0, d] for d in shape]
    if axis is not None:
        mine = [i for i in range(shape[axis]) if i * tp // shape[axis] == rank]
        box[axis] = [mine[0], mine[-1] + 1]
    raw = b"".join(element(i, shape, fmt, salt) for i in itertools.product(*(range(*b) for b in box)))
    if pad:
        box[0][1] += pad
        raw += struct.pack("<" + fmt, 99) * (pad * product(shape[1:]))
    return box, raw


def colossalai():
    tp, stages, replicas = rnd.randint(1, 4), rnd.randint(1, 3), rnd.randint(1, 2)
    prefix, sharded = rnd.choice(["", ".ema", ".ema.v2"]), rnd.random() < 0.6
    types = [("F32", "f"), ("F64", "d"), ("F16", "e"), ("I64", "q"), ("U8", "B")]
    for stage in range(stages):
        params = [(*p, *rnd.choice(types), rnd.randint(1, 50)) for p in parameters(tp, stage, stages)]
        cuts = sorted(rnd.randint(0, len(params)) for _ in range(rnd.randint(0, 2))) if sharded else []
        for name, shape, _, _, _, fmt, salt in params:
            whole(name, shape, fmt, salt)
        for rank in range(tp):
            dist, records = tp * stage + rank, {}
            for shard, (lo, hi) in enumerate(zip([0, *cuts], [*cuts, len(params)])):
                file, held = f"model{prefix}-dist-{dist:05d}-shard-{shard:05d}.safetensors", {}
                file = file if sharded else f"pytorch_model-dist-{dist:05d}.safetensors"
                for name, shape, axis, pad, dtype, fmt, salt in params[lo:hi]:
                    box, raw = piece(shape, axis, rank, tp, pad, fmt, salt)
                    held[name] = dtype, [e - b for b, e in box], raw
                    records[name] = {"offsets": [b for b, _ in box], "lengths": [e - b for b, e in box], "global_shape": shape,
                                     "file": file if sharded else "/save/" + file, "rank": dist + tp * stages * rnd.randrange(replicas)}
                safetensors(top / "ckpt" / file, held)
            meta = {"checkpoint_version": "1.0", "total_size": 0.01 if sharded else None, "metadata": records}
            (top / "ckpt" / f"pytorch_model-meta-dist-{dist:05d}.index.json").write_text(json.dumps(meta))
    (top / "opts").write_text("")


{"mindspore": mindspore, "oneflow": oneflow, "colossalai": colossalai}[kind]()
