#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves of random models by DeepSpeed's ZeRO, stages 1 to 3, dealt by elements.

usage: zero.py DIR SEED

Writes DIR/ckpt, DIR/want/NAME for each tensor (its bytes), DIR/opts.  Groups,
padding, sub-groups, frozen and shared parameters and buffers are random.
"""
import io, itertools, pathlib, pickle, random, struct, sys, types, zipfile
from collections import OrderedDict

top, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rnd = random.Random(seed)
(top / "ckpt").mkdir(parents=True)
(top / "want").mkdir()
(top / "opts").write_text("")


def named(where, name, base=object, **more):
    parts = where.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    made = type(name, (base,), {"__module__": where, "__qualname__": name, **more})
    setattr(sys.modules[where], name, made)
    return made


FloatStorage = named("torch", "FloatStorage")
Rebuild = named("torch._utils", "_rebuild_tensor_v2")
Size = named("torch", "Size", tuple, __reduce__=lambda s: (Size, (tuple(s),)))


class Storage:
    def __init__(self, values):
        self.values = list(values)


class Tensor:
    """float32, contiguous, a storage of its own."""

    def __init__(self, values, shape=None):
        self.storage = Storage(values)
        self.shape = (len(self.storage.values),) if shape is None else tuple(shape)

    def __reduce__(self):
        stride, n = [], 1
        for d in reversed(self.shape):
            stride.insert(0, n)
            n *= d
        return Rebuild, (self.storage, 0, self.shape, tuple(stride), False, OrderedDict())


class Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, 2)
        self.keys = {}

    def persistent_id(self, obj):
        if isinstance(obj, Storage):
            key = self.keys.setdefault(id(obj), (str(len(self.keys)), obj))[0]
            return "storage", FloatStorage, key, "cpu", len(obj.values)


def pack(values):
    return struct.pack(f"<{len(values)}f", *values)


def save(obj, name):
    out = io.BytesIO()
    p = Pickler(out)
    p.dump(obj)
    with zipfile.ZipFile(top / "ckpt" / name, "w") as z:
        z.writestr("a/data.pkl", out.getvalue())
        for key, s in p.keys.values():
            z.writestr("a/data/" + key, pack(s.values))


counter = itertools.count(1)
GARBAGE = -7.0


def values(shape):
    n = 1
    for d in shape:
        n *= d
    return [float(next(counter) % 9973) for _ in range(n)]


def want(name, data):
    (top / "want" / name).write_bytes(pack(data))


def shape():
    return tuple(rnd.choice([1, 2, 3, 5, 7]) for _ in range(rnd.randint(0, 3)))


stage, world = rnd.choice([1, 2, 3, 3]), rnd.randint(1, 7)
KINDS = ("fp32", "exp_avg", "exp_avg_sq")
groups = [OrderedDict((f"g{g}.p{i}", shape()) for i in range(rnd.randint(1, 5))) for g in range(rnd.randint(1, 3) if stage < 3 else 1)]
data = {k: {n: values(s) for g in groups for n, s in g.items()} for k in KINDS}
module = OrderedDict((n, Tensor([v / 2 for v in data["fp32"][n]], s)) for g in groups for n, s in g.items())
frozen = OrderedDict((f"frozen{i}", shape()) for i in range(rnd.randint(0, 2)))
still = {n: values(s) for n, s in frozen.items()}
buffers = OrderedDict((f"buffer{i}", shape()) for i in range(rnd.randint(0, 2)))
kept = {n: values(s) for n, s in buffers.items()}
shared = {"tied.weight": rnd.choice(list(groups[0]))} if rnd.random() < 0.5 else {}
for k in KINDS:
    for n, v in data[k].items():
        want(f"{k}.{n}", v)
for n, holder in shared.items():
    want(f"fp32.{n}", data["fp32"][holder])
for n, v in {**still, **kept}.items():
    want(f"fp32.{n}", v)
if stage < 3:
    for n, t in module.items():
        want(f"module.{n}", t.storage.values)
    module.update((n, Tensor(still[n], s)) for n, s in frozen.items())
    for n, holder in shared.items():
        module[n] = module[holder]
        want(f"module.{n}", module[n].storage.values)
else:
    module = OrderedDict((n, Tensor([], (0,))) for n in [*module, *frozen, *shared])
module.update((n, Tensor(kept[n], s)) for n, s in buffers.items())
for n in [*frozen, *buffers] if stage < 3 else []:
    want(f"module.{n}", module[n].storage.values)


def model(rank):
    parts = None
    if stage == 2:
        parts = OrderedDict((n, Tensor(still[n], s)) for n, s in frozen.items())
    if stage == 3:
        parts = OrderedDict((n, Tensor(deal(still[n])[rank])) for n in frozen)
    return {"module": module, "param_shapes": [OrderedDict((n, Size(s)) for n, s in g.items()) for g in groups], "buffer_names": [*buffers],
            "shared_params": shared if rank == 0 or stage < 3 else {}, "global_steps": 4, "optimizer": None, "ds_version": "0.19.8",
            "frozen_param_shapes": OrderedDict((n, Size(s)) for n, s in frozen.items()) if stage > 1 else None, "frozen_param_fragments": parts,
            "checkpoint_parallel_dimensions": {"pp_degree": 1, "tp_degree": 1}}


def deal(data):
    """One after another to the ranks, each the same number; the rest is garbage."""
    data, each = list(data), 0
    while each * world < len(data):
        each += 1
    data += [GARBAGE] * (each * world - len(data))
    return [data[r * each : (r + 1) * each] for r in range(world)]


def stage12(rank):
    weights, states = [], {}
    for g, group in enumerate(groups):
        dealt, full = {}, sum(len(data["fp32"][n]) for n in group)
        for k in KINDS:
            flat = [v for n in group for v in data[k][n]]
            align = 2 * world if -full % (2 * world) <= (full + -full % (2 * world)) // world else world
            while len(flat) % align:
                flat.append(GARBAGE)
            size = len(flat) // world
            dealt[k] = flat[rank * size : (rank + 1) * size]
        used = size if rank + 1 < world else max(0, full - rank * size)  # of the last one padding is cut off
        weights.append(Tensor(dealt["fp32"][:used]))
        states[g] = {"step": Tensor([4.0], ()), "exp_avg": Tensor(dealt["exp_avg"]), "exp_avg_sq": Tensor(dealt["exp_avg_sq"])}
    return {"partition_count": [world] * len(groups), "single_partition_of_fp32_groups": weights,
            "base_optimizer_state": {"state": states, "param_groups": []}}


cuts = sorted(rnd.sample(range(1, len(groups[0])), rnd.randint(0, len(groups[0]) - 1))) if stage == 3 else []


def stage3(rank):
    names, weights, states = list(groups[0]), [], {}
    for i, (lo, hi) in enumerate(zip([0] + cuts, cuts + [len(names)])):
        vector = {k: [v for n in names[lo:hi] for v in deal(data[k][n])[rank]] for k in KINDS}
        weights.append(Tensor(vector["fp32"]))
        states[i] = {"step": Tensor([4.0], ()), "exp_avg": Tensor(vector["exp_avg"]), "exp_avg_sq": Tensor(vector["exp_avg_sq"])}
    return {"partition_count": world, "fp32_flat_groups": weights, "optimizer_state_dict": {"state": states, "param_groups": []}}


if stage < 3:
    save(model(0), "mp_rank_00_model_states.pt")
for r in range(world):
    inner = stage3(r) if stage == 3 else stage12(r)
    save({"optimizer_state_dict": inner, "ds_version": "0.19.8"}, f"{rnd.choice(['', 'bf16_']) if r == 0 else ''}zero_pp_rank_{r}_mp_rank_00_optim_states.pt")
    if stage == 3:
        save(model(r), f"zero_pp_rank_{r}_mp_rank_00_model_states.pt")
