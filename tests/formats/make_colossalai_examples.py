#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damages ColossalAI's files: what no framework writes.

usage: make_colossalai_examples.py        (run in this folder; then UPDATE_WANT=1 make unit)

From colossalai/optim-bin-prefix, optim-async, optim-one-async and torch/index-prefix, which ColossalAI 0.5.0 wrote, and
colossalai/async, by the code of pull request 6181.
"""
import json, pathlib, shutil, struct, zipfile

HERE = pathlib.Path(__file__).resolve().parent / "colossalai"
TORCH = HERE.parent / "torch"
INDEX = "optimizer.safetensors.index.json"
BIN_INDEX = "pytorch_optim.bin.index.ema.v2.json"


def case(name, source="optim-async", opts=None, where=HERE):
    to = where / name
    shutil.rmtree(to / "in", ignore_errors=True)
    shutil.copytree(where / source / "in", to / "in")
    for more in ("only",):
        if (where / source / more).exists():
            shutil.copy(where / source / more, to / more)
    if opts:
        (to / "opts").write_text(opts + "\n")
    return to / "in"


def edit_index(path, change):
    j = json.loads(path.read_text())
    change(j)
    path.write_text(json.dumps(j, indent=2) + "\n")


def edit_header(path, change):
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + n])
    change(head)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n :])


def edit_data(path, name, new):
    data = bytearray(path.read_bytes())
    (n,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8 : 8 + n])[name]["data_offsets"]
    assert len(new) == end - begin
    data[8 + n + begin : 8 + n + end] = new
    path.write_bytes(data)


def metadata(**kv):
    return lambda head: head["__metadata__"].update(kv)


(case("bad-optim-missing-shard") / "optimizer-00002.safetensors").unlink()
(case("bad-optim-missing-bin", "optim-bin-prefix") / "pytorch_optim.ema.v2-00002.bin").unlink()
(case("bad-optim-no-groups") / "pytorch_optim_group.bin").unlink()

at = case("bad-optim-groups-another", "optim-bin-prefix")
shutil.copy(at / "pytorch_optim.ema.v2-00002.bin", at / "pytorch_optim_group.ema.v2.bin")

# Indexes that are lost: nothing says what else there was.
(case("bad-optim-no-index") / INDEX).unlink()
(case("bad-optim-no-index-bin", "optim-bin-prefix") / BIN_INDEX).unlink()

at = case("bad-optim-cut-shard", "optim-bin-prefix") / "pytorch_optim.ema.v2-00002.bin"
at.write_bytes(at.read_bytes()[:-37])
at = case("bad-optim-cut-flat") / "optimizer-00002.safetensors"
at.write_bytes(at.read_bytes()[:-37])
at = case("bad-optim-json") / INDEX
at.write_text(at.read_text() + "}}\n")
at = case("bad-optim-outside") / INDEX
edit_index(at, lambda j: j["weight_map"].update({"3": "../optimizer-00002.safetensors"}))
at = case("bad-optim-groups-outside") / INDEX
edit_index(at, lambda j: j["metadata"].update(param_groups="/etc/passwd"))
at = case("bad-optim-no-file") / INDEX
edit_index(at, lambda j: j["weight_map"].update({"3": 7}))

# Leftovers of another save: parameters in two files, in none, in one that is not said.
at = case("bad-optim-stale")
shutil.copy(at / "optimizer-00001.safetensors", at / "optimizer-00003.safetensors")
shutil.copy(at / "optimizer-00001.safetensors", at / "optimizer-00004.safetensors")
edit_index(at / INDEX, lambda j: j["weight_map"].update({"1": "optimizer-00003.safetensors", "9": "optimizer-00002.safetensors"}))
edit_index(at / INDEX, lambda j: j["weight_map"].pop("2"))
at = case("bad-optim-stale-bin", "optim-bin-prefix")
edit_index(at / BIN_INDEX, lambda j: j["weight_map"].update({"2": "pytorch_optim.ema.v2-00002.bin"}))
edit_index(at / BIN_INDEX, lambda j: j["weight_map"].pop("1"))

# What is a pickle and what is not.
FLAT = "optimizer-00001.safetensors"
at = case("bad-optim-keys-json") / FLAT
edit_header(at, metadata(non_tensor_keys="[\"state.0.step\""))
at = case("bad-optim-keys-tensor") / FLAT
edit_header(at, metadata(non_tensor_keys="[\"state.0.step\", \"state.1.step\", \"state.2.step\", \"state.1.exp_avg\", 7, \"gone\"]"))
at = case("bad-optim-pickle") / FLAT
edit_data(at, "state.1.step", b"\x80\x04K" + bytes(12))
at = case("bad-optim-groups-pickle", "optim-one-async") / "optimizer.safetensors"
(n,) = struct.unpack_from("<Q", at.read_bytes())
begin, end = json.loads(at.read_bytes()[8 : 8 + n])["param_groups"]["data_offsets"]
edit_data(at, "param_groups", b"\x80\x04\x8c\xff" + bytes(end - begin - 4))

# Two saves in a folder.
def two(name, opts=None):
    at = case(name, "optim-bin-prefix", opts)
    for path in list((HERE / "optim-async" / "in").iterdir()):
        shutil.copy(path, at)
    (at / "pytorch_optim_group.bin").unlink()
    edit_index(at / INDEX, lambda j: j["metadata"].update(param_groups="pytorch_optim_group.ema.v2.bin"))
    return at


two("optim-two", f"file={BIN_INDEX}")
at = two("bad-optim-two")
(at / INDEX).rename(at / "optimizer.safetensors.index.a.json")

# A save that did not end: each stage's index, and no other; or one over an older one.
at = case("bad-optim-unfinished")
(at / "tmp_index_files").mkdir()
shutil.copy(at / INDEX, at / "tmp_index_files" / "optimizer.safetensors.index-stage-00001.json")

# A model in torch.save files: an index that says other than the files.
MODEL = "pytorch_model.bin.index.ema.v2.json"


def shard(i):
    return f"pytorch_model.ema.v2-{i:05d}.bin"


(case("bad-index-missing", "index-prefix", where=TORCH) / shard(2)).unlink()
(case("bad-no-index", "index-prefix", where=TORCH) / MODEL).unlink()
HF = HERE.parent / "hf"
HF_INDEX = "model.safetensors.index.ema.v2.json"
(case("no-index-numbered", "index-prefix", where=HF) / HF_INDEX).unlink()
at = case("bad-no-index-gap", "index-prefix", where=HF)
(at / HF_INDEX).unlink()
(at / "model.ema.v2-00001.safetensors").unlink()
at = case("bad-index-stale", "index-prefix", where=TORCH)
names = json.loads((at / MODEL).read_text())["weight_map"]
first = [k for k, v in names.items() if v == shard(1)]
edit_index(at / MODEL, lambda j: j["weight_map"].update({first[0]: shard(2), "gone": shard(3)}))
edit_index(at / MODEL, lambda j: j["weight_map"].pop(first[-1]))
at = case("bad-index-twice", "index-prefix", where=TORCH)
shutil.copy(at / shard(1), at / "pytorch_model.ema.v2-00009.bin")
edit_index(at / MODEL, lambda j: j["weight_map"].update({first[0]: "pytorch_model.ema.v2-00009.bin"}))
for name in first[1:]:
    edit_index(at / MODEL, lambda j: j["weight_map"].pop(name))
edit_index(at / MODEL, lambda j: j["weight_map"].update(more=shard(1)))
at = case("bad-index-two", "index-prefix", where=TORCH)
shutil.copy(at / MODEL, at / "pytorch_model.bin.index.b.json")

# The distributed form: a few tensors of async, cut out of its files, and damaged.
KEPT = ("self_attn.q_proj.weight", "self_attn.o_proj.weight", "input_layernorm.weight", "model.norm.weight")


def weights(i):
    return f"pytorch_model-dist-{i:05d}.safetensors"


def meta(i):
    return f"pytorch_model-meta-dist-{i:05d}.index.json"


def cut(path, kept):
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    head, out, body = json.loads(data[8 : 8 + n]), {}, b""
    for name, t in head.items():
        if name.endswith(kept):
            begin, end = t["data_offsets"]
            out[name] = {**t, "data_offsets": [len(body), len(body) + end - begin]}
            body += data[8 + n + begin : 8 + n + end]
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def rename(j, end, new):
    for name in [k for k in j if k.endswith(end)]:
        j[name.removesuffix(end) + new] = j.pop(name)


def dist(name, more=()):
    at, kept = case(name, "async"), KEPT + more
    for i in range(4):
        cut(at / weights(i), kept)
        j = json.loads((at / meta(i)).read_text())
        j["metadata"] = {k: v for k, v in j["metadata"].items() if k.endswith(kept)}
        (at / meta(i)).write_text(json.dumps(j) + "\n")
    return at


def edit_record(at, i, end, change):
    j = json.loads((at / meta(i)).read_text())
    change(next(v for k, v in j["metadata"].items() if k.endswith(end)))
    (at / meta(i)).write_text(json.dumps(j) + "\n")


Q, O, NORM = "q_proj.weight", "o_proj.weight", "input_layernorm.weight"
at = dist("bad-dist-missing-rank")
(at / weights(1)).unlink()
(at / meta(1)).unlink()
# The last rank; the last stage, whose names are in no other file; and a BERT, which has nothing after its layers.
LAST = ("model.embed_tokens.weight",)


def lose(at, *ranks):
    for i in ranks:
        (at / weights(i)).unlink()
        (at / meta(i)).unlink()
    return at


lose(dist("bad-dist-missing-last"), 3)
lose(dist("bad-dist-missing-stage", LAST), 2, 3)
at = lose(dist("dist-bert", LAST), 2, 3)
for i in range(2):
    for path, change in ((meta(i), edit_index), (weights(i), edit_header)):
        change(at / path, lambda j: rename(j.get("metadata", j), NORM, "output.LayerNorm.weight"))
(dist("bad-dist-missing-weights") / weights(1)).unlink()
edit_record(dist("bad-dist-lengths"), 1, O, lambda r: r["lengths"].__setitem__(1, r["lengths"][1] - 1))
edit_record(dist("bad-dist-global-shape"), 1, Q, lambda r: r["global_shape"].__setitem__(0, 20))
at = dist("bad-dist-cut") / weights(1)
at.write_bytes(at.read_bytes()[:-37])
edit_record(dist("bad-dist-outside"), 1, Q, lambda r: r.update(file="../../" + weights(1)))
at = dist("bad-dist-hole")
for i in range(2):
    edit_record(at, i, Q, lambda r: r["global_shape"].__setitem__(0, 17))
at = dist("bad-dist-copies-differ") / weights(1)
name = next(k for k in json.loads(at.read_bytes()[8 : 8 + struct.unpack_from("<Q", at.read_bytes())[0]]) if k.endswith(NORM))
edit_data(at, name, bytes(range(32)))
at = dist("bad-dist-rank-copied")
shutil.copyfile(at / weights(0), at / weights(1))
at = dist("bad-dist-padding")
for i in range(2):
    edit_record(at, i, NORM, lambda r: r["global_shape"].__setitem__(0, 8))
    edit_record(at, i, Q, lambda r: r["global_shape"].__setitem__(1, 8))
    edit_record(at, i, O, lambda r: r["global_shape"].__setitem__(0, 0))

# Two ranks of equal weights, each .bin saved under its own name: no copies of one another.
BIN = "pytorch_model-dist-0000%d"
at = case("dist-equal-ranks", "bin-no-record")
with zipfile.ZipFile(at / (BIN % 0 + ".bin")) as z:
    held = [(i.filename.split("/", 1)[1], z.read(i)) for i in z.infolist()]
with zipfile.ZipFile(at / (BIN % 1 + ".bin"), "w") as z:
    for name, data in held:
        z.writestr(zipfile.ZipInfo(BIN % 1 + "/" + name), data)
