# SPDX-License-Identifier: Apache-2.0
"""A tensor, or a slice of one, of which nothing has been read."""
from __future__ import annotations

import errno
import math
import operator
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Sequence

from . import _device, _dtypes, _errors, _load, _memory

if TYPE_CHECKING:
    import numpy
    import torch

    from ._checkpoint import Checkpoint
    from ._device import DeviceTensor


class Tensor:
    """A tensor of a checkpoint, or a box of one: t[2:5, :] is a Tensor too.

    name: of the whole tensor; shape: a tuple of its lengths; dtype: the name of its
    elements' type, as "bfloat16"; nbytes: of the box, as stored; state: "ok", "torn"
    or "missing", of the whole; pieces: in how many it was saved.  Nothing is read before .numpy(), .torch(),
    tobytes(), read_into() or DLPack ask for it, and then no more than the box.
    Each raises MissingBytes where bytes of the box cannot be had.
    """

    __slots__ = ("_ck", "_nr", "name", "dtype", "state", "pieces", "_whole", "_size", "_nbytes",
                 "_ranges", "_dropped")

    def __init__(self, ck: Checkpoint, nr: int, name: str, dtype: str, state: str,
                 shape: tuple[int, ...], itemsize: int, nbytes: int, pieces: int) -> None:
        self._ck, self._nr, self.name, self.dtype = ck, nr, name, dtype
        self.state, self._whole, self._size, self._nbytes = state, shape, itemsize, nbytes
        self.pieces = pieces
        self._ranges = tuple(range(n) for n in shape)
        self._dropped: frozenset[int] = frozenset()

    # ---- what it is --------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(r) for i, r in enumerate(self._ranges) if i not in self._dropped)

    @property
    def ndim(self) -> int:
        return len(self._ranges) - len(self._dropped)

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 0 where elements are no whole bytes."""
        return self._size

    @property
    def nbytes(self) -> int:
        return self._nbytes if self._is_all() else self.size * self._size

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a tensor without dimensions has no len()")
        return self.shape[0]

    @property
    def _called(self) -> str:
        """Its name, for a line."""
        return _errors.shown(self.name)

    def __repr__(self) -> str:
        return f"<unshard.Tensor {self._called} {self.dtype} {list(self.shape)}>"

    def plan(self) -> Dict[str, Any]:
        """As Checkpoint.plan(), of this box.  ValueError: it has steps."""
        return self._ck.plan(self.name + self._subscript())

    def _subscript(self) -> str:
        if self._is_all() or not self._whole:
            return ""
        if not self._is_box():
            raise ValueError("a slice with steps has no plan of its own")
        words = (str(r.start) if i in self._dropped else f"{r.start}:{r.stop}"
                 for i, r in enumerate(self._ranges))
        return "[" + ",".join(words) + "]"

    def _is_all(self) -> bool:
        return not self._dropped and all(
            r.step == 1 and len(r) == n for r, n in zip(self._ranges, self._whole))

    def _is_box(self) -> bool:
        return all(r.step == 1 or len(r) < 2 for r in self._ranges)

    # ---- slices ------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        """A box of it: whole numbers, slices with steps above 0, and `...`.

        IndexError: outside of the shape; ValueError: a step below 1; TypeError:
        another index.  Nothing is read.
        """
        if not self._size and not (key is Ellipsis or key == ()):
            raise TypeError(f"{self._called}: elements of {self.dtype} are no whole bytes: "
                            "only all of it can be had")
        axes = [i for i in range(len(self._ranges)) if i not in self._dropped]
        keys = _spread(key if isinstance(key, tuple) else (key,), len(axes))
        ranges, dropped = list(self._ranges), set(self._dropped)
        for axis, one in zip(axes, keys):
            have = ranges[axis]
            if isinstance(one, slice):
                if one.step is not None and operator.index(one.step) < 1:
                    raise ValueError("a step must be greater than zero")
                ranges[axis] = have[one]
                continue
            at = _index(one)
            if not -len(have) <= at < len(have):
                raise IndexError(f"{self._called}: index {at} is out of bounds for dimension "
                                 f"{axis} with size {len(have)}")
            ranges[axis] = range(have[at], have[at] + 1)
            dropped.add(axis)
        return self._with(ranges, dropped)

    def _with(self, ranges: Sequence[range], dropped) -> Tensor:
        new = object.__new__(Tensor)
        for name in Tensor.__slots__:
            setattr(new, name, getattr(self, name))
        new._ranges, new._dropped = tuple(ranges), frozenset(dropped)
        return new

    # ---- elsewhere ---------------------------------------------------------

    def __copy__(self) -> Tensor:
        return self  # it never changes

    def __deepcopy__(self, _memo: Any) -> Tensor:
        return self

    def __reduce__(self):
        """Where it is unpickled the checkpoint is opened again, by its path."""
        return _again, (self._ck, self.name, self.dtype, self._whole, self._ranges,
                        self._dropped)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    # ---- reading -----------------------------------------------------------

    def _item(self, address: int, stride: Optional[Sequence[int]] = None,
              dtype: Optional[str] = None, keep: Any = None, device: int = 0) -> _load.Item:
        """Of a box.  stride: of the dimensions that are left."""
        start = count = None
        if not self._is_all():
            start = [r.start if len(r) else 0 for r in self._ranges]
            count = [len(r) for r in self._ranges]
        if stride is not None and self._dropped:
            left = iter(stride)
            stride = [1 if i in self._dropped else next(left)
                      for i in range(len(self._ranges))]
        dtype = None if dtype == self.dtype else dtype
        return _load.Item(self._nr, self.name, start, count, address, stride, dtype, keep,
                          device)

    def _read(self, address: int, stride: Optional[Sequence[int]] = None,
              dtype: Optional[str] = None, device: int = 0, stream: int = 0) -> None:
        if not self._is_box():
            if device:
                raise ValueError(f"{self._called}: a slice with steps is not read into memory of "
                                 "a device: take it from .numpy() or .torch()")
            self._read_steps(address, stride, dtype)
            return
        item = self._item(address, stride, dtype, None, device)
        with _load.Request(self._ck._open_handle(), [item], stream=stream) as request:
            request.wait()

    def tobytes(self) -> bytes:
        """Its bytes, row-major, as stored: little endian."""
        return _memory.new_bytes(self.nbytes, self._read)

    def _read_steps(self, address: int, stride: Optional[Sequence[int]],
                    dtype: Optional[str]) -> None:
        """The box around it, and of that what the steps leave."""
        import numpy

        if not self.size:
            return
        box = self._with([range(r.start, r[-1] + 1) for r in self._ranges], ())
        size = _dtypes.size(dtype) if dtype else self._size
        around = numpy.empty(box.shape, f"V{size}")
        box._read(around.ctypes.data, None, dtype)
        steps = tuple(0 if i in self._dropped else slice(None, None, r.step)
                      for i, r in enumerate(self._ranges))
        _memory.array_at(address, self.shape, size, stride)[...] = around[steps]

    def numpy(self, dtype: Any = None) -> numpy.ndarray[Any, Any]:
        """A new NumPy array of .shape.  dtype: floats are cast on the way.

        bfloat16 and the like are ml_dtypes' types; TypeError where it is not
        installed, ValueError where the cast is none of floats.
        """
        import numpy

        name = self.dtype if dtype is None else _dtypes.name_of(dtype)
        if name != self.dtype:
            _dtypes.check_cast(self.name, self.dtype, name)
        out = numpy.empty(self.shape, _dtypes.numpy_dtype(name))
        if out.size:
            self._read(out.ctypes.data, None, name)
        return out

    def __array__(self, dtype: Any = None,
                  copy: Optional[bool] = None) -> numpy.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array of it is always a copy")
        out = self.numpy()
        return out if dtype is None else out.astype(dtype, copy=False)

    def torch(self, dtype: Any = None, device: Any = None) -> torch.Tensor:
        """A new torch tensor of .shape, on the host unless a device is named; CUDA's is
        filled directly.

        dtype: floats are cast on the way.  TypeError: torch has no such dtype;
        DeviceError: no such device.
        """
        name = self.dtype if dtype is None else _dtypes.name_of(dtype)
        if name != self.dtype:
            _dtypes.check_cast(self.name, self.dtype, name)
        if not self._is_box() and device is not None:
            return self.torch(dtype).to(device)
        make = _device.maker(self._ck, "torch", device)
        out, address = make.empty(self.shape, name)
        if out.numel():
            self._read(address, None, name, make.nr, make.begin(None))
        return make.done(out)

    def on_device(self, device: str, dtype: Any = None) -> DeviceTensor:
        """It in new memory of a device, "cuda:0", for from_dlpack() of any framework.

        dtype: floats are cast on the way.  DeviceError: no such device; MemoryError.
        """
        name = self.dtype if dtype is None else _dtypes.name_of(dtype)
        if name != self.dtype:
            _dtypes.check_cast(self.name, self.dtype, name)
        make = _device.maker(self._ck, "dlpack", device)
        out, address = make.empty(self.shape, name)
        if out.nbytes:
            self._read(address, None, name, make.nr)
        return out

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None,
                   dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        """DLPack: new memory, which the taker owns, of the host or a CUDA device.

        BufferError: it has no such type, or another device is asked for.
        """
        if _dtypes.dlpack(self.dtype) is None:
            raise BufferError(f"{self._called}: DLPack has no {self.dtype}")
        if copy is False or dl_device is not None and (
                dl_device != (1, 0) and int(dl_device[0]) != 2):
            raise BufferError("it is always a copy, on the host or a CUDA device")
        if dl_device is not None and int(dl_device[0]) == 2:
            on = self.on_device(f"cuda:{int(dl_device[1])}")
            return on.__dlpack__(stream=stream, max_version=max_version)
        memory = _memory.new_array(self.shape, self._size)
        if self.size:
            self._read(memory.ctypes.data)
        return _memory.capsule(memory, self.dtype, max_version)

    def map(self) -> Mapped:
        """The bytes of the file themselves, without a copy, for numpy.from_dlpack():
        read-only, and for files that stay: where one is cut, touching what is gone
        ends the process (SIGBUS), as with any map.

        BufferError, when it is taken: they do not lie in one stretch of one file, as
        they are.
        """
        return Mapped(self)

    def read_into(self, target: Any) -> int:
        """Fills memory that is there; how many bytes of it were written.

        target: a torch tensor or NumPy array, with any strides, a DLPack tensor, of
        the same shape and dtype (floats are cast); or a buffer of bytes (bytearray,
        uint8 array of one dimension) of at least .nbytes, which gets them as
        tobytes() has them.  ValueError, and nothing is read, where shape, dtype or
        strides do not fit, it is read-only or too small.  Tensors of CUDA devices, and
        DeviceTensors, are filled directly; memory of other devices is a ValueError.
        """
        if isinstance(target, Tensor):
            raise TypeError("an unshard.Tensor is no memory to read into: it is read itself")
        to = _memory.place(target)
        if to.dtype is None or (to.dtype == "uint8" and len(to.shape) == 1
                                and (self.dtype, self.shape) != ("uint8", to.shape)):
            return self._into_bytes(to)
        if to.shape != self.shape:
            raise ValueError(f"{self._called}: shape {list(self.shape)} does not go into "
                             f"{list(to.shape)}")
        _dtypes.check_cast(self.name, self.dtype, to.dtype)
        if not self.size:
            return 0
        nr = _device.Device(self._ck, to.device).nr if to.device else 0
        self._read(to.address, to.stride, to.dtype, nr)
        return to.nbytes

    def _into_bytes(self, to: _memory.Place) -> int:
        if len(to.shape) != 1 or (to.stride and to.shape[0] > 1 and to.stride[0] != 1):
            raise ValueError(f"{self._called}: shape {list(self.shape)} does not go into "
                             f"{list(to.shape)}")
        if to.nbytes < self.nbytes:
            raise ValueError(f"{self._called}: {self.nbytes} bytes do not go into a buffer "
                             f"of {to.nbytes}")
        if self.nbytes:
            nr = _device.Device(self._ck, to.device).nr if to.device else 0
            self._read(to.address, None, None, nr)
        return self.nbytes


def _again(ck: Checkpoint, name: str, dtype: str, shape: tuple[int, ...],
           ranges: Sequence[range], dropped: Any) -> Tensor:
    t = ck[name]
    if (t.dtype, t.shape) != (dtype, shape):
        raise _errors.OpenError(errno.ESTALE, f"{ck.path}: {t._called} was {dtype} {list(shape)} "
                                f"when it was pickled, and is {t.dtype} {list(t.shape)}")
    return t._with(ranges, dropped)


class Mapped:
    """What Tensor.map() gives: a source of read-only DLPack tensors."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None,
                   dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        t = self._tensor
        if max_version is None or max_version[0] < 1:
            raise BufferError("who takes it knows no read-only tensors (DLPack 1.0)")
        if copy or dl_device not in (None, (1, 0)) or not t._is_box():
            raise BufferError("it is never a copy, on the host, and without steps")
        managed = _load.mapped(t._ck._open_handle(), t._item(0))
        if not managed:
            raise BufferError(f"{t._called}: its bytes do not lie so in one file")
        return _memory.capsule(_memory.mapped_array(managed, t.shape, t._size), t.dtype,
                               max_version)


def _index(one: Any) -> int:
    if isinstance(one, bool):
        raise TypeError("True and False are no indices")
    try:
        return operator.index(one)
    except TypeError:
        raise TypeError(f"indices are whole numbers, slices and ..., not "
                        f"{type(one).__name__}") from None


def _spread(keys: tuple, rank: int) -> list:
    """One key a dimension: `...`, or the end, stands for those not named."""
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if len(keys) - len(dots) > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    at = dots[0] if dots else len(keys)
    fill = [slice(None)] * (rank - len(keys) + len(dots))
    return list(keys[:at]) + fill + list(keys[at + 1 :])
