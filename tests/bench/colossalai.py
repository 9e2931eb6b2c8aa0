#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of 100 ranks as ColossalAI leaves them, with sparse files.

usage: colossalai.py dist|bin|optim|async DIR

dist, bin: the distributed form of a model of 32 layers, split over 100 ranks, in safetensors or torch.save files.
optim, async: states of an optimizer in the shards of 100 pipeline stages.
"""
import json, pathlib, pickle, struct, sys, types, zipfile

RANKS, LAYERS, HIDDEN = 100, 32, 1600
SPLIT = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "o_proj": 1, "gate_proj": 0, "up_proj": 0, "down_proj": 1}


def shapes():
    for i in range(LAYERS):
        for name, axis in SPLIT.items():
            yield f"model.layers.{i}.{name}.weight", [HIDDEN, HIDDEN], axis
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{i}.{name}.weight", [HIDDEN], None
        yield f"model.layers.{i}.rotary.inv_freq", [64], "buffer"
    yield "model.norm.weight", [HIDDEN], None
    yield "model.embed_tokens.weight", [HIDDEN * 20, HIDDEN], 0
    yield "lm_head.weight", [HIDDEN * 20, HIDDEN], 0


def size(shape):
    n = 4
    for d in shape:
        n *= d
    return n


def write_st(path, tensors, metadata=None, data=b""):
    head, at = {"__metadata__": {"format": "pt", **(metadata or {})}}, 0
    for name, shape, dtype in tensors:
        n = size(shape) if dtype == "F32" else shape[0]
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
        f.truncate(8 + len(text) + at)


def named(where, name):
    parts = where.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    made = type(name, (), {"__module__": where, "__qualname__": name})
    setattr(sys.modules[where], name, made)
    return made


class Call:
    def __init__(self, fn, *args):
        self.fn, self.args = fn, args

    def __reduce__(self):
        return self.fn, self.args


class Storage(tuple):
    pass


class Pickler(pickle._Pickler):
    def persistent_id(self, obj):
        return tuple(obj) if isinstance(obj, Storage) else None


FLOAT, REBUILD = named("torch", "FloatStorage"), named("torch._utils", "_rebuild_tensor_v2")


def write_bin(path, obj, sizes):
    import io

    text = io.BytesIO()
    Pickler(text, 2).dump(obj)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr(path.stem + "/data.pkl", text.getvalue())
        for key, n in sizes:
            z.writestr(f"{path.stem}/data/{key}", bytes(n))
        z.writestr(path.stem + "/version", b"3\n")


def tensor(key, shape):
    n, stride = size(shape) // 4, []
    for d in reversed(shape):
        stride.insert(0, (stride[0] * last) if stride else 1)
        last = d
    return Call(REBUILD, Storage(("storage", FLOAT, str(key), "cpu", n)), 0, tuple(shape), tuple(stride), False, {})


def dist(at, suffix):
    for rank in range(RANKS):
        stem = "model" if suffix == "safetensors" else "pytorch_model"
        file, records, held = f"{stem}-dist-{rank:05d}-shard-00000.{suffix}", {}, []
        for name, shape, axis in shapes():
            mine, offsets = list(shape), [0] * len(shape)
            if isinstance(axis, int):
                mine[axis] //= RANKS
                offsets[axis] = mine[axis] * rank
            if suffix == "bin":  # written in full, so kept small
                mine = [min(d, 16) for d in mine]
                offsets = [mine[d] * rank if d == axis else 0 for d in range(len(shape))]
                shape = [m * RANKS if d == axis else m for d, m in enumerate(mine)]
            if axis != "buffer":
                records[name] = {"offsets": offsets, "lengths": mine, "global_shape": shape, "file": file, "rank": rank}
            held.append((name, mine, "F32"))
        meta = f"pytorch_model-meta-dist-{rank:05d}{'.index' if suffix != 'bin' else ''}.json"
        (at / meta).write_text(json.dumps({"checkpoint_version": "1.0", "total_size": 1.5, "metadata": records}))
        if suffix == "bin":
            obj = {name: tensor(i, shape) for i, (name, shape, _) in enumerate(held)}
            write_bin(at / file, obj, [(i, size(shape)) for i, (_, shape, _) in enumerate(held)])
        else:
            write_st(at / file, held)


def optim(at, flat):
    index, ident = {}, 0
    for stage in range(RANKS):
        tensors, keys, obj, sizes = [], [], {}, []
        stem = f"{'optimizer' if flat else 'pytorch_optim'}-stage-{stage + 1:05d}-shard-00001"
        file = stem + (".safetensors" if flat else ".bin")
        for _ in range(30):
            keys.append(f"state.{ident}.step")
            tensors += [(keys[-1], [5], "U8"), (f"state.{ident}.exp_avg", [16, 16], "F32"), (f"state.{ident}.exp_avg_sq", [16, 16], "F32")]
            obj[ident] = {"step": 3, "exp_avg": tensor(2 * ident, [16, 16]), "exp_avg_sq": tensor(2 * ident + 1, [16, 16])}
            sizes += [(2 * ident, 1024), (2 * ident + 1, 1024)]
            index[str(ident)] = file
            ident += 1
        if flat:
            write_st(at / file, tensors, {"non_tensor_keys": json.dumps(keys)}, (b"\x80\x04K\x03." + bytes(2048)) * 30)
        else:
            write_bin(at / file, obj, sizes)
    write_bin(at / "pytorch_optim_group.bin", [{"params": list(range(ident)), "lr": 0.5}], [])
    name = "optimizer.safetensors.index.json" if flat else "pytorch_optim.bin.index.json"
    (at / name).write_text(json.dumps({"metadata": {"param_groups": "pytorch_optim_group.bin", "total_size": 1.5}, "weight_map": index}))


kind, at = sys.argv[1], pathlib.Path(sys.argv[2])
at.mkdir(parents=True, exist_ok=True)
if kind in ("dist", "bin"):
    dist(at, "safetensors" if kind == "dist" else "bin")
else:
    optim(at, kind == "async")
