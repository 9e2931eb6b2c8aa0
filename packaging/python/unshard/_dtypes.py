# SPDX-License-Identifier: Apache-2.0
"""Element types: our name, which NumPy and ml_dtypes share, and those of others."""
from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any, Dict, Optional, Tuple

from . import _abi, _errors


@functools.lru_cache(maxsize=None)
def _known() -> Dict[str, Dict[str, Any]]:
    """What the library knows of each, by our name."""
    return {d["name"]: d for d in _abi.caps()["dtypes"]}


def _of(name: str, what: str) -> Any:
    return _known().get(name, {}).get(what)


def size(name: str) -> int:
    """Bytes of an element; 0 where elements are no whole bytes, or it is unknown."""
    return _of(name, "size") or 0


def safetensors(name: str) -> Optional[str]:
    """What its headers call it."""
    return _of(name, "safetensors")


def dlpack(name: str) -> Optional[Tuple[int, int]]:
    """Code and bits."""
    return _of(name, "dlpack") and tuple(_of(name, "dlpack"))


def by_dlpack(code: int, bits: int) -> Optional[str]:
    return next((n for n in _known() if dlpack(n) == (code, bits)), None)


def is_cast(name: str) -> bool:
    """Whether it is one of the floats that are cast to each other."""
    return bool(_of(name, "cast"))


def name_of(dtype: Any) -> str:
    """"bfloat16" of that, of torch.bfloat16, of NumPy's or ml_dtypes' dtype."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    name = str(name if name and not isinstance(dtype, str) else dtype)
    name = name.removeprefix("torch.")
    if not size(name):
        raise ValueError(f"dtype {dtype!r}: not one that can be asked for")
    return name


def castable(stored: str, wanted: str) -> bool:
    return stored == wanted or (is_cast(stored) and is_cast(wanted))


def check_cast(what: str, stored: str, wanted: str) -> None:
    if not castable(stored, wanted):
        raise ValueError(f"{_errors.shown(what)}: {stored} is not read as {wanted}: floats "
                         "alone are cast")


def numpy_dtype(name: str):
    """NumPy's dtype, by ml_dtypes where NumPy has none of its own; else TypeError."""
    import numpy

    try:
        found = numpy.dtype(name)
        if found.itemsize == size(name):  # "str" is another thing there
            return found
    except TypeError:
        pass
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    except ImportError:
        more = 'install ml_dtypes, or use .torch(), tobytes() or, of floats, .numpy("float32")'
    except AttributeError:
        more = "nor has ml_dtypes: use .torch() or tobytes()"
    raise TypeError(f"NumPy has no {name}: {more}")


def torch_dtype(name: str):
    """torch's dtype, else TypeError.  Imports torch."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no {name}: use tobytes()")
    return found


def framework(wanted: Optional[str]) -> str:
    """"torch" or "numpy".  None: torch where it is installed, else NumPy."""
    if wanted in ("torch", "pt", "pytorch"):
        return "torch"
    if wanted in ("numpy", "np"):
        return "numpy"
    if wanted is not None:
        raise ValueError(f"framework {wanted!r}: expected 'torch', 'numpy' or 'dlpack'")
    for name in ("torch", "numpy"):
        if name in sys.modules or importlib.util.find_spec(name):
            return name
    raise ImportError("neither torch nor NumPy is installed: use tobytes() or read_into()")
