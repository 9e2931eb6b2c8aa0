# SPDX-License-Identifier: Apache-2.0
"""vLLM: --load-format unshard, by its plugin entry point.

    vllm serve DIR_WITH_CONFIG --load-format unshard \\
        --model-loader-extra-config '{"checkpoint": "runs/step-300"}'

Extra settings: checkpoint (else the model's own directory), step, options (those of
-o), window (bytes that are read ahead, "1G"), slices (each rank reads only what its
layers narrow weights to).
"""
from __future__ import annotations

from typing import Any, Iterator, Tuple

import torch

from . import _dtypes, _share
from ._tensor import Tensor

_KNOWN = {"checkpoint", "step", "options", "window", "slices"}


class LazyWeight(torch.Tensor):
    """A weight that narrow() and slices cut before it is read; what else is done with
    it reads it first.  What is written to it stays in it."""

    @staticmethod
    def __new__(cls, lazy: Tensor) -> LazyWeight:
        new = torch.Tensor._make_wrapper_subclass(
            cls, torch.Size(lazy.shape), dtype=_dtypes.torch_dtype(lazy.dtype))
        new._lazy, new._made = lazy, None
        return new

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _ASKED:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        cut = _cut(func, args, kwargs)
        if cut is not None:
            return cut
        for w in (*args[:1], kwargs.get("out")) if _stays(func) or "out" in kwargs else ():
            if isinstance(w, LazyWeight):
                w._made = _read(w)
        return func(*[_read(a) for a in args], **{k: _read(v) for k, v in kwargs.items()})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return func(*[_read(a) for a in args], **{k: _read(v) for k, v in kwargs.items()})

    def __repr__(self, **_kwargs: Any) -> str:
        return repr(self._lazy)


_T = torch.Tensor
_ASKED = {_T.shape.__get__, _T.dtype.__get__, _T.device.__get__, _T.ndim.__get__,
          _T.layout.__get__, _T.is_sparse.__get__, _T.requires_grad.__get__, _T.size, _T.dim,
          _T.numel, _T.nelement, _T.element_size, _T.is_floating_point, _T.__len__}


def _stays(func: Any) -> bool:
    """Whether it writes to its first argument, or says where that is."""
    name = getattr(func, "__name__", "")
    return name in _WRITES or name.endswith("_") and not name.endswith("__")


_WRITES = {"data_ptr", "__set__", "__setitem__"} | {f"__i{op}__" for op in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift")}


def _read(value: Any) -> Any:
    if isinstance(value, LazyWeight):
        return value._lazy.torch() if value._made is None else value._made
    if isinstance(value, (list, tuple)):
        return type(value)(_read(v) for v in value)
    return value


def _cut(func, args, kwargs):
    """A smaller LazyWeight, where func only chooses elements."""
    if not args or not isinstance(args[0], LazyWeight):
        return None
    if args[0]._made is not None:
        return args[0] if func in (_T.detach, _T.data.__get__) else None
    lazy = args[0]._lazy
    if func in (_T.detach, _T.data.__get__, _T.contiguous):
        return args[0]
    if func in (_T.narrow, torch.narrow):
        dim, start, length = _narrow(*args[1:], **kwargs)
        dim += lazy.ndim if dim < 0 else 0
        if not 0 <= start <= start + length <= lazy.shape[dim]:
            return None
        return LazyWeight(lazy[(slice(None),) * dim + (slice(start, start + length),)])
    if func is _T.__getitem__ and not kwargs:
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        if all(isinstance(k, (slice, int, type(...))) and not isinstance(k, bool) for k in keys):
            return LazyWeight(lazy[args[1]])
    return None


def _narrow(dim, start, length):
    return int(dim), int(start), int(length)


def weights(settings: dict, model_path: str) -> Iterator[Tuple[str, torch.Tensor]]:
    """(name, weight) of the checkpoint that the settings name, as hf/ names them."""
    unknown = set(settings) - _KNOWN
    if unknown:
        raise ValueError(f"unshard: {', '.join(sorted(unknown))}: settings are "
                         f"{', '.join(sorted(_KNOWN))}")
    path = settings.get("checkpoint", model_path)
    ck = _share.opened(path, settings.get("step"), **settings.get("options", {}))
    if settings.get("slices"):
        # Some models take all of them before they read one: each holds the checkpoint open.
        for name, t in ck.model().items():
            yield name, LazyWeight(t)
        return
    with ck:
        model = ck.model()
        called: dict = {}
        for name, t in model.items():
            called.setdefault(t.name, []).append(name)
        window = settings.get("window", "1G")
        for stored, value in ck.stream(called, framework="torch", window=window):
            for name in called[stored]:
                yield name, value


def register() -> None:
    """What vLLM's entry point vllm.general_plugins calls in each of its processes."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    @register_model_loader("unshard")
    class UnshardModelLoader(BaseModelLoader):
        def download_model(self, model_config) -> None:
            pass

        def load_weights(self, model, model_config) -> None:
            settings = self.load_config.model_loader_extra_config or {}
            model.load_weights(weights(dict(settings), model_config.model))
