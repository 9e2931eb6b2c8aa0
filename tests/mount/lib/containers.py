# SPDX-License-Identifier: Apache-2.0
"""Tensors in containers that keep sums, made and read with nothing of ours.

containers.py make zip|ckpt DIR OUT	DIR/model.pt or .ckpt with a tensor "w" of
					some blocks, and its bytes in OUT
containers.py sums DIR			the sums that our writer of DCP leaves out
containers.py read DIR OUT		"w" of a .pt, a .ckpt or a DCP directory,
					where each sum on the way is right
"""
import io
import os
import pickle
import random
import sys
import zipfile
import zlib

SIZE = 900001


def make_zip(path, data):
    n = len(data).to_bytes(4, "little")
    text = (
        b"\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"
        b"ctorch\nByteStorage\nX\1\0\0\x000X\3\0\0\0cpuJ" + n + b"tQK\0J" + n +
        b"\x85K\1\x85\x89ccollections\nOrderedDict\n)RtRs."
    )
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("model/data.pkl", text)
        z.writestr("model/data/0", data)
        z.writestr("model/version", b"3\n")


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(tag, data):
    return bytes([tag]) + varint(len(data)) + data


def record(name, dims, kind, data):
    dims = b"".join(b"\x08" + varint(d) for d in dims)
    tensor = dims + field(0x12, kind) + field(0x1A, data)
    return field(0x0A, field(0x0A, name) + field(0x12, tensor))


def make_ckpt(path, data):
    text = (
        record(b"before", [7], b"UInt8", b"1234567")
        + record(b"w", [len(data)], b"UInt8", data)
        + record(b"after", [3], b"Float32", bytes(12))
    )
    trailer = b"crc_num" + zlib.crc32(text).to_bytes(10, "big")
    open(path, "wb").write(text + trailer)


def read_zip(data, member):
    """The bytes of a member; zipfile compares every sum."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None, "a sum is wrong"
        name = [n for n in z.namelist() if n.endswith(member)]
        return z.read(name[0])


def read_ckpt(data):
    assert data[-17:-10] == b"crc_num", data[-17:]
    crc = int.from_bytes(data[-10:], "big")
    assert zlib.crc32(data[:-17]) == crc, "the trailer is wrong"
    at = data.index(b"\x0a\1w\x12")
    at = data.index(b"UInt8\x1a", at) + 6
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return data[at : at + n]


def put_sums(path, at, length):
    """Of all members of the zip in length bytes at @at."""
    with open(path, "r+b") as f:
        f.seek(at)
        data = f.read(length)
        end = data.rindex(b"PK\5\6")
        entry = int.from_bytes(data[end + 16 : end + 20], "little")
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            for i in z.infolist():
                assert not i.flag_bits & 8 and data[entry : entry + 4] == b"PK\1\2"
                lens = data[i.header_offset + 26 : i.header_offset + 30]
                begin = i.header_offset + 30 + sum(
                    int.from_bytes(lens[k : k + 2], "little") for k in (0, 2))
                crc = zlib.crc32(data[begin : begin + i.file_size])
                for place in i.header_offset + 14, entry + 16:
                    f.seek(at + place)
                    f.write(crc.to_bytes(4, "little"))
                entry += 46 + sum(int.from_bytes(data[entry + k : entry + k + 2], "little")
                                  for k in (28, 30, 32))


class Any:
    """Whatever class a pickle names."""

    def __new__(cls, *args):
        self = object.__new__(cls)
        self.args = args
        return self

    def __init__(self, *args):
        pass

    def __setstate__(self, state):
        self.__dict__.update(state if isinstance(state, dict) else {"state": state})


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return tuple if name == "Size" else type(name, (Any,), {})


def metadata(top):
    with open(os.path.join(top, ".metadata"), "rb") as f:
        return Unpickler(f).load()


def read_dcp(top):
    meta = metadata(top)
    rows, columns = meta.state_dict_metadata["w"].size
    sizes = {tuple(c.offsets): tuple(c.sizes) for c in meta.state_dict_metadata["w"].chunks}
    esize, whole = 4, bytearray(rows * columns * 4)
    for index, info in meta.storage_data.items():
        if index.fqn != "w":
            continue
        with open(os.path.join(top, info.relative_path), "rb") as f:
            f.seek(info.offset)
            part = read_zip(f.read(info.length), "data/0")
        (a, b), (n, m) = tuple(index.offset), sizes.pop(tuple(index.offset))
        for r in range(n):
            to = ((a + r) * columns + b) * esize
            whole[to : to + m * esize] = part[r * m * esize : (r + 1) * m * esize]
    assert not sizes, f"no item holds {sizes}"
    return whole


if sys.argv[1] == "make":
    kind, top, out = sys.argv[2:]
    os.makedirs(top)
    data = random.Random(3).randbytes(SIZE)
    if kind == "zip":
        make_zip(top + "/model.pt", data)
    else:
        make_ckpt(top + "/model.ckpt", data)
elif sys.argv[1] == "sums":
    for info in metadata(sys.argv[2]).storage_data.values():
        put_sums(os.path.join(sys.argv[2], info.relative_path), info.offset, info.length)
    sys.exit()
else:
    top, out = sys.argv[2:]
    if os.path.exists(top + "/.metadata"):
        data = read_dcp(top)
    elif os.path.exists(top + "/model.pt"):
        data = read_zip(open(top + "/model.pt", "rb").read(), "data/0")
    else:
        data = read_ckpt(open(top + "/model.ckpt", "rb").read())
open(out, "wb").write(data)
