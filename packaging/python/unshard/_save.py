# SPDX-License-Identifier: Apache-2.0
"""New checkpoints from this process's memory, that appear whole or not at all."""
from __future__ import annotations

import ctypes as c
import errno
import json
import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _abi, _dtypes, _errors, _load, _memory

_ANEW, _REPLACE = 1, 2


class Slice(NamedTuple):
    """A box of a tensor that this process holds; dtype None: an object.

    path: where it stood in what is saved, keys and positions; None: its name.
    """

    name: str
    dtype: Optional[str]
    shape: Sequence[int] = ()
    start: Sequence[int] = ()
    count: Sequence[int] = ()
    path: Optional[Sequence[Union[str, int]]] = None


class Source(NamedTuple):
    """Memory that is saved: as of _memory.Place, but for what only reading needs."""

    address: int
    dtype: str
    shape: Tuple[int, ...]
    stride: Optional[Tuple[int, ...]]
    keep: Any
    device: Optional[str] = None


def source(value: Any, name: str) -> Source:
    """The memory of a torch tensor, a NumPy array or a Tensor of a checkpoint; a copy on
    the host of what is neither there nor CUDA's."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    vllm = sys.modules.get("unshard.vllm")
    if vllm is not None:
        value = vllm._read(value)  # of a LazyWeight, which has no memory of its own
    if torch is not None and isinstance(value, torch.Tensor):
        if hasattr(value, "to_local"):
            raise TypeError(f"{name}: a DTensor: use dcp.save() with unshard.torch.DCPWriter")
        if value.is_quantized:
            raise TypeError(f"{name}: a quantized tensor, whose scales would be lost: save its "
                            "int_repr() and them")
        t = value.detach()
        if t.layout is torch.strided and t.device.type in ("cpu", "cuda"):
            try:
                _memory.held(t)
            except ValueError as e:
                raise ValueError(f"tensor {_errors.shown(name)}: {e}") from None
        plain = t.layout is torch.strided and not (t.is_conj() or t.is_neg())
        if not plain or t.device.type not in ("cpu", "cuda"):
            t = t.to_dense() if t.layout is not torch.strided else t
            t = t.resolve_conj().resolve_neg().cpu()
        if t.device.type == "cuda":
            torch.cuda.current_stream(t.device).synchronize()
        return Source(t.data_ptr(), _dtypes.name_of(t.dtype), tuple(t.shape),
                      tuple(t.stride()), t, str(t.device) if t.device.type == "cuda" else None)
    if hasattr(value, "numpy") and not hasattr(value, "__array_interface__"):
        value = value.numpy()
    if numpy is None or not hasattr(value, "__array_interface__"):
        raise TypeError(f"{name}: {type(value).__name__} is no tensor or array")
    a = numpy.asarray(value)
    if not a.dtype.isnative or any(s % a.itemsize for s in a.strides):
        a = numpy.ascontiguousarray(a, a.dtype.newbyteorder("="))
    return Source(a.ctypes.data, _dtypes.name_of(a.dtype), a.shape,
                  tuple(s // a.itemsize for s in a.strides), a)


def failed(code: int, line: str) -> Exception:
    """The exception for what a save says."""
    if code == errno.ENOMEM:
        return MemoryError(line)
    if code == errno.ECHILD:
        return _errors.Forked(line)
    if code == errno.EINVAL:
        return ValueError(line)
    if code in (errno.EREMOTEIO, errno.ENODEV):
        return _errors.DeviceError(code, line)
    return _errors.SaveError(code, line)


class _Begun(c.c_void_p):
    """A save, let go with this."""

    __del__ = _abi.let_go("save_free")


class Save:
    """One that is written: declare(), write(), objects, sync(), and by one, publish().

    path: of the checkpoint that it will be, in a directory that is there.
    """

    def __init__(self, path: Union[str, bytes, os.PathLike], rank: int = 0, ranks: int = 1, *,
                 format: str = "dcp", replace: bool = False, anew: bool = False,
                 timeout: int = 600, options: Optional[bytes] = None) -> None:
        top, step = os.path.split(os.path.abspath(os.fsdecode(path)))
        opts = _abi.save_opts()
        opts.size, opts.format = c.sizeof(opts), _abi.encoded(format)
        opts.rank, opts.ranks, opts.timeout = rank, ranks, timeout
        opts.flags = _ANEW * anew | _REPLACE * replace
        opts.options = options
        self._handle = _Begun()
        self._nrs: Dict[str, int] = {}
        self._declared: List[Tuple[str, Optional[str], Tuple[int, ...]]] = []
        self._context = _abi.context()
        self._call("save_new", self._context, _abi.encoded(top), _abi.encoded(step),
                   c.byref(opts), c.byref(self._handle))

    def _call(self, name: str, *args: Any) -> None:
        err = _abi.error()
        ret = _abi.call(name)(*args, c.byref(err))
        if ret:
            raise failed(-ret, err.line)

    def close(self) -> None:
        self._handle = _Begun()

    def __enter__(self) -> Save:
        return self

    def __exit__(self, *how: Any) -> None:
        self.close()

    def declare(self, slices: Sequence[Slice]) -> None:
        """Numbered from 0 on, over all calls."""
        out, keep = (_abi.slice * max(len(slices), 1))(), []
        for one, s in zip(out, slices):
            one.size, one.name = c.sizeof(_abi.slice), _name(s.name)
            one.path = None if s.path is None else json.dumps(list(s.path)).encode()
            if s.dtype is None:
                continue
            one.dtype, one.rank = s.dtype.encode(), len(s.shape)
            dims = (c.c_uint64 * max(3 * len(s.shape), 1))(*s.shape, *s.start, *s.count)
            keep.append(dims)
            one.shape = c.addressof(dims)
            one.start = one.shape + 8 * len(s.shape)
            one.len = one.start + 8 * len(s.shape)
        self._call("save_declare", self._handle, out, len(slices))
        self._declared += [(s.name, s.dtype, tuple(s.count)) for s in slices]

    def write(self, items: Sequence[Tuple[int, Source]]) -> None:
        """All of slice number nr each; waits until all ranks have declared.  ValueError, and
        nothing is written: memory that is not as its slice was declared."""
        for nr, s in items:
            name, dtype, count = self._declared[nr]
            if (s.dtype, tuple(s.shape)) != (dtype, count):
                declared = f"{dtype} {list(count)}" if dtype else "an object"
                raise ValueError(f"tensor {_errors.shown(name)}: declared as {declared}, given as "
                                 f"{s.dtype} {list(s.shape)}")
        wanted = [_load.Item(nr, "", None, None, s.address, s.stride or None, s.dtype, s.keep,
                             self._device(s.device)) for nr, s in items if 0 not in s.shape]
        out, _keep = _load._array(wanted, 0)
        self._call("save_write", self._handle, out, len(wanted))

    def _device(self, name: Optional[str]) -> int:
        if name is None:
            return 0
        if name not in self._nrs:
            nr = c.c_int32()
            self._call("device_open", self._context, _abi.encoded(name), c.byref(nr))
            self._nrs[name] = nr.value
        return self._nrs[name]

    def object(self, name: str, data: bytes) -> None:
        self._call("save_object", self._handle, _name(name), data, len(data))

    def sync(self) -> None:
        """What was written is durable, and the other ranks can go on."""
        self._call("save_sync", self._handle)

    def publish(self) -> None:
        self._call("save_publish", self._handle)


def _name(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"{name!r}: expected a string as a name")
    if "\0" in name:
        raise ValueError(f"{name!r}: a NUL byte in it")
    return name.encode()


def save(path: Union[str, bytes, os.PathLike], tensors: Mapping[str, Any], *, format: str = "dcp",
         replace: bool = False, **options: Any) -> None:
    """Writes tensors as the checkpoint at path, which appears when all of it is there.

    tensors: torch tensors, NumPy arrays, or Tensors of a checkpoint, by name; format:
    "dcp" or "safetensors".  replace: a checkpoint that is there is thrown away at that
    moment; else it is SaveError with EEXIST.  What an earlier try left is thrown away.
    """
    from ._checkpoint import _options

    for name in tensors:
        _name(name)  # before there is a draft
    found: Dict[str, Source] = {n: source(t, n) for n, t in tensors.items()}
    slices: List[Slice] = [Slice(n, s.dtype, s.shape, [0] * len(s.shape), s.shape)
                           for n, s in found.items()]
    with Save(path, format=format, replace=replace, anew=True,
              options=_options(options)) as out:
        out.declare(slices)
        out.write(list(enumerate(found.values())))
        out.publish()
