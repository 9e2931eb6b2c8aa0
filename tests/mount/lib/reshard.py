# SPDX-License-Identifier: Apache-2.0
"""Compares a folder of reshard/ with what a framework made of the same mesh.

usage: reshard.py xla FOLDER READS.json SHARDS.bin PLAN.json
       reshard.py mesh READS.json OUT.json        the placement file of it
       reshard.py mindspore FOLDER RANK TENSORS   a mount's tensors/ of that rank
       reshard.py sbp OUT RESHARD.json            one file a destination
       reshard.py oneflow RESHARD RESHARD.json RESHARD.bin
       reshard.py stages FOLDER TP EXPECTED.json EXPECTED.bin
       reshard.py layers MNT 1+3 TP [WORDS]       whole layers, the tensors cut in TP
       reshard.py words MNT                       dim0=3 against tensors/
"""
import json
import os
import pathlib
import re
import struct
import sys


def load(path):
    data = pathlib.Path(path).read_bytes()
    assert len(data) == os.stat(path).st_size, path
    n = struct.unpack("<Q", data[:8])[0]
    assert n % 8 == 0, path
    head = json.loads(data[8 : 8 + n])
    head.pop("__metadata__", None)
    end = 8 + n
    for t in sorted(head.values(), key=lambda t: t["data_offsets"]):
        assert t["data_offsets"][0] + 8 + n == end, path
        end = t["data_offsets"][1] + 8 + n
    assert end == len(data), path
    at = lambda t: slice(*(8 + n + o for o in t["data_offsets"]))
    return {name: (t["shape"], data[at(t)]) for name, t in head.items()}


def rank_of(folder, rank):
    return load(os.path.join(folder, "rank-%05d.safetensors" % rank))


def piece(blob, t):
    return blob[t["offset"] : t["offset"] + t["nbytes"]]


def xla(folder, reads, shards, plan):
    want, blob = json.load(open(reads)), open(shards, "rb").read()
    devices = want["dest_mesh"]["device_ids"]
    ranks = {r: rank_of(folder, r) for r in devices}
    assert len(os.listdir(folder)) == len(devices)
    for s in want["shards"]:
        for r in devices if s["shard"] is None else [s["shard"]]:
            assert ranks[r][s["fqn"]] == (s["size"], piece(blob, s)), s
    keys = ("fqn", "dest_shard", "dest_shard_at", "dest_offsets", "chunk_at",
            "storage_offsets", "lengths", "nbytes")
    got = json.load(open(plan))
    same = lambda l, k: sorted([x[key] for key in k] for x in l)
    assert same(got["reads"], keys) == same(want["reads"], keys)
    assert len(got["reads"]) == want["read_count"]
    for l in got["shards"], want["shards"]:
        for s in l:
            s["shard"] = -1 if s["shard"] is None else s["shard"]
    keys = ("fqn", "shard", "at", "size", "nbytes")
    assert same(got["shards"], keys) == same(want["shards"], keys)


def mesh(reads, out):
    d = json.load(open(reads))
    spec = {"mesh": d["dest_mesh"], "partition_spec": d["partition_spec"]}
    json.dump(spec, open(out, "w"))


def mindspore(folder, rank, tensors):
    got = rank_of(folder, int(rank))
    assert set(got) == set(os.listdir(tensors))
    for name, (shape, data) in got.items():
        path = os.path.join(tensors, name)
        assert data == open(path, "rb").read(), name
        assert shape == json.loads(os.getxattr(path, "user.unshard.shape")), name


def sbp(out, reshard):
    for d in json.load(open(reshard))["destinations"]:
        names = {n for t in d["ranks"].values() for n in t}
        rules = [{"key": n, "placement": d["placement"], "sbp": d["sbp"]} for n in sorted(names)]
        with open(os.path.join(out, d["name"] + ".json"), "w") as f:
            json.dump({"world_size": 4, "rules": rules}, f)


def oneflow(folders, reshard, blob):
    blob = open(blob, "rb").read()
    for d in json.load(open(reshard))["destinations"]:
        cut = {n for t in d["ranks"].values() for n in t}
        for r in range(4):
            got = rank_of(os.path.join(folders, d["name"]), r)
            want = d["ranks"].get(str(r), {})
            assert {n for n in got if n in cut} == set(want), (d["name"], r)
            for n, t in want.items():
                assert got[n] == (t["shape"], piece(blob, t)), (d["name"], r, n)


def stages(folder, tp, expected, blob):
    blob, ranks = open(blob, "rb").read(), {}
    for key, t in json.load(open(expected))["tensors"].items():
        place, name = key.split("/", 1)
        pp, q = (int(w[2:]) for w in place.split("."))
        rank = pp * int(tp) + q
        if rank not in ranks:
            ranks[rank] = rank_of(folder, rank)
        assert ranks[rank].pop(name) == (t["shape"], piece(blob, t)), key
    assert len(ranks) == len(os.listdir(folder)) and not any(ranks.values())


def joined(parts, shape, whole):
    """Whether @parts, (shape, bytes), are @whole again, in one way or other: the
    same, along one dimension, or along the first block by block."""
    if all(p == (shape, whole) for p in parts):
        return True
    cut = [d for d in range(len(shape)) if parts[0][0][d] != shape[d]]
    if len(cut) != 1:
        return False
    runs = 1
    for n in shape[: cut[0]]:
        runs *= n
    for blocks in (1, 2, 3) if cut[0] == 0 else (1,):
        rows = runs * blocks
        lens = [len(p[1]) // rows for p in parts]
        if whole == b"".join(
                p[1][i * n : (i + 1) * n] for i in range(rows) for p, n in zip(parts, lens)):
            return True
    return False


def layers(mnt, given, tp, *words):
    """Layers of each stage, by number; what has none is on the first, or the last."""
    given, tp = [int(n) for n in given.split("+")], int(tp)
    spec = ",".join(["pp=%d" % len(given), "layers=" + "+".join(map(str, given)),
                     "tp=%d" % tp, *words])
    folder = os.path.join(mnt, "reshard", spec)
    ranks = [rank_of(folder, r) for r in range(len(given) * tp)]
    stage_of = [s for s, n in enumerate(given) for _ in range(n)]
    for t in json.load(open(os.path.join(mnt, ".unshard/catalog.json")))["tensors"]:
        if t["dtype"] == "object":
            continue
        nr = re.search(r"layers\.(\d+)\.", t["name"])
        if nr:
            stages = [stage_of[int(nr[1])]]
        elif re.search("embedding", t["name"]):
            stages = [0]
        elif re.search("output_layer|final_", t["name"]):
            stages = [len(given) - 1]
        else:
            stages = range(len(given))
        whole = open(os.path.join(mnt, "tensors", t["file"]), "rb").read()
        for s in stages:
            parts = [ranks[s * tp + q].pop(t["name"]) for q in range(tp)]
            assert joined(parts, t["shape"], whole), (spec, t["name"])
    assert not any(ranks), [list(r) for r in ranks]


def words(mnt):
    """The parts of all ranks, one after the other, are the tensor."""
    for nr in 1, 3, 7:
        ranks = [rank_of(os.path.join(mnt, "reshard", "dim0=%d" % nr), r) for r in range(nr)]
        for name in os.listdir(os.path.join(mnt, "tensors")):
            whole = open(os.path.join(mnt, "tensors", name), "rb").read()
            assert b"".join(r[name][1] for r in ranks) == whole, (nr, name)


globals()[sys.argv[1]](*sys.argv[2:])
