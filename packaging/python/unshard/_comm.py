# SPDX-License-Identifier: Apache-2.0
"""Ranks of a process group that load together: what they talk by is theirs alone.

Of the group only its store is used, by which they learn of each other's addresses; no
collective of it is called.
"""
from __future__ import annotations

import contextlib
import ctypes as c
import errno
import os
import socket
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, Iterator, List, Optional

from . import _abi, _errors

TIMEOUT = 60.0  # seconds that one answer may take
_LINE = 500  # characters of why a rank does not come

_met: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class _Joined(c.c_void_p):
    """A communicator.  Who waits for this rank when it is let go reads alone."""

    __del__ = _abi.let_go("comm_free")


class Comm:
    """A communicator: all ranks make one at a time, and free() it.

    told(text): the texts that all ranks gave it, in their order.
    device: into whose memory this one loads, "cuda:1"; bytes go from GPU to GPU, by NCCL,
    where each rank says one, of its own, and has the same NCCL.
    """

    def __init__(self, rank: int, ranks: int, told: Callable[[str], List[str]], *,
                 host: str = "", timeout: float = TIMEOUT, device: str = "") -> None:
        self.handle = _Joined()
        said = [text.rsplit(" ", 3) for text in told(
            f"{_node()} {host or _host()} {_gpu(device) or '-'} {_nccl(device) or '-'}")]
        nodes, _hosts, gpus, versions = zip(*said)
        opts, err = _abi.comm_opts(), _abi.error()
        opts.size, opts.rank, opts.ranks = c.sizeof(opts), rank, ranks
        opts.kind = b"tcp" if len(set(nodes)) > 1 or host else b"shm"
        if len(set(zip(nodes, gpus))) == ranks and len(set(versions)) == 1 and versions[0] != "-":
            opts.kind, opts.device = b"nccl", device.encode()
        opts.host = said[rank][1].encode()
        self.kind: str = opts.kind.decode()
        opts.timeout_ms = int(timeout * 1000)
        ret = _abi.call("comm_new")(_abi.context(), c.byref(opts), c.byref(self.handle),
                                    c.byref(err))
        if ret:
            raise _errors.talking(-ret, err.line)
        try:
            address = _abi.call("comm_address")(self.handle).decode()
            each = (c.c_char_p * ranks)(*(text.encode() for text in told(address)))
            ret = _abi.call("comm_connect")(self.handle, each, c.byref(err))
            if ret:
                raise _errors.talking(-ret, err.line)
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        """Who still waits for this rank reads alone."""
        self.handle = _Joined()

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.free()


def of_group(group: Any, *, host: str = "", timeout: float = TIMEOUT,
             device: Optional[str] = "") -> Optional[Comm]:
    """Of a torch process group; None: it has one rank.  ValueError: this process is not
    in it.  device: what this rank loads to, "cuda:1"; "": the host; None: nothing."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    group = group if group is not None else dist.group.WORLD
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("group: this process is not in it")
    if ranks == 1:
        return None
    meeting = _Meeting(c10d._get_process_group_store(group), group, rank, ranks, timeout)
    try:
        return Comm(rank, ranks, meeting.told, host=host, timeout=timeout,
                    device=_current() if device is None else device)
    except BaseException as e:
        meeting.leave(e)
        raise


@contextlib.contextmanager
def coming(group: Any) -> Iterator[None]:
    """What a rank does before of_group(): where that fails, the others are told that it does
    not come, so that all of them fail, and meet at the next call."""
    try:
        yield
    except BaseException as e:
        # A fork()ed child is no rank, and may not talk by what its parent has open.
        if group is not None and not isinstance(e, _errors.Forked):
            with contextlib.suppress(Exception):  # what failed is what is raised
                _stay_away(group, e)
        raise


def _stay_away(group: Any, why: BaseException) -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank >= 0 and ranks > 1:
        _Meeting(c10d._get_process_group_store(group), group, rank, ranks, 0).leave(why)


class _Meeting:
    """One call that all ranks make: what each says in its first turn, and in its second.

    They count their calls.  Who waited in vain says in the store which one is over for
    all: the next call of a rank that did not make it is the next one of the others too.
    """

    TURNS = 2

    def __init__(self, store: Any, group: Any, rank: int, ranks: int, timeout: float) -> None:
        self._store, self._rank, self._ranks, self._timeout = store, rank, ranks, timeout
        self._turn = 0  # that has ended
        self._nth = _met[group] = max(_met.get(group, 0), self._over()) + 1

    def _over(self, call: int = 0) -> int:
        """The number of the last one that is over; no less than call."""
        now = int(self._store.compare_set("unshard/over", "", "0"))
        while now < call:
            now = int(self._store.compare_set("unshard/over", str(now), str(call)))
        return now

    def _key(self, turn: int, rank: int) -> str:
        return f"unshard/{self._nth}/{turn}/{rank}"

    def told(self, text: str) -> List[str]:
        until = time.monotonic() + self._timeout
        self._store.set(self._key(self._turn + 1, self._rank), "+" + text)
        every = [self._said(i, until) for i in range(self._ranks)]
        self._turn += 1
        return every

    def _said(self, rank: int, until: float) -> str:
        """RankError: it does not come."""
        key, left = self._key(self._turn + 1, rank), max(until - time.monotonic(), 0.001)
        try:
            self._store.wait([key], timedelta(seconds=left))
        except BaseException as e:
            with contextlib.suppress(Exception):
                self._over(self._nth)
            if not isinstance(e, RuntimeError) or time.monotonic() < until:
                raise  # RuntimeError: of a store, torch has no other name for it
            raise _errors.talking(errno.ETIMEDOUT, f"rank {rank} of {self._ranks} did not come "
                                  f"within {self._timeout:g} s") from e
        text = str(self._store.get(key).decode())
        if not text.startswith("+"):
            raise _errors.talking(errno.ECONNABORTED, f"rank {rank} of {self._ranks} failed: "
                                  f"{text[1:]}")
        return text[1:]

    def leave(self, why: BaseException) -> None:
        """Who waits for this rank, or comes later, does not do so in vain."""
        line = " ".join(f"{type(why).__name__}: {why}".split())[:_LINE]
        with contextlib.suppress(Exception):
            for turn in range(self._turn + 1, self.TURNS + 1):
                self._store.set(self._key(turn, self._rank), "-" + line)


def _current() -> str:
    """Of a rank that wants nothing, and reads for others."""
    import torch

    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else ""


def _nccl(device: str) -> str:
    """Its version; "": there is none, or no use for it."""
    version = _abi.caps().get("nccl") if device.startswith("cuda") else None
    return str(version) if isinstance(version, int) else ""


def _gpu(device: str) -> str:
    """Unlike that of another process of the node, where it is another GPU: NCCL has no two
    ranks on one."""
    number = device.partition(":")[2] or "0"
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if number.isdigit() and int(number) < len(seen) and seen[int(number)].strip():
        return seen[int(number)].strip()
    return number if device.startswith("cuda") else ""


def _node() -> str:
    """Alike where processes may share memory and meet by a name."""
    def read(path: str) -> str:
        try:
            with open(path) as f:
                return f.read().strip()
        except OSError:
            return socket.gethostname()

    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = "?"
    return f"{read('/proc/sys/kernel/random/boot_id')} {network} {os.geteuid()}"


def _host() -> str:
    """The number by which this node reaches the one where the ranks meet."""
    at = os.environ.get("MASTER_ADDR") or socket.gethostname()
    try:
        family, _kind, _proto, _name, to = socket.getaddrinfo(at, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect(to)
            return str(s.getsockname()[0])
    except OSError:
        return "127.0.0.1"
