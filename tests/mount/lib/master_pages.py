# SPDX-License-Identifier: Apache-2.0
"""Maps of a weight and of its float32 copy, -o master=also: master_pages.py MNT

The kernel sends whole pages; what a program did not store into stays.
"""
import errno
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

os.close(alone.fd)
alone.m.close()
full = Map(FULL)
try:
    Map(HALF)
    sys.exit("the weight and its copy are both mapped for writing")
except OSError as e:
    assert e.errno == errno.EBUSY, e
full.m.close()
os.close(full.fd)

# a file that has both: written to, and mapped for reading
for name in ("model.pt", "dcp/__0_0.distcp"):
    name = MNT + "/" + name
    data = get(name)
    i, j = data.find(w), data.find(m)
    assert i > 0 and j > 0, name
    try:
        Map(name)
        sys.exit(name + ": mapped for writing")
    except OSError as e:
        assert e.errno == errno.EBUSY, e
    with open(name, "rb") as f:
        both = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    fd = os.open(name, os.O_WRONLY)
    both[:]
    for step in range(4):
        k = 10 + step
        a, b = os.urandom(1) + b"\x3d", os.urandom(3) + b"\x3e"
        if step in (0, 2):
            os.pwrite(fd, b, j + 4 * k)
            m = put(m, 4 * k, b)
        if step:
            k += step == 2
            os.pwrite(fd, a, i + 2 * k)
            w, m = put(w, 2 * k, a), put(m, 4 * k, wide(a))
        where = "%s, step %d: " % (name, step)
        assert get(HALF) == w, where + "the weight"
        assert get(FULL) == m, where + "its copy"
        assert both[j : j + len(m)] == m, where + "the map of the copy"
        assert both[i : i + len(w)] == w, where + "the map of the weight"
    os.close(fd)
