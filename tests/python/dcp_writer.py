# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint.save and async_save by DCPWriter, and unshard.save.

What two and four processes save on one mesh, torch's own dcp.load reads on others; what
a rank fails at is seen by nobody; `unshard verify` finds all of it as it was given.
"""
import errno
import logging
import os
import subprocess
import tempfile
import warnings

from kit import case, need, refused, result

need("numpy", "torch", "torch.distributed.checkpoint", "torch.distributed.tensor")
import numpy
import torch
import torch.distributed.checkpoint as dcp
import unshard
import unshard.torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import world

warnings.filterwarnings("ignore")
OPTIONS = {"sandbox": "off"} if os.environ.get("SAN") else {}
WHOLE = {
    "rows": torch.arange(24 * 6.0).reshape(24, 6),
    "uneven": torch.arange(7 * 5, dtype=torch.int64).reshape(7, 5),
    "half": torch.arange(64).bfloat16().reshape(8, 8),
    "large": torch.arange(3 << 20, dtype=torch.int32).reshape(3, 1 << 20),
    "few": torch.arange(2.0),
    "complex": torch.arange(8.0).reshape(2, 4) + 1j,
}
WAYS = {"rows": (0, 1), "uneven": (0, None), "half": (1, 0), "large": (1, 1),
        "few": (0, 0), "complex": (None, 1)}


def place(name, mesh, turn=0):
    ways = WAYS[name][: mesh.ndim]
    ways = ways[::-1] if turn else ways
    return [Replicate() if d is None else Shard(d) for d in ways]


def state_on(mesh, turn=0, empty=False):
    """What is saved, or with empty what it is loaded into."""
    cut = {}
    for name, t in WHOLE.items():
        cut[name] = distribute_tensor(torch.zeros_like(t) if empty else t, mesh,
                                      place(name, mesh, turn))
    turned = torch.arange(12.0).reshape(3, 4).T
    return {
        "model": cut,
        "optim": {"step": torch.tensor(0 if empty else 17), "lr": None if empty else 0.25,
                  "groups": [{"turned": torch.zeros(4, 3) if empty else turned},
                             {"betas": None if empty else (0.9, 0.99)}]},
        "none": torch.zeros(0, 4),
    }


def same(state):
    for name, t in WHOLE.items():
        assert torch.equal(state["model"][name].full_tensor(), t), name
    assert state["optim"]["step"].item() == 17 and state["optim"]["lr"] == 0.25, state["optim"]
    groups = state["optim"]["groups"]
    assert torch.equal(groups[0]["turned"], torch.arange(12.0).reshape(3, 4).T)
    assert tuple(groups[1]["betas"]) == (0.9, 0.99)


def writer(path, **how):
    return unshard.torch.DCPWriter(path, timeout=60, **how, **OPTIONS)


def verified(path):
    done = subprocess.run([os.environ["UNSHARD"], "verify", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def save(nr, shape, path, way):
    logging.disable(logging.WARNING)
    state = state_on(init_device_mesh("cpu", shape))
    if way == "async":
        dcp.async_save(state, storage_writer=writer(path)).result()
        torch.distributed.barrier()
    else:
        dcp.save(state, storage_writer=writer(path))
    assert os.path.exists(path + "/.metadata")


def load(nr, shape, path):
    """By torch alone."""
    logging.disable(logging.WARNING)
    state = state_on(init_device_mesh("cpu", shape), turn=1, empty=True)
    dcp.load(state, storage_reader=dcp.FileSystemReader(path))
    same(state)


def onto_others(ranks, shape, others, way="sync"):
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/step-1"
        world.run(ranks, save, shape, path, way)
        assert os.listdir(tmp) == ["step-1"], os.listdir(tmp)
        verified(path)
        for n, other in others:
            world.run(n, load, other, path)
        with unshard.open(path, **OPTIONS) as ck:
            for name, t in WHOLE.items():
                assert torch.equal(ck[f"model.{name}"].torch(), t), name
        size = sum(os.path.getsize(f"{path}/{f}") for f in os.listdir(path))
        once = sum(t.nbytes for t in WHOLE.values())
        assert once <= size < 1.1 * once + (1 << 18), (size, once)  # copies are there once


def nested():
    """Dicts and lists as they were, without a state dict to fill."""
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    saved = {"a": {"b": [torch.ones(2), {"c": 7}]}, "d.e": torch.zeros(3)}
    with tempfile.TemporaryDirectory() as tmp:
        dcp.save(saved, storage_writer=writer(tmp + "/s"), no_dist=True)
        state = {}
        _load_state_dict(state, dcp.FileSystemReader(tmp + "/s"), no_dist=True,
                         planner=_EmptyStateDictLoadPlanner())
        assert torch.equal(state["a"]["b"][0], torch.ones(2)) and state["a"]["b"][1]["c"] == 7
        assert torch.equal(state["d.e"], torch.zeros(3))


def failed(call):
    """What a save raises: torch wraps it in a BaseException of its own."""
    try:
        call()
    except BaseException as e:
        return str(e)
    raise AssertionError("it passed")


def there_already():
    with tempfile.TemporaryDirectory() as tmp:
        path = tmp + "/s"
        dcp.save({"w": torch.ones(3)}, storage_writer=writer(path), no_dist=True)
        again = lambda **how: dcp.save({"w": torch.zeros(4)}, no_dist=True,
                                       storage_writer=writer(path, **how))
        assert "exists" in failed(again)
        assert torch.equal(unshard.open(path, **OPTIONS)["w"].torch(), torch.ones(3))
        again(replace=True)
        assert torch.equal(unshard.open(path, **OPTIONS)["w"].torch(), torch.zeros(4))
        assert os.listdir(tmp) == ["s"]


class Other(DefaultSavePlanner):
    """Gives other elements, or fewer, than the plan says."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def transform_object(self, item, data):
        return self.how(super().transform_object(item, data))


def other_than_declared():
    """What a planner gives is what it said it would, or is not written."""
    with tempfile.TemporaryDirectory() as tmp:
        for how, given in ((lambda t: t.half(), "float16 [64, 2]"),
                           (lambda t: t[:8], "float32 [8, 2]"),
                           (lambda t: t[:0], "float32 [0, 2]"),
                           (lambda t: t.flatten(), "float32 [128]"),
                           (lambda t: t.view(torch.int32), "int32 [64, 2]")):
            line = failed(lambda: dcp.save({"t": torch.ones(64, 2)}, no_dist=True, planner=Other(how),
                                           storage_writer=writer(tmp + "/s")))
            assert f"tensor t: declared as float32 [64, 2], given as {given}" in line, line
            assert not os.path.exists(tmp + "/s")
        dcp.save({"t": torch.ones(64, 2)}, no_dist=True, planner=Other(torch.zeros_like),
                 storage_writer=writer(tmp + "/s"))
        assert torch.equal(unshard.open(tmp + "/s", **OPTIONS)["t"].torch(), torch.zeros(64, 2))


def lazy():
    """A weight that has no memory yet is read."""
    from unshard.vllm import LazyWeight

    with tempfile.TemporaryDirectory() as tmp:
        unshard.save(os.fsencode(tmp + "/a"), {"t": torch.arange(64)}, **OPTIONS)
        unshard.save(tmp + "/b", {"t": LazyWeight(unshard.open(tmp + "/a")["t"])}, **OPTIONS)
        assert torch.equal(unshard.open(tmp + "/b")["t"].torch(), torch.arange(64))


def let_go():
    """Storage that is gone, or too short: nothing of it, nor of what lies behind."""
    for form in "dcp", "safetensors":
        for size in 0, 4096, (256 << 10) - 4:
            for turned in False, True:
                t = torch.ones(256, 256)
                t = t.T if turned else t
                t.untyped_storage().resize_(size)
                with tempfile.TemporaryDirectory() as tmp:
                    refused(ValueError, lambda: unshard.save(tmp + "/s", {"w.t": t}, format=form),
                            "tensor w.t", f"of its storage, which has {size}")
                    assert not os.path.exists(tmp + "/s")
        with tempfile.TemporaryDirectory() as tmp:
            line = failed(lambda: dcp.save({"w.t": t}, storage_writer=writer(tmp + "/s"),
                                           no_dist=True))
            assert "tensor w.t: the tensor ends at byte" in line, line
            assert not os.path.exists(tmp + "/s")


class Failing(DefaultSavePlanner):
    def resolve_data(self, item):
        raise OSError(errno.EIO, "of the test")


def one_fails(nr, path):
    logging.disable(logging.WARNING)
    state = {"w": distribute_tensor(torch.arange(8.0), init_device_mesh("cpu", (2,)), [Shard(0)])}
    planner = Failing() if nr == 1 else None
    assert "of the test" in failed(
        lambda: dcp.save(state, storage_writer=writer(path), planner=planner))
    assert not os.path.exists(path)
    torch.distributed.barrier()
    dcp.save(state, storage_writer=writer(path))


def a_rank_fails():
    with tempfile.TemporaryDirectory() as tmp:
        world.run(2, one_fails, tmp + "/s")
        assert torch.equal(unshard.open(tmp + "/s", **OPTIONS)["w"].torch(), torch.arange(8.0))


def plain():
    array = numpy.arange(24, dtype=">i4").reshape(4, 6)
    given = {"t": torch.arange(6.0).reshape(2, 3).T, "a": array, "v": array[::-1, ::2],
             "h": torch.ones(5, dtype=torch.bfloat16), "s": torch.tensor(3), "e": torch.ones(0, 2),
             "wide": torch.ones(1).expand(9), "c": (torch.ones(2) + 2j).conj()}
    for form in ("dcp", "safetensors"):
        with tempfile.TemporaryDirectory() as tmp:
            some = {n: v for n, v in given.items() if form == "dcp" or n != "c"}
            unshard.save(tmp + "/s", some, format=form, **OPTIONS)
            verified(tmp + "/s")
            with unshard.open(tmp + "/s", **OPTIONS) as ck:
                for name, value in some.items():
                    want = value if isinstance(value, torch.Tensor) else torch.tensor(
                        numpy.ascontiguousarray(value, "i4"))
                    assert torch.equal(ck[name].torch(), want), (form, name)
                unshard.save(tmp + "/copy", dict(ck), format=form, **OPTIONS)
            with unshard.open(tmp + "/copy", **OPTIONS) as ck:
                assert torch.equal(ck["t"].torch(), given["t"])
            e = refused(unshard.SaveError, lambda: unshard.save(tmp + "/s", some, **OPTIONS), "exists")
            unshard.save(tmp + "/s", {"n": torch.ones(1)}, replace=True, **OPTIONS)
            assert list(unshard.open(tmp + "/s", **OPTIONS)) == ["n"]
    refused(unshard.SaveError, lambda: unshard.save("/nonexistent/s", given), "/nonexistent")
    refused(TypeError, lambda: unshard.save("/tmp/s", {"x": "text"}), "x")
    refused(ValueError, lambda: unshard.save("/tmp/s", given, format="zarr"), "zarr")
    refused(ValueError, lambda: unshard.save("/tmp/.s", given), "not the name")


case(nested)
case(there_already)
case(plain)
case(other_than_declared)
case(let_go)
case(lazy)
case(a_rank_fails)
case(onto_others, "2-onto-4", 2, (2,), [(4, (2, 2)), (2, (1, 2))])
case(onto_others, "4-onto-2", 4, (2, 2), [(2, (2,)), (4, (4,))])
case(onto_others, "async", 2, (2,), [(2, (2, 1))], "async")
