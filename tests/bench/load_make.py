# SPDX-License-Identifier: Apache-2.0
"""load_make.py FOLDER MIB [rows|tp|mesh]: a model of so many MiB as DCP of four ranks,
dcp/, and merged in one file, merged.safetensors.  Each tensor is cut along dimension 0,
or half of the matrices along dimension 1, as tp=4 saves, or all on a mesh of 2 x 2."""
import pathlib
import sys

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

sys.path.append(str(pathlib.Path(__file__).parents[1] / "lib"))
import world

RANKS = 4


def state(mib):
    """Layers of a small Llama, 64 MiB each, in bfloat16."""
    torch.manual_seed(0)
    shapes = {"q_proj": (2048, 2048), "k_proj": (512, 2048), "v_proj": (512, 2048),
              "o_proj": (2048, 2048), "gate_proj": (3584, 2048), "up_proj": (3584, 2048),
              "down_proj": (2048, 3584), "norm": (2048,)}
    each = sum(torch.Size(s).numel() * 2 for s in shapes.values())
    out = {}
    for layer in range(max(1, (mib << 20) // each)):
        for name, shape in shapes.items():
            t = torch.randint(-30000, 30000, shape, dtype=torch.int16)
            out[f"layers.{layer}.{name}.weight"] = t.view(torch.bfloat16)
    return out


def placements(how, name, tensor):
    if how == "mesh":
        return [Shard(0), Shard(tensor.dim() - 1)]
    by_columns = name.endswith(("o_proj.weight", "down_proj.weight", "gate_proj.weight"))
    return [Shard(1 if how == "tp" and by_columns else 0)]


def save(rank, folder, mib, how):
    mesh = init_device_mesh("cpu", (2, 2) if how == "mesh" else (RANKS,))
    whole = state(mib)
    if rank == 0:
        safetensors.torch.save_file(whole, str(folder / "merged.safetensors"))
    cut = {k: distribute_tensor(v, mesh, placements(how, k, v), src_data_rank=None)
           for k, v in whole.items()}
    dcp.save(cut, checkpoint_id=str(folder / "dcp"))


world.run(RANKS, save, pathlib.Path(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or ["rows"])[0])
