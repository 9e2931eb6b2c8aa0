# SPDX-License-Identifier: Apache-2.0
"""What is raised.  str() of each is the one line that the library says."""
from __future__ import annotations

import errno as _errno
import os
from typing import Optional


class Error(Exception):
    """Whatever has to do with a checkpoint."""


class _System(Error, OSError):
    """With .errno, and str() that is the line alone."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(code, line)

    def __str__(self) -> str:
        return str(self.args[-1]) if self.args else ""


class OpenError(_System):
    """The checkpoint cannot be opened: it is damaged, unfinished, none, or may not
    be read."""


class NotFound(OpenError, FileNotFoundError):
    """There is nothing at that path, or no such step."""


class MissingBytes(_System):
    """Bytes of a tensor cannot be had: a shard is lost, cut, replaced or unreadable.

    tensor: its name; file: of the checkpoint, where known; offset: the byte in it,
    where known.  Memory that the read was for holds nothing that can be relied on.
    """

    def __init__(self, code: int, line: str, tensor: Optional[str] = None,
                 file: Optional[str] = None, offset: Optional[int] = None) -> None:
        super().__init__(code, line)
        self.tensor, self.file, self.offset = tensor, file, offset

    def __reduce__(self):
        code, line = self.args
        return type(self), (code, line, self.tensor, self.file, self.offset)


class RankError(_System):
    """Ranks that load together do not agree, or one of them did not come."""


class DeviceError(_System):
    """There is no such device, or it fails."""


class SaveError(_System):
    """A new checkpoint is not complete, does not fit together, or cannot be written:
    nothing of it is seen, and what was there is as it was."""


class UnknownName(Error, KeyError):
    """No tensor, or object, is called so; the line has the nearest name."""

    def __str__(self) -> str:
        return str(self.args[0])


class Forked(Error):
    """The checkpoint was opened before fork(): open it again in the child."""


for _kind in (Error, OpenError, NotFound, MissingBytes, RankError, DeviceError, SaveError,
              UnknownName, Forked):
    _kind.__module__ = "unshard"


def shown(name: str) -> str:
    """As the library's own lines have it: what a terminal obeys is \\x0a."""
    return "".join(c if c.isprintable() else "".join(
        f"\\x{b:02x}" for b in c.encode("utf-8", "surrogateescape")) for c in name)


def _line(code: int, text: str) -> str:
    return text or os.strerror(code)


def opening(code: int, text: str, path: str) -> Exception:
    """The exception for what opening says."""
    line = _line(code, text)
    if code == _errno.ENOMEM:
        return MemoryError(line)
    if code == _errno.ECHILD:
        return Forked(line)
    if code in (_errno.ENOENT, _errno.ENOTDIR):
        return NotFound(code, line)
    return OpenError(code, line)


def device(code: int, line: str) -> Exception:
    """The exception for what a device says."""
    if code == _errno.ENOMEM:
        return MemoryError(line)
    if code == _errno.ECHILD:
        return Forked(line)
    if code == _errno.EINVAL:
        return ValueError(line)
    return DeviceError(code, line)


def talking(code: int, line: str) -> Exception:
    """The exception for what a communicator says."""
    if code == _errno.ENOMEM:
        return MemoryError(line)
    if code == _errno.ECHILD:
        return Forked(line)
    return ValueError(line) if code == _errno.EINVAL else RankError(code, line)


def reading(code: int, text: str, tensor: Optional[str], file: Optional[str],
            offset: Optional[int]):
    """The exception for what a read says; tensor: of the item that failed; file,
    offset: where its bytes are bad or missing, as the library found it."""
    line = _line(code, text)
    if code == _errno.ENOMEM:
        return MemoryError(line)
    if code == _errno.ECHILD:
        return Forked("it was opened before fork(): open it again in the child"
                      if not text else line)
    if code in (_errno.ECANCELED, _errno.EDEADLK):
        return Error(line)
    if tensor is None and code == _errno.EAGAIN:  # no thread can be had; no byte is missing
        return Error(line)
    if code == _errno.EINVAL:
        return ValueError(line)
    if code == _errno.EFAULT:  # the bytes are there
        return ValueError(f"{shown(tensor or '')}: the memory that it is read into cannot be "
                          "written")
    if tensor is None and code in (_errno.ESTALE, _errno.ETIMEDOUT, _errno.ECONNRESET,
                                   _errno.EBUSY):
        return RankError(code, line)
    if code in (_errno.EREMOTEIO, _errno.ENODEV):
        return DeviceError(code, line)
    if tensor is not None and shown(tensor) not in line:
        line = f"tensor {shown(tensor)}: {line}"
    return MissingBytes(code, line, tensor, file, offset)
