# SPDX-License-Identifier: Apache-2.0
"""One process of a node parses what its ranks open at the same time.

Whoever comes first binds an abstract Unix socket that is called after the checkpoint
and how it is opened, parses, and hands its image to those who come meanwhile or soon
after.  Nobody waits for a rank that is not there: who finds no socket is the first;
who hears nothing from the first for a while, or that it failed or ended, parses himself.
No process group is used, and nothing is left in a file system.
"""
from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, Dict, List, Optional

from ._checkpoint import Checkpoint
from ._errors import Error

_PARSING, _HERE = b".", b"!"
_SIGN = 0.5  # seconds between signs of life while it is parsed
_PATIENCE = 5.0  # without one
_STAYS = 30.0  # seconds for those who come later

_lock = threading.Lock()
_opened: Dict[bytes, int] = {}  # how often, in this process
_offers: weakref.WeakSet[_Offer] = weakref.WeakSet()


def opened(checkpoint: Any, step: Optional[str] = None, **options: Any) -> Checkpoint:
    """As unshard.open(); an open Checkpoint as it is.  Where torch.distributed has been
    initialized the processes of a node parse it once."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint
    others = _others()
    name = _name(checkpoint, step, options) if others else None
    if name is None:
        return Checkpoint(checkpoint, step, **options)
    listener = _bound(name)
    if listener is not None:
        offer = _Offer(listener, others)
        try:
            ck = Checkpoint(checkpoint, step, **options)
        except BaseException:
            offer.end()
            raise
        try:
            offer.give(ck.image())
        except Error:
            offer.end()
        return ck
    fd = _asked(name)
    if fd is None:
        return Checkpoint(checkpoint, step, **options)
    try:
        return Checkpoint(checkpoint, step, image=fd, **options)
    except Error:
        return Checkpoint(checkpoint, step, **options)
    finally:
        os.close(fd)


def _others() -> int:
    """How many more ranks there may be on this node; 0: none that we know of."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return 0
    try:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        here = dist.get_world_size()
    return max(here - 1, 0)


def _name(checkpoint: Any, step: Optional[str], options: Mapping[str, Any]) -> Optional[bytes]:
    """The same for all ranks that open it for the nth time; None: there is no such path.

    The parent process is the one that starts the ranks of a node.
    """
    try:
        path = os.path.realpath(os.fsdecode(os.fspath(checkpoint)))
        st, here = os.stat(path), os.getcwd()
    except (OSError, ValueError):
        return None
    how = [path, st.st_dev, st.st_ino, st.st_mtime_ns, step, here,
           sorted((k, repr(v)) for k, v in options.items()), os.getuid(), os.getppid()]
    key = hashlib.sha256(json.dumps(how).encode("utf-8", "surrogatepass")).digest()
    with _lock:
        nth = _opened[key] = _opened.get(key, 0) + 1
    return b"\0unshard-" + key.hex()[:48].encode() + b"-%d" % nth


def _bound(name: bytes) -> Optional[socket.socket]:
    """Bound to the name; None: another one is, or there are no such sockets."""
    try:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        s.bind(name)
        s.listen(1024)
    except OSError:
        s.close()
        return None
    return s


def _is_own(s: socket.socket) -> bool:
    """Whether the other end is a process of the same user."""
    _pid, uid, _gid = struct.unpack("3i", s.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid == os.geteuid()


def _asked(name: bytes) -> Optional[int]:
    """The image that the first one sends; None: there is none to be had."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(_PATIENCE)
            _connect(s, name)
            while _is_own(s):
                said, fds, _flags, _from = socket.recv_fds(s, 1, 1)
                if said == _HERE and fds:
                    return fds[0]
                if said != _PARSING:
                    break
    except OSError:
        pass
    return None


def _connect(s: socket.socket, name: bytes) -> None:
    end = time.monotonic() + 1
    while True:
        try:
            return s.connect(name)
        except ConnectionRefusedError:  # bound, and about to listen
            if time.monotonic() > end:
                raise
            time.sleep(0.005)


class _Offer:
    """Answers those who ask, by a thread, until all have come or it is too late."""

    def __init__(self, listener: socket.socket, others: int) -> None:
        self._listener, self._left, self._image = listener, others, -1
        self._asking: List[socket.socket] = []
        self._ended, self._until = False, float("inf")
        self._bell, self._ring = socket.socketpair()
        _offers.add(self)
        threading.Thread(target=self._run, name="unshard-image", daemon=True).start()

    def give(self, image: int) -> None:
        """image: a descriptor, closed at the end."""
        self._until = time.monotonic() + _STAYS
        self._image = image
        self._ring.send(b"1")

    def end(self) -> None:
        self._ended = True
        self._ring.send(b"1")

    def _run(self) -> None:
        import selectors

        with selectors.DefaultSelector() as selector:
            for s in self._listener, self._bell:
                s.setblocking(False)
                selector.register(s, selectors.EVENT_READ)
            while not self._ended and self._left > 0 and time.monotonic() < self._until:
                waits = _SIGN if self._image < 0 else self._until - time.monotonic()
                for key, _events in selector.select(max(waits, 0)):
                    if key.fileobj is self._bell:
                        self._bell.recv(16)
                    else:
                        self._let_in()
                self._answer()
        self.close()

    def _let_in(self) -> None:
        try:
            s, _from = self._listener.accept()
        except OSError:
            return
        s.setblocking(False)
        if _is_own(s):
            self._asking.append(s)
        else:
            s.close()

    def _answer(self) -> None:
        waiting, self._asking = self._asking, []
        for s in waiting:
            try:
                if self._image < 0:
                    s.send(_PARSING)
                    self._asking.append(s)
                    continue
                socket.send_fds(s, [_HERE], [self._image])
                self._left -= 1
            except OSError:  # it did not wait
                pass
            s.close()

    def close(self) -> None:
        for s in [self._listener, self._bell, self._ring, *self._asking]:
            s.close()
        image, self._image = self._image, -1
        if image >= 0:
            os.close(image)


def _in_child() -> None:
    """After a fork() the name has to be the parent's alone."""
    global _lock
    _lock = threading.Lock()
    for offer in list(_offers):
        offer.close()
    _offers.clear()


os.register_at_fork(after_in_child=_in_child)
