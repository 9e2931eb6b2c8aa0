# SPDX-License-Identifier: Apache-2.0
"""Damages a checkpoint block by block, and judges what verify says of it.

usage: damage.py make DIR            columns in 2 files, rows in 2, one twice
       damage.py blocks DIR UNSHARD  a byte of each block, then its neighbours

What is spoilt is found by reading: every byte of a block is inverted, and each
element that unshard cat then gives otherwise was in it.
"""
import json
import pathlib
import subprocess
import sys

BLOCK = 4 << 20
TOP = pathlib.Path(sys.argv[2])


def make():
    layout = {
        "unshard_layout": 1,
        "mesh": {"axes": [{"name": "tp", "size": 2}]},
        "files": [{"path": "{key}.{tp}.bin", "kind": "raw",
                   "dtype": "float32"}],
        "tensors": [
            {"glob": "columns", "shape": [3000, 1000],
             "placement": {"tp": {"shard": 1}}},
            {"glob": "rows", "shape": [2200, 1001],
             "placement": {"tp": {"shard": 0}}},
            {"glob": "twice", "shape": [1100000],
             "placement": {"tp": "replicate"}},
        ]}
    TOP.mkdir()
    (TOP / "unshard-layout.json").write_text(json.dumps(layout))
    for name, size in (("columns", 3000 * 500), ("rows", 1100 * 1001),
                       ("twice", 1100000)):
        for tp in range(2):
            seed = 7 if name == "twice" else 7 + tp
            text = bytes((i * seed + i // 251) % 256 for i in range(1 << 16))
            data = text * (size * 4 // len(text) + 1)
            (TOP / f"{name}.{tp}.bin").write_bytes(data[:size * 4])


def run(*words):
    done = subprocess.run([sys.argv[3], *words], capture_output=True)
    return done.returncode, done.stdout, done.stderr.decode()


def cat(name):
    rc, out, err = run("cat", str(TOP), name)
    assert rc == 0, err
    return out


def verify(*words):
    rc, out, err = run("verify", "--json", *words, str(TOP))
    return rc, json.loads(out), err


def differing(a, b):
    """Stretches of 4-byte elements that differ."""
    out, at, n = [], 0, len(a) // 4
    x, y = memoryview(a).cast("I"), memoryview(b).cast("I")
    while at < n:
        if x[at] == y[at]:
            same = x[at:at + 4096] == y[at:at + 4096]
            at += 4096 if same else 1
            continue
        start = at
        while at < n and x[at] != y[at]:
            at += 1
        out.append([start, at])
    return out


def patch(path, off, data):
    with open(path, "r+b") as f:
        f.seek(off)
        f.write(data)


def one_block(path, k, before):
    good = path.read_bytes()
    block = good[k * BLOCK:(k + 1) * BLOCK]
    at = k * BLOCK + len(block) * 2 // 3
    patch(path, at, bytes([good[at] ^ 1]))
    rc, said, err = verify()
    assert rc == 1 and "damaged in 1 place" in err, (rc, err)
    [d] = said["damage"]
    assert (d["file"], d["block"], d["offset"], d["nbytes"]) == (
        path.name, k, k * BLOCK, len(block)), d
    patch(path, k * BLOCK, bytes(b ^ 255 for b in block))
    name = path.name.split(".")[0]
    [t] = d["tensors"]
    assert t["name"] == name, t
    got = cat(name) if name != "twice" or path.name == "twice.0.bin" else None
    if got is not None:
        want = differing(before[name], got)
        assert sum(b - a for a, b in want) == t["elements"], (t, len(want))
        if "ranges" in t:
            assert t["ranges"] == want, path
    assert t["replicas"] == (name == "twice"), t
    patch(path, k * BLOCK, block)


def blocks():
    before = {n: cat(n) for n in ("columns", "rows", "twice")}
    rc, said, err = verify()
    assert rc == 0 and said["sealed"] and not said["damage"], (rc, said, err)
    nr = 0
    for path in sorted(TOP.glob("*.bin")):
        for k in range(-(-path.stat().st_size // BLOCK)):
            one_block(path, k, before)
            nr += 1
    assert nr == 12, nr
    rc, said, err = verify("--replicas")
    assert rc == 0 and not said["damage"] and not said["replicas"], err


make() if sys.argv[1] == "make" else blocks()
