# SPDX-License-Identifier: Apache-2.0
"""reshard/ against torch.distributed.checkpoint.load into the same mesh, and
dcp/ loaded into it against the checkpoint itself.

Random meshes: of one to four axes, uneven, with empty ranks, replicated, one
dimension over several axes, strided (FSDP over tensor parallelism, also with an
axis between them and over two).  Each rank is a process group of its own that
answers nothing, which loading does not need.  10 meshes, 200 by
UNSHARD_NIGHTLY=1; UNSHARD_SEED=N: others.
"""
import json
import os
import pathlib
import random
import tempfile
import warnings

from kit import HERE, case, mounted, need

need("torch", "safetensors", "torch.distributed.tensor")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

warnings.filterwarnings("ignore")
MESHES = 200 if os.environ.get("UNSHARD_NIGHTLY") else 10
SEED = int(os.environ.get("UNSHARD_SEED", 0))
FORMATS = HERE.parent / "formats/dcp"


def mesh_of(rng):
    shape = [rng.randint(1, 4) for _ in range(rng.choice([1, 2, 2, 3, 3, 4]))]
    return shape if 1 < torch.Size(shape).numel() <= 16 else mesh_of(rng)


def place(rng, shape, mesh):
    """One placement an axis; the first axis of a dimension that several cut may
    be strided: cut last, in as many blocks as the others make."""
    out = [rng.choice([None, *range(len(shape))]) for _ in mesh]
    strided = {}
    for a, d in enumerate(out):
        if d is None or d in out[:a] or d not in out[a + 1:]:
            continue
        factor = torch.Size(m for b, m in enumerate(mesh) if b > a and out[b] == d).numel()
        if shape[d] and shape[d] % (mesh[a] * factor) == 0 and rng.random() < 0.7:
            strided[a] = factor
    return out, strided


def for_torch(out, strided):
    return [
        Replicate() if d is None
        else _StridedShard(d, split_factor=strided[a]) if a in strided
        else Shard(d)
        for a, d in enumerate(out)
    ]


def for_us(out, strided):
    return [
        "replicate" if d is None
        else f"strided({d}, {strided[a]})" if a in strided
        else f"shard({d})"
        for a, d in enumerate(out)
    ]


def loaded(source, tensors, mesh, places, rank):
    """What DCP loads as rank @rank of the mesh: name -> local tensor."""
    world = torch.Size(mesh).numel()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        device_mesh = DeviceMesh("cpu", torch.arange(world).reshape(mesh))
        state = {}
        for name, (shape, dtype) in tensors.items():
            placements = for_torch(*places[name])
            local, _ = compute_local_shape_and_global_offset(shape, device_mesh, placements)
            state[name] = DTensor.from_local(
                torch.zeros(local, dtype=dtype), device_mesh, placements, run_check=False,
                shape=torch.Size(shape), stride=torch.empty(shape, device="meta").stride())
        dcp.load(state, checkpoint_id=str(source), no_dist=True)
        return {name: t.to_local() for name, t in state.items()}
    finally:
        dist.destroy_process_group()


def compare(source, tensors, seeds):
    meshes = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            rng = random.Random(seed)
            mesh = mesh_of(rng)
            places = {n: place(rng, shape, mesh) for n, (shape, _) in tensors.items()}
            spec = {"mesh": {"shape": mesh},
                    "placements": {n: for_us(*places[n]) for n in tensors}}
            path = pathlib.Path(folder, f"mesh{seed}.json")
            path.write_text(json.dumps(spec))
            meshes[path] = mesh, places
        with mounted(source, reshard=":".join(map(str, meshes))) as at:
            for path, (mesh, places) in meshes.items():
                for rank in range(torch.Size(mesh).numel()):
                    want = loaded(source, tensors, mesh, places, rank)
                    shown = loaded(at / "dcp", tensors, mesh, places, rank)
                    got = load_file(at / "reshard" / path.stem / f"rank-{rank:05}.safetensors")
                    for name, t in want.items():
                        assert got[name].dtype == t.dtype, (name, got[name].dtype)
                        assert got[name].shape == t.shape, (path.read_text(), rank, name)
                        assert torch.equal(got[name].view(-1).view(torch.uint8),
                                           t.contiguous().view(-1).view(torch.uint8)), \
                            (path.read_text(), rank, name)
                        assert torch.equal(shown[name].view(-1).view(torch.uint8),
                                           t.contiguous().view(-1).view(torch.uint8)), \
                            (path.read_text(), rank, name)


def listed(source):
    from torch.distributed.checkpoint import FileSystemReader

    meta = FileSystemReader(str(source)).read_metadata().state_dict_metadata
    return {n: (tuple(m.size), m.properties.dtype) for n, m in meta.items()
            if hasattr(m, "size") and len(m.size)}


def saved_by_meshes(name, seeds):
    source = FORMATS / name / "in"
    compare(source, listed(source), seeds)


def saved_whole(seeds):
    for seed in seeds:
        rng = random.Random(1000 + seed)
        state = {}
        for i in range(4):
            shape = [rng.randint(1, 9) for _ in range(rng.randint(1, 3))]
            dtype = rng.choice([torch.float32, torch.bfloat16, torch.int64, torch.bool])
            state[f"t{i}"] = (torch.randn(shape) * 100).to(dtype)
        with tempfile.TemporaryDirectory() as folder:
            dcp.save(state, checkpoint_id=folder, no_dist=True)
            compare(folder, listed(folder), [seed])


share = [list(range(SEED + i, SEED + MESHES, 3)) for i in range(3)]
case(saved_by_meshes, "shardings", "2.14-shardings", share[0])
case(saved_by_meshes, "strided", "2.14-strided-shard", share[1])
case(saved_whole, "whole", share[2])
