# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint.load by DCPReader, of checkpoints of every kind.

Two and four processes load their parts of meshes that the checkpoints were not saved
on; what they have together has the bytes that one process reads, and, of DCP, those
that torch's own reader gives.  No process asks for more than its parts.
"""
import logging
import os
import random
import tempfile
import warnings

from kit import DATA, EXAMPLES, case, copy_of, need, options_of, refused, result

need("numpy", "torch", "torch.distributed.checkpoint", "torch.distributed.tensor")
import torch
import torch.distributed.checkpoint as dcp
import unshard
import unshard.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import world

warnings.filterwarnings("ignore")
LLAMA = DATA / "llama-fsdp2/in"
KINDS = {
    "dcp": LLAMA,
    "dcp-2d": EXAMPLES / "dcp/2.14-shardings/in",
    "megatron-core": EXAMPLES / "dcp/megatron-2026/in",
    "megatron": EXAMPLES / "megatron/gated-gqa-tp2/in",
    "deepspeed-zero2": EXAMPLES / "deepspeed/zero2-3ranks/in",
    "deepspeed-zero3": EXAMPLES / "deepspeed/zero3-five-ranks/in",
    "mindspore": EXAMPLES / "mindspore/2.10-slices/in",
    "hf": EXAMPLES / "hf/indexed/in",
    "torch-save": EXAMPLES / "torch/state_dict/in",
    "torch-save-ranks": EXAMPLES / "torch/dtensor-ranks/in",
}


def failed(call, *words):
    """torch wraps what a reader raises in a BaseException of its own."""
    try:
        call()
    except BaseException as e:
        for word in words:
            assert word in str(e), f"no {word!r} in {e}"
        return
    raise AssertionError("it passed")


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def targets(ck, mesh, rng):
    state = {}
    for name, t in sorted(ck.items()):
        kind = getattr(torch, t.dtype, None)
        if not isinstance(kind, torch.dtype) or t.state != "ok":
            continue
        zeros = torch.zeros(t.shape, dtype=kind)
        ways = [Replicate()] + [Shard(d) for d in range(t.ndim)]
        placed = [rng.choice(ways) for _ in range(mesh.ndim)]
        state[name] = distribute_tensor(zeros, mesh, placed) if t.ndim and t.size else zeros
    return state


def load_parts(path, mesh, seed):
    options = options_of(path.parent)
    reader = unshard.torch.DCPReader(path, **options)
    with unshard.open(path, **options) as ck:
        state = targets(ck, mesh, random.Random(seed))
        assert state
        dcp.load(state, storage_reader=reader)
        own = sum(t.to_local().nbytes if isinstance(t, DTensor) else t.nbytes
                  for t in state.values())
        assert reader.stats.get("wanted", 0) <= own, (reader.stats, own)
        for name, t in state.items():
            whole = t.full_tensor() if isinstance(t, DTensor) else t
            assert raw(whole) == ck[name].tobytes(), (path, mesh, name)


def rank(nr, meshes, kinds):
    logging.disable(logging.WARNING)
    for seed, shape in enumerate(meshes):
        mesh = init_device_mesh("cpu", shape)
        for kind in kinds:
            load_parts(KINDS[kind], mesh, seed)
            if nr == 0:
                result("pass", f"{kind}-onto-{'x'.join(map(str, shape))}")


def as_torch_reads_it():
    """Names, casts, strides and devices that torch's reader takes, too."""
    saved = dcp.FileSystemReader(str(LLAMA)).read_metadata().state_dict_metadata
    for cast in (None, torch.bfloat16, torch.float64, torch.int32):
        states = []
        for reader in (dcp.FileSystemReader(str(LLAMA)), unshard.torch.DCPReader(LLAMA)):
            state = {n: torch.zeros(*m.size, 2, dtype=cast or m.properties.dtype)[..., 1]
                     for n, m in saved.items() if hasattr(m, "size")}
            dcp.load(state, storage_reader=reader, no_dist=True)
            states.append(state)
        assert states[0].keys() == states[1].keys() and states[0]
        assert all(torch.equal(v, states[1][n]) for n, v in states[0].items()), cast


def objects():
    example = EXAMPLES / "dcp/2.14-nested/in"
    names = ("step", "big", "bool", "bytes")
    states = []
    for reader in (dcp.FileSystemReader(str(example)), unshard.torch.DCPReader(example)):
        known = reader.read_metadata().state_dict_metadata
        state = {n: None for n in names if n in known}
        dcp.load(state, storage_reader=reader, no_dist=True)
        states.append(state)
    assert states[0] == states[1] and states[0]


def nested():
    """Without a state dict to fill: the dicts and lists that were saved."""
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner

    saved = {"model": {"w": torch.arange(6.0), "deep": {"b": torch.ones(2)}}, "step": 7,
             "groups": [{"lr": torch.tensor(0.5)}, torch.zeros(3)]}
    with tempfile.TemporaryDirectory() as tmp:
        dcp.save(saved, checkpoint_id=tmp, no_dist=True)
        state = {}
        _load_state_dict(state, unshard.torch.DCPReader(tmp), no_dist=True,
                         planner=_EmptyStateDictLoadPlanner())
        assert torch.equal(state["model"]["w"], saved["model"]["w"])
        assert torch.equal(state["model"]["deep"]["b"], torch.ones(2)) and state["step"] == 7
        assert torch.equal(state["groups"][0]["lr"], torch.tensor(0.5)), state


def of_which_save():
    """storage_meta as FileSystemReader gives it: ids of the save and of the load."""
    with tempfile.TemporaryDirectory() as tmp:
        writer = dcp.FileSystemWriter(tmp)
        dcp.save({"w": torch.ones(3)}, storage_writer=writer, no_dist=True)
        readers = unshard.torch.DCPReader(tmp), dcp.FileSystemReader(tmp)
        for reader in readers:
            meta = reader.read_metadata().storage_meta
            assert (str(meta.checkpoint_id), meta.save_id) == (tmp, writer.save_id), meta
            assert meta.load_id == reader.load_id
    reader = unshard.torch.DCPReader(EXAMPLES / "mindspore/2.10-slices/in")
    assert reader.read_metadata().storage_meta.save_id is None


class Touch:
    """A pickle of it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def executes_nothing():
    with tempfile.TemporaryDirectory() as tmp:
        made = os.path.join(tmp, "made")
        dcp.save({"w": torch.ones(3), "evil": Touch(made)}, checkpoint_id=tmp + "/ck",
                 no_dist=True)
        reader = unshard.torch.DCPReader(tmp + "/ck")
        state = {"w": torch.zeros(3), "evil": None}
        failed(lambda: dcp.load(state, storage_reader=reader, no_dist=True),
               "evil", "its pickle names")
        assert not os.path.exists(made)
        state = {"w": torch.zeros(3)}
        dcp.load(state, storage_reader=reader, no_dist=True)
        assert torch.equal(state["w"], torch.ones(3)) and not os.path.exists(made)


def bad_input():
    refused(unshard.NotFound, lambda: unshard.torch.DCPReader("/nonexistent"))
    load = lambda state: dcp.load(state, storage_reader=unshard.torch.DCPReader(LLAMA),
                                  no_dist=True)
    name = "model.lm_head.weight"
    failed(lambda: load({"x": torch.zeros(3)}), "x")
    failed(lambda: load({name: torch.zeros(3)}), "149")
    with copy_of(LLAMA) as cut:
        victim = sorted(cut.glob("*.distcp"))[-1]
        os.truncate(victim, 20000)
        state = {name: torch.zeros(149, 18)}
        reader = unshard.torch.DCPReader(cut)
        failed(lambda: dcp.load(state, storage_reader=reader, no_dist=True),
               name, victim.name)


class Net(torch.nn.Module):
    def __init__(self, like):
        super().__init__()
        for name, t in like.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(
                torch.zeros(t.shape, dtype=t.torch().dtype)))


def into_a_model():
    with unshard.open(LLAMA) as ck:
        net = Net(ck)
        called = {n.replace(".", "_"): n for n in ck}
        before = {n: p.data_ptr() for n, p in net.named_parameters()}
        missing, unexpected = unshard.torch.load_into(net, ck, names=called.__getitem__)
        assert (missing, unexpected) == ([], [])
        for name, p in net.named_parameters():
            assert p.data_ptr() == before[name] and torch.equal(p, ck[called[name]].torch())
        state = {n: torch.zeros(t.shape) for n, t in ck.model().items()}
        assert unshard.torch.load_into(state, str(LLAMA)) == ([], [])
        assert all(torch.equal(v, ck.model()[n].torch()) for n, v in state.items())
        refused(KeyError, lambda: unshard.torch.load_into({"a": torch.zeros(1)}, ck), "'a'")
        refused(TypeError, lambda: unshard.torch.load_into({"a": {"b": [torch.zeros(1)]}}, ck), "a:")
        assert unshard.torch.load_into({"n": {"lr": 1}}, ck)[0] == []
        assert unshard.torch.load_into({"a": torch.zeros(1)}, ck, strict=False)[0] == ["a"]
        refused(TypeError, lambda: unshard.torch.load_into({"n": torch.ones(1).numpy()}, ck), "n:")
        name = next(iter(ck))
        refused(ValueError, lambda: unshard.torch.load_into(
            {name: torch.empty(ck[name].shape, device="meta")}, ck), name, "meta")
        refused(ValueError, lambda: unshard.torch.load_into({name: torch.zeros(1)}, ck), name)


def ties():
    """Two of a model that share memory, or are one of the checkpoint."""
    with tempfile.TemporaryDirectory() as tmp:
        side = 1000
        dcp.save({"x": torch.ones(side, side), "y": torch.full((side, side), 2.0)},
                 checkpoint_id=tmp, no_dist=True)
        one = {"a": torch.zeros(side, side), "b": torch.zeros(side, side, dtype=torch.float16)}
        got = unshard.torch.load_into(one, tmp, names=lambda _: "x")
        assert got == ([], ["y"]) and all((t == 1).all() for t in one.values()), one
        for _ in range(3):
            shared = torch.zeros(side, side)
            both = {"x": shared, "y": shared}
            assert unshard.torch.load_into(both, tmp) == ([], [])
            assert (shared == 2).all(), shared.unique()
            dcp.load(both, storage_reader=unshard.torch.DCPReader(tmp), no_dist=True)
            assert len(shared.unique()) == 1, shared.unique()
        shared = torch.zeros(side, side)
        assert unshard.torch.load_into({"x": shared, "tied": shared}, tmp) == ([], ["y"])
        assert (shared == 1).all()
        long = torch.zeros(side + 2, side)
        for other in long, long[:1], long[:side].T, long[:side].view(torch.int32):
            state = {"x": long[:side], "tied": other}
            refused(unshard.UnknownName, lambda: unshard.torch.load_into(state, tmp), "'tied'")
            assert unshard.torch.load_into(state, tmp, strict=False) == (["tied"], ["y"])


def missing_by_names():
    """What names() gives is not there: also where the model's own name is."""
    with tempfile.TemporaryDirectory() as tmp:
        dcp.save({"a": torch.ones(3), "b.weight": torch.ones(3)}, checkpoint_id=tmp, no_dist=True)
        for names, line in ((lambda n: "model." + n, "a: no tensor 'model.a'"),
                            (lambda n: {"b": "b.weight"}.get(n, n + ".wieght"), "a: no tensor 'a.wieght'"),
                            (lambda n: None, "a: no tensor None")):
            model = {"a": torch.zeros(3), "b": torch.zeros(3)}
            refused(unshard.UnknownName, lambda: unshard.torch.load_into(model, tmp, names=names), line)
            assert unshard.torch.load_into(model, tmp, names=names, strict=False)[0][0] == "a"
            assert not model["a"].any()


case(ties)
case(missing_by_names)
case(as_torch_reads_it)
case(objects)
case(nested)
case(of_which_save)
case(executes_nothing)
case(bad_input)
case(into_a_model)
case(world.run, "2-ranks", 2, rank, [(2,)], list(KINDS))
case(world.run, "4-ranks", 4, rank, [(2, 2), (4,)], list(KINDS))
