#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs small examples of tests/formats/ into inputs of fuzz_formats.

usage: make_formats_corpus.py        (from anywhere)
"""
import pathlib, struct

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "corpus" / "formats"


def pack(case):
    only = (case / "only").read_text().strip() if (case / "only").exists() else None
    out = b""
    for path in sorted(p for p in (case / "in").rglob("*") if p.is_file()):
        name = str(path.relative_to(case / "in")).encode()
        data = path.read_bytes()
        if name.endswith(b".distcp"):
            data = data[:1024]  # loads never look further
        if name.decode() == only:
            out += b"\0"
        out += bytes([len(name)]) + name + struct.pack("<H", min(len(data), 65535)) + data[:65535]
    return out


OUT.mkdir(parents=True, exist_ok=True)
for old in OUT.iterdir():
    old.unlink()
for case in sorted(HERE.parent.glob("formats/*/*")):
    if (case / "in").is_dir():
        data = pack(case)
        if len(data) <= 24 << 10:
            (OUT / f"{case.parent.name}-{case.name}").write_bytes(data)
