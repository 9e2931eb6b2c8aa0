#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the DeepSpeed examples in which weights and optimizer files are of two saves, from deepspeed/zero1-groups.

usage: make_deepspeed_examples.py
"""
import pathlib
import shutil
import zipfile

TOP = pathlib.Path(__file__).resolve().parent / "deepspeed"
MODEL, RANK1 = "mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"


def case(name):
    at = TOP / name / "in"
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(TOP / "zero1-groups" / "in", at)
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
# bad-universal-mixed: two folders of DeepSpeed's zero/ (ds_to_universal), gain/fp32.pt being norm.weight's,
# norm.weight/exp_avg.pt the exp_avg_sq.pt beside it
