# SPDX-License-Identifier: Apache-2.0
"""Tensors of a sharded checkpoint, of any format, into this process's memory.

    ck = unshard.open("runs/step-300")        # nothing is read yet
    w = ck["model.layers.0.weight"]           # .shape .dtype; w[2:5, :] is lazy too
    w.numpy(), w.torch(), torch.from_dlpack(w), w.read_into(param)
    sd = ck.load(mesh="tp=8", rank=3)         # one plan, each byte read once
    unshard.save("runs/step-400", sd)         # seen when all of it is there

NumPy and torch are imported when first used; unshard.torch, unshard.transformers
and unshard.vllm when imported.  Nothing of a checkpoint is ever executed.
"""
from . import _abi
from ._abi import caps, configure
from ._checkpoint import Checkpoint, Object, open, steps
from ._device import DeviceTensor
from ._errors import (DeviceError, Error, Forked, MissingBytes, NotFound, OpenError, RankError,
                      SaveError, UnknownName)
from ._safe import load_file, safe_open
from ._save import save
from ._tensor import Tensor

_version = _abi.call("version")()
__version__ = f"{_version >> 16}.{_version >> 8 & 255}.{_version & 255}"

__all__ = ["Checkpoint", "DeviceError", "DeviceTensor", "Error", "Forked", "MissingBytes", "NotFound", "Object",
           "OpenError", "RankError", "SaveError", "Tensor", "UnknownName", "caps", "configure", "load_file", "open",
           "safe_open", "save", "steps"]
