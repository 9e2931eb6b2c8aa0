# SPDX-License-Identifier: Apache-2.0
"""Ranks of a process group that load together: what they talk by is theirs alone.

Of the group only its store is used, by which they learn of each other's addresses; no
collective of it is called.
"""
from __future__ import annotations

import ctypes as c
import errno
import os
import socket
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, List, Optional

from . import _abi, _errors

TIMEOUT = 60.0  # seconds that one answer may take

_met: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class Comm:
    """A communicator: all ranks make one at a time, and free() it.

    told(text): the texts that all ranks gave it, in their order.
    """

    def __init__(self, rank: int, ranks: int, told: Callable[[str], List[str]], *,
                 host: str = "", timeout: float = TIMEOUT) -> None:
        self.handle = c.c_void_p()
        kinds = told(f"{_node()} {host or _host()}")
        here = {text.rsplit(" ", 1)[0] for text in kinds}
        opts, err = _abi.comm_opts(), _abi.error()
        opts.size, opts.rank, opts.ranks = c.sizeof(opts), rank, ranks
        opts.kind = b"tcp" if len(here) > 1 or host else b"shm"
        opts.host = kinds[rank].rsplit(" ", 1)[1].encode()
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
        if self.handle:
            _abi.call("comm_free")(self.handle)
            self.handle = c.c_void_p()

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.free()


def of_group(group: Any, *, host: str = "", timeout: float = TIMEOUT) -> Optional[Comm]:
    """Of a torch process group; None: it has one rank.  ValueError: this process is not
    in it."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    group = group if group is not None else dist.group.WORLD
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("group: this process is not in it")
    if ranks == 1:
        return None
    store = c10d._get_process_group_store(group)
    nth = _met[group] = _met.get(group, 0) + 1
    turn = [0]

    def told(text: str) -> List[str]:
        turn[0] += 1
        keys = [f"unshard/{nth}/{turn[0]}/{i}" for i in range(ranks)]
        until = time.monotonic() + timeout
        store.set(keys[rank], text)
        return [_asked(store, key, i, ranks, timeout, until) for i, key in enumerate(keys)]

    return Comm(rank, ranks, told, host=host, timeout=timeout)


def _asked(store: Any, key: str, rank: int, ranks: int, timeout: float, until: float) -> str:
    left = max(until - time.monotonic(), 0.001)
    try:
        store.wait([key], timedelta(seconds=left))
    except RuntimeError as e:  # of a store: torch has no other name for it
        if time.monotonic() < until:
            raise
        raise _errors.talking(errno.ETIMEDOUT, f"rank {rank} of {ranks} did not come within "
                              f"{timeout:g} s") from e
    return str(store.get(key).decode())


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
