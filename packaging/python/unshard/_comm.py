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
    device: into whose memory this one loads, "cuda:1"; bytes go from GPU to GPU, by NCCL,
    where each rank says one, of its own, and has the same NCCL.
    """

    def __init__(self, rank: int, ranks: int, told: Callable[[str], List[str]], *,
                 host: str = "", timeout: float = TIMEOUT, device: str = "") -> None:
        self.handle = c.c_void_p()
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
        if self.handle:
            _abi.call("comm_free")(self.handle)
            self.handle = c.c_void_p()

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
    store = c10d._get_process_group_store(group)
    nth = _met[group] = _met.get(group, 0) + 1
    turn = [0]

    def told(text: str) -> List[str]:
        turn[0] += 1
        keys = [f"unshard/{nth}/{turn[0]}/{i}" for i in range(ranks)]
        until = time.monotonic() + timeout
        store.set(keys[rank], text)
        return [_asked(store, key, i, ranks, timeout, until) for i, key in enumerate(keys)]

    return Comm(rank, ranks, told, host=host, timeout=timeout,
                device=_current() if device is None else device)


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
