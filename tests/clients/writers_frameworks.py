# SPDX-License-Identifier: Apache-2.0
"""New checkpoints by trainers' own savers, through MNT/step/shards, unchanged.

Each is published at the right moment, and then the framework's own loader
reads it from MNT/step/shards and from the folder in SRC.  What cannot be
installed here is written by the calls that its source makes.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading

import kit
from kit import until

kit.need("torch", "numpy")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402

import world  # noqa: E402

FORMATS = kit.HERE.parent / "formats"


def unshard(*words):
    return subprocess.run([kit.UNSHARD, *words], capture_output=True, text=True)


def publish(src, name, *flags):
    p = unshard("publish", *flags, f"{src}/{name}")
    assert p.returncode == 0, p.stderr


def another(src, mnt, name):
    """Comes last, and is published when quiet: what came before it was looked at."""
    os.mkdir(f"{mnt}/{name}")
    shutil.copyfile(FORMATS / "safetensors/names/in/model.safetensors",
                    f"{mnt}/{name}/shards/model.safetensors")
    until(lambda: os.path.exists(f"{src}/{name}"), f"{name}: not published when quiet")


def files_of(top):
    return {str(p.relative_to(top)): p.read_bytes()
            for p in pathlib.Path(top).rglob("*")
            if p.is_file() and not p.name.startswith(".unshard-")}


def same_files(a, b):
    x, y = files_of(a), files_of(b)
    assert x.keys() == y.keys(), (sorted(x), sorted(y))
    assert all(x[k] == y[k] for k in x), [k for k in x if x[k] != y[k]]


# ---- accelerate: two folders of DCP, the model's .metadata long before the end

def accelerated(rank, save, *folders):
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False,
        state_dict_type="SHARDED_STATE_DICT")
    acc = Accelerator(cpu=True)
    # it enables FSDP on accelerators only
    for state in (AcceleratorState._shared_state, PartialState._shared_state):
        state["distributed_type"] = DistributedType.FSDP
        state["device"] = torch.device("cpu")
    AcceleratorState._shared_state["fsdp_plugin"] = plugin
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 4))
    opt = torch.optim.AdamW(model.parameters(), lr=.1)
    model, opt = acc.prepare(model, opt)
    assert acc.num_processes == 2
    model(torch.ones(2, 6)).sum().backward()
    opt.step()

    def full():
        return [p.full_tensor().clone() for p in model.parameters()]

    before = full()
    if save:
        acc.save_state(folders[0])
    for where in folders:
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        acc.load_state(where)
        assert all(map(torch.equal, before, full())), where


def accelerate(src, mnt):
    try:
        import accelerate as _  # noqa: F401
    except ImportError:
        return "no accelerate"
    os.mkdir(f"{mnt}/acc-1")
    at = f"{mnt}/acc-1/shards"
    world.run(2, accelerated, True, at)
    assert not os.path.exists(f"{src}/acc-1"), "published by a part's .metadata"
    assert os.path.exists(f"{at}/optimizer_0/.metadata"), os.listdir(at)
    assert unshard("status", src).stdout.count("complete: ") == 1
    publish(src, "acc-1")
    assert {"pytorch_model_fsdp_0", "optimizer_0", "shards"} <= set(
        os.listdir(f"{mnt}/acc-1"))
    assert os.readlink(f"{mnt}/latest") == "acc-1"
    world.run(2, accelerated, False, at, f"{src}/acc-1")


# ---- torch.distributed.checkpoint in the background

class Stuck(dcp.DefaultSavePlanner):
    def resolve_data(self, item):
        threading.Event().wait()


def state(w):
    return {"w": distribute_tensor(w, init_device_mesh("cpu", (2,)), [Shard(0)]), "step": 3}


W = torch.arange(600.).reshape(30, -1)


def save_async(rank, where, stuck=False):
    planner = Stuck() if stuck and rank == 1 else None
    dcp.async_save(state(W), checkpoint_id=where, planner=planner).result()


def load(rank, where):
    got = state(torch.zeros_like(W))
    dcp.load(got, checkpoint_id=where)
    assert torch.equal(got["w"].full_tensor(), W) and got["step"] == 3


def async_save(src, mnt):
    os.mkdir(f"{mnt}/async-1")
    at = f"{mnt}/async-1/shards"
    world.run(2, save_async, at)
    assert os.path.isdir(f"{src}/async-1"), "not published by its own rename"
    for where in at, f"{src}/async-1":
        world.run(2, load, where)


def async_killed(src, mnt):
    """Both ranks are killed while one writes; saving once more completes it.

    The other one has written: DCP would write .metadata as soon as both have."""
    os.mkdir(f"{mnt}/killed-1")
    at = f"{mnt}/killed-1/shards"
    with world.started(2, save_async, at, True) as jobs:
        until(lambda: any(e.stat().st_size for e in os.scandir(at)), "nothing written", 120)
        for job in jobs.processes:
            job.kill()
        for job in jobs.processes:
            job.join()
            assert job.exitcode == -9, "ended by itself"
    assert not os.path.exists(f"{src}/killed-1"), "published"
    assert ".metadata" not in os.listdir(at)
    p = unshard("publish", f"{src}/killed-1")
    assert p.returncode == 1 and not os.path.exists(f"{src}/killed-1"), p
    p = unshard("status", src)
    assert "killed-1" in p.stdout and ".metadata" in p.stdout, p
    world.run(2, save_async, at)
    assert os.path.isdir(f"{src}/killed-1"), "not published by its own rename"
    for where in at, f"{src}/killed-1":
        world.run(2, load, where)


# ---- torch.save, and copies

def torch_save(src, mnt):
    os.mkdir(f"{mnt}/pt-1")
    state = {"w": torch.randn(9, 4), "b": torch.arange(5), "step": 4}
    with open(f"{mnt}/pt-1/shards/model.pt", "wb") as f:
        torch.save(state, f)
        f.flush()
        another(src, mnt, "beside-pt-1")
        assert not os.path.exists(f"{src}/pt-1"), "published while it is open"
    until(lambda: os.path.exists(f"{src}/pt-1"), "not published when quiet")
    for where in f"{mnt}/pt-1/shards", f"{src}/pt-1":
        got = torch.load(f"{where}/model.pt")
        assert torch.equal(got["w"], state["w"]) and got["step"] == 4


COPIES = {
    "cp": ["cp", "-a"],
    "rsync": ["rsync", "-a"],
    "rsync-inplace": ["rsync", "-a", "--inplace"],
    "rsync-temp-dir": ["rsync", "-a", "--temp-dir=@"],
}


def copy(name):
    def run(src, mnt):
        if not shutil.which(COPIES[name][0]):
            return f"no {COPIES[name][0]}"
        step = f"{name}-1"
        os.mkdir(f"{mnt}/{step}")
        saved = FORMATS / "dcp/2.14-shardings/in"
        os.mkdir(f"{mnt}/{step}/shards/tmp")
        words = [w.replace("@", f"{mnt}/{step}/shards/tmp")
                 for w in COPIES[name]]
        # the index last, as a careful copier would; both rename or not
        subprocess.run([*words, "--exclude=.metadata"][:len(words) + (
            words[0] == "rsync")] + [f"{saved}/."
                                     if words[0] == "cp" else f"{saved}/",
                                     f"{mnt}/{step}/shards/"], check=True)
        if words[0] == "rsync":
            assert not os.path.exists(f"{src}/{step}"), "published too early"
            subprocess.run([*words, f"{saved}/.metadata",
                            f"{mnt}/{step}/shards/"], check=True)
        if not os.path.exists(f"{src}/{step}"):
            publish(src, step)
        same_files(saved, f"{src}/{step}")
        same_files(f"{src}/{step}", f"{mnt}/{step}/shards")
        assert os.listdir(f"{mnt}/{step}/tensors")
    return run


# ---- nnScaler's Trainer: each rank's file, and links to the newest and the best

def nnscaler(src, mnt):
    saved = FORMATS / "nnscaler/tp2-dp2/in"
    at = pathlib.Path(mnt, "run-1/shards")
    os.mkdir(f"{mnt}/run-1")
    for step in "0000-0010", "0000-0020":
        for rank in range(4):
            file = at / step / f"{rank}.ckpt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((saved / f"{rank}.ckpt").read_bytes())
            for mark in ("last", "best")[: 1 + (step == "0000-0010")]:
                link = at / mark / f"{rank}.ckpt"
                link.parent.mkdir(parents=True, exist_ok=True)
                if link.is_symlink() or link.exists():
                    link.unlink()
                link.symlink_to(pathlib.Path("..") / step / file.name)
    publish(src, "run-1")
    for where in at, pathlib.Path(src, "run-1"):
        for rank in range(4):
            for mark, step in ("last", "0000-0020"), ("best", "0000-0010"):
                link = where / mark / f"{rank}.ckpt"
                assert os.readlink(link) == f"../{step}/{rank}.ckpt"
                assert link.resolve().parent.name == step
                assert link.read_bytes() == (saved / link.name).read_bytes()
    assert {"0000-0010", "0000-0020", "last", "best", "shards"} <= set(
        os.listdir(f"{mnt}/run-1"))
    best = f"{mnt}/run-1/best/tensors"
    ten = f"{mnt}/run-1/0000-0010/tensors"
    assert sorted(os.listdir(best)) == sorted(os.listdir(ten))
    for name in os.listdir(ten):
        with open(f"{best}/{name}", "rb") as a, open(f"{ten}/{name}", "rb") as b:
            assert a.read() == b.read(), name


# ---- OneFlow: a folder a tensor, the pickle last; no wheel has its binary

def oneflow(src, mnt):
    saved = FORMATS / "oneflow/0.9-module/in"
    at = pathlib.Path(mnt, "flow-1/shards")
    os.mkdir(f"{mnt}/flow-1")
    for folder in sorted(p for p in saved.rglob("*") if p.is_dir()):
        to = at / folder.relative_to(saved)
        to.mkdir(exist_ok=True)
        for name in "meta", "out":
            if (folder / name).exists():
                (to / name).write_bytes((folder / name).read_bytes())
    assert "not complete" in unshard("status", src).stdout
    for pickle in saved.rglob("pickled_data"):
        (at / pickle.relative_to(saved)).write_bytes(pickle.read_bytes())
    assert not os.path.exists(f"{src}/flow-1")
    publish(src, "flow-1")
    same_files(saved, f"{src}/flow-1")
    same_files(saved, at)
    assert os.listdir(f"{mnt}/flow-1/tensors")


# ---- ColossalAI's asynchronous writer (TensorNVMe): pwrite by threads, at any
# offsets, to a file without O_TRUNC; the index is there before the bytes

def colossalai(src, mnt):
    saved = FORMATS / "colossalai/optim-async/in"
    at = pathlib.Path(mnt, "colossal-1/shards")
    os.mkdir(f"{mnt}/colossal-1")
    shards = sorted(saved.glob("*.safetensors"))
    fds = [os.open(at / p.name, os.O_WRONLY | os.O_CREAT, 0o664) for p in shards]
    for p in saved.iterdir():
        if p not in shards:
            (at / p.name).write_bytes(p.read_bytes())

    def write(fd, data, first):
        for off in range(first, len(data), 2000):
            os.pwrite(fd, data[off : off + 1000], off)

    threads = [threading.Thread(target=write, args=(fd, p.read_bytes(), k))
               for fd, p in zip(fds, shards) for k in (1000, 0)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    p = unshard("publish", f"{src}/colossal-1")
    assert p.returncode == 3 and "open for writing" in p.stderr, p
    another(src, mnt, "beside-colossal-1")
    assert not os.path.exists(f"{src}/colossal-1"), "published while it is open"
    for fd in fds:
        os.close(fd)
    until(lambda: os.path.exists(f"{src}/colossal-1"), "not published when quiet")
    same_files(saved, f"{src}/colossal-1")
    same_files(saved, at)


def main():
    with tempfile.TemporaryDirectory() as work:
        src = os.path.join(work, "src")
        os.mkdir(src)
        cases = {"accelerate": accelerate, "async_save": async_save,
                 "async_killed": async_killed,
                 "nnscaler": nnscaler, "oneflow": oneflow}
        cases |= {name: copy(name) for name in COPIES}
        quiet = {"torch_save": torch_save, "colossalai": colossalai}
        for name, f in (cases | quiet).items():
            def one(f=f, more={"publish_after": 1} if name in quiet else {}):
                with kit.mounted(src, rw=True, **more) as mnt:
                    return f(src, str(mnt))
            kit.case(one, name)


main()
