#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of many ranks as each framework lays it out.

usage: ranks.py FORMAT DIR RANKS

24 layers of ten small tensors: eight cut over all ranks, two on each of them; with
_optim after FORMAT two states of an optimizer for each, where FORMAT keeps them with it.
Needs nothing but Python: pickles are written by its own module, from classes
that only have the names of the frameworks'.  Prints the options for the mount.
"""
import argparse, collections, io, json, pathlib, pickle, struct, sys, types, zipfile

LAYERS, COLS = 24, 16
CUT = ["attn.q.weight", "attn.k.weight", "attn.v.weight", "attn.o.weight", "mlp.gate.weight", "mlp.up.weight", "mlp.down.weight", "mlp.extra.weight"]
SAME = ["norm1.weight", "norm2.weight"]
NAMES = [f"model.layers.{n}.{t}" for n in range(LAYERS) for t in CUT + SAME]


def cut(name):
    return "norm" not in name


def module(name):
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    return sys.modules[name]


def function(where, name):
    f = lambda *a: None
    f.__module__, f.__qualname__, f.__name__ = where, name, name
    setattr(module(where), name, f)
    return f


FloatStorage = type("FloatStorage", (), {"__module__": "torch", "__qualname__": "FloatStorage"})
module("torch").FloatStorage = FloatStorage
rebuild = function("torch._utils", "_rebuild_tensor_v2")


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


Size.__module__, Size.__qualname__, sys.modules["torch"].Size = "torch", "Size", Size


class Storage:
    def __init__(self, key, count):
        self.pid = ("storage", FloatStorage, key, "cpu", count)


class Tensor:
    """A contiguous float32 tensor; its bytes are those of its shape's zeros."""

    def __init__(self, *shape):
        self.shape, self.count = shape, 1
        for d in shape:
            self.count *= d

    def __reduce__(self):
        self.stored.append(self)
        strides, step = [], 1
        for d in reversed(self.shape):
            strides.insert(0, step)
            step *= d
        return rebuild, (Storage(str(len(self.stored) - 1), self.count), 0, tuple(self.shape), tuple(strides), False, collections.OrderedDict())


class Pickler(pickle._Pickler):
    def persistent_id(self, obj):
        return obj.pid if isinstance(obj, Storage) else None


def torch_save(obj, path):
    Tensor.stored, data = [], io.BytesIO()
    Pickler(data, 2).dump(obj)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", data.getvalue())
        z.writestr("archive/byteorder", "little")
        for i, t in enumerate(Tensor.stored):
            z.writestr(f"archive/data/{i}", bytes(4 * t.count))
        z.writestr("archive/version", "3\n")


def safetensors(path, tensors):
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 4 * Tensor(*shape).count
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def layout(top, ranks):
    for r in range(ranks):
        torch_save({n: Tensor(1, COLS) if cut(n) else Tensor(COLS) for n in NAMES}, top / f"rank_{r:05}.pt")
    (top / "unshard-layout.json").write_text(json.dumps({
        "unshard_layout": 1, "mesh": {"axes": [{"name": "tp", "size": ranks}]}, "files": [{"path": "rank_{tp:05}.pt", "kind": "torch"}],
        "tensors": [{"regex": "(.*norm.*)", "name": "{$1}", "placement": {"tp": "replicate"}},
                    {"regex": "(.*)", "name": "{$1}", "placement": {"tp": {"shard": 0}}}]}))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def mindspore(top, ranks):
    for r in range(ranks):
        out = b""
        for n in NAMES:
            dims = [1, COLS] if cut(n) else [COLS]
            size = 4 * Tensor(*dims).count
            body = b"".join(b"\x08" + varint(d) for d in dims) + field(2, b"Float32") + field(3, bytes(size))
            out += field(1, field(1, n.encode()) + field(2, body))
        path = top / f"rank_{r}" / "net-1_10.ckpt"
        path.parent.mkdir()
        path.write_bytes(out)
    item = {"dev_matrix": [ranks], "field": 0, "opt_weight_shard_size": 0, "opt_weight_shard_step": 0}
    (top / "strategy.json").write_text(json.dumps({"current_stage": 0, "parallel_strategy_item": {}, "parallel_layout_item": {
        n: {**item, "tensor_map": [0, -1] if cut(n) else [-1], "tensor_shape": [ranks, COLS] if cut(n) else [COLS]} for n in NAMES}}))


class FlowTensor:
    def __init__(self, path):
        self.__dict__["path"] = path


FlowTensor.__module__, FlowTensor.__qualname__, FlowTensor.__name__ = "oneflow", "Tensor", "Tensor"
module("oneflow").Tensor = FlowTensor


def oneflow(top, ranks):
    for r in range(ranks):
        at = top / f"model_{r}"
        at.mkdir()
        state = {n: FlowTensor(f"tensor_{i}") for i, n in enumerate(NAMES)}
        (at / "pickled_data").write_bytes(pickle.dumps({"protocol_version": 1, "data": state}))
        for i, n in enumerate(NAMES):
            shape = (1, COLS) if cut(n) else (COLS,)
            (at / f"tensor_{i}").mkdir()
            (at / f"tensor_{i}" / "meta").write_text("shape {\n" + "".join(f"  dim: {d}\n" for d in shape) + "}\ndata_type: kFloat\n")
            (at / f"tensor_{i}" / "out").write_bytes(bytes(4 * Tensor(*shape).count))
    place = {"type": "cpu", "ranks": list(range(ranks))}
    (top / "sbp.json").write_text(json.dumps({"world_size": ranks, "path": "model_{rank}", "rules": [
        {"key": "*norm*", "placement": place, "sbp": ["broadcast"]}, {"key": "*", "placement": place, "sbp": ["split(0)"]}]}))
    print(f"sbp={top}/sbp.json")


def colossalai(top, ranks):
    for r in range(ranks):
        file = f"model-dist-{r:05}-shard-00000.safetensors"
        safetensors(top / file, {n: [1, COLS] if cut(n) else [COLS] for n in NAMES})
        box = lambda n: {"offsets": [r, 0], "lengths": [1, COLS], "global_shape": [ranks, COLS]} if cut(n) else \
            {"offsets": [0], "lengths": [COLS], "global_shape": [COLS]}
        (top / f"pytorch_model-meta-dist-{r:05}.index.json").write_text(json.dumps({
            "checkpoint_version": "1.0", "total_size": 0.1, "metadata": {n: {**box(n), "file": file, "rank": r} for n in NAMES}}))


def deepspeed(top, ranks, stage):
    shapes = collections.OrderedDict((n, (ranks, COLS) if cut(n) else (COLS,)) for n in NAMES)
    model = {"module": collections.OrderedDict((n, Tensor(*s) if stage < 3 else Tensor(0)) for n, s in shapes.items()),
             "param_shapes": [collections.OrderedDict((n, Size(s)) for n, s in shapes.items())], "buffer_names": [], "global_steps": 3,
             "shared_params": {}, "frozen_param_shapes": None, "frozen_param_fragments": None, "optimizer": None,
             "checkpoint_parallel_dimensions": {"pp_degree": 1, "tp_degree": 1}, "ds_version": "0.19.8"}
    count = [Tensor(*s).count for s in shapes.values()]
    mine = sum(-(-c // ranks) for c in count) if stage == 3 else -(-sum(count) // ranks)
    if stage < 3:
        torch_save(model, top / "mp_rank_00_model_states.pt")
    for r in range(ranks):
        vector = lambda: Tensor(mine)
        base = {"state": {0: {"step": Tensor(), "exp_avg": vector(), "exp_avg_sq": vector()}}, "param_groups": []}
        inner = {"partition_count": ranks, "optimizer_state_dict" if stage == 3 else "base_optimizer_state": base,
                 "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups": [vector()]}
        torch_save({"optimizer_state_dict": inner, "ds_config": {}, "ds_version": "0.19.8"}, top / f"bf16_zero_pp_rank_{r}_mp_rank_00_optim_states.pt")
        if stage == 3:
            torch_save(model, top / f"zero_pp_rank_{r}_mp_rank_00_model_states.pt")


def megatron(top, ranks):
    tp = 10
    pp, each = ranks // tp, 2
    args = argparse.Namespace(**{f"setting_{i}": i for i in range(640)}, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
                              expert_model_parallel_size=1, num_layers=pp * each, num_attention_heads=tp, num_query_groups=tp,
                              group_query_attention=True, kv_channels=1, swiglu=True, untie_embeddings_and_output_weights=True)
    names = {"input_layernorm.weight": (COLS,), "self_attention.linear_proj.weight": (COLS, 1), "self_attention.linear_proj.bias": (COLS,),
             "self_attention.linear_qkv.weight": (3, COLS), "self_attention.linear_qkv.bias": (3,), "pre_mlp_layernorm.weight": (COLS,),
             "mlp.linear_fc1.weight": (4, COLS), "mlp.linear_fc1.bias": (4,), "mlp.linear_fc2.weight": (COLS, 2), "mlp.linear_fc2.bias": (COLS,)}
    for t in range(tp):
        for p in range(pp):
            state = collections.OrderedDict((f"decoder.layers.{n}.{k}", Tensor(*s)) for n in range(each) for k, s in names.items())
            if p == 0:
                state["embedding.word_embeddings.weight"] = Tensor(8, COLS)
            if p == pp - 1:
                state["output_layer.weight"] = Tensor(8, COLS)
            optim = {"state": {i: {"exp_avg": v, "exp_avg_sq": v} for i, v in enumerate(state.values())}, "param_groups": []}
            torch_save({"args": args, "checkpoint_version": 3.0, "iteration": 10, "model": state, "optimizer": optim},
                       top / f"mp_rank_{t:02}_{p:03}" / "model_optim_rng.pt")


kind, top, ranks = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
if kind.endswith("_optim"):  # the states of Adam beside each, as it is cut
    kind = kind[:-6]
    NAMES += [f"{state}.{n}" for state in ("moment1", "moment2") for n in NAMES]
top.mkdir(parents=True)
{"layout": layout, "mindspore": mindspore, "oneflow": oneflow, "colossalai": colossalai, "megatron": megatron,
 "zero1": lambda t, n: deepspeed(t, n, 1), "zero3": lambda t, n: deepspeed(t, n, 3)}[kind](top, ranks)
