# SPDX-License-Identifier: Apache-2.0
"""Floats as other floats: what Tensor.to() of this torch makes of the same values."""
import os
import tempfile

from kit import case, need

need("torch", "safetensors.torch")
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

import unshard  # noqa: E402

FLOATS = {n: getattr(torch, n) for n in ("float64", "float32", "float16", "bfloat16",
                                         "float8_e4m3fn", "float8_e5m2")}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def patterns(name):
    """All of 8 and 16 bits; of more, those around every value of the narrower types."""
    kind = FLOATS[name]
    if kind.itemsize < 4:
        nr = 1 << 8 * kind.itemsize
        return torch.arange(nr, dtype=torch.int32).to(BITS[kind.itemsize]).view(kind)
    near = [torch.cat([patterns(n).to(kind) for n in FLOATS if FLOATS[n].itemsize < 4])]
    ints = near[0].view(BITS[kind.itemsize])
    step = 1 << (12 if kind is torch.float32 else 41)  # half of a place of float16
    near += [(ints + d).view(kind) for d in (-step, -1, 1, step, 2 * step)]
    gen = torch.Generator().manual_seed(1)
    near.append(torch.randint(-(1 << 62), 1 << 62, (1 << 16,), generator=gen).view(kind))
    return torch.cat(near)


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    nan = torch.isnan(want.float())
    bits = BITS[want.dtype.itemsize]
    wrong = torch.where(nan, ~torch.isnan(got.float()), got.view(bits) != want.view(bits))
    assert not wrong.any(), (int(wrong.sum()), got[wrong][:4], want[wrong][:4])


def all_values(ck, values, source):
    for to, kind in FLOATS.items():
        have, want = ck[source], values[source].to(kind)
        same(have.torch(dtype=kind), want)
        into = torch.empty(have.shape, dtype=kind)
        have.read_into(into)
        same(into, want)
        wide = torch.empty(2 * have.shape[0], dtype=kind)[::2]
        have.read_into(wide)
        same(wide.contiguous(), want)
        same(have[1::3].torch(dtype=kind), want[1::3].contiguous())


with tempfile.TemporaryDirectory() as tmp:
    at = os.path.join(tmp, "model.safetensors")
    made = {name: patterns(name) for name in FLOATS}
    save_file(made, at)
    with unshard.open(at) as opened:
        for one in FLOATS:
            case(all_values, f"from-{one}", opened, made, one)
