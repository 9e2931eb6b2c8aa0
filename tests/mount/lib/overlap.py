# SPDX-License-Identifier: Apache-2.0
"""overlap.py MNT SLOT HOW:FILE...: writers of the same bytes, at the same time.

Each is a process with two threads and fills tensor "w" as FILE shows it with a
byte of its own, SLOT bytes a step; none is more than a step ahead.  HOW is write,
sync (fsync each step) or map.  At the end every byte has to be of one of them,
and whatever shows it agrees.
"""
import mmap
import multiprocessing as mp
import os
import sys
import threading

mnt, slot, whats = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
whole = os.stat(mnt + "/tensors/w").st_size
steps = range(0, whole, slot)
together = mp.Barrier(2 * len(whats))


def fill(fd, how, base, tag):
    area = how == "map" and mmap.mmap(fd, base + whole)
    for n, at in enumerate(steps):
        size = min(slot, whole - at)
        data = bytes([tag]) * size
        if area:
            area[base + at : base + at + size] = data
            area.flush()
        elif os.pwrite(fd, data, base + at) != size:
            os._exit("short")
        if how == "sync":
            os.fsync(fd)
        together.wait()


def writer(k, what):
    how, name = what.split(":", 1)
    fd = os.open(f"{mnt}/{name}", os.O_RDWR if how == "map" else os.O_WRONLY)
    base = where(name)
    threads = [threading.Thread(target=fill, args=(fd, how, base, 2 * k + i + 1))
               for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(fd)


def where(name):
    """Of the file's last byte of w: it has one tensor, or w is its last."""
    return os.stat(f"{mnt}/{name}").st_size - whole


writers = [mp.Process(target=writer, args=a) for a in enumerate(whats)]
for w in writers:
    w.start()
for w in writers:
    w.join()
    assert w.exitcode == 0, w.exitcode
seen = set()
for name in {w.split(":", 1)[1] for w in whats} | {"tensors/w"}:
    with open(f"{mnt}/{name}", "rb") as f:
        f.seek(where(name))
        seen.add(f.read())
assert len(seen) == 1, "what the views show differs"
tags = bytes(range(1, 2 * len(whats) + 1))
(data,) = seen
assert not data.translate(None, tags), "a byte that nobody wrote"
mixed = sum(len(set(data[at : at + slot])) > 1 for at in steps)
print(f"{len(steps)} steps, {mixed} of more than one")
