# SPDX-License-Identifier: Apache-2.0
"""safe_open and load_file with safetensors' signatures, of any checkpoint."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Union

from . import _dtypes
from ._checkpoint import Checkpoint
from ._tensor import Tensor


class SafeSlice:
    """What get_slice() gives: nothing is read before it is indexed."""

    def __init__(self, tensor: Tensor, framework: str, device: Any) -> None:
        self._tensor, self._framework, self._device = tensor, framework, device

    def get_shape(self) -> List[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """As headers of safetensors say it: "BF16"; our own name where they have none."""
        return _dtypes.safetensors(self._tensor.dtype) or self._tensor.dtype

    def __getitem__(self, key: Any):
        keys = key if isinstance(key, tuple) else (key,)
        lazy = all(isinstance(k, slice) or k is Ellipsis or
                   (hasattr(k, "__index__") and not isinstance(k, bool)
                    and not getattr(k, "ndim", 0)) for k in keys)
        if lazy:
            return _made(self._tensor[key], self._framework, self._device)
        return _made(self._tensor, self._framework, None)[key].to(self._device) \
            if self._framework == "torch" else _made(self._tensor, "numpy", None)[key]


def _made(tensor: Tensor, framework: str, device: Any):
    if framework == "torch":
        return tensor.torch(device=device)
    return tensor.numpy()


class safe_open:
    """Opens a checkpoint of any format as safetensors.safe_open opens a file.

    filename: a file, or a directory that unshard.open() takes; framework: "pt" or
    "np"; device: of torch; backend: taken, and without effect: files are read by
    pread(2) or io_uring, never mapped.  Errors are those of unshard.open().  What
    get_slice() gave can be read after it is closed, too.
    """

    def __init__(self, filename: Union[str, "os.PathLike[str]"], framework: str,
                 device: Union[str, int] = "cpu", *, backend: str = "mmap") -> None:
        self._framework = _dtypes.framework(str(framework))
        self._device = _device(self._framework, device)
        if backend not in ("mmap", "pread"):
            raise ValueError(f"backend {backend!r}: expected 'mmap' or 'pread'")
        self._open: Optional[Checkpoint] = Checkpoint(filename)

    @property
    def _ck(self) -> Checkpoint:
        if self._open is None:
            raise ValueError("it was closed")
        return self._open

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_exc: Any) -> None:
        self._open = None  # slices hold what they need

    def keys(self) -> List[str]:
        return sorted(self._ck)

    def offset_keys(self) -> List[str]:
        """The names in the order of where their bytes lie, as far as that is known."""
        return self._ck._by_place()

    def metadata(self) -> Optional[Dict[str, str]]:
        """None: the files say nothing of themselves."""
        return self._ck.metadata or None

    def get_tensor(self, name: str):
        return _made(self._ck[name], self._framework, self._device)

    def get_slice(self, name: str) -> SafeSlice:
        return SafeSlice(self._ck[name], self._framework, self._device)

    def get_tensors(self) -> Dict[str, Any]:
        """All of them, read as one plan."""
        return self._ck.load(framework=self._framework, device=self._device)


def _device(framework: str, device: Union[str, int]):
    if framework == "numpy" or device == "cpu":
        return None
    return f"cuda:{device}" if isinstance(device, int) else device


def load_file(filename: Union[str, "os.PathLike[str]"], device: Union[str, int] = "cpu",
              *, backend: str = "mmap") -> Dict[str, Any]:
    """All tensors of a checkpoint of any format, as torch's, by name."""
    with safe_open(filename, framework="pt", device=device, backend=backend) as f:
        return f.get_tensors()
