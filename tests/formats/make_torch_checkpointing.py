#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/torch_checkpointing, by torch_checkpointing itself: each rank a
process of its own, without a GPU; and what the tensors hold, into "sums".

usage: make_torch_checkpointing.py            needs torch, safetensors, torch_checkpointing
       make_torch_checkpointing.py bad        those that nobody writes; torch alone

VERSION=0.1.0 is in the names of what an older release writes.
"""
import hashlib
import os
import pathlib
import pickle
import shutil
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "torch_checkpointing"
# CASE: ranks, how the model is saved, what is saved beside it
CASES = {"fsdp2": (2, "pt", True), "fsdp2-safetensors": (2, "st", False),
         "fsdp2-tp": (4, "st", False), "folders": (3, "folders", False),
         "boxes": (2, "boxes", False)}


def net():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(7, 6)
            self.fc = torch.nn.Linear(6, 5)
            self.norm = torch.nn.LayerNorm(5)
            self.register_buffer("seen", torch.arange(3).to(torch.bfloat16))

        def forward(self, x):
            return self.norm(self.fc(self.embed(x)))

    torch.manual_seed(3)
    return Net()


def on_the_cpu():
    """What gathers the metadata asks for CUDA; what is gathered is the same."""
    import torch
    import torch_checkpointing.metadata_manager as manager
    import types

    class Torch(types.ModuleType):
        __getattr__ = staticmethod(lambda name: getattr(torch, name))

    manager.torch = Torch("torch")
    manager.torch.tensor = lambda *a, device=None, **k: torch.tensor(*a, **k)
    torch.Tensor.cuda = lambda t: t


def boxes(rank):
    """A tensor that says itself which boxes of a larger one it has, by a class."""
    import torch

    class Local(torch.Tensor):
        pass

    whole = torch.arange(48, dtype=torch.float32).reshape(6, 8)
    # columns of the odd rank first: rows 0-2 and 3-5 the other way round
    a, b = whole[:3, 4 * rank:4 * rank + 4], whole[3:, 4 * rank:4 * rank + 4]
    local = torch.cat([b, a]).as_subclass(Local)
    local.global_shape = (6, 8)
    local.global_offsets = ((3, 4 * rank), (0, 4 * rank))
    local.local_offsets = ((0, 0), (3, 0))
    local.local_sizes = ((3, 4), (3, 4))
    return {"w": local}, {"w": whole}


def extract(self, item_key, item_value):
    from torch_checkpointing.default_metadata import DefaultShardingMetadata
    return {(k,): DefaultShardingMetadata.from_tensor(v) for k, v in item_value.items()}


def save(rank, world, case, out):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    import torch_checkpointing
    from torch_checkpointing.checkpoint_layout import LayoutInfo, SafetensorsSerialization
    from torch_checkpointing.checkpoint_manager import CheckpointManager
    from torch_checkpointing.config import SyncCheckpointSaverConfig
    from torch_checkpointing.schema import ItemSpec
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig
    try:
        from torch_checkpointing.default_resharder import DefaultResharder as Resharder
    except ImportError:
        from torch_checkpointing.dtensor_resharder import DTensorResharder as Resharder

    on_the_cpu()
    dist.init_process_group("gloo", rank=rank, world_size=world)
    _, how, beside = CASES[case]
    layout = {"st": "model_{rank}.safetensors", "boxes": "model_{rank}.safetensors",
              "folders": "rank_{rank}/weights.pt"}.get(how)
    if how == "boxes":
        model, whole = boxes(rank)
        Resharder = type("Boxes", (Resharder,), {"extract_sharding_metadata": extract})
    else:
        n = net()
        if world == 4:
            from torch.distributed.tensor.parallel import (ColwiseParallel,
                                                           parallelize_module)
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            parallelize_module(n, mesh["tp"], {"fc": ColwiseParallel()})
            fully_shard(n, mesh=mesh["dp"])
        else:
            fully_shard(n, mesh=init_device_mesh("cpu", (world,), mesh_dim_names=("dp",)))
        optimizer = torch.optim.AdamW(n.parameters(), lr=1e-2)
        if beside:
            n(torch.arange(6) % 7).square().sum().backward()
            optimizer.step()
        model = n.state_dict()
        whole = {k: v.full_tensor() if hasattr(v, "full_tensor") else v
                 for k, v in model.items()}
    if layout:
        of = SafetensorsSerialization() if layout.endswith("safetensors") else None
        if of is None:
            from torch_checkpointing.checkpoint_layout import TorchSerialization
            of = TorchSerialization()
        layout = LayoutInfo(layout, of)
    items = {"model": ItemSpec(resharder=Resharder(), layout=layout)}
    payload = {"model": model}
    sums = {"model." + k: v for k, v in whole.items()}
    if beside:
        items["optimizer"] = ItemSpec(resharder=Resharder())
        items["step"] = items["ema"] = ItemSpec()  # no metadata of these
        payload.update(optimizer=optimizer.state_dict(), step=7, ema=model)
        for i, state in optimizer.state_dict()["state"].items():
            for k, v in state.items():
                v = v.full_tensor() if hasattr(v, "full_tensor") else v
                sums[f"optimizer.state.{i}.{k}"] = v
        sums.update({"ema." + k: v for k, v in whole.items()})
    manager = CheckpointManager(CheckpointManager.Config(
        items=items, save=SyncCheckpointSaverConfig(),
        storage_config=LocalFileSystemStorageConfig(use_direct_io=False)))
    manager.save(str(out / "in"), payload)
    dist.barrier()
    manager.close()
    if rank == 0:
        with open(out / "sums", "w") as f:
            for name, t in sorted(sums.items()):
                raw = t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
                f.write(f"{hashlib.sha256(raw).hexdigest()} {name}\n")
    dist.destroy_process_group()


def make(case, suffix=""):
    out = HERE / (case + suffix)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    world = CASES[case][0]
    ranks = [subprocess.Popen(
        [sys.executable, __file__, "rank", str(r), case, str(out)],
        env=dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                 RANK=str(r), WORLD_SIZE=str(world))) for r in range(world)]
    assert not any(p.wait() for p in ranks), case


def changed(case, source, change):
    """A copy of a real one, with another metadata.pkl."""
    out = HERE / ("bad-" + case)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(HERE / source / "in", out / "in")
    path = out / "in" / "metadata.pkl"
    metadata = pickle.loads(path.read_bytes())
    metadata = change(metadata, out / "in") or metadata
    path.write_bytes(metadata if isinstance(metadata, bytes) else pickle.dumps(metadata))


def of(metadata, name="fc.weight", item="model"):
    paths = metadata["metadata"][item]["nested_path_to_metadata"]
    return paths[f'["{name}"]'][0]["sharding_metadata"]["data"]


def bad():
    files = lambda m: m["metadata"]["model"]["rank_to_layout_info"]
    st = "fsdp2-safetensors"
    changed("missing-rank", st, lambda m, d: (d / "model_1.safetensors").unlink())
    changed("cut-rank", st, lambda m, d: os.truncate(d / "model_1.safetensors", 300))
    changed("version", st, lambda m, d: m.update(version="3.0"))
    changed("call", st, lambda m, d: b"\x80\x04cos\nsystem\n(S'nested_path_to_metadata'\ntR.")
    changed("outside", st, lambda m, d: files(m)[1].update(file_path="../model_1.safetensors"))
    changed("ranks", st, lambda m, d: files(m).pop(1) and None)
    changed("placement", st, lambda m, d: of(m)["placements"][0].update(type="Partial"))
    changed("strided", "fsdp2-tp", lambda m, d: of(m)["placements"][0].update(split_factor=3))
    changed("mesh", st, lambda m, d: of(m)["mesh_spec"].update(mesh_data=(0, 9)))
    changed("lengths", st, lambda m, d: of(m).update(global_shape=[9, 6]))
    changed("dtype", st, lambda m, d: of(m, "norm.bias").update(dtype="torch.float16"))
    changed("path", st, lambda m, d: m["metadata"]["model"]["nested_path_to_metadata"].update(
        {"fc": []}))
    changed("boxes-outside", "boxes", lambda m, d: of(m, "w").update(
        local_offsets=[[0, 0], [4, 0]]))
    changed("boxes-overlap", "boxes", lambda m, d: of(m, "w").update(
        global_offsets=[[0, 0], [2, 0]]))
    changed("unknown", "boxes", lambda m, d: m["metadata"]["model"]["nested_path_to_metadata"][
        '["w"]'][0]["sharding_metadata"].update(type="somebody_v1"))
    changed("no-record", st, lambda m, d: m["metadata"]["model"]["nested_path_to_metadata"].pop(
        '["seen"]') and None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank, case, out = int(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
        save(rank, CASES[case][0], case, out)
    elif sys.argv[1:2] == ["bad"]:
        bad()
    else:
        version = os.environ.get("VERSION", "")
        for case in ["fsdp2"] if version else CASES:
            make(case, version and "-" + version)
