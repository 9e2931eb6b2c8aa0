# SPDX-License-Identifier: Apache-2.0
"""merge.py WORK UNSHARD: one file of a checkpoint of four ranks, by PyTorch's own
converter, by a mount, and by unshard export: processor time, memory, bytes written."""
import os
import pathlib
import resource
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
from measure import tell

WORK, UNSHARD = pathlib.Path(sys.argv[1]), sys.argv[2]
LAYERS, SIDE, RANKS = 16, 4096, 4  # of float32: 1 GiB
SAVE = f"""
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, distribute_tensor
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://{WORK}/meet", rank=rank, world_size={RANKS})
mesh = dist.init_device_mesh("cpu", ({RANKS},))
torch.manual_seed(1)
state = {{}}
for k in range({LAYERS}):
    state[f"layers.{{k}}.weight"] = distribute_tensor(
        torch.randn({SIDE}, {SIDE}), mesh, [Shard(0)], src_data_rank=None)
dcp.save({{"model": state}}, checkpoint_id="{WORK}/ckpt")
os._exit(0)
"""


def save():
    ranks = [subprocess.Popen([sys.executable, "-c", SAVE, str(r)],
                              stderr=subprocess.DEVNULL) for r in range(RANKS)]
    assert not any(p.wait() for p in ranks)


def result(name, value, unit):
    tell(f"merge.{name}", value, unit, digits=2 if unit == "s" else 0)


def measured(name, *command):
    before, at = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    pid = os.spawnvp(os.P_NOWAIT, command[0], command)
    _, status, used = os.wait4(pid, 0)
    assert not status, (command, status)
    result(f"{name}.wall", time.monotonic() - at, "s")
    result(f"{name}.processor", used.ru_utime + used.ru_stime, "s")
    result(f"{name}.memory", used.ru_maxrss // 1024, "MiB")


def peak(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024


def processor(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


save()
ckpt, mnt = WORK / "ckpt", WORK / "mnt"
mnt.mkdir()
result("size", sum(p.stat().st_size for p in ckpt.iterdir()) >> 20, "MiB")
for turn in range(int(os.environ.get("BENCH_ROUNDS", "1"))):
    torch_pt, ours = WORK / "torch.pt", WORK / "ours.pt"
    for p in torch_pt, ours:
        p.unlink(missing_ok=True)
    measured(f"dcp_to_torch_{turn}", sys.executable, "-W", "ignore", "-m",
             "torch.distributed.checkpoint.format_utils", "dcp_to_torch", str(ckpt), str(torch_pt))
    result(f"dcp_to_torch_{turn}.written", torch_pt.stat().st_size >> 20, "MiB")
    measured(f"mount_{turn}", UNSHARD, "mount", str(ckpt), str(mnt))
    worker = int(os.getxattr(mnt, "user.unshard.pid"))
    measured(f"read_all_{turn}", "sh", "-c", f"cat {mnt}/tensors/* >/dev/null")
    result(f"serve_{turn}.memory", peak(worker), "MiB")
    result(f"serve_{turn}.processor", processor(worker), "s")
    result(f"serve_{turn}.written", 0, "MiB")
    subprocess.run([UNSHARD, "umount", str(mnt)], check=True)
    measured(f"export_{turn}", UNSHARD, "export", f"{ckpt}/model.pt", str(ours))
