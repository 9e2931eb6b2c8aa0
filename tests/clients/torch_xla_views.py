# SPDX-License-Identifier: Apache-2.0
"""torch_xla: SPMDLoadPlanner loads dcp/ of checkpoints onto meshes of devices.

Four virtual devices of the CPU runtime.  Each device's shard has the bytes that
tensors/ shows of its box.
"""
import json
import os
import random
import warnings

from kit import DATA, HERE, case, mounted, need

os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES="4", RANK="0", WORLD_SIZE="1",
                  MASTER_ADDR="127.0.0.1", MASTER_PORT="29873")
need("numpy", "torch", "torch_xla")
import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.experimental.distributed_checkpoint import SPMDLoadPlanner

warnings.filterwarnings("ignore")
xr.use_spmd()
FORMATS = HERE.parent / "formats"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int64": torch.int64,
          "float16": torch.float16, "int32": torch.int32, "uint8": torch.uint8}


def stored(at):
    """What tensors/ shows, as torch has it: name -> tensor."""
    out = {}
    for t in json.loads((at / ".unshard/catalog.json").read_text())["tensors"]:
        if t["dtype"] not in DTYPES:
            continue
        raw = bytearray((at / "tensors" / t["file"]).read_bytes())
        flat = torch.frombuffer(raw, dtype=DTYPES[t["dtype"]]) if raw else \
            torch.empty(0, dtype=DTYPES[t["dtype"]])
        out[t["name"]] = flat.reshape(t["shape"])
    return out


def spec_of(rng, tensor):
    """Each axis of the mesh on a dimension of its own, or both on one."""
    if not tensor.dim():
        return None
    spec = [None] * tensor.dim()
    if tensor.dim() == 1 or rng.random() < 0.2:
        spec[rng.randrange(tensor.dim())] = ("x", "y")
    else:
        x, y = rng.sample(range(tensor.dim()), 2)
        spec[x], spec[y] = "x", "y"
    return tuple(spec)


def raw(tensor):
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def placed(want, mesh, specs):
    out = {}
    for name, tensor in want.items():
        out[name] = torch.full_like(tensor, 1).to("xla")
        if specs[name]:
            out[name] = xs.mark_sharding(out[name], mesh, specs[name])
    torch_xla.sync()
    return out


def compare(name, got, want):
    wrapped = xs.wrap_if_sharded(got)
    if not isinstance(wrapped, xs.XLAShardedTensor) or \
            wrapped.sharding_type == xs.ShardingType.REPLICATED:
        assert raw(got) == raw(want), name
        return 0
    for shard in wrapped.local_shards:
        assert raw(shard.unpadded_data) == raw(want[tuple(shard.indices)]), (name, shard)
    return len(wrapped.local_shards)


def loaded(source, shape, ids, seed):
    rng = random.Random(seed)
    with mounted(source) as at:
        want = stored(at)
        assert want
        specs = {n: spec_of(rng, t) for n, t in want.items()}
        mesh = xs.Mesh(np.array(ids), shape, ("x", "y"))
        state = placed(want, mesh, specs)
        dcp.load(state, storage_reader=dcp.FileSystemReader(str(at / "dcp")),
                 planner=SPMDLoadPlanner())
        torch_xla.sync()
        shards = sum(compare(n, state[n], t) for n, t in want.items())
        assert shards, "nothing was sharded"


SOURCES = {
    "xla": FORMATS / "dcp/xla-2.9-permuted/in",
    "dcp": FORMATS / "dcp/2.14-shardings/in",
    "fsdp2": DATA / "llama-fsdp2/in",
    "hf": DATA / "llama-tied-f32/in",
    "deepspeed": FORMATS / "deepspeed/zero3-tiny/in",
    "megatron": FORMATS / "megatron/gated-gqa-tp2/in",
    "mindspore": FORMATS / "mindspore/2.10-grid/in",
}
MESHES = [((4, 1), range(4)), ((2, 2), range(4)), ((1, 4), range(4)), ((2, 2), [3, 1, 0, 2])]
for seed, (name, source) in enumerate(SOURCES.items()):
    for shape, ids in MESHES:
        label = "x".join(map(str, shape)) + ("" if ids == range(4) else "-permuted")
        case(loaded, f"{name}-{label}", source, shape, list(ids), seed)
