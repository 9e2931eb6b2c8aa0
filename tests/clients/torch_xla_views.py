# SPDX-License-Identifier: Apache-2.0
"""torch_xla: SPMDLoadPlanner loads dcp/ of checkpoints onto meshes of devices.

Four virtual devices of the CPU runtime.  Each device's shard has the bytes that
tensors/ shows of its box, and unshard plan lists the reads that the planner makes.
"""
import collections
import json
import os
import pathlib
import random
import subprocess
import tempfile
import warnings

from kit import DATA, HERE, UNSHARD, case, mounted, need

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


class Recording(SPMDLoadPlanner):
    def create_local_plan(self):
        self.made = super().create_local_plan()
        return self.made


def reads_of(plan):
    """Of what is loaded as tensors, by tensor, place in the shard and chunk."""
    return collections.Counter(
        (i.dest_index.fqn, i.dest_index.index, tuple(i.dest_index.offset or ()),
         tuple(i.dest_offsets), tuple(i.storage_index.offset or ()),
         tuple(i.storage_offsets), tuple(i.lengths))
        for i in plan.items if i.type.name == "TENSOR")


def same_reads(plan, dcp_folder, mesh, specs):
    place = {"mesh": {"shape": mesh.mesh_shape, "axes": mesh.axis_names,
                      "device_ids": [int(i) for i in mesh.device_ids]},
             "partition_spec": specs}
    with tempfile.TemporaryDirectory() as tmp:
        file = pathlib.Path(tmp, "mesh.json")
        file.write_text(json.dumps(place))
        p = subprocess.run([UNSHARD, "plan", str(dcp_folder), "--json", "--reshard", str(file)],
                           capture_output=True, text=True, check=True)
    got = collections.Counter(
        (r["fqn"], r["dest_shard"], *(tuple(r[k]) for k in (
            "dest_shard_at", "dest_offsets", "chunk_at", "storage_offsets", "lengths")))
        for r in json.loads(p.stdout)["reads"] if r["fqn"] in specs)
    want = reads_of(plan)
    assert got == want, (list((want - got).items())[:3], list((got - want).items())[:3])


def loaded(source, shape, ids, seed):
    rng = random.Random(seed)
    with mounted(source) as at:
        want = stored(at)
        assert want
        specs = {n: spec_of(rng, t) for n, t in want.items()}
        mesh = xs.Mesh(np.array(ids), shape, ("x", "y"))
        # its own chunks too, where it has some
        for folder in [at / "dcp"] + [source] * (source / ".metadata").exists():
            state = placed(want, mesh, specs)
            planner = Recording()
            dcp.load(state, storage_reader=dcp.FileSystemReader(str(folder)), planner=planner)
            torch_xla.sync()
            same_reads(planner.made, folder, mesh, specs)
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
