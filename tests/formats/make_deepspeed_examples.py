#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the DeepSpeed examples in which files of two saves or ranks lie together, from those that DeepSpeed wrote.

usage: make_deepspeed_examples.py
"""
import pathlib
import shutil
import zipfile

TOP = pathlib.Path(__file__).resolve().parent / "deepspeed"
MODEL, RANK1 = "mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"


def case(name, source="zero1-groups"):
    at = TOP / name / "in"
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(TOP / source / "in", at)
    return at


def anonymous(at):
    """As torch.save() to a buffer calls what is in a file: nothing tells whose it is."""
    for path in at.glob("*.pt"):
        with zipfile.ZipFile(path) as z:
            members = [(i.filename, z.read(i)) for i in z.infolist()]
        with zipfile.ZipFile(path, "w") as z:
            for name, data in members:
                z.writestr(zipfile.ZipInfo("archive/" + name.split("/", 1)[1]), data)
    return at


def change(path, **how):
    """Writes the archive anew, each member MEMBER (pkl: data.pkl, sN: data/N) changed by how[MEMBER](bytes)."""
    with zipfile.ZipFile(path) as z:
        members = [(i.filename, z.read(i)) for i in z.infolist()]
    with zipfile.ZipFile(path, "w") as z:
        for name, data in members:
            last = name.rsplit("/", 1)[1]
            f = how.get("pkl" if last == "data.pkl" else "s" + last if "/data/" in name else "")
            z.writestr(zipfile.ZipInfo(name), f(data) if f else data)


def later(pickle):
    """global_steps, an int of one byte, four higher."""
    at = pickle.index(b"K", pickle.index(b"global_steps"))
    return pickle[:at + 1] + bytes([pickle[at + 1] + 4]) + pickle[at + 2:]


def other(data):
    """The bits of the lowest byte of each float32."""
    return bytes(b ^ 0x55 if i % 4 == 0 else b for i, b in enumerate(data))


change(case("optimizer-begun-anew") / MODEL, pkl=later)
change(case("bad-older-optimizer") / MODEL, pkl=later, s0=other)
change(case("bad-rank-of-other-run") / RANK1, s6=other, s7=other)
change(case("bad-other-weights") / MODEL, **{f"s{i}": other for i in range(12)})

at = case("bad-optim-as-model")
shutil.copyfile(at / RANK1, at / MODEL)

# one rank's file under another's name, which nothing in it denies
at = case("bad-legacy-rank-copied", "legacy-container")
shutil.copyfile(at / ("bf16_" + RANK1.replace("rank_1", "rank_0", 1)), at / ("bf16_" + RANK1))
at = anonymous(case("bad-zero3-rank-copied", "zero3-frozen"))
model, optim = "zero_pp_rank_%d_mp_rank_00_model_states.pt", "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt"
shutil.copyfile(at / (optim % 0), at / (optim % 2))  # the last one, which has less of each parameter
shutil.copyfile(at / (model % 2), at / (model % 1))
at = anonymous(case("bad-layer-copied", "pipeline"))
shutil.copyfile(at / "layer_01-model_states.pt", at / "layer_02-model_states.pt")

# a slice table that no order of the parameters explains
def moved(pickle):
    """The start, an int of one byte, of the first fragment one higher."""
    at = pickle.index(b"K", pickle.index(b"start", pickle.index(b"param_slice_mappings")))
    return pickle[:at + 1] + bytes([pickle[at + 1] + 1]) + pickle[at + 2:]


change(case("bad-slices", "zero1-round-robin") / ("bf16_" + RANK1), pkl=moved)

# module and param_shapes of one file contradict each other: in a shape, and in a name
def narrow(pickle):
    """In module mid.0.weight is [5, 1], the first place where its [5, 5] stands."""
    at = pickle.index(b"K\x05K\x05\x86", pickle.index(b"mid.0.weight"))
    return pickle[:at + 3] + b"\x01" + pickle[at + 4:]


change(case("bad-module-shape", "zero1-round-robin") / MODEL, pkl=narrow)
change(case("bad-module-name", "zero1-round-robin") / MODEL,
       pkl=lambda pickle: pickle.replace(b"mid.0.weight", b"mid.0.Weight", 1))

# experts: a rank's file lost; an expert's weights and an empty optimizer file lost; two ranks' files, unnamed, swapped
(case("bad-moe-rank-missing", "moe-zero2") / ("bf16_" + RANK1)).unlink()
at = case("bad-moe-expert-missing", "moe-zero2")
(at / "layer_0_expert_1_mp_rank_00_model_states.pt").unlink()
(at / "expp_rank_1_mp_rank_00_optim_states.pt").unlink()
at = anonymous(case("bad-moe-ranks-swapped", "moe-zero2"))
one, other_one = at / ("bf16_" + RANK1), at / ("bf16_" + RANK1.replace("rank_1", "rank_0", 1))
one.rename(at / "swap")
other_one.rename(one)
(at / "swap").rename(other_one)

# the universal form: a parameter, and a shared name, without folders; another's weights; a wrong shape; a copied state
at = case("bad-universal-weights", "universal2")
shutil.rmtree(at / "zero/fc1.weight")
shutil.rmtree(at / "zero/head.weight")
shutil.copyfile(at / "zero/conv.bias/fp32.pt", at / "zero/scale/fp32.pt")
shutil.copyfile(at / "zero/conv.bias/fp32.pt", at / "zero/frozen.weight/fp32.pt")
shutil.copyfile(at / "zero/norm.bias/exp_avg.pt", at / "zero/norm.weight/exp_avg.pt")
shutil.copyfile(at / "zero/conv.weight/exp_avg.pt", at / "zero/conv.weight/exp_avg_sq.pt")
# bad-universal-mixed: two folders of DeepSpeed's zero/ (ds_to_universal), gain/fp32.pt being norm.weight's,
# norm.weight/exp_avg.pt the exp_avg_sq.pt beside it
# bad-universal-object: one of them, gain/fp32.pt being optimizer_state.pt
