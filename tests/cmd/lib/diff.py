# SPDX-License-Identifier: Apache-2.0
"""diff.py write A B          two safetensors files
   diff.py check A B <JSON     whether diff --json -a says what numpy says"""
import json
import struct
import sys

import numpy as np

NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2",
         "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2",
         "F32": "<f4", "F64": "<f8", "C64": "<c8", "BF16": "<u2"}


def write(path, tensors):
    head, body = {}, b""
    for name, (dtype, a) in tensors.items():
        raw = a.astype(NUMPY[dtype]).tobytes()
        head[name] = {"dtype": dtype, "shape": list(a.shape),
                      "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def read(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        lo, hi = t["data_offsets"]
        a = np.frombuffer(data[8 + n + lo:8 + n + hi], NUMPY[t["dtype"]])
        out[name] = t["dtype"], a.reshape(t["shape"])
    return out


def make():
    r = np.random.default_rng(1)
    w = r.standard_normal((64, 50)).astype("<f4")
    nan = w.copy()
    nan[1, 1], nan[3, 7], w[3, 7] = np.nan, 1.5, 1
    big = np.zeros(6 << 20, "<u2")
    edited = big.copy()
    edited[0], edited[-1] = 2, 3
    i = np.arange(10)
    j = np.where(i == 4, -2 ** 62 + 4, i)
    half = w.astype("<f2")
    a = {"same": ("F32", w), "gone": ("F32", w), "nan": ("F32", w),
         "lost": ("F32", w), "cast": ("F32", w.astype("<f2")), "shape": ("F32", w), "half": ("F32", half), "big": ("U16", big),
         "i64": ("I64", i), "scalar": ("F64", np.array(1.0)),
         "empty": ("F32", np.zeros((0, 3))), "zero": ("F32", np.array([0.0]))}
    lost, cast = w.copy(), w.astype("<f2")
    lost[60:, 7:], cast[5, 6:] = np.nan, 9
    b = {"same": ("F32", w), "nan": ("F32", nan), "lost": ("F32", lost),
         "cast": ("F16", cast), "shape": ("F32", w.T),
         "half": ("F16", half), "big": ("U16", edited), "i64": ("I64", j),
         "scalar": ("F64", np.array(1.25)), "empty": ("F32", np.zeros((0, 3))),
         "zero": ("F32", np.array([-0.0])), "new": ("F32", w)}
    for d in NUMPY:  # every type, a third of the elements others
        bits = r.integers(0, 256, 4000 * np.dtype(NUMPY[d]).itemsize, "u1")
        x = (bits & 1 if d == "BOOL" else bits).view(NUMPY[d])
        y = np.where(r.random(x.size) < 1 / 3, np.roll(x, 1), x)
        a["t_" + d], b["t_" + d] = (d, x), (d, y)
    np.seterr(all="ignore")
    a["mixed"] = "BF16", r.integers(0, 65536, 4000)
    b["mixed"] = "F32", values("BF16", a["mixed"][1].astype("<u2"))
    b["mixed"][1][5] = 1e9
    return a, b


def values(dtype, a):
    if dtype == "BF16":
        a = (a.astype("<u4") << 16).view("<f4")
    return a.astype("c16" if dtype == "C64" else "f8")


def differences(x, y):
    """(changed, nan, largest, index of it, index of the first)"""
    (dx, a), (dy, b) = x, y
    with np.errstate(all="ignore"):
        u, v = values(dx, a), values(dy, b)
        d = u - v
        d = np.maximum(np.where(np.isnan(d.imag), np.nan, abs(d.real)),
                       np.where(np.isnan(d.real), np.nan, abs(d.imag)))
        if dx == dy:
            n = a.dtype.itemsize
            c = (np.ascontiguousarray(a).reshape(-1).view("u1").reshape(-1, n) !=
                 np.ascontiguousarray(b).reshape(-1).view("u1").reshape(-1, n)
                 ).any(1).reshape(a.shape)
            if dx in ("I64", "U64"):
                big = a.astype(object) - b.astype(object)
                d = np.abs(big).astype("f8")
        else:
            c = ~((u == v) | (np.isnan(u) & np.isnan(v)))
    d = np.where(c, d, -1)
    nan = int(np.isnan(d).sum())
    d = np.where(np.isnan(d), -1, d)
    index = lambda x: [int(i) for i in np.unravel_index(np.argmax(x), x.shape)] if x.ndim else []
    return int(c.sum()), nan, float(d.max()), index(d), index(c)


def check(a, b):
    a, b, ok = read(a), read(b), True
    doc = json.load(sys.stdin)
    got = {t["name"]: t for t in doc["tensors"]}
    for name in a.keys() | b.keys():
        t = got.pop(name)
        if name not in b or name not in a:
            want = {"status": "only-a" if name in a else "only-b"}
        elif a[name][1].shape != b[name][1].shape:
            want = {"status": "shape"}
        elif not a[name][1].size:
            want = {"status": "equal"}
        else:
            n, nan, most, at, first = differences(a[name], b[name])
            same = "equal" if a[name][0] == b[name][0] else "dtype"
            want = {"status": "differs" if n else same}
            if n:
                want |= {"changed": n, "nan": nan, "first": first}
                most = "Infinity" if np.isinf(most) else most if most >= 0 else None
                want |= {"largest": most, "at": first if most is None else at}
            t.setdefault("largest", "not there")
        for k, v in want.items():
            if t.get(k) != v:
                print(f"{name}: {k} is {t.get(k)}, expected {v}", file=sys.stderr)
                ok = False
    return ok and not got


if sys.argv[1] == "write":
    for path, tensors in zip(sys.argv[2:], make()):
        write(path, tensors)
else:
    sys.exit(not check(*sys.argv[2:]))
