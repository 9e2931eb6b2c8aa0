#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes oneflow/local-rows: [3, 2] and [3] of two ranks, which are [6, 2] and [6];
and damaged copies of it.

usage: make_seed_examples.py        (then UPDATE_WANT=1 make check-unit)

Needs nothing but Python; the pickle is that of flow.save in 0.9, whose tensors
are objects of a class by that name.
"""
import hashlib, pathlib, pickle, shutil, struct, sys, types

HERE = pathlib.Path(__file__).resolve().parent / "oneflow" / "local-rows"


class Tensor:
    def __init__(self, path):
        self.__dict__["path"] = path


Tensor.__module__, Tensor.__qualname__ = "oneflow", "Tensor"
sys.modules["oneflow"] = types.ModuleType("oneflow")
sys.modules["oneflow"].Tensor = Tensor

shutil.rmtree(HERE, ignore_errors=True)
whole = {"linear.weight": b"", "linear.bias": b""}
for rank in range(2):
    at = HERE / "in" / f"model_{rank}"
    at.mkdir(parents=True)
    (at / "pickled_data").write_bytes(pickle.dumps({"protocol_version": 1, "data": {n: Tensor(f"tensor_{i}") for i, n in enumerate(whole)}}))
    for i, (name, dims) in enumerate(zip(whole, ((3, 2), (3,)))):
        n = dims[0] * (dims[1] if len(dims) > 1 else 1)
        raw = struct.pack(f"<{n}f", *(10 * i + rank * n + k for k in range(n)))
        (at / f"tensor_{i}").mkdir()
        (at / f"tensor_{i}" / "meta").write_text("shape {\n" + "".join(f"  dim: {d}\n" for d in dims) + "}\ndata_type: kFloat\n")
        (at / f"tensor_{i}" / "out").write_bytes(raw)
        whole[name] += raw
(HERE / "opts").write_text("sbp=split(0)\n")
(HERE / "sums").write_text("".join(f"{hashlib.sha256(b).hexdigest()} {n}\n" for n, b in whole.items()))


def damaged(name, ranks, change):
    """The same, or its first save alone, with something wrong."""
    at = HERE.parent / name
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(HERE / "in" if ranks > 1 else HERE / "in" / "model_0", at / "in")
    if ranks > 1:
        (at / "opts").write_text("sbp=split(0)\n")
    change(at / "in")


def cut(path, n):
    path.write_bytes(path.read_bytes()[:-n])


meta = "model_1/tensor_0/meta"
damaged("bad-dtype-differs", 2, lambda at: (at / meta).write_text((at / meta).read_text().replace("kFloat", "kInt32")))
damaged("bad-out-cut", 2, lambda at: cut(at / "model_1/tensor_0/out", 5))
damaged("bad-pickle-cut", 1, lambda at: cut(at / "pickled_data", 30))
damaged("bad-folder-missing", 1, lambda at: shutil.rmtree(at / "tensor_1"))
damaged("bad-rank-copied", 2, lambda at: (shutil.rmtree(at / "model_1"), shutil.copytree(at / "model_0", at / "model_1")))
