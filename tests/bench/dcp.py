#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes DCP checkpoints for the benchmarks; needs NumPy, not PyTorch.

dcp.py split DIR MIB SHARDS   one tensor "w", int32, cut along dim 1; element
                              number i in row-major order is i (mod 2^32)
dcp.py many DIR CHUNKS        .metadata of that many chunks, sparse shards
dcp.py sparse META DIR        a saved .metadata (.xz or not), sparse shards
"""
import collections
import io
import lzma
import pathlib
import pickle
import struct
import sys
import zipfile

CKPT = "torch.distributed.checkpoint."


class Pickle:
    """Opcodes as CPython writes them (protocol 4), everything memoized."""

    def __init__(self, protocol=4):
        self.out, self.memo, self.known = io.BytesIO(), 0, {}
        self.out.write(b"\x80" + bytes([protocol]))

    def memoize(self):
        self.out.write(b"\x94")
        self.memo += 1

    def again(self, key):
        """What was written before is referred to."""
        if key not in self.known:
            return False
        at = self.known[key]
        self.out.write(b"h" + bytes([at]) if at < 256 else b"j" + struct.pack("<I", at))
        return True

    def text(self, s):
        if not self.again(s):
            raw = s.encode()
            self.out.write((b"\x8c" + bytes([len(raw)]) if len(raw) < 256 else b"X" + struct.pack("<I", len(raw))) + raw)
            self.known[s] = self.memo
            self.memoize()

    def number(self, n):
        if 0 <= n < 256:
            self.out.write(b"K" + bytes([n]))
        elif 0 <= n < 65536:
            self.out.write(b"M" + struct.pack("<H", n))
        elif n < 1 << 31:
            self.out.write(b"J" + struct.pack("<i", n))
        else:
            raw = n.to_bytes(n.bit_length() // 8 + 1, "little")
            self.out.write(b"\x8a" + bytes([len(raw)]) + raw)

    def name(self, where, what):
        if not self.again((where, what)):
            self.text(where)
            self.text(what)
            self.out.write(b"\x93")
            self.known[where, what] = self.memo
            self.memoize()

    def size(self, dims):
        key = ("size", tuple(dims))
        if self.again(key):
            return
        self.name("torch", "Size")
        self.out.write(b"(")
        for d in dims:
            self.number(int(d))
        self.out.write(b"t")
        self.memoize()
        self.out.write(b"\x85")
        self.memoize()
        self.out.write(b"R")
        self.known[key] = self.memo
        self.memoize()

    def begin(self, where, what):
        """An object up to the values of its attributes; end_object() follows."""
        self.name(where, what)
        self.out.write(b")\x81")
        self.memoize()
        self.begin_dict()

    def begin_dict(self):
        self.out.write(b"}")
        self.memoize()
        self.out.write(b"(")

    def next_item(self, n, end=b"u"):
        """Before item n of a dict or list: a thousand of them at a time."""
        if n and n % 1000 == 0:
            self.out.write(end + b"(")

    def end_dict(self):
        self.out.write(b"u")

    def end_object(self):
        self.out.write(b"ub")

    def finish(self):
        self.out.write(b".")
        return self.out.getvalue()


def put_properties(p, dtype):
    p.name(CKPT + "metadata", "TensorProperties")
    p.out.write(b")\x81")
    p.memoize()
    p.out.write(b"(")
    p.name("torch", dtype)
    p.name("torch.serialization", "_get_layout")
    p.text("torch.strided")
    p.out.write(b"\x85R\x89")
    p.name(CKPT + "metadata", "_MEM_FORMAT_ENCODING")
    p.out.write(b"K\x00\x85R\x89tb")


def put_tensor(p, dtype, shape, boxes):
    p.begin(CKPT + "metadata", "TensorStorageMetadata")
    p.text("properties")
    put_properties(p, dtype)
    p.text("size")
    p.size(shape)
    p.text("chunks")
    p.out.write(b"](")
    for n, (start, lengths) in enumerate(boxes):
        p.next_item(n, b"e")
        p.begin(CKPT + "metadata", "ChunkStorageMetadata")
        p.text("offsets")
        p.size(start)
        p.text("sizes")
        p.size(lengths)
        p.end_object()
    p.out.write(b"e")
    p.end_object()


def put_item(p, name, number, start, file, at, length):
    p.begin(CKPT + "metadata", "MetadataIndex")
    p.text("fqn")
    p.text(name)
    p.text("index")
    p.number(number)
    p.text("offset")
    p.size(start)
    p.end_object()
    p.begin(CKPT + "filesystem", "_StorageInfo")
    p.text("relative_path")
    p.text(file)
    p.text("offset")
    p.number(at)
    p.text("length")
    p.number(length)
    p.end_object()


def metadata(tensors):
    """tensors: name -> (dtype, shape, [((start, lengths), (file, at, length))])"""
    p = Pickle()
    p.begin(CKPT + "metadata", "Metadata")
    p.text("state_dict_metadata")
    p.begin_dict()
    for n, (name, (dtype, shape, parts)) in enumerate(tensors.items()):
        p.next_item(n)
        p.text(name)
        put_tensor(p, dtype, shape, [box for box, _ in parts])
    p.end_dict()
    p.text("planner_data")
    p.begin_dict()
    for n, name in enumerate(tensors):
        p.next_item(n)
        p.text(name)
        p.text(name)
        p.out.write(b"\x85")
    p.end_dict()
    p.text("storage_data")
    p.begin_dict()
    n = 0
    for name, (_, _, parts) in tensors.items():
        for number, ((start, _), where) in enumerate(parts):
            p.next_item(n)
            n += 1
            put_item(p, name, number, start, *where)
    p.end_dict()
    p.end_object()
    return p.finish()


def item_pickle(rows, columns):
    """data.pkl of one contiguous int32 tensor, protocol 2."""
    p = io.BytesIO()
    p.write(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nIntStorage\n")
    p.write(b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + b"J" + struct.pack("<i", rows * columns) + b"tQK\x00")
    p.write(b"J" + struct.pack("<i", rows) + b"J" + struct.pack("<i", columns) + b"\x86")
    p.write(b"J" + struct.pack("<i", columns) + b"K\x01\x86\x89ccollections\nOrderedDict\n)RtR.")
    return p.getvalue()


def split(out, mib, shards):
    import numpy

    out, columns, nr = pathlib.Path(out), 28672, int(shards)
    rows = int(mib) * (1 << 20) // 4 // columns
    parts = []
    for rank in range(nr):
        a, b = columns * rank // nr, columns * (rank + 1) // nr
        name = f"__{rank}_0.distcp"
        first = numpy.arange(rows, dtype=numpy.uint32)[:, None] * numpy.uint32(columns)
        bytes_ = (first + numpy.arange(a, b, dtype=numpy.uint32)).astype("<u4")
        with zipfile.ZipFile(out / name, "w", zipfile.ZIP_STORED) as z:
            z.writestr("archive/data.pkl", item_pickle(rows, b - a))
            z.writestr("archive/byteorder", "little")
            with z.open("archive/data/0", "w", force_zip64=bytes_.nbytes >= 1 << 31) as f:
                f.write(memoryview(bytes_).cast("B"))
            z.writestr("archive/version", "3\n")
        parts.append((((0, a), (rows, b - a)), (name, 0, (out / name).stat().st_size)))
    (out / ".metadata").write_bytes(metadata({"w": ("int32", (rows, columns), parts)}))
    print(rows, columns)


def truncate(out, ends):
    for name, end in ends.items():
        with open(out / name, "wb") as f:
            f.truncate(end)


def many(out, chunks, each=1000, ranks=64):
    """Chunks of 64 x 64 float32, so many a tensor, from so many ranks."""
    out, left, item_len = pathlib.Path(out), int(chunks), 17664
    each, ranks = int(each), int(ranks)
    tensors, ends = {}, collections.Counter()
    while left > 0:
        nr, parts = min(left, each), []
        for i in range(nr):
            file = f"__{(left + i) % ranks}_0.distcp"
            parts.append((((64 * i, 0), (64, 64)), (file, ends[file], item_len)))
            ends[file] += item_len
        tensors[f"model.layers.{len(tensors)}.mlp.weight"] = ("float32", (64 * nr, 64), parts)
        left -= nr
    (out / ".metadata").write_bytes(metadata(tensors))
    truncate(out, ends)


class Inert:
    """Whatever class a pickle names."""

    def __init__(self, *arguments):
        self.state = {}

    def __setstate__(self, state):
        self.state = state


class Inspector(pickle.Unpickler):
    def find_class(self, where, name):
        return Inert


def sparse(saved, out):
    out = pathlib.Path(out)
    data = pathlib.Path(saved).read_bytes()
    data = lzma.decompress(data) if saved.endswith(".xz") else data
    ends = collections.Counter()
    for info in Inspector(io.BytesIO(data)).load().state["storage_data"].values():
        s = info.state
        ends[s["relative_path"]] = max(ends[s["relative_path"]], s["offset"] + s["length"])
    (out / ".metadata").write_bytes(data)
    truncate(out, ends)


if __name__ == "__main__":
    {"split": split, "many": many, "sparse": sparse}[sys.argv[1]](*sys.argv[2:])
