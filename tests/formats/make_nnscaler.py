#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints as nnScaler does, of any plan, with the tensors that they are of.

usage: make_nnscaler.py DIR [KEY=VALUE...]     DIR/ck/*.ckpt, DIR/want/NAME (the bytes)
       make_nnscaler.py examples               anew: nnscaler/*/in beside this script

Needs nothing but Python.  Keys: plan, units, zero (0 1 3), groups, buckets, stages, dedup, mixed, st (safetensors),
old (0.8: fewer fields), table (0: ZeRO 3 without one), bf16, seed, layers, width, steps.
"""
import array, base64, io, json, math, pathlib, pickle, random, shutil, struct, sys, types, zipfile
from collections import OrderedDict

X, VIRTUAL = "CUBE_EXTRA_STATE", "_nnscaler_non_parallel_module_"


def named(where, name, base=object, **more):
    parts = where.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    made = type(name, (base,), {"__module__": where, "__qualname__": name, **more})
    setattr(sys.modules[where], name, made)
    return made


Rebuild = named("torch._utils", "_rebuild_tensor_v2")
Size = named("torch", "Size", tuple, __reduce__=lambda s: (Size, (tuple(s),)))
Index = named("nnscaler.runtime.serialization", "_Index")
STORAGE = {"float32": named("torch", "FloatStorage"), "bfloat16": named("torch", "BFloat16Storage"), "int64": named("torch", "LongStorage")}
WIDTH, ST = {"float32": 4, "bfloat16": 2, "int64": 8}, {"float32": "F32", "bfloat16": "BF16", "int64": "I64"}
for _name in STORAGE:
    setattr(sys.modules["torch"], _name, named("torch", "_" + _name, __reduce__=lambda s, n=_name: n)())


class Storage:
    def __init__(self, dtype, data):
        self.dtype, self.data = dtype, bytes(data)


class Tensor:
    """A contiguous view of a storage."""
    def __init__(self, storage, off, shape):
        self.storage, self.off, self.shape = storage, off, tuple(shape)

    def bytes(self):
        w = WIDTH[self.storage.dtype]
        return self.storage.data[self.off * w : (self.off + math.prod(self.shape)) * w]

    def __reduce__(self):
        stride, n = [], 1
        for d in reversed(self.shape):
            stride.insert(0, n)
            n *= d
        return Rebuild, (self.storage, self.off, self.shape, tuple(stride), False, OrderedDict())


class Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, 2)
        self.keys = {}

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        key = self.keys.setdefault(id(obj), (str(len(self.keys)), obj))[0]
        return "storage", STORAGE[obj.dtype], key, "cpu", len(obj.data) // WIDTH[obj.dtype]


def save_torch(path, obj):
    out = io.BytesIO()
    p = Pickler(out)
    p.dump(obj)
    with zipfile.ZipFile(path, "w") as z:
        for name, data in [("data.pkl", out.getvalue())] + [("data/" + k, s.data) for k, s in p.keys.values()]:
            z.writestr(zipfile.ZipInfo("a/" + name), data)


def save_st(path, obj):
    tensors = []

    def put(o):
        if isinstance(o, Tensor):
            made = Index()
            made.index = len(tensors)
            tensors.append(o)
            return made
        if isinstance(o, dict):
            return {k: put(v) for k, v in o.items()}
        return type(o)(put(v) for v in o) if type(o) in (list, tuple) else o

    meta = base64.b64encode(pickle.dumps(put(obj), 4)).decode()
    head, at = {"__metadata__": {"obj": meta, "nnscaler": "0.9"}}, 0
    for i, t in enumerate(tensors):
        head[str(i)] = {"dtype": ST[t.storage.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(t.bytes())]}
        at += len(t.bytes())
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.bytes() for t in tensors))


class Full:
    """A tensor of the model, with how plan ranks share it: split along dim, or whole."""
    def __init__(self, o, name, shape, dim=None, is_param=True, saved=True, stage=0, dtype=None):
        self.name, self.shape, self.dim, self.is_param, self.saved, self.stage = name, tuple(shape), dim, is_param, saved, stage
        self.dtype = dtype or ("bfloat16" if o.bf16 else "float32")
        self.value = self.random(o, self.dtype)
        self.states = {}

    def random(self, o, dtype):
        n = math.prod(self.shape)
        if dtype == "float32":
            return array.array("f", (o.rng.random() - 0.5 for _ in range(n))).tobytes()
        return o.rng.randbytes(n * WIDTH[dtype])

    def box(self, k, nr):
        """Of plan rank k of nr that share it."""
        start, length = [0] * len(self.shape), list(self.shape)
        if self.dim is not None and nr > 1:
            length[self.dim] //= nr
            start[self.dim] = k * length[self.dim]
        return start, length

    def cut(self, data, dtype, start, length):
        if not self.shape:
            return data
        w, out = WIDTH[dtype], b""
        rows = math.prod(length[:-1])
        for i in range(rows):
            at, rest = 0, i
            index = []
            for n in reversed(length[:-1]):
                index.insert(0, rest % n)
                rest //= n
            for d, n in enumerate(self.shape[:-1]):
                at = at * n + start[d] + index[d]
            at = at * self.shape[-1] + start[-1]
            out += data[at * w : (at + length[-1]) * w]
        return out


def options(args):
    o = types.SimpleNamespace(plan=2, units=1, zero=0, groups=1, buckets=1, stages=1, dedup=0, mixed=0, st=0, old=0, table=1, bf16=0,
                              seed=1, layers=1, width=8, steps=3, tied=0)
    for a in args:
        k, v = a.split("=")
        setattr(o, k, int(v))
    o.rng, o.world, o.tp = random.Random(o.seed), o.plan * o.units, o.plan // o.stages
    return o


def model(o):
    w = o.width * o.tp
    out = [Full(o, "emb.weight", (11, 5), None)]
    for i in range(o.layers):
        at = dict(stage=i * o.stages // o.layers)
        out += [Full(o, f"blocks.{i}.norm.weight", (5,), **at), Full(o, f"blocks.{i}.up.weight", (w, 5), 0, **at),
                Full(o, f"blocks.{i}.up.bias", (w,), 0, **at), Full(o, f"blocks.{i}.mask", (w,), None, False, False, **at),
                Full(o, f"blocks.{i}.down.weight", (5, w), 1, **at), Full(o, f"blocks.{i}.shift", (5,), None, False, **at),
                Full(o, f"blocks.{i}.count", (), None, False, dtype="int64", **at), Full(o, f"blocks.{i}.gain", (7, 3), None, **at)]
    return out


def state_names(o):
    return ["exp_avg", "exp_avg_sq"] + (["fp32_params"] if o.bf16 else [])


class Zero:
    """The buckets of one rank, and its part of their states."""
    def __init__(self, o, r, params, boxes):
        g = o.world // o.groups
        self.ranks = [q for q in range(o.world) if q // g == r // g and q % o.plan == r % o.plan]
        k, n = self.ranks.index(r), len(self.ranks)
        self.param, self.bucket, self.state, self.storage, self.piece = {}, {}, {}, {}, {}
        align = 16 // WIDTH[params[0].dtype]
        # nnScaler's own order is another than the parameters'
        members = [params[b :: o.buckets] for b in range(o.buckets)]
        for b, own in enumerate(m for m in reversed(members) if m):
            at, layout = 0, []
            for p in own:
                length = boxes[p.name][1]
                numel = math.prod(length)
                size = numel if o.zero == 1 else -(-numel // n)
                layout.append((p, at, at + size, length, numel))
                at += -(-size // align) * align
            total = -(-at // (align * n)) * align * n
            for p, lo, hi, length, numel in layout:
                self.param[params.index(p)] = b, lo, hi, Size(length if o.zero == 1 else (hi - lo,))
            self.bucket[b] = tuple(self.ranks), total
            pad = lambda dtype: bytearray(o.rng.randbytes(total * WIDTH[dtype]))
            self.state[b] = {"step": Tensor(Storage("float32", struct.pack("<f", o.steps)), 0, ())}
            for key in state_names(o):
                vector = pad("float32")
                for p, lo, hi, length, numel in layout:
                    data = p.cut(p.states[key], "float32", *boxes[p.name])
                    if o.zero == 3:
                        data = data[k * (hi - lo) * 4 : (k + 1) * (hi - lo) * 4]
                    vector[lo * 4 : lo * 4 + len(data)] = data
                part = total // n if o.zero == 1 else total
                first = k * part if o.zero == 1 else 0
                self.state[b][key] = Tensor(Storage("float32", vector[first * 4 : (first + part) * 4]), 0, (part,))
            w = WIDTH[params[0].dtype]
            vector = pad(params[0].dtype)
            for p, lo, hi, length, numel in layout:
                data = p.cut(p.value, p.dtype, *boxes[p.name])
                if o.zero == 3:
                    data = data[k * (hi - lo) * w : (k + 1) * (hi - lo) * w]
                vector[lo * w : lo * w + len(data)] = data
            storage = Storage(params[0].dtype, vector)
            for p, lo, hi, length, numel in layout:
                self.storage[p.name] = Tensor(storage, lo, length if o.zero == 1 else (hi - lo,))
                start = min(k * (hi - lo), numel)
                self.piece[p.name] = start, min(start + hi - lo, numel), hi - lo


def record(o, p, tid, start, length):
    slicers = tuple(slice(s, s + n, None) for s, n in zip(start, length)) if p.shape else ...
    r = dict(tid=tid, is_param=p.is_param, orig_name=p.name, shape=p.shape, slicers=slicers, val_chunks=1)
    return r if o.old else {**r, "dtype": getattr(sys.modules["torch"], p.dtype), "sub_shape": tuple(length)}


def extra_state(o, r, full, own, boxes, keys, zero):
    cc = dict(plan_ngpus=o.plan, runtime_ngpus=o.world, use_zero=bool(o.zero) if o.old else o.zero, zero_ngroups=o.groups)
    ex = dict(rank=r, compute_config=cc, param_area_map={keys[p.name]: record(o, p, i, *boxes[p.name]) for i, p in enumerate(own)},
              cube_param_names=[keys[p.name] for p in own if p.is_param],
              origin_state_dict_names=[p.name for p in full if p.saved] + ["head.weight"] * o.tied,
              origin_param_names=[p.name for p in full if p.is_param],
              origin_shared_param_names=[["emb.weight", "head.weight"]] if o.tied else [],
              model_idx2opt_idx=zero and zero.param, opt_idx2ranks=zero and zero.bucket)
    if not o.old:
        ex["zero"] = o.zero
        if o.table:
            meta = {p.name: None for p in own if p.is_param} if zero else None
            if o.zero == 3:
                meta = {keys[n]: dict(orig_name=n, attr_name=keys[n], start=a, end=b, chunk_size=c) for n, (a, b, c) in zero.piece.items()}
            ex["zero3_param_metadata"] = meta
    return ex


def whole(p, data=None, dtype=None):
    return Tensor(Storage(dtype or p.dtype, p.value if data is None else data), 0, p.shape)


def rank(o, r, full, plain):
    k = r % o.plan
    stage, tp = k // o.tp, k % o.tp
    own = [p for p in full if p.stage == stage]
    boxes = {p.name: p.box(tp, o.tp) for p in own}
    keys = {p.name: f"{p.name.replace('.', '_')}_{17 * i + r}" for i, p in enumerate(own)}
    params = [p for p in own if p.is_param]
    zero = Zero(o, r, params, boxes) if o.zero else None
    state, ids = {}, 0
    step = lambda: Tensor(Storage("float32", struct.pack("<f", o.steps)), 0, ())
    m, pre = {}, "inner." if o.mixed else ""
    before = 0 if zero and not o.old else 2  # with ZeRO, 0.9 counts ordinary parameters last
    if o.mixed:
        for p in plain[:3]:
            m[p.name] = whole(p)
        for i, p in enumerate(plain[1:3] if before else []):
            state[i] = {"step": step(), **{s: whole(p, p.states[s], "float32") for s in state_names(o)}}
        ids = before
    for p in own:
        if p.saved:
            length = boxes[p.name][1]
            m[pre + keys[p.name]] = (zero.storage[p.name] if zero and p.is_param else
                                     Tensor(Storage(p.dtype, p.cut(p.value, p.dtype, *boxes[p.name])), 0, length))
    m[pre + X] = extra_state(o, r, full, own, boxes, keys, zero)
    offset = ids
    if zero:
        for b, s in zero.state.items():
            state[ids + b] = s
        ids += len(zero.state)
    else:
        for i, p in enumerate(params):
            state[ids + i] = {"step": step(), **{s: Tensor(Storage("float32", p.cut(p.states[s], "float32", *boxes[p.name])), 0, boxes[p.name][1])
                                                 for s in state_names(o)}}
        ids += len(params)
    locs = {pre[:-1]: dict(offset=offset, count=ids - offset)}
    opt = dict(rank=r, name="MixedPrecisionAdam" if o.bf16 else "Adam", parallel_module_locs=locs, parallel_module_configs={})
    if not o.old:
        opt.update(non_parallel_extra_state=None, non_parallel_param_locs=None)
    if o.mixed:
        last = plain[3]
        m[last.name] = whole(last)
        if before:
            state[ids] = {"step": step(), **{s: whole(last, last.states[s], "float32") for s in state_names(o)}}
            ids += 1
        else:
            npp = types.SimpleNamespace(**{**vars(o), "zero": 1, "buckets": 1, "table": 1})
            boxes2 = {p.name: ([0] * len(p.shape), list(p.shape)) for p in plain}
            z2 = Zero(npp, r, [p for p in plain if p.is_param], boxes2)
            state[ids] = z2.state[0]
            opt["non_parallel_extra_state"] = extra_state(npp, r, plain[1:], plain[1:], boxes2, {p.name: p.name.replace(".", "_") for p in plain}, z2)
            locs[VIRTUAL] = dict(offset=ids, count=1)
            opt["non_parallel_param_locs"] = [0, 1, 2]
            ids += 1
    if o.dedup:
        deduped(o, r, m, state, pre, own, keys, locs, before and o.mixed, offset)
    return dict(model=m, optimizer=dict(state=state, param_groups=[dict(lr=0.1, params=list(range(ids)))], **{X: opt}), lr_scheduler=None,
                train_status=dict(finished_train_steps=o.steps),
                train_args=dict(compute_config=dict(plan_ngpus=o.plan), model=dict(type="m", args=dict(seed=o.seed)),
                                checkpoint=dict(save_type="deduped" if o.dedup else "sharded")),
                rank=r, nnscaler="0.9")


def deduped(o, r, m, state, pre, own, keys, locs, ordinary, offset):
    group = o.world // o.groups if o.zero == 3 else o.plan
    seen = set()
    for p in own:
        first = r < group and (o.zero == 3 or o.old or p.dim is not None or r % o.tp == 0)
        if not first:
            m.pop(pre + keys[p.name], None)
    if r:
        for key in [k for k in m if isinstance(m[k], Tensor) and o.mixed and not k.startswith(pre)]:
            del m[key]
    for i in list(state):
        mine = any(l["offset"] <= i < l["offset"] + l["count"] for l in locs.values())
        if (mine and r >= (o.world // o.groups if o.zero else o.plan)) or (not mine and r):
            del state[i]


def make(o):
    """The files by name, and the bytes of each tensor."""
    full = model(o)
    plain = [Full(o, "bias0", (3,), None, False), Full(o, "first.weight", (4, 3)), Full(o, "first.bias", (4,)), Full(o, "second.weight", (2, 4))] if o.mixed else []
    want, pre = {}, "inner." if o.mixed else ""
    for p in full + plain:
        name = p.name if p in plain else pre + p.name
        if p.saved:
            want["model." + name] = p.value
        if p.is_param:
            for s in state_names(o):
                p.states[s] = p.random(o, "float32")
                want[f"optimizer.{name}.{s}"] = p.states[s]
            want[f"optimizer.{name}.step"] = struct.pack("<f", o.steps)
    if o.tied:
        want[f"model.{pre}head.weight"] = want[f"model.{pre}emb.weight"]
    return [rank(o, r, full, plain) for r in range(o.world)], want


def write(o, folder):
    ranks, want = make(o)
    folder.mkdir(parents=True)
    for r, obj in enumerate(ranks):
        (save_st if o.st else save_torch)(folder / f"{r}.{'safetensors' if o.st else 'ckpt'}", obj)
    return want


def with_files(name, files):
    """nnscaler/NAME/in of {file: object or bytes}."""
    at = pathlib.Path(__file__).resolve().parent / "nnscaler" / name / "in"
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir(parents=True)
    for file, what in files.items():
        if isinstance(what, bytes):
            (at / file).write_bytes(what)
        else:
            (save_st if file.endswith(".safetensors") else save_torch)(at / file, what)
    return at


def ranks_of(*args):
    return make(options(["width=3", *args]))[0]


def numbered(ranks, suffix="ckpt"):
    return {f"{r}.{suffix}": obj for r, obj in enumerate(ranks)}


def cut(at, file, n):
    (at / file).write_bytes((at / file).read_bytes()[:n])


def damaged():
    two = lambda *a: numbered(ranks_of("plan=2", *a))
    files = numbered(ranks_of("plan=1", "units=2", "zero=1", "bf16=1"))
    del files["1.ckpt"]
    with_files("bad-rank-missing", files)
    with_files("bad-other-run", {**two(), "1.ckpt": ranks_of("plan=2", "seed=2")[1]})
    files = {**two(), "1.ckpt": ranks_of("plan=2", "seed=2")[1]}
    for obj in files.values():
        del obj["train_args"]
    with_files("bad-other-run-unsaid", files)
    with_files("bad-other-step", {**two(), "1.ckpt": ranks_of("plan=2", "steps=2")[1]})
    with_files("bad-same-rank-twice", {**two(), "1.ckpt": two()["0.ckpt"]})
    with_files("bad-names-swapped", {"0.ckpt": two()["1.ckpt"], "1.ckpt": two()["0.ckpt"]})
    with_files("bad-stale-ranks", {**numbered(ranks_of("plan=2", "units=2")), **two()})
    cut(with_files("bad-cut", two()), "1.ckpt", 3000)
    at = with_files("bad-cut-safetensors", numbered(ranks_of("plan=2"), "safetensors"))
    cut(at, "1.safetensors", (at / "1.safetensors").stat().st_size - 64)
    files = two()
    for a in files["1.ckpt"]["model"][X]["param_area_map"].values():
        if a["orig_name"] == "blocks.0.up.weight":
            a["slicers"] = slice(2, 5, None), slice(0, 5, None)
    with_files("bad-slicers", files)
    files = numbered(ranks_of("plan=1", "units=3"))
    for key, t in files["2.ckpt"]["model"].items():
        if key.startswith("blocks_0_gain"):
            t.storage.data = b"?" + t.storage.data[1:]
    with_files("bad-one-copy", files)
    files = numbered(ranks_of("plan=1", "units=2", "zero=1"))
    for obj in files.values():
        ex = obj["model"][X]
        ex["opt_idx2ranks"] = {k: (ranks, size + 8) for k, (ranks, size) in ex["opt_idx2ranks"].items()}
    with_files("bad-bucket-size", files)
    two_saves = {**two(), **numbered(ranks_of("plan=2", "seed=2", "steps=5"), "safetensors")}
    with_files("bad-two-saves", two_saves)
    at = with_files("two-saves-told", two_saves)
    (at.parent / "opts").write_text("file=1.safetensors\n")
    (at / "merged.safetensors").write_bytes((at / "0.safetensors").read_bytes())
    files = two()
    for a in files["0.ckpt"]["model"][X]["param_area_map"].values():
        if a["orig_name"] == "blocks.0.norm.weight":
            a["val_chunks"] = 2
        if a["orig_name"] == "emb.weight":
            a["shape"], a["slicers"] = (12, 5), (slice(0, 12, None), slice(0, 5, None))
    with_files("bad-shapes", files)


def odd():
    files = numbered(ranks_of("plan=2"))
    for obj in files.values():
        obj["optimizer"][X]["name"] = "Lion"
    with_files("other-optimizer", files)
    files = numbered(ranks_of("plan=1", "units=2"))
    for obj in files.values():
        del obj["model"][[k for k in obj["model"] if k.startswith("blocks_0_gain")][0]]
        obj["optimizer"]["state"][1]["step"] = 3
        obj["optimizer"]["state"][2]["row"] = obj["optimizer"]["state"][1]["exp_avg"]
    with_files("odd-states", {**files, "0.ckpt.opt": b"a part that somebody's serializer has split off"})
    o = options(["seed=7"])
    names = ["a.x", "b.y", "c.weight", "c.bias", "d"]
    shapes = [(4,), (4,), (4, 3), (4,), (2,)]
    full = [Full(o, n, s) for n, s in zip(names, shapes)]
    state = {i: {"step": whole(f, b"\0\0\0\0", "float32"), "exp_avg": whole(f, f.random(o, "float32"))} for i, f in enumerate([full[0], *full[2:]])}
    for s in state.values():
        s["step"].shape = ()
    merged = dict(model={f.name: whole(f) for f in full}, optimizer=dict(state=state, param_groups=[dict(params=[0, 1, 2, 3])]),
                  train_args=dict(compute_config=dict(plan_ngpus=1), checkpoint=dict(save_type="merged")))
    with_files("merged-doubtful", {"merged.ckpt": merged})


def renamed():
    """The names that nnScaler gave are gone: what is inside tells."""
    ranks = ranks_of("plan=2", "zero=1", "units=2")
    with_files("renamed-safetensors", {f"step-40.rank{r}.safetensors": obj for r, obj in enumerate(ranks)})
    with_files("../safetensors/bad-nnscaler-rank", {"weights.safetensors": ranks[1]})


def examples():
    with_files("tp2-dp2", numbered(ranks_of("plan=2", "units=2", "tied=1")))
    with_files("zero1-buckets", numbered(ranks_of("plan=2", "units=2", "zero=1", "buckets=2", "dedup=1")))
    with_files("zero3-tp2", numbered(ranks_of("plan=2", "units=2", "zero=3")))
    with_files("pipeline-groups", numbered(ranks_of("plan=2", "units=2", "stages=2", "layers=2", "zero=1", "groups=2"), "safetensors"))
    damaged()
    odd()
    renamed()


def main():
    if sys.argv[1:] == ["examples"]:
        return examples()
    o, at = options(sys.argv[2:]), pathlib.Path(sys.argv[1])
    shutil.rmtree(at, ignore_errors=True)
    want = write(o, at / "ck")
    (at / "want").mkdir()
    for name, data in want.items():
        (at / "want" / name).write_bytes(data)


if __name__ == "__main__":
    main()
