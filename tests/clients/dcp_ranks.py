# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint.load by several processes at once.

Each of four loads its part of meshes that the checkpoint was not saved on, from
dcp/ and from the files as they are stored (shards/); what they have together has the
bytes of tensors/.
"""
import json
import logging
import os
import random
import warnings

from kit import DATA, case, mounted, need

need("torch", "torch.distributed.checkpoint", "torch.distributed.tensor")
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import world

warnings.filterwarnings("ignore")
RANKS = 4
MESHES = [(4,), (2, 2)]


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def parts(path, mesh, rng):
    """Empty tensors of all that .metadata lists, placed at random."""
    saved = dcp.FileSystemReader(str(path)).read_metadata().state_dict_metadata
    state = {}
    for name, m in sorted(saved.items()):
        if not isinstance(m, TensorStorageMetadata):
            continue
        zeros = torch.zeros(m.size, dtype=m.properties.dtype)
        ways = [Replicate()] + [Shard(d) for d in range(zeros.dim())]
        placed = [rng.choice(ways) for _ in range(mesh.ndim)]
        state[name] = distribute_tensor(zeros, mesh, placed) if zeros.dim() else zeros
    return state


def rank(nr, folders, at):
    logging.disable(logging.WARNING)
    files = {t["name"]: os.path.join(at, "tensors", t["file"]) for t in
             json.load(open(os.path.join(at, ".unshard/catalog.json")))["tensors"]}
    for seed, shape in enumerate(MESHES):
        mesh = init_device_mesh("cpu", shape)
        for folder in folders:
            state = parts(folder, mesh, random.Random(seed))
            assert state
            dcp.load(state, checkpoint_id=folder)
            for name, t in state.items():
                whole = t.full_tensor() if t.dim() else t
                if nr == 0:
                    with open(files[name], "rb") as f:
                        assert raw(whole) == f.read(), (folder, shape, name)


def together(source, *folders, **options):
    with mounted(source, **options) as at:
        world.run(RANKS, rank, [str(at / f) for f in folders], str(at))


case(together, "dcp-and-shards", DATA / "llama-tied-adamw/in", "dcp", "shards")
case(together, "dcp-of-rank-files", DATA / "llama-fsdp2/in", "dcp")
