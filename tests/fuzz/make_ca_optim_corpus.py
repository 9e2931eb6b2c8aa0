#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs ColossalAI's optimizers of tests/formats/ into inputs of fuzz_ca_optim.

usage: make_ca_optim_corpus.py        (from anywhere)
"""
import json, pathlib, struct

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "corpus" / "ca_optim"


def first(case, *globs):
    found = [p for g in globs for p in sorted((case / "in").glob(g)) if "group" not in p.name]
    return found[0] if found else None


def read(path):
    return path.read_bytes() if path else b""


def pack(case):
    index = first(case, "*.index*.json")
    flat, bin_ = first(case, "optimizer*.safetensors"), first(case, "pytorch_optim*-*.bin", "optimizer.bin")
    groups = next(iter(sorted((case / "in").glob("*group*.bin"))), None)
    text = read(index)
    for path, name in ((flat, "s.safetensors"), (bin_, "b.bin"), (groups, "g.bin")):
        if path:
            text = text.replace(json.dumps(path.name).encode(), json.dumps(name).encode())
    out = b""
    for data in (text, read(flat), read(bin_)):
        out += struct.pack("<H", len(data)) + data
    return out + read(groups)


OUT.mkdir(parents=True, exist_ok=True)
for old in OUT.iterdir():
    old.unlink()
for case in sorted(HERE.parent.glob("formats/colossalai/*optim-*")):
    (OUT / case.name).write_bytes(pack(case))
