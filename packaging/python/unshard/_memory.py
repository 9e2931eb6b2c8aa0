# SPDX-License-Identifier: Apache-2.0
"""Other people's memory as a place to read into, and DLPack tensors of our own."""
from __future__ import annotations

import ctypes as c
import math
import sys
from typing import Any, NamedTuple, Optional, Sequence

from . import _dtypes


class Elsewhere(ValueError):
    """A tensor whose elements do not simply lie in memory of the host."""


class Place(NamedTuple):
    """Memory that is read into.

    dtype: its elements' name, or None for plain bytes, of which there are nbytes;
    shape, stride: in elements; keep: what keeps it alive; device: whose address it
    is, by its name, None: the host's.
    """

    address: int
    dtype: Optional[str]
    shape: tuple[int, ...]
    stride: Optional[tuple[int, ...]]
    nbytes: int
    keep: Any
    device: Optional[str] = None


# ---- DLPack's structs ------------------------------------------------------

_CPU, _CUDA_HOST = 1, 3
_READ_ONLY, _COPIED = 1, 2


class _Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", c.c_int32), ("device_id", c.c_int32),
                ("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class _Managed(c.Structure):
    _fields_ = [("tensor", _Tensor), ("ctx", c.c_void_p), ("deleter", c.c_void_p)]


class _Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("ctx", c.c_void_p),
                ("deleter", c.c_void_p), ("flags", c.c_uint64), ("tensor", _Tensor)]


_api = c.pythonapi
_api.PyCapsule_IsValid.argtypes = [c.c_void_p, c.c_char_p]
_api.PyCapsule_GetPointer.restype = c.c_void_p
_api.PyCapsule_GetPointer.argtypes = [c.c_void_p, c.c_char_p]
_api.PyBytes_FromStringAndSize.restype = c.py_object
_api.PyBytes_FromStringAndSize.argtypes = [c.c_void_p, c.c_ssize_t]
_api.PyBytes_AsString.restype = c.c_void_p
_api.PyBytes_AsString.argtypes = [c.py_object]


def _inside(capsule: Any) -> Optional[c.Structure]:
    """What a capsule that nobody took yet holds; None: it is no DLPack capsule."""
    for name, kind in (b"dltensor_versioned", _Versioned), (b"dltensor", _Managed):
        if _api.PyCapsule_IsValid(id(capsule), name):
            return kind.from_address(_api.PyCapsule_GetPointer(id(capsule), name))
    return None


# ---- memory that is given away ---------------------------------------------
#
# It is NumPy's, of elements that are only bytes, and so is the capsule around it:
# who lets go of it, and when, by which thread, is NumPy's concern.


class _At:
    """Memory at an address, as numpy.asarray() takes it; it keeps `keep` alive."""

    def __init__(self, address: int, shape: Sequence[int], size: int,
                 stride: Optional[Sequence[int]], read_only: bool, keep: Any) -> None:
        self.keep = keep
        self.__array_interface__ = {
            "version": 3, "shape": tuple(shape), "typestr": f"|V{size}",
            "data": (address, read_only),
            "strides": None if stride is None else tuple(s * size for s in stride)}


def array_at(address: int, shape: Sequence[int], size: int,
             stride: Optional[Sequence[int]] = None, read_only: bool = False,
             keep: Any = None):
    """An array of elements of `size` bytes over memory that is there."""
    import numpy

    return numpy.asarray(_At(address, shape, size, stride, read_only, keep))


def new_array(shape: Sequence[int], size: int):
    """An array of new memory, aligned as DLPack wants it."""
    import numpy

    nbytes = math.prod(shape) * size
    room = numpy.empty(nbytes + 256, numpy.uint8)
    skip = -room.ctypes.data % 256
    return room[skip : skip + nbytes].view(f"V{size}").reshape(tuple(shape))


_DELETER = c.CFUNCTYPE(None, c.c_void_p)


class _Mapped:
    """A DLManagedTensorVersioned of the library's, let go with this."""

    def __init__(self, managed: int) -> None:
        self.at = managed

    def __del__(self) -> None:
        _DELETER(_Versioned.from_address(self.at).deleter)(self.at)


def mapped_array(managed: int, shape: Sequence[int], size: int):
    """Its memory, read-only."""
    keep, t = _Mapped(managed), _Versioned.from_address(managed).tensor
    return array_at((t.data or 0) + t.byte_offset, shape, size, None, True, keep)


def capsule(array, dtype: str, max_version: Any, device: Optional[tuple[int, int]] = None):
    """A DLPack capsule of an array of bytes, which says that they are of dtype, and of a
    device of that kind and number."""
    code, bits = _dtypes.dlpack(dtype)
    # NumPy gives numbers only, of as many bytes; what they are is said afterwards.
    array = array.view({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[array.dtype.itemsize])
    try:
        made = array.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy before 2.1
        made = array.__dlpack__()
    inside = _inside(made)
    inside.tensor.code, inside.tensor.bits = code, bits
    if device is not None:
        inside.tensor.device, inside.tensor.device_id = device
    return made


def new_bytes(nbytes: int, fill) -> bytes:
    """A bytes object that fill(address) writes before anybody sees it."""
    data = _api.PyBytes_FromStringAndSize(None, nbytes)
    if nbytes:
        fill(_api.PyBytes_AsString(data))
    return data


# ---- whose memory it is ----------------------------------------------------


def _device():
    from . import _device

    return _device


def place(target: Any) -> Place:
    """The memory of a torch tensor, a NumPy array, a buffer or a DLPack tensor.

    TypeError: it is none of them; ValueError: it is read-only, or lies so that it cannot
    be filled; Elsewhere: it is on a device that is not filled directly, or not dense.
    """
    if isinstance(target, _device().DeviceTensor):
        return Place(target.address, target.dtype, target.shape, None, target.nbytes, target,
                     target.device)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(target, torch.Tensor):
        return _of_torch(torch, target)
    if numpy is not None and isinstance(target, numpy.generic):
        raise TypeError(f"{type(target).__name__} is a value, no memory to read into")
    if numpy is not None and hasattr(target, "__array_interface__"):
        return _of_array(numpy.asarray(target))
    try:
        return _of_buffer(memoryview(target))
    except TypeError:
        pass
    if hasattr(target, "__dlpack__"):
        return _of_dlpack(target)
    raise TypeError(f"{type(target).__name__} is no tensor, array or buffer to read into")


def _apart(shape: Sequence[int], stride: Sequence[int]) -> None:
    """ValueError where two elements lie in one place."""
    span = 0
    for step, n in sorted((abs(s), n) for s, n in zip(stride, shape) if n > 1):
        if step <= span:
            raise ValueError(f"strides {list(stride)}: several elements lie in one place")
        span += step * (n - 1)


def _fakes() -> tuple:
    made = sys.modules.get("torch._subclasses.fake_tensor")
    return (made.FakeTensor,) if made is not None else ()


def held(t) -> None:
    """ValueError where a dense tensor of torch, which has no negative strides, goes on behind
    its storage, as that of a parameter that FSDP let go does, or has no memory, as one that
    FakeTensorMode made."""
    if not t.numel():
        return
    if isinstance(t, _fakes()):
        raise ValueError("a FakeTensor, which has no memory")
    end = t.storage_offset() + 1 + sum(s * (n - 1) for s, n in zip(t.stride(), t.shape))
    has = t.untyped_storage().nbytes()
    if end * t.element_size() > has:
        raise ValueError(f"the tensor ends at byte {end * t.element_size()} of its storage, "
                         f"which has {has}")


def _of_torch(torch, t) -> Place:
    if type(t) is not torch.Tensor and hasattr(t, "to_local"):
        raise ValueError("a DTensor: use unshard.torch.load_into() or DCPReader")
    if t.device.type not in ("cpu", "cuda") or t.layout is not torch.strided:
        raise Elsewhere(f"memory of a {t.layout} tensor on {t.device}: only dense tensors "
                        "of the host, or of CUDA, are read into")
    if t.is_conj() or t.is_neg():
        raise Elsewhere("a conjugated or negated view is no memory to read into")
    t = t.detach()
    if t.numel():
        _apart(t.shape, t.stride())
    held(t)
    dtype, device = str(t.dtype).removeprefix("torch."), None
    if t.device.type == "cuda":
        device = f"cuda:{t.device.index}"
        # What its stream has still to do with it comes first.
        torch.cuda.current_stream(t.device).synchronize()
    return Place(t.data_ptr(), dtype, tuple(t.shape), tuple(t.stride()),
                 t.numel() * t.element_size(), t, device)


def _of_array(a) -> Place:
    face = a.__array_interface__
    address, read_only = face["data"]
    if read_only:
        raise ValueError("the array is read-only")
    dtype, size = a.dtype, a.dtype.itemsize
    if dtype.hasobject or dtype.byteorder == ">" or dtype.names:
        raise ValueError(f"dtype {dtype}: elements are numbers of this machine")
    shape = tuple(face["shape"])
    if a.size and any(n > 1 and s % size for n, s in zip(shape, a.strides)):
        raise ValueError(f"strides {a.strides}: elements of {size} bytes do not lie so")
    stride = tuple(s // size for s in a.strides)
    if a.size:
        _apart(shape, stride)
    return Place(address, dtype.name, shape, stride, math.prod(shape) * size, a)


_BUFFER = {"?": "bool", "B": "uint8", "b": "int8", "e": "float16", "f": "float32",
           "d": "float64"}


def _of_buffer(view: memoryview) -> Place:
    if view.readonly:
        raise ValueError("the buffer is read-only")
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous")
    form = view.format.lstrip("@=<")
    dtype = _BUFFER.get(form)
    if not dtype and form in tuple("hHiIlLqQ"):
        dtype = ("int" if form.islower() else "uint") + str(8 * view.itemsize)
    if not dtype and form != "c":
        raise ValueError(f"a buffer of format {view.format!r}: expected bytes or numbers")
    raw = (c.c_char * view.nbytes).from_buffer(view.cast("B") if view.nbytes else bytearray())
    return Place(c.addressof(raw) if view.nbytes else 0, None if form in ("B", "c") else dtype,
                 tuple(view.shape), None, view.nbytes, raw)


def _of_dlpack(target) -> Place:
    try:
        capsule = target.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = target.__dlpack__()
    managed = _inside(capsule)
    if managed is None:
        raise TypeError("its __dlpack__() gives no DLPack capsule")
    if isinstance(managed, _Versioned) and managed.flags & _READ_ONLY:
        raise ValueError("the tensor is read-only")
    if isinstance(managed, _Versioned) and managed.flags & _COPIED:
        raise ValueError("its __dlpack__() gives a copy, which nobody would see filled")
    t = managed.tensor
    if t.device not in (_CPU, _CUDA_HOST):
        raise ValueError("memory of a device: only memory of the host is read into")
    dtype = _dtypes.by_dlpack(t.code, t.bits) if t.lanes == 1 else None
    if dtype is None:
        raise ValueError(f"DLPack type {t.code} of {t.bits} bits is not known")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    stride = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
    if stride and 0 not in shape:
        _apart(shape, stride)
    size = _dtypes.size(dtype)
    return Place((t.data or 0) + t.byte_offset, dtype, shape, stride,
                 math.prod(shape) * size, (capsule, target))
