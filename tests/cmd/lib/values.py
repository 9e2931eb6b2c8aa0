# SPDX-License-Identifier: Apache-2.0
"""values.py write FILE       a safetensors file with tensors of every dtype
   values.py check NAME <JSON   whether cat --json printed that tensor"""
import json
import struct
import sys

import numpy as np


def f8(exp, man, bias, fn):
    """All 256 values of an 8-bit float, by its definition."""
    out = []
    for b in range(256):
        e, m = b >> man & (1 << exp) - 1, b & (1 << man) - 1
        s = -1.0 if b >> 7 else 1.0
        if fn and e == (1 << exp) - 1 and m == (1 << man) - 1:
            x = np.nan
        elif not fn and e == (1 << exp) - 1:
            x = np.nan if m else np.inf
        elif e:
            x = (1 + m / (1 << man)) * 2.0 ** (e - bias)
        else:
            x = m / (1 << man) * 2.0 ** (1 - bias)
        out.append(s * x)
    return np.array(out)


def ints(t):
    i = np.iinfo(t)
    return np.array([[i.min, i.max, 0], [1, i.max // 3, i.min // 7]], t)


def floats(t):
    with np.errstate(over="ignore"):
        return np.array([0, -0.0, 1, -1 / 3, np.pi * 1e4, np.inf, -np.inf,
                         np.nan, 6e-8, 65504, 1e-30, 3e38], np.float64).astype(t)


bf16 = np.arange(0, 65536, 13, dtype="<u2")
f16 = np.arange(0, 65536, 17, dtype="<u2").view("<f2")
every = np.arange(256, dtype="u1")
TENSORS = {  # name: dtype, the bytes, the values
    "bool": ("BOOL", np.array([1, 0, 1], "u1"), np.array([True, False, True])),
    **{f"{'u' if k == 'u' else 'i'}{8 * n}":
       (f"{k.upper()}{8 * n}", ints(f"<{k}{n}"), ints(f"<{k}{n}"))
       for k in "ui" for n in (1, 2, 4, 8)},
    "f16": ("F16", f16, f16),
    "bf16": ("BF16", bf16, (bf16.astype("<u4") << 16).view("<f4")),
    "f32": ("F32", floats("<f4"), floats("<f4")),
    "f64": ("F64", floats("<f8"), floats("<f8")),
    "c64": ("C64", np.array([[1 + 2j], [0.1 - 3j]], "<c8"),
            np.array([[1 + 2j], [0.1 - 3j]], "<c8")),
    "f8_e4m3": ("F8_E4M3", every, f8(4, 3, 7, True)),
    "f8_e5m2": ("F8_E5M2", every, f8(5, 2, 15, False)),
    "empty": ("F32", np.zeros((0, 3), "<f4"), np.zeros((0, 3), "<f4")),
    "scalar": ("F32", np.array(2.5, "<f4"), np.array(2.5, "<f4")),
}


def write(path):
    head, body = {}, b""
    for name, (dtype, raw, _) in TENSORS.items():
        data = raw.tobytes()
        head[name] = {"dtype": dtype, "shape": list(raw.shape),
                      "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def number(x):
    if isinstance(x, list):
        return [number(y) for y in x]
    return float(x.replace("Infinity", "inf")) if isinstance(x, str) else x


def same(name, got, want):
    if name == "c64":
        got = np.array(got, "f8")
        return np.array_equal(got[..., 0].astype("f4"), want.real) and \
            np.array_equal(got[..., 1].astype("f4"), want.imag)
    if want.dtype.kind in "iub":
        return got == want.tolist()
    # the nearest float32 of what is printed is the element, but for float64
    got = np.array(got, "f8").astype("f8" if name == "f64" else "f4")
    return np.array_equal(got, want, equal_nan=True) and \
        np.array_equal(np.signbit(got)[~np.isnan(got)],
                       np.signbit(want)[~np.isnan(want)])


def check(name):
    j = json.load(sys.stdin)
    want = TENSORS[name][2]
    if name == "empty":
        return j["shape"] == [0, 3] and j["values"] == []
    return j["name"] == name and j["shape"] == list(want.shape) and \
        same(name, number(j["values"]), want)


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    sys.exit(not check(sys.argv[2]))
