# SPDX-License-Identifier: Apache-2.0
"""loadfile.py DATA MNT tp|mesh: loads by safetensors through a mount and by other ways, in
turns, each in a process that has imported torch and nothing more; medians and ratios.
Of tp, too, what -o verify adds to a load."""
import os
import pathlib
import subprocess
import sys
import time

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import measure

DATA, MNT, CUT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
UNSHARD = os.environ["UNSHARD"]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
MERGED, SHARDS, OUT = DATA / "merged.safetensors", DATA / "dcp", DATA / "out.pt"


def unshard(*arguments):
    subprocess.run([UNSHARD, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def status(pid, name):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith(name + ":"):
            return int(line.split()[1]) >> 10


def clones(path):
    return [t.clone() for t in safetensors.torch.load_file(path).values()]


def merged():
    return clones(MERGED)


def ours():
    unshard("mount", SHARDS, MNT)
    return clones(MNT / "model.safetensors")


def again():
    return clones(MNT / "model.safetensors")


def converted():
    dcp_to_torch_save(SHARDS, OUT)
    return [torch.load(OUT)]


def loaded():
    with safetensors.safe_open(MERGED, "pt") as f:
        state = {k: torch.empty(f.get_slice(k).get_shape(), dtype=torch.bfloat16)
                 for k in f.keys()}
    dcp.load(state, checkpoint_id=SHARDS, no_dist=True)
    return [state]


def same():
    """Right before fast; as bits, for some are no numbers."""
    got, want = map(safetensors.torch.load_file, (MNT / "model.safetensors", MERGED))
    return got.keys() == want.keys() and all(
        torch.equal(t.view(torch.int16), want[k].view(torch.int16)) for k, t in got.items())


def apart(load):
    """Seconds, and the peak in MiB, of a process of its own: torch's threads are in no
    other, for a fork would be without them."""
    out, to = os.pipe()
    pid = os.fork()
    if not pid:
        begun = time.perf_counter()
        held = load()
        took = time.perf_counter() - begun
        assert held
        os.write(to, f"{took} {status('self', 'VmHWM')}".encode())
        os._exit(0)
    os.close(to)
    said = os.read(out, 100).split()
    os.close(out)
    assert not os.waitpid(pid, 0)[1], load.__name__
    return float(said[0]), int(said[1])


def worker():
    return status(int(os.getxattr(MNT, "user.unshard.pid")), "VmRSS")


def warm():
    for path in MERGED, *SHARDS.iterdir():
        path.read_bytes()


def cached():
    """Loads of a file that is kept already."""
    unshard("mount", SHARDS, MNT, "-o", "cache=memory:8G")
    with open(MNT / "model.safetensors", "rb", buffering=0) as f:
        while f.read(1 << 20):
            pass
    time.sleep(0.5)
    took = [apart(again)[0] for _ in range(3)][1:]
    told = dict(line.split()[:2] for line in open(MNT / ".unshard/stats") if line.split()[1:])
    held = int(told["cache_held"]) >> 20
    resident = worker()
    unshard("umount", MNT)
    return min(took), held, resident


def forget():
    """From storage, but read a moment ago, as a host's cache may have it."""
    for path in SHARDS.iterdir():
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def verified():
    """A load with -o verify against one without, the mount not counted."""
    unshard("seal", SHARDS)
    for kind in "warm", "cold":
        took = {"": [], "verify": []}
        for turn in range(ROUNDS):
            for how in list(took)[::-1 if turn % 2 else 1]:
                unshard("mount", SHARDS, MNT, "-o", how or "log=/dev/null")
                warm()
                if kind == "cold":
                    forget()
                took[how].append(apart(again)[0])
                unshard("umount", MNT)
        measured(f"{kind}_load", "s", took[""])
        measured(f"{kind}_load_verify", "s", took["verify"])
        compared(f"{kind}_verify_of_load", took["verify"], took[""], "<=1.05")


def tell(name, *words):
    measure.tell(f"{CUT}_{name}", *words)


def measured(name, *words):
    measure.measured(f"{CUT}_{name}", *words)


def compared(name, *words):
    measure.compared(f"{CUT}_{name}", *words)


def main():
    sides = {"merged": merged, "mount": ours, "dcp_to_torch_save": converted, "dcp.load": loaded}
    took, peak, resident = {k: [] for k in (*sides, "cached")}, {}, 0
    unshard("mount", SHARDS, MNT)
    apart(same)
    unshard("umount", MNT)
    for turn in range(ROUNDS):
        for name, load in list(sides.items())[::-1 if turn % 2 else 1]:
            warm()
            seconds, peak[name] = apart(load)
            took[name].append(seconds)
            if name == "mount":
                resident = worker()
                unshard("umount", MNT)
            OUT.unlink(missing_ok=True)
        seconds, held, kept_resident = cached()
        took["cached"].append(seconds)
    for name, seconds in took.items():
        measured(name, "s", seconds)
        if name in peak:
            tell(name + "_peak", peak[name], "MiB")
    tell("worker", resident, "MiB")
    tell("cached_worker", kept_resident, "MiB")
    tell("cache", held, "MiB")
    compared("mount_of_merged", took["mount"], took["merged"], "<=1.5" if CUT == "tp" else "")
    limits = ("", "") if CUT == "tp" else (">=7", ">=10")
    compared("mount_to_converted", took["dcp_to_torch_save"], took["mount"], limits[0])
    compared("cached_to_converted", took["dcp_to_torch_save"], took["cached"], limits[1])
    compared("mount_to_dcp.load", took["dcp.load"], took["mount"])
    if CUT == "tp":
        verified()


main()
