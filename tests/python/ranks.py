# SPDX-License-Identifier: Apache-2.0
"""Ranks of a node that open one checkpoint at the same time: one parses, and none waits for
one that is not there, that fails, that ends or that stands still."""
import contextlib
import os
import pathlib
import shutil
import signal
import tempfile

from kit import DATA, EXAMPLES, TOP, case, need

need("numpy", "torch", "torch.distributed.checkpoint")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import unshard
import unshard._share
import unshard.torch
import unshard.transformers
import unshard.vllm

import world

PARSER = os.environ.get("UNSHARD_PARSER") or os.path.join(
    os.path.dirname(os.environ.get("UNSHARD_LIBRARY", f"{TOP}/build/.")), "unshard-parser")
LLAMA = DATA / "llama-fsdp2/in"  # whose shards are parsed too, by each who reads them
INDEXED = EXAMPLES / "hf/indexed/in"


@contextlib.contextmanager
def parsers(first="true"):
    """A folder; each parser that is started writes a line to its log, and the first
    one runs that."""
    with tempfile.TemporaryDirectory() as tmp:
        file = pathlib.Path(tmp, "unshard-parser")
        file.write_text(f"#!/bin/sh\necho >>{tmp}/log\n"
                        f"mkdir {tmp}/first 2>/dev/null && {{ {first.format(tmp)}; }}\n"
                        f"exec {PARSER}\n")
        file.chmod(0o755)
        os.mkfifo(f"{tmp}/go")
        os.mkfifo(f"{tmp}/begun")
        (file.parent / "log").touch()
        os.environ["UNSHARD_PARSER"] = str(file)
        # A context is made when the first checkpoint is opened: by the processes alone.
        assert unshard._abi._context.pid != os.getpid()
        try:
            yield file.parent
        finally:
            os.environ.pop("UNSHARD_PARSER")
            for fifo in "go", "begun":  # one whose rank was killed waits there still
                os.close(os.open(f"{tmp}/{fifo}", os.O_RDWR))


def started(folder):
    return (folder / "log").read_text().count("\n")


def all_of(path, how):
    """What a rank that asks for everything gets."""
    if how == "dcp":
        reader = unshard.torch.DCPReader(path)
        known = reader.read_metadata().state_dict_metadata
        state = {n: torch.zeros(m.size, dtype=m.properties.dtype)
                 for n, m in known.items() if hasattr(m, "size")}
        dcp.load(state, storage_reader=reader)
    elif how == "load_into":
        with unshard._share.opened(path) as ck:
            state = {n: torch.zeros(t.shape, dtype=getattr(torch, t.dtype))
                     for n, t in ck.items()}
        unshard.torch.load_into(state, path)
    elif how == "lazy":
        state = {n: t[...] for n, t in unshard.transformers.lazy(path).items()}
    else:
        state = dict(unshard.vllm.weights({}, str(path)))
    return state


def load(nr, path, how, out):
    torch.save(all_of(path, how), f"{out}/{nr}")


def one_parser(ranks, path, how, opens, each):
    """opens: how often each rank opens it; each: parsers that a rank needs for shards,
    unless it is the one that parsed, whose parser goes on."""
    with parsers() as folder:
        world.run(ranks, load, path, how, folder)
        states = [torch.load(folder / str(nr)) for nr in range(ranks)]
        assert started(folder) == opens + (ranks - 1) * each, started(folder)
    assert states[0]
    for state in states[1:]:
        assert state.keys() == states[0].keys()
        assert all(torch.equal(v, states[0][n]) for n, v in state.items())


def a_rank_alone(nr, path):
    """The first comes when all others wait for it elsewhere; another long after it."""
    if nr == 0:
        assert len(all_of_names(path))
    dist.barrier()
    if nr:
        assert len(all_of_names(path))


def all_of_names(path):
    with unshard._share.opened(path) as ck:
        return list(ck)


def missing():
    with parsers() as folder:
        world.run(2, a_rank_alone, INDEXED)
        assert started(folder) == 1


def late(nr, path):
    unshard._share._STAYS = 0
    a_rank_alone(nr, path)


def too_late():
    with parsers() as folder:
        world.run(2, late, INDEXED)
        assert started(folder) == 2


def latest_of(nr, runs):
    with unshard._share.opened(runs, "latest") as ck:
        want = {n: t.tobytes() for n, t in ck.items()}
        assert not ck.problems() and want
    with unshard.open(LLAMA) as ck:
        assert want == {n: t.tobytes() for n, t in ck.items()}


def latest():
    """The newest that is whole, of the first rank and of those that get its image."""
    with tempfile.TemporaryDirectory() as runs:
        for step in "step-1", "step-2", "step-3":
            shutil.copytree(LLAMA, f"{runs}/{step}")
        os.truncate(f"{runs}/step-3/__3_0.distcp", 100)
        world.run(2, latest_of, runs)


def again(nr, path, tmp):
    """What lies there by now, not what was parsed before."""
    names = all_of_names(path)
    dist.barrier()
    if nr == 0:
        dcp.save({"new": torch.ones(3)}, checkpoint_id=tmp, no_dist=True)
    dist.barrier()
    assert all_of_names(path) != names and all_of_names(path) == ["new"]


def saved_anew():
    with tempfile.TemporaryDirectory() as tmp:
        dcp.save({"old": torch.ones(3)}, checkpoint_id=tmp, no_dist=True)
        world.run(2, again, tmp, tmp)


def first_is(nr, path, folder, what):
    """The first rank to parse waits for a word that never comes, and then ..."""
    unshard._share._PATIENCE = 1
    if nr == 0:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                all_of_names(path)
            os._exit(0)
        (folder / "begun").read_text()  # its parser runs
        os.kill(pid, what)
    dist.barrier()
    if nr:
        assert all_of_names(path)
    dist.barrier()
    if nr == 0:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def first_ends(what):
    # A child of rank 0 is the first; its brothers have another parent, so that:
    os.getppid, real = lambda: 1, os.getppid
    try:
        with parsers("echo >{0}/begun; read word <{0}/go") as folder:
            world.run(2, first_is, INDEXED, folder, what)
            assert started(folder) == 2
    finally:
        os.getppid = real


def first_fails():
    """Who waits for it says what is wrong itself."""
    with parsers("exit 1") as folder:
        world.run(2, one_fails, INDEXED)
        assert started(folder) == 2


def one_fails(nr, path):
    try:
        failed = not all_of_names(path)
    except unshard.OpenError:
        failed = True
    said = [None, None]
    dist.all_gather_object(said, failed)
    assert sorted(said) == [False, True], said


def on_its_own():
    """Without torch.distributed each opens it for itself, and leaves no thread."""
    import threading

    code = threading.active_count()
    with unshard._share.opened(INDEXED) as ck:
        assert len(ck) and threading.active_count() == code


for nr in (2, 4):
    case(one_parser, f"dcp-{nr}", nr, LLAMA, "dcp", 2, 1)
    case(one_parser, f"hf-{nr}", nr, INDEXED, "dcp", 2, 0)
case(one_parser, "load_into", 2, INDEXED, "load_into", 2, 0)
case(one_parser, "transformers", 2, INDEXED, "lazy", 1, 0)
case(one_parser, "vllm", 2, INDEXED, "vllm", 1, 0)
case(missing)
case(too_late)
case(latest)
case(saved_anew)
case(first_fails)
case(first_ends, "first-is-killed", signal.SIGKILL)
case(first_ends, "first-stands-still", signal.SIGSTOP)
case(on_its_own)
