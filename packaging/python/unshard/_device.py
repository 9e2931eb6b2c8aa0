# SPDX-License-Identifier: Apache-2.0
"""Memory of devices, and who makes the memory that tensors are loaded into."""
from __future__ import annotations

import ctypes as c
import errno
import math
import os
import re
from typing import TYPE_CHECKING, Any, Optional, Tuple

from . import _abi, _dtypes, _errors, _memory

if TYPE_CHECKING:
    from ._checkpoint import Checkpoint

# DLPack's numbers of kinds of memory.
_KINDS = {"host": 1, "cuda": 2, "simulated": 12}
_TO, _FROM = 0, 1


def _failed(ret: int, err: _abi.error) -> Exception:
    return _errors.device(-ret, err.line)


class Device:
    """One by its name, in the context that a checkpoint was opened with.

    DeviceError: there is no such device, and why.
    """

    def __init__(self, ck: Checkpoint, name: str) -> None:
        self.name, self._held, self._context = name, ck._open_handle(), ck._context
        self._pid = os.getpid()
        nr, err = c.c_int32(), _abi.error()
        ret = _abi.call("device_open")(self._context, _abi.encoded(name), c.byref(nr),
                                       c.byref(err))
        if ret:
            raise _failed(ret, err)
        self.nr: int = nr.value

    @property
    def dlpack(self) -> Tuple[int, int]:
        """DLPack's kind and number."""
        kind, _, rest = self.name.partition(":")
        number = re.search(r"(?:^|,)(\d+)(?:,|$)", rest)
        return _KINDS.get(kind, _KINDS["simulated"]), int(number[1]) if number else 0

    def alloc(self, nbytes: int) -> int:
        """MemoryError: it has no more."""
        at, err = c.c_uint64(), _abi.error()
        ret = _abi.call("device_alloc")(self._context, self.nr, nbytes, c.byref(at),
                                        c.byref(err))
        if ret:
            raise _failed(ret, err)
        return at.value

    def free(self, address: int) -> None:
        if self._pid == os.getpid():
            _abi.call("device_free")(self._context, self.nr, address, None)

    def clear(self, address: int, nbytes: int) -> None:
        err, zeros = _abi.error(), bytes(min(nbytes, 1 << 20))
        for at in range(0, nbytes, 1 << 20):
            ret = _abi.call("device_copy")(self._context, self.nr, _TO, address + at, zeros,
                                           min(nbytes - at, 1 << 20), c.byref(err))
            if ret:
                raise _failed(ret, err)

    def fetch(self, address: int, to: int, nbytes: int) -> None:
        """Bytes of its memory to an address of the host."""
        err = _abi.error()
        ret = _abi.call("device_copy")(self._context, self.nr, _FROM, address, to, nbytes,
                                       c.byref(err))
        if ret:
            raise _failed(ret, err)


class _Memory:
    """Memory of a device, let go with this."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.device, self.address = device, 0
        self.address = device.alloc(max(nbytes, 1))

    def __del__(self) -> None:
        if self.address:
            self.device.free(self.address)


class DeviceTensor:
    """A tensor in memory of a device, row-major: for torch.from_dlpack(),
    cupy.from_dlpack() and the like, which then hold the memory.

    shape, dtype, nbytes; device: its name; address: of the device.
    """

    def __init__(self, device: Device, shape, dtype: str) -> None:
        self.shape, self.dtype = tuple(shape), dtype
        self.nbytes = math.prod(self.shape) * _dtypes.size(dtype)
        self._memory = _Memory(device, self.nbytes)
        self.device, self.address = device.name, self._memory.address

    def __repr__(self) -> str:
        return f"<unshard.DeviceTensor {self.dtype} {list(self.shape)} on {self.device}>"

    def numpy(self):
        """A copy on the host."""
        import numpy

        out = numpy.empty(self.shape, _dtypes.numpy_dtype(self.dtype))
        if out.nbytes:
            self._memory.device.fetch(self.address, out.ctypes.data, out.nbytes)
        return out

    def tobytes(self) -> bytes:
        fetch = self._memory.device.fetch
        return _memory.new_bytes(self.nbytes, lambda to: fetch(self.address, to, self.nbytes))

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._memory.device.dlpack

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None,
                   dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        """It is there already, so that any stream may use it at once."""
        where = self.__dlpack_device__()
        if _dtypes.dlpack(self.dtype) is None:
            raise BufferError(f"DLPack has no {self.dtype}")
        if copy or dl_device not in (None, where):
            raise BufferError("it is never a copy, and stays on its device")
        array = _memory.array_at(self.address, self.shape, _dtypes.size(self.dtype),
                                 keep=self._memory)
        return _memory.capsule(array, self.dtype, max_version, where)


# ---- who makes memory to load into ------------------------------------------


# CUDA's default stream, of which torch and others say 0.
_DEFAULT = 1


def stream_number(stream: Any) -> int:
    """A stream as a number, or as the object that torch, cupy or others have of it."""
    for of in ("cuda_stream", "ptr", "__cuda_stream__"):
        value = getattr(stream, of, None)
        if value is not None:
            stream = value()[1] if callable(value) else value
            break
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
        raise TypeError(f"stream {stream!r}: expected a CUDA stream, or its number")
    return stream or _DEFAULT


class _Torch:
    """device: of torch.  CUDA's is loaded into directly; to another kind it is moved."""

    nr, name = 0, ""

    def __init__(self, ck: Checkpoint, device: Any) -> None:
        import torch

        self.torch, self.device = torch, None if device is None else torch.device(device)
        self.cuda = self.device is not None and self.device.type == "cuda"
        if self.cuda:
            index = self.device.index
            if index is None:
                index = torch.cuda.current_device() if torch.cuda.is_available() else 0
            self.device = torch.device("cuda", index)
            self.name = f"cuda:{index}"
            self.nr = Device(ck, self.name).nr

    def empty(self, shape, dtype: str):
        value = self.torch.empty(tuple(shape), dtype=_dtypes.torch_dtype(dtype),
                                 device=self.device if self.cuda else None)
        return value, value.data_ptr()

    def zeros(self, shape, dtype: str):
        nbytes = math.prod(shape) * _dtypes.size(dtype)
        # Of bytes, for torch does not fill all of its dtypes.
        value = self.torch.zeros(nbytes, dtype=self.torch.uint8,
                                 device=self.device if self.cuda else None)
        if self.cuda:  # as what is loaded they are there for every stream
            self.torch.cuda.current_stream(self.device).synchronize()
        value = value.view(_dtypes.torch_dtype(dtype)).reshape(tuple(shape))
        return value, value.data_ptr()

    def begin(self, stream: Any) -> int:
        """Memory that torch gives may be in use by what its stream has still to do."""
        if not self.cuda:
            return _none(stream)
        if stream is None:
            stream = self.torch.cuda.current_stream(self.device)
        return stream_number(stream)

    def done(self, value):
        return value if self.device is None or self.cuda else value.to(self.device)


def _none(stream: Any) -> int:
    if stream is not None:
        raise ValueError("stream: only CUDA's devices have them")
    return 0


class _Numpy:
    nr, name = 0, ""

    def __init__(self) -> None:
        import numpy

        self.numpy = numpy

    def empty(self, shape, dtype: str):
        value = self.numpy.empty(tuple(shape), _dtypes.numpy_dtype(dtype))
        return value, value.ctypes.data

    def zeros(self, shape, dtype: str):
        value = self.numpy.zeros(tuple(shape), _dtypes.numpy_dtype(dtype))
        return value, value.ctypes.data

    def begin(self, stream: Any) -> int:
        return _none(stream)

    def done(self, value):
        return value


class _Dlpack:
    def __init__(self, ck: Checkpoint, name: str) -> None:
        self.on = Device(ck, name)
        self.nr, self.name = self.on.nr, name

    def empty(self, shape, dtype: str):
        value = DeviceTensor(self.on, shape, dtype)
        return value, value.address

    def zeros(self, shape, dtype: str):
        value = DeviceTensor(self.on, shape, dtype)
        self.on.clear(value.address, value.nbytes)
        return value, value.address

    def begin(self, stream: Any) -> int:
        if stream is not None and self.on.dlpack[0] != _KINDS["cuda"]:
            return _none(stream)
        return 0 if stream is None else stream_number(stream)

    def done(self, value):
        return value


def is_ours(device: Any) -> bool:
    """Whether it is one that torch knows nothing of."""
    return isinstance(device, str) and device.partition(":")[0] in ("simulated", "host")


def maker(ck: Checkpoint, framework: Optional[str], device: Any):
    if framework == "dlpack" or framework is None and is_ours(device):
        return _Dlpack(ck, str(device or "host"))
    if is_ours(device):
        raise ValueError(f"device {device!r}: {framework} has no such memory: "
                         "framework='dlpack' gives it")
    if _dtypes.framework(framework) == "torch":
        return _Torch(ck, device)
    if device not in (None, "cpu"):
        raise ValueError(f"device {device!r}: NumPy has memory of the host only")
    return _Numpy()
