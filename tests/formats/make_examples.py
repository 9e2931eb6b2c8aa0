#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the examples that no framework writes: damaged, hostile, odd.

usage: make_examples.py        (run in this folder; then UPDATE_WANT=1 make unit)

Needs nothing but Python: the pickles are written by its own pickle module, from
classes that only have the names of PyTorch's.
"""
import json, pathlib, pickle, shutil, struct, sys, types

HERE = pathlib.Path(__file__).resolve().parent


def module(name):
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    return sys.modules[name]


def named(where, name, base=object, **more):
    made = type(name, (base,), {"__module__": where, "__qualname__": name, **more})
    setattr(module(where), name, made)
    return made


DCP = "torch.distributed.checkpoint.metadata"
Metadata = named(DCP, "Metadata")
TensorStorageMetadata = named(DCP, "TensorStorageMetadata")
BytesStorageMetadata = named(DCP, "BytesStorageMetadata")
ChunkStorageMetadata = named(DCP, "ChunkStorageMetadata")
MetadataIndex = named(DCP, "MetadataIndex")
TensorProperties = named(DCP, "TensorProperties", __reduce__=lambda s: (type(s), (), s.state))
StorageInfo = named("torch.distributed.checkpoint.filesystem", "_StorageInfo")
MCoreMetadata = named("megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata")
Size = named("torch", "Size", tuple, __reduce__=lambda s: (Size, (tuple(s),)))


def dtype(name):
    kind = named("torch", "_dtype_" + name, __reduce__=lambda s: name)
    one = kind()
    setattr(module("torch"), name, one)
    return one


F32, BF16 = dtype("float32"), dtype("bfloat16")


def thing(cls, **state):
    made = cls()
    made.__dict__.update(state)
    return made


def tensor(shape, chunks, dt=F32, state=None):
    props = TensorProperties()
    props.state = state if state is not None else (dt, None, False, None, False)
    return thing(
        TensorStorageMetadata,
        properties=props,
        size=Size(shape),
        chunks=[thing(ChunkStorageMetadata, offsets=Size(o), sizes=Size(s)) for o, s in chunks],
    )


def index(fqn, offset=None):
    return thing(MetadataIndex, fqn=fqn, index=None, **({} if offset is None else {"offset": Size(offset)}))


def info(path, offset, length, **more):
    return thing(StorageInfo, relative_path=path, offset=offset, length=length, **more)


def metadata(tensors, storage, cls=Metadata, protocol=4, **more):
    """storage: a list of (key, info): one key may come twice."""
    whole = thing(cls, state_dict_metadata=tensors, planner_data=None, storage_data=dict(storage), **more)
    return pickle.dumps(whole, protocol)


def case(path, files, want=None, only=None, opts=None):
    top = HERE / path
    shutil.rmtree(top / "in", ignore_errors=True)
    (top / "in").mkdir(parents=True)
    for name, data in files.items():
        (top / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (top / "in" / name).write_bytes(data)
    for name, text in (("only", only), ("opts", opts)):
        if text:
            (top / name).write_text(text + "\n")


ITEM = b"PK\3\4" + bytes(60)  # never looked into at load


def dcp():
    one = {"w": tensor((4, 2), [((0, 0), (2, 2)), ((2, 0), (2, 2))])}
    both = [(index("w", (0, 0)), info("__0_0.distcp", 0, 64)), (index("w", (2, 0)), info("__1_0.distcp", 0, 64))]
    data = {"__0_0.distcp": ITEM, "__1_0.distcp": ITEM}

    def put(name, meta, files=data, **kw):
        case("dcp/" + name, {".metadata": meta, **files}, **kw)

    put("protocol-2", metadata(one, both, protocol=2))
    put("protocol-5", metadata(one, both, protocol=5))
    put("bad-runs-code", b"\x80\x04cos\nsystem\n(X\x04\x00\x00\x00truetR.")
    put("bad-memo-index", b"\x80\x02Nr\xff\xff\xff\x7f.")
    put("bad-no-pickle", b"{\"not\": \"a pickle\"}")
    put("bad-empty", b"")
    put("bad-other-class", pickle.dumps({"state_dict": 1}))
    put("bad-no-storage-data", pickle.dumps(thing(Metadata, state_dict_metadata={})))
    for name, path in (("up", "../../secret"), ("absolute", "/etc/passwd"), ("inner-up", "a/../../x"), ("empty", "")):
        put("bad-path-" + name, metadata(one, [both[0], (index("w", (2, 0)), info(path, 0, 64))]))
    put("file-missing", metadata(one, both), {"__0_0.distcp": ITEM})
    put("file-short", metadata(one, both), {"__0_0.distcp": ITEM, "__1_0.distcp": ITEM[:33]})
    put("file-empty", metadata(one, both), {"__0_0.distcp": ITEM, "__1_0.distcp": b""})
    put("folder-below", metadata(one, [both[0], (index("w", (2, 0)), info("node1/hint__1_0.distcp", 0, 64))]),
        {"__0_0.distcp": ITEM, "node1/hint__1_0.distcp": ITEM})
    put("stale-data", metadata(one, both), {**data, "__2_0.distcp": ITEM})
    put("no-entry", metadata({**one, "ghost": tensor((3,), [((0,), (3,))])}, both[:1]))
    put("no-chunk", metadata(one, both + [(index("w", (9, 9)), info("__0_0.distcp", 0, 64)),
                                          (index("gone"), info("__0_0.distcp", 0, 64))]))
    put("hole", metadata({"w": tensor((5, 2), [((0, 0), (2, 2)), ((2, 0), (2, 2))])}, both))
    put("entry-twice", metadata(one, both + [(index("w", (0, 0)), info("__1_0.distcp", 0, 64))]))
    put("object-without-entry", metadata({**one, "step": thing(BytesStorageMetadata)}, both))
    put("objects", metadata({**one, "step": thing(BytesStorageMetadata), "a/b": thing(BytesStorageMetadata)},
                            both + [(index("step"), info("__0_0.distcp", 0, 32)), (index("a/b"), info("__0_0.distcp", 32, 400))]))
    put("big-offsets", metadata({"w": tensor((2 ** 40, 2 ** 20), [((0, 0), (2 ** 39, 2 ** 20))], BF16)},
                                [(index("w", (0, 0)), info("__0_0.distcp", 2 ** 33 + 5, 2 ** 34))]))
    shapes = {
        "overflow": tensor((2 ** 32, 2 ** 32), [((0, 0), (2 ** 32, 2 ** 32))]),
        "negative": tensor((4,), [((-1,), (4,))]),
        "outside": tensor((4,), [((2,), (4,))]),
        "rank": tensor((4,), [((0, 0), (4, 1))]),
        "no_dtype": tensor((4,), [((0,), (4,))], state=()),
        "odd_dtype": tensor((4,), [((0,), (4,))], dtype("float3_e1m1")),
        "text_size": tensor("ab", []),
        "whole": tensor((4,), [((0,), (4,))]),
        "zero_d": tensor((), [((), ())]),
        "empty": tensor((0, 5), [((0, 0), (0, 5))]),
        "nothing": tensor((7,), []),
        "empty_part": tensor((4,), [((0,), (4,)), ((4,), (0,))]),
    }
    put("shapes", metadata(shapes, [(index(n, c.offsets), info("__0_0.distcp", 0, 64)) for n, t in shapes.items() for c in t.chunks]))
    put("overlap", metadata({"w": tensor((4, 2), [((0, 0), (3, 2)), ((2, 0), (2, 2))])}, both))
    names = ["", "a/b", "a.b", "../../etc/passwd", "new\nline", "nul\0", "n" * 300, "\u00fc\u4e2d", ".hidden", "per%cent", "lone\udc80"]
    put("names", metadata({n: tensor((4,), [((0,), (4,))]) for n in names},
                          [(index(n, (0,)), info("__0_0.distcp", 0, 64)) for n in names]))
    put("unknown-transform", metadata({**one, "ok": tensor((4,), [((0,), (4,))]), "o": thing(BytesStorageMetadata)},
        [(index("w", (0, 0)), info("__0_0.distcp", 0, 64, transform_descriptors=["stream.lzma/1"])),
         (index("w", (2, 0)), info("__1_0.distcp", 0, 64, transform_descriptors=["stream.zstd/2"])),
         (index("o"), info("__1_0.distcp", 0, 64, transform_descriptors=["rot13"])),
         (index("ok", (0,)), info("__1_0.distcp", 0, 64, transform_descriptors=["stream.zstd@x/1.5"]))]))
    named_paths = {"w": ("model", 0, "w"), "lost": ("model", "lost"), "deep": tuple("d" * 70)}
    whole = thing(Metadata, state_dict_metadata=one, planner_data=named_paths, storage_data=dict(both))
    put("planner", pickle.dumps(whole, 4))
    # what a look-alike library writes: strings for dtype and layout
    put("plain-strings", metadata({"w": tensor((4, 2), [((0, 0), (2, 2)), ((2, 0), (2, 2))],
                                               state=("torch.bfloat16", "strided", False, "contiguous", False))}, both, version="1"))
    flat = {"w": tensor((2, 1, 24), [((0, 0, 0), (1, 1, 10)), ((0, 0, 10), (1, 1, 14)), ((1, 0, 0), (1, 1, 24))]),
            "odd": tensor((5, 7), [((0, 0), (5, 7))]), "crosses": tensor((2, 6), [((0, 0), (2, 6))])}
    for name, opts in (("megatron-flat", None), ("megatron-unflatten", "unflatten")):
        put(name, metadata(flat, [(index(n, c.offsets), info("__0_0.distcp", 64 * i, 64)) for n, t in flat.items() for i, c in enumerate(t.chunks)],
        cls=MCoreMetadata, mcore_data={"w": {"nd_reformulated_orig_global_shape": (12, 4)},
                                       "odd": {"nd_reformulated_orig_global_shape": (12,)},
                                       "crosses": {"nd_reformulated_orig_global_shape": (12,)}, "none": {}}), {"__0_0.distcp": 3 * ITEM}, opts=opts)
    # two parts of a tensor cannot be in the same bytes; two tensors may
    put("same-bytes", metadata({**one, "v": tensor((2, 2), [((0, 0), (2, 2))])},
        [both[0], (index("w", (2, 0)), info("__0_0.distcp", 0, 64)), (index("v", (0, 0)), info("__0_0.distcp", 0, 64))]))
    # parts without elements, whose items are lost: 64 bytes of 1_0 are there, 2_0 is not
    put("empty-parts-lost", metadata({"w": tensor((4, 2), [((0, 0), (4, 2)), ((4, 0), (0, 2))]), "v": tensor((3,), [((0,), (3,)), ((3,), (0,))])},
        [(index("w", (0, 0)), info("__0_0.distcp", 0, 64)), (index("w", (4, 0)), info("__1_0.distcp", 32, 64)),
         (index("v", (0,)), info("__0_0.distcp", 0, 64)), (index("v", (3,)), info("__2_0.distcp", 0, 64))]), data)
    case("dcp/bad-unfinished", {"__0_0.distcp": ITEM, "__1_0.distcp": b"", ".metadata.tmp": b"\x80\x04"})
    shard = lambda r, o: metadata({"w": tensor((4, 2), [((o, 0), (2, 2))]), "n": tensor((2,), [((0,), (2,))]), "rng": thing(BytesStorageMetadata)},
        [(index("w", (o, 0)), info(f"__{r}_0.distcp", 0, 64)), (index("n", (0,)), info(f"__{r}_0.distcp", 0, 64)), (index("rng"), info(f"__{r}_0.distcp", 0, 64))])
    case("dcp/rank-local", {"__0.metadata": shard(0, 0), "__1.metadata": shard(1, 2), **data})
    case("dcp/rank-local-missing", {"__0.metadata": shard(0, 0), **data})
    case("dcp/rank-local-gap", {f"__{r}.metadata": shard(r, r) for r in (0, 2)} | data)


def st(tensors, meta=None, raw=None, extra=b"", cut=None):
    """tensors: name -> (dtype, shape, nbytes) or (dtype, shape, begin, end)."""
    head, at = {}, 0
    if meta is not None:
        head["__metadata__"] = meta
    for name, t in tensors.items():
        begin, end = t[2:] if len(t) == 4 else (at, at + t[2])
        at = max(at, end) if len(t) == 3 else at
        head[name] = {"dtype": t[0], "shape": t[1], "data_offsets": [begin, end]}
    text = raw if raw is not None else json.dumps(head).encode("utf-8", "surrogatepass")
    return (struct.pack("<Q", len(text)) + text + bytes(range(256))[: min(at, 256)] + extra)[:cut]


def safetensors():
    def put(name, data, **kw):
        case("safetensors/" + name, {"model.safetensors": data}, **kw)

    two = {"a": ("F32", [2, 2], 16), "b": ("BF16", [3], 6)}
    put("dtypes", st({d: (d, [2, 2], n) for d, n in dict(BOOL=4, U8=4, I8=4, U16=8, I16=8, U32=16, I32=16, U64=32, I64=32, F16=8, BF16=8,
        F32=16, F64=32, C64=32, F8_E4M3=4, F8_E5M2=4, F8_E4M3FNUZ=4, F8_E5M2FNUZ=4, F8_E8M0=4, F4=2, F6_E2M3=3).items()}))
    put("metadata", st({**two, "0d": ("I64", [], 8), "empty": ("F16", [0, 5], 0)}, meta={"format": "pt", "no\u00eb\"l": "{\"x\": [1, 2]}"}))
    put("cut", st(two, cut=-3))
    put("trailing", st(two, extra=b"more"))
    put("gap", st({"a": ("F32", [2, 2], 0, 16), "b": ("F32", [2], 24, 32)}, extra=bytes(32)))
    put("overlap", st({"a": ("F32", [2, 2], 0, 16), "b": ("F32", [2], 12, 20), "c": ("F32", [1], 20, 24), "same": ("F32", [1], 20, 24)}, extra=bytes(24)))
    put("empty-tensors", st({"a": ("F32", [2, 2], 0, 16), "first": ("F32", [0], 0, 0), "inside": ("F32", [0], 8, 8), "last": ("F32", [0], 16, 16)}, extra=bytes(16)))
    put("numbers-in-metadata", st(two, meta={"format": "pt", "epoch": 3}))
    put("wrong-sizes", st({"ok": ("F32", [1], 0, 4), "reversed": ("F32", [1], 8, 4), "short": ("F32", [2], 0, 4), "huge": ("F32", [2 ** 32, 2 ** 32], 0, 4),
                           "far": ("F32", [1], 2 ** 61, 2 ** 61 + 4), "odd": ("F33", [1], 0, 4), "half": ("F4", [3], 4, 6)}, extra=bytes(64)))
    names = ["", "a/b", "a.b", "../../etc/passwd", "new\nline", "n" * 300, "\u00fc\u4e2d", ".hidden", "per%cent"]
    put("names", st({n: ("U8", [1], 1) for n in names}))
    put("nothing", st({}))
    put("bad-length", struct.pack("<Q", 2 ** 63) + b"{}")
    put("bad-past-end", struct.pack("<Q", 500) + b"{}      ")
    put("bad-short", b"\x01\x02")
    put("bad-empty", b"")
    put("bad-brackets", st({}, raw=b"[" * 5000))
    put("bad-twice", st({}, raw=b'{"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, "a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}'))
    put("bad-number", st({}, raw=b'{"a": {"dtype": "U8", "shape": [1e400], "data_offsets": [0, 0]}}'))
    put("bad-list", st({}, raw=b"[1, 2]"))
    case("safetensors/one-file", {"model-00001-of-00002.safetensors": st(two), "other": b"x"}, only="model-00001-of-00002.safetensors")
    case("safetensors/blob-name", {"4d7c1f": st(two)}, only="4d7c1f")
    case("safetensors/one-shard", {"shard-00002-model-00001-of-00001.safetensors": st(two, meta=sharding(a=[2, 0], b=[3]))},
         only="shard-00002-model-00001-of-00001.safetensors")


def sharding(**at):
    return {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps({n: {"saved_offsets": o} for n, o in at.items()})}


def hf():
    def put(name, files, weight_map=None, index_name="model.safetensors.index.json", **kw):
        files = dict(files)
        if weight_map is not None:
            files[index_name] = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}).encode()
        case("hf/" + name, files, **kw)

    a, b = st({"a": ("F32", [2], 8)}), st({"b": ("BF16", [3], 6)})
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    put("indexed", {one: a, two: b}, {"a": one, "b": two})
    put("index-in-folder", {"x/" + one: a, "x/" + two: b}, {"a": "x/" + one, "b": "x/" + two})
    put("no-index", {one: a, two: b})
    put("bad-no-index-missing", {two: b})
    put("adapter-and-base", {"model.safetensors": a, "adapter_model.safetensors": b})
    put("bad-collision", {"model.safetensors": a, "model.fp16.safetensors": a})
    put("aside", {one: a, two: b, "consolidated.safetensors": a}, {"a": one, "b": two})
    put("extra-and-twice", {one: st({"a": ("F32", [2], 8), "extra": ("U8", [1], 1)}), two: st({"a": ("F32", [2], 8), "b": ("U8", [1], 1)})}, {"a": two, "b": two})
    put("header-damaged", {one: a[:40], two: b}, {"a": one, "b": two})
    put("empty-shard", {one: b"", two: b}, {"a": one, "b": two})
    put("bad-index-json", {one: a, "model.safetensors.index.json": b"{"})
    put("bad-index-no-map", {one: a, "model.safetensors.index.json": b"{}"})
    put("bad-index-number", {one: a}, {"a": 7})
    put("bad-index-up", {one: a}, {"a": "../" + one})
    put("bad-two-indexes", {one: a, "x.safetensors.index.json": b"{}"}, {"a": one}, index_name="y.safetensors.index.json")
    put("variant-index", {one: a, "x.fp16.safetensors": a, "model.fp16.safetensors.index.json": b'{"weight_map": {"a": "x.fp16.safetensors"}}'}, {"a": one})
    name = "shard-%05d-model-00001-of-00001.safetensors"
    w = lambda rows: st({"w": ("F32", [rows, 2], rows * 8)}, meta=sharding(w=[0, 0]))
    put("sharded-gap", {name % 1: st({"w": ("F32", [2, 2], 16)}, meta=sharding(w=[0, 0])), name % 3: st({"w": ("F32", [1, 2], 8)}, meta=sharding(w=[4, 0]))})
    put("sharded-odd", {name % 1: st({"w": ("F32", [2, 2], 16), "r": ("F32", [2], 8), "o": ("F32", [2], 8), "h": ("U8", [1], 1)}, meta=sharding(w=[0, 0], o=[1, 2], h=[2 ** 61])),
                        name % 2: st({"w": ("F32", [0, 2], 0), "r": ("F32", [2, 1], 8), "h": ("U8", [1], 1)}, meta=sharding(w=[2, 0], h=[2 ** 62]))})
    part = lambda at, rows=2, cols=2: st({"w": ("F32", [rows, cols], rows * cols * 4)}, meta=sharding(w=at))
    put("sharded-gap-told", {name % 1: part([0, 0]), name % 3: part([2, 0])}, opts="shards=2")
    put("sharded-damaged", {name % 1: part([0, 0]), name % 2: part([2, 0])[:30]})
    put("sharded-empty", {name % 1: part([0, 0]), name % 2: b""})
    put("sharded-lost-corner", {name % 1: st({"w": ("F32", [2, 2], 16), "v": ("F32", [2], 8)}, meta=sharding(w=[0, 0], v=[0])), name % 2: part([2, 0]), name % 3: part([0, 2])})
    of = "shard-%05d-model-%05d-of-00003.safetensors"
    put("sharded-lost-of-two", {of % (1, 1): part([0, 0]), of % (2, 1): part([2, 0]), of % (1, 2): st({"v": ("F32", [2], 8)}, meta=sharding(v=[0]))})
    put("bad-sharded-told", {name % 1: part([0, 0])}, opts="shards=2")
    put("bad-sharded-mixed", {name % 1: part([0, 0]), of % (2, 1): part([2, 0])})
    put("sharded-beside", {name % 1: part([0, 0]), name % 2: part([2, 0]), "x.safetensors": a})
    put("bad-sharded-info", {name % 1: st({"w": ("F32", [2, 2], 16)}, meta={"DCP_SHARDING_INFO": "{"})})
    put("only-sharded-folder", {"sharded/" + name % 1: w(2)})
    case("safetensors/aside-damaged", {"model.safetensors": a, "optimizer.bin": b"", "scheduler.bin": ITEM[:40], "random_states_0.pkl": b"\x80\x02N", "random_states_1.pkl": b"\x80\x02N.", "trainer_state.json": b"{"})
    # DCP and Hugging Face in one folder
    meta = metadata({"a": tensor((2,), [((0,), (2,))])}, [(index("a", (0,)), info("__0_0.distcp", 0, 64))])
    both = {".metadata": meta, "__0_0.distcp": ITEM, one: a}
    put("tie-same", both, {"a": one})
    put("tie-chosen", {**both, two: b}, {"a": one, "b": two}, opts="format=hf")
    case("dcp/beside-safetensors", {".metadata": meta, "__0_0.distcp": ITEM, "model.safetensors": b})


def oneflow():
    meta = b"shape {\n  dim: 3\n  dim: 2\n}\ndata_type: kFloat\n"
    ranks = ["model_0", "model_1"]
    case("oneflow/ranks-no-out", {r + "/w/meta": meta for r in ranks}, opts="sbp=split(0)")
    case("oneflow/ranks-no-meta", {r + "/" + f: b"" for r in ranks for f in ("w/out", "snapshot_done")}, opts="sbp=split(0)")


if __name__ == "__main__":
    oneflow()
    dcp()
    safetensors()
    hf()
