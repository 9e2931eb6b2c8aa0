# SPDX-License-Identifier: Apache-2.0
"""Checkpoints whose index has blocks in the middle of a file.

    big_index.py make DIR         zip/ safetensors/ mindspore/ oneblock/ in it
    big_index.py swap FILE FROM OLD NEW
                                  the first OLD after byte FROM becomes NEW,
                                  as long; prints the number of its block
"""
import ast
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile

LONG = "x" * 50000


def fakes():
    """What torch.save names, for a machine without it."""
    utils = types.ModuleType("torch._utils")
    torch = types.ModuleType("torch")
    exec("def _rebuild_tensor_v2(*a): pass", utils.__dict__)
    exec("class FloatStorage: pass", torch.__dict__)
    utils._rebuild_tensor_v2.__module__ = "torch._utils"
    torch.FloatStorage.__module__ = "torch"
    sys.modules.update({"torch": torch, "torch._utils": utils})
    return torch, utils


class Storage:
    def __init__(self, key):
        self.key = key


class Tensor:
    def __init__(self, key):
        self.key = key

    def __reduce__(self):
        import collections
        return (sys.modules["torch._utils"]._rebuild_tensor_v2,
                (Storage(self.key), 0, (4,), (1,), False,
                 collections.OrderedDict()))


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        if isinstance(obj, Storage):
            return ("storage", sys.modules["torch"].FloatStorage, obj.key,
                    "cpu", 4)
        return None


def torch_zip(path, nr, long):
    fakes()
    out = io.BytesIO()
    Pickler(out, protocol=2).dump(
        {f"t{i:03}.{long}": Tensor(str(i)) for i in range(nr)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("m/data.pkl", out.getvalue())
        z.writestr("m/byteorder", "little")
        for i in range(nr):
            z.writestr(f"m/data/{i}", struct.pack("<4f", *[i] * 4))
        z.writestr("m/version", "3\n")


def safetensors(path, nr):
    head = {f"t{i:03}.{LONG}": {"dtype": "F32", "shape": [4],
                                "data_offsets": [16 * i, 16 * i + 16]}
            for i in range(nr)}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for i in range(nr):
            f.write(struct.pack("<4f", *[i] * 4))


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(nr, data):
    return varint(nr << 3 | 2) + varint(len(data)) + data


def mindspore(path, nr):
    with open(path, "wb") as f:
        for i in range(nr):
            tensor = (varint(8) + varint(1500) + varint(8) + varint(700) +
                      field(2, b"Float32") +
                      field(3, struct.pack("<f", i) * 1500 * 700))
            f.write(field(1, field(1, b"l%d.w" % i) + field(2, tensor)))


def main(how, where, *rest):
    if how == "make":
        for name in ("zip", "safetensors", "mindspore", "oneblock"):
            os.makedirs(f"{where}/{name}")
        torch_zip(f"{where}/zip/model.pt", 200, LONG)
        torch_zip(f"{where}/oneblock/model.pt", 20, "x")
        safetensors(f"{where}/safetensors/model.safetensors", 200)
        mindspore(f"{where}/mindspore/model.ckpt", 4)
        return
    start, old, new = int(rest[0]), *(
        ast.literal_eval(f"b'{t}'") for t in rest[1:])
    with open(where, "r+b") as f:
        at = f.read().index(old, start)
        f.seek(at)
        assert len(old) == len(new)
        f.write(new)
    print(at >> 22)


main(*sys.argv[1:])
