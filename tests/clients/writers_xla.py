# SPDX-License-Identifier: Apache-2.0
"""torch_xla's CheckpointManager in MNT/run/shards, unchanged.

It keeps a folder a step and writes .manager_metadata into each when its
.metadata is long there, so the run is published by command; then it restores
every step from MNT/run/shards and from SRC/run.  Needs torch_xla, which comes
with a torch of its own:

    python3 -m venv V && V/bin/pip install torch==2.9.0 torch_xla==2.9.0 numpy fsspec
    V/bin/python tests/clients/writers_xla.py
"""
import os
import subprocess
import sys
import tempfile

import kit

os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ.setdefault("CPU_NUM_DEVICES", "4")
kit.need("torch_xla", "numpy", "fsspec")

MANAGER = """
import os, sys
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK="0",
                  WORLD_SIZE="1")
import numpy as np, torch, torch.distributed as dist
import torch_xla, torch_xla.distributed.spmd as xs, torch_xla.runtime as xr
from torch_xla.experimental.distributed_checkpoint import CheckpointManager
dist.init_process_group("gloo", init_method="env://")
xr.use_spmd()
n = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(n), (n, 1), ("x", "y"))
def put(w):
    t = w.to("xla")
    xs.mark_sharding(t, mesh, ("x", "y"))
    return t
w = torch.arange(42.).reshape(7, 6)
for where in sys.argv[3:]:
    m = CheckpointManager(where, save_interval=10, chkpt_on_preemption=False)
    if sys.argv[2] == "save":
        assert m.save(10, {"model": {"w": put(w)}, "step": 10})
        assert m.save_async(20, {"model": {"w": put(w + 1)}, "step": 20})
        m.join()
    assert sorted(m.all_steps()) == [10, 20], m.all_steps()
    for step in 10, 20:
        got = {"model": {"w": put(torch.zeros(7, 6))}, "step": 0}
        m.restore(step, got)
        assert torch.equal(got["model"]["w"].cpu(), w + (step == 20)), step
"""


def manager(what, *where):
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    p = subprocess.run([sys.executable, "-c", MANAGER, port, what, *where],
                       capture_output=True, text=True)
    assert p.returncode == 0, p.stderr[-800:]


def run():
    with tempfile.TemporaryDirectory() as src:
        with kit.mounted(src, rw=True) as mnt:
            os.mkdir(mnt / "run-1")
            manager("save", str(mnt / "run-1/shards"))
            assert not os.path.exists(f"{src}/run-1"), "published by a .metadata"
            subprocess.run([kit.UNSHARD, "publish", f"{src}/run-1"], check=True)
            assert sorted(os.listdir(mnt / "run-1")) == ["10", "20", "shards"]
            for step in 10, 20:
                data = (mnt / f"run-1/{step}/tensors/model.w").read_bytes()
                assert len(data) == 168
                assert os.path.exists(mnt / f"run-1/shards/{step}/.manager_metadata")
            manager("load", str(mnt / "run-1/shards"), f"{src}/run-1")


kit.case(run, "CheckpointManager")
