# SPDX-License-Identifier: Apache-2.0
"""Maps of a weight and of its float32 copy, -o master=also: master_pages.py MNT

The kernel sends whole pages; what a program did not store into stays.
"""
import mmap
import os
import sys

MNT = sys.argv[1]
HALF = MNT + "/tensors/module.emb.weight"
FULL = MNT + "/tensors/fp32.emb.weight"


def get(name):
    with open(name, "rb") as f:
        return f.read()


def put(old, at, new):
    return old[:at] + new + old[at + len(new) :]


class Map:
    def __init__(self, name):
        self.fd = os.open(name, os.O_RDWR)
        self.m = mmap.mmap(self.fd, 0)

    def store(self, at, new):
        self.m[at : at + len(new)] = new


def wide(half):
    return b"\0\0" + half


w, m = get(HALF), get(FULL)
alone, a = Map(HALF), b"\xab\x3f"
alone.store(6, a)
alone.m.flush()
w, m = put(w, 6, a), put(m, 12, wide(a))
assert get(HALF) == w and get(FULL) == m, "one element of a page"
with open(HALF, "r+b") as f:
    f.write(w)
assert get(FULL) == m, "what the weight had before"

for name in ("model.pt", "dcp/__0_0.distcp"):
    data = get(MNT + "/" + name)
    i, j = data.find(w), data.find(m)
    assert i > 0 and j > 0, name
    both = Map(MNT + "/" + name)
    both.m[:]
    for step in range(4):
        k = 10 + step
        a, b = os.urandom(1) + b"\x3d", os.urandom(3) + b"\x3e"
        if step in (0, 2):
            both.store(j + 4 * k, b)
            m = put(m, 4 * k, b)
        if step == 1:
            both.store(i + 2 * k, a)
        if step >= 2:
            k += step == 2
            os.pwrite(both.fd, a, i + 2 * k)
        if step:
            w, m = put(w, 2 * k, a), put(m, 4 * k, wide(a))
        both.m.flush()
        where = "%s, step %d: " % (name, step)
        assert get(HALF) == w, where + "the weight"
        assert get(FULL) == m, where + "its copy"
        assert both.m[j : j + len(m)] == m, where + "the map of the copy"
        assert both.m[i : i + len(w)] == w, where + "the map of the weight"
