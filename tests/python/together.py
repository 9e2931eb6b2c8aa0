# SPDX-License-Identifier: Apache-2.0
"""Ranks of a process group that load together: group= of load_into, DCPReader and load."""
import functools
import os
import pathlib
import shutil
import tempfile
import time

from kit import DATA, case, need

need("numpy", "torch", "torch.distributed.checkpoint")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import unshard
import unshard._comm
import unshard.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import world

LLAMA = DATA / "llama-fsdp2/in"


def zeros(path):
    with unshard.open(path) as ck:
        return {n: torch.zeros(t.shape, dtype=getattr(torch, t.dtype)) for n, t in ck.items()}


def same(state, want):
    assert state.keys() == want.keys()
    for name, value in state.items():
        if isinstance(value, DTensor):
            value = value.full_tensor()
        assert torch.equal(value, want[name]), name


def use(kind):
    if kind == "tcp":
        unshard._comm.of_group = functools.partial(unshard._comm.of_group, host="127.0.0.1")


# ---- each byte once ----


def whole(rank, kind, how, out):
    use(kind)
    ck, state, group = unshard.open(LLAMA), zeros(LLAMA), dist.group.WORLD
    want = {n: t.torch() for n, t in ck.items()}
    if how == "dcp":
        reader = unshard.torch.DCPReader(ck, group=group)
        dcp.load(state, storage_reader=reader)
        pathlib.Path(out, str(rank)).write_text(repr(reader.stats))
    elif how == "load_into":
        unshard.torch.load_into(state, ck, group=group)
    else:
        state = ck.load(group=group)
    same(state, want)


def once(ranks, kind, how):
    with tempfile.TemporaryDirectory() as out:
        world.run(ranks, whole, kind, how, out)
        if how != "dcp":
            return
        stats = [eval((pathlib.Path(out) / str(i)).read_text()) for i in range(ranks)]
    wanted = stats[0]["wanted"]
    assert all(s["wanted"] == wanted and not s["why"] for s in stats), stats
    # Where items lie is found out by each rank: a directory of each file.
    assert sum(s["storage"] for s in stats) <= 1.02 * wanted + 64 * 4096, stats
    assert sum(s["received"] for s in stats) >= (ranks - 1.02) * wanted - 64 * 4096, stats
    assert (sum(s["sent"] for s in stats) > 0) == (kind == "tcp"), stats


def sliced(rank, kind):
    use(kind)
    with unshard.open(LLAMA) as ck:
        want = {n: t.torch() for n, t in ck.items()}
    mesh, state = init_device_mesh("cpu", (dist.get_world_size(),)), {}
    for nr, (name, value) in enumerate(sorted(want.items())):
        place = Replicate() if nr % 3 == 2 else Shard(min(nr % 3, value.ndim - 1))
        state[name] = distribute_tensor(torch.zeros_like(value), mesh, [place])
    unshard.torch.load_into(state, LLAMA, group=dist.group.WORLD)
    same(state, want)


def unlike(rank):
    """Each wants something else, and one nothing."""
    ck, names = unshard.open(LLAMA), sorted(unshard.open(LLAMA))
    mine = names[rank::3] if rank < 2 else []
    got = ck.load(mine, group=dist.group.WORLD, errors={})
    assert sorted(got) == mine
    for name in mine:
        assert torch.equal(got[name], ck[name].torch())


def subgroup(rank):
    """Two groups of two, each of its own, twice."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    group, other, want = groups[rank % 2], groups[1 - rank % 2], zeros(LLAMA)
    unshard.torch.load_into(want, LLAMA)
    for _ in range(2):
        state = zeros(LLAMA)
        unshard.torch.load_into(state, LLAMA, group=group)
        same(state, want)
    try:
        unshard.torch.load_into(state, LLAMA, group=other)
        raise AssertionError("a group of others")
    except (ValueError, RuntimeError) as e:
        assert "group" in str(e), e


# ---- who does not agree, does not come, and goes ----


def differ(rank, there, out):
    try:
        unshard.torch.load_into(zeros(there[rank]), there[rank], group=dist.group.WORLD)
        line = "loaded"
    except unshard.RankError as e:
        line = str(e)
    pathlib.Path(out, str(rank)).write_text(line)


def disagree():
    with tempfile.TemporaryDirectory() as tmp:
        there = [f"{tmp}/one", f"{tmp}/one", f"{tmp}/two"]
        for path in there[1:]:
            shutil.copytree(LLAMA, path)
        world.run(3, differ, there, tmp)
        lines = {(pathlib.Path(tmp) / str(i)).read_text() for i in range(3)}
    assert len(lines) == 1 and "rank 2 of 3 loads another checkpoint" in lines.pop()


def stay_away(rank):
    dist.barrier()
    if rank == 1:
        return
    try:
        unshard._comm.of_group(dist.group.WORLD, timeout=0.5)
        raise AssertionError("rank 1 was there")
    except unshard.RankError as e:
        assert str(e) == "rank 1 of 3 did not come within 0.5 s", e


def fails(rank, out):
    """Before it comes to meet the others: they hear of it at once, and the next call works."""
    ck, group, want = unshard.open(LLAMA), dist.group.WORLD, zeros(LLAMA)
    unshard.torch.load_into(want, LLAMA)
    name = min(want)
    alone = {
        "a name": lambda: ck.load(["nope"], group=group),
        "a dtype": lambda: ck.load([name], group=group, dtype="int77"),
        "no checkpoint": lambda: unshard.torch.load_into(zeros(LLAMA), out + "/nope", group=group),
        "a shape": lambda: unshard.torch.load_into({name: torch.zeros(1)}, ck, group=group),
    }
    for nr, (what, call) in enumerate(alone.items()):
        began = time.monotonic()
        try:
            if rank == nr % 3:
                call()
            else:
                ck.load([name], group=group)
            raise AssertionError(f"{what}: it loaded")
        except unshard.RankError as e:
            assert rank != nr % 3 and f"rank {nr % 3} of 3 failed: " in str(e), (what, e)
        except (unshard.UnknownName, unshard.NotFound, ValueError) as e:
            assert rank == nr % 3, (what, e)
        assert time.monotonic() - began < 20, what
        state = zeros(LLAMA)
        unshard.torch.load_into(state, ck, group=group)
        same(state, want)
    for _ in range(2):  # all of them, and none waits for it
        try:
            ck.load(["nope"], group=group)
            raise AssertionError("it loaded")
        except unshard.UnknownName:
            pass
    assert torch.equal(ck.load([name], group=group)[name], want[name])


def fork_tries(rank):
    """A child of a rank cannot load, and the ranks load as ever."""
    ck, group = unshard.open(LLAMA), dist.group.WORLD
    name = min(ck)
    child = os.fork() if rank == 1 else 0
    if rank == 1 and not child:
        try:
            ck.load([name], group=group)
        except unshard.Forked:
            os._exit(0)
        os._exit(1)
    assert not child or os.waitpid(child, 0)[1] == 0
    dist.barrier()
    assert torch.equal(ck.load([name], group=group)[name], ck[name].torch())


def stays_away_once(rank):
    """It makes one call less than the others, which waited in vain: the next ones work."""
    unshard._comm.of_group = functools.partial(unshard._comm.of_group, timeout=3)
    ck, group = unshard.open(LLAMA), dist.group.WORLD
    name = min(ck)
    for absent in 0, 0, 2:
        dist.barrier()
        try:
            if rank != absent:
                ck.load([name], group=group)
                raise AssertionError("it loaded")
        except unshard.RankError as e:
            assert "did not come" in str(e) or "failed" in str(e), e
        dist.barrier()
        for _ in range(2):
            assert torch.equal(ck.load([name], group=group)[name], ck[name].torch())


def comes_late(rank):
    """When the others have given up, and are about to come again."""
    meet = functools.partial(unshard._comm.of_group, dist.group.WORLD)
    if rank == 2:
        dist.barrier()
        meet(timeout=20).free()
        return
    try:
        meet(timeout=1)
        raise AssertionError("rank 2 was there")
    except unshard.RankError as e:
        assert "rank 2 of 3 did not come" in str(e), e
    dist.barrier()
    meet(timeout=20).free()


def leave(rank):
    """Rank 1 is gone when all have met: the others have it all the same."""
    meet = unshard._comm.of_group

    def met(*args, **kwargs):
        comm = meet(*args, **kwargs)
        if rank == 1:
            comm.free()
            raise KeyboardInterrupt
        return comm

    unshard._comm.of_group = met
    state, want = zeros(LLAMA), zeros(LLAMA)
    try:
        unshard.torch.load_into(state, LLAMA, group=dist.group.WORLD)
    except KeyboardInterrupt:
        assert rank == 1
        return
    unshard.torch.load_into(want, LLAMA)
    same(state, want)


def damaged(rank, path):
    """Who wants what is lost is told; the others are not."""
    ck = unshard.open(path)
    plain: dict = {}
    ck.load(errors=plain)
    assert plain
    names = sorted(set(ck) - set(plain)) if rank else sorted(ck)
    errors: dict = {}
    got = ck.load(names, group=dist.group.WORLD, errors=errors)
    assert sorted(errors) == (sorted(plain) if not rank else []), errors
    assert [str(errors[n]) for n in errors] == [str(plain[n]) for n in errors]
    assert sorted(got) == sorted(set(names) - set(errors))


def lose():
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copytree(LLAMA, f"{tmp}/in")
        os.truncate(f"{tmp}/in/__3_0.distcp", 20000)
        world.run(2, damaged, f"{tmp}/in")


for how in "dcp", "load_into", "load":
    for kind in "shm", "tcp":
        case(once, f"{how} by {kind}", 3, kind, how)
for kind in "shm", "tcp":
    case(world.run, f"slices by {kind}", 3, sliced, kind)
case(world.run, "each something else", 3, unlike)
case(world.run, "groups of a world", 4, subgroup)
case(disagree, "other checkpoints")
case(world.run, "one does not come", 3, stay_away)
case(world.run, "one fails before", 3, fails, "/nonexistent")
case(world.run, "a child of one tries", 3, fork_tries)
case(world.run, "one stays away once", 3, stays_away_once)
case(world.run, "one comes late", 3, comes_late)
case(world.run, "one goes", 3, leave)
case(lose, "a lost shard")
