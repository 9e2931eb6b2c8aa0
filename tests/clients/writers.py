# SPDX-License-Identifier: Apache-2.0
"""New checkpoints by frameworks that know nothing of us, through a mount.

Each writes into MNT/step/shards as it would into any folder; then the step is
published, and the tensors in it are what was saved.
"""
import os
import subprocess
import tempfile

import kit
from kit import until

kit.need("torch", "safetensors.torch", "numpy")
import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402

import world  # noqa: E402

RANKS = 4


def value(name, shape):
    g = torch.Generator().manual_seed(sum(name.encode()))
    return torch.randn(shape, generator=g)


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def check(step, tensors):
    for name, t in tensors.items():
        got = np.frombuffer(bytes_of(f"{step}/tensors/{name}"), np.float32)
        assert np.array_equal(got, t.numpy().ravel()), name


# ---- torch.distributed.checkpoint, four processes of gloo

def state():
    mesh = init_device_mesh("cpu", (RANKS,))
    return mesh, {
        "w": distribute_tensor(value("w", (32, 24)), mesh, [Shard(0)]),
        "b": distribute_tensor(value("b", (7, 5)), mesh, [Shard(1)]),
        "r": distribute_tensor(value("r", (6,)), mesh, [Replicate()]),
        "step": 3,
    }


def save(rank, where):
    torch.distributed.checkpoint.save(state()[1], checkpoint_id=where)


def save_and_load(rank, where):
    save(rank, where)
    torch.distributed.barrier()
    back = {"w": distribute_tensor(torch.zeros(32, 24), state()[0], [Shard(0)])}
    torch.distributed.checkpoint.load(back, checkpoint_id=where)
    assert torch.equal(back["w"].full_tensor(), value("w", (32, 24)))


def save_own(rank, where):
    own = state()[1]
    torch.save({"w": own["w"], "b": own["b"]}, f"{where}/model_rank{rank}.pt")


def dcp(work, src, mnt):
    step = f"{mnt}/step-1"
    os.mkdir(step)
    world.run(RANKS, save_and_load, f"{step}/shards")
    assert os.path.isdir(f"{src}/step-1"), "not published by its own rename"
    assert os.readlink(f"{mnt}/latest") == "step-1"
    check(step, {n: value(n, s) for n, s in
                 (("w", (32, 24)), ("b", (7, 5)), ("r", (6,)))})
    subprocess.run([kit.UNSHARD, "verify", f"{src}/step-1"], check=True,
                   stdout=subprocess.DEVNULL)


def dcp_twice(work, src, mnt):
    """A step that is saved twice: the second is refused, the first stays."""
    try:
        world.run(RANKS, save, f"{mnt}/step-1/shards")
    except torch.multiprocessing.ProcessRaisedException as e:
        assert "PermissionError" in str(e), e
    else:
        raise AssertionError("wrote into a published checkpoint")
    check(f"{mnt}/step-1", {"w": value("w", (32, 24))})


# ---- files

def publish(src, name, *flags):
    subprocess.run([kit.UNSHARD, "publish", *flags, f"{src}/{name}"],
                   check=True, stdout=subprocess.DEVNULL)


def save_file(work, src, mnt):
    os.mkdir(f"{mnt}/st")
    t = {"a": value("a", (16, 8)), "c": value("c", (3,))}
    safetensors.torch.save_file(t, f"{mnt}/st/shards/model.safetensors")
    back = safetensors.torch.load_file(f"{mnt}/st/shards/model.safetensors")
    assert torch.equal(back["a"], t["a"])
    publish(src, "st")
    check(f"{mnt}/st", t)


def save_ranks(work, src, mnt):
    """torch.save by each rank: DTensors say how many ranks there are."""
    os.mkdir(f"{mnt}/per-rank")
    world.run(RANKS, save_own, f"{mnt}/per-rank/shards")
    publish(src, "per-rank")
    check(f"{mnt}/per-rank", {"w": value("w", (32, 24)),
                              "b": value("b", (7, 5))})


def lone_rank(work, src, mnt):
    """One rank's file of a format that does not count: --ranks says it."""
    os.mkdir(f"{mnt}/lone")
    for r in range(2):
        safetensors.torch.save_file(
            {f"p{r}": value(f"p{r}", (4, 4))},
            f"{mnt}/lone/shards/model_rank{r}.safetensors")
    p = subprocess.run([kit.UNSHARD, "publish", f"{src}/lone"],
                       capture_output=True, text=True)
    assert p.returncode == 1 and "--ranks" in p.stderr, p
    p = subprocess.run([kit.UNSHARD, "publish", "--ranks=3", f"{src}/lone"],
                       capture_output=True, text=True)
    assert p.returncode == 1 and "missing rank 2" in p.stderr, p
    publish(src, "lone", "--ranks", "2")
    check(f"{mnt}/lone", {"p0": value("p0", (4, 4))})


def links(work, src, mnt):
    """As nnScaler's Trainer: the newest and the best are links."""
    where = f"{mnt}/links/shards"
    os.mkdir(f"{mnt}/links")
    torch.save({"w": value("w", (4, 4))}, f"{where}/0000-0010.pt")
    names = ["last", "best", "last.pt", "best.pt"]
    for name in names:
        os.symlink("0000-0010.pt", f"{where}/{name}")
    os.unlink(f"{where}/last")
    os.symlink("0000-0010.pt", f"{where}/last")
    for to in ("/etc/passwd", "../../other", "x/../../../y"):
        try:
            os.symlink(to, f"{where}/other")
        except PermissionError:
            continue
        raise AssertionError(f"a link to {to}")
    for at in (where, f"{src}/links", where):
        if at == f"{src}/links":
            publish(src, "links")
        assert sorted(os.listdir(at))[:1] in (["0000-0010.pt"],
                                              [".unshard-manifest"])
        for name in names:
            assert os.readlink(f"{at}/{name}") == "0000-0010.pt", (at, name)
            got = torch.load(f"{at}/{name}")["w"]
            assert torch.equal(got, value("w", (4, 4)))
    check(f"{mnt}/links", {"w": value("w", (4, 4))})


def pretrained(work, src, mnt):
    """An index that is written and not renamed waits for quiet."""
    where = f"{mnt}/hf/shards"
    os.mkdir(f"{mnt}/hf")
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for i, name in enumerate(names):
        safetensors.torch.save_file({f"t{i}": value(f"t{i}", (8,))},
                                    f"{where}/{name}")
    with open(f"{where}/model.safetensors.index.json", "w") as f:
        f.write('{"metadata": {"total_size": 64}, "weight_map": '
                f'{{"t0": "{names[0]}", "t1": "{names[1]}"}}}}')
    assert not os.path.exists(f"{src}/hf")
    with open(f"{where}/config.json", "w") as f:
        f.write("{}")
    until(lambda: os.path.isdir(f"{src}/hf"), "not published when quiet")
    check(f"{mnt}/hf", {f"t{i}": value(f"t{i}", (8,)) for i in (0, 1)})
    assert os.path.exists(f"{src}/hf/config.json")


def main():
    with tempfile.TemporaryDirectory() as work:
        src = os.path.join(work, "src")
        os.mkdir(src)
        for f in (dcp, dcp_twice, save_file, save_ranks, lone_rank, links):
            def one(f=f):
                with kit.mounted(src, rw=True) as mnt:
                    return f(work, src, str(mnt))
            kit.case(one, f.__name__)

        def quiet():
            with kit.mounted(src, rw=True, publish_after=2) as mnt:
                return pretrained(work, src, str(mnt))
        kit.case(quiet, "pretrained")


main()
