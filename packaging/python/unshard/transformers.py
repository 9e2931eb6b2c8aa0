# SPDX-License-Identifier: Apache-2.0
"""transformers: from_pretrained() of any checkpoint, each rank reading its part.

    m = LlamaForCausalLM.from_pretrained(None, config=config,
            state_dict=unshard.transformers.lazy("runs/step-300"), dtype="auto")
"""
from __future__ import annotations

from typing import Any, Dict

import torch

from . import _dtypes, _share
from ._safe import SafeSlice


class LazyTensor(SafeSlice):
    """A tensor that is read when it is indexed, as transformers does: w[...]."""

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self._tensor.shape)

    @property
    def dtype(self) -> torch.dtype:
        return _dtypes.torch_dtype(self._tensor.dtype)

    @property
    def ndim(self) -> int:
        return self._tensor.ndim

    def size(self, dim: Any = None):
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self._tensor.ndim

    def numel(self) -> int:
        return self._tensor.size

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self[...].to(*args, **kwargs)


def lazy(checkpoint: Any, **options: Any) -> Dict[str, LazyTensor]:
    """A state dict of the model's tensors, by the names that ck.model() gives, of
    which nothing has been read.

    checkpoint: a path, with options as unshard.open(), or an open Checkpoint, which
    has to stay open until from_pretrained() returns.
    """
    ck = _share.opened(checkpoint, **options)
    return {name: LazyTensor(t, "torch", None) for name, t in ck.model().items()}
