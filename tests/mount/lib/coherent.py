# SPDX-License-Identifier: Apache-2.0
"""coherent.py MNT SECONDS: every view shows what was written to any of them.

Writes through each view of "w", by pwrite and through a map, and looks at all
views, by pread and through maps, after each; then several at once, for a
deadlock.
"""
import errno
import json
import mmap
import os
import random
import struct
import sys
import threading
import time

mnt, seconds = sys.argv[1], float(sys.argv[2])
rng = random.Random(5)
size = os.stat(mnt + "/tensors/w").st_size


def views():
    out = {"tensors": (mnt + "/tensors/w", 0)}
    npy = mnt + "/npy/w.npy"
    out["npy"] = (npy, os.stat(npy).st_size - size)
    st = mnt + "/model.safetensors"
    with open(st, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
    out["safetensors"] = (st, 8 + n + head["w"]["data_offsets"][0])
    return out


class View:
    """Read through maps, written past them; one at a time is mapped for writing."""

    def __init__(self, path, base):
        self.path, self.base = path, base
        self.wfd = os.open(path, os.O_WRONLY)
        self.open(False)

    def open(self, stored):
        self.fd = os.open(self.path, os.O_RDWR if stored else os.O_RDONLY)
        whole = os.fstat(self.fd).st_size
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if stored else 0)
        self.map = mmap.mmap(self.fd, whole, prot=prot)

    def close(self):
        self.map.close()
        os.close(self.fd)

    def pread(self, off, n):
        return os.pread(self.fd, n, self.base + off)

    def mapped(self, off, n):
        return self.map[self.base + off : self.base + off + n]

    def fresh(self, off, n):
        with open(self.path, "rb", 0) as f:
            m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
            got = m[self.base + off : self.base + off + n]
            m.close()
            return got

    def pwrite(self, off, data):
        assert os.pwrite(self.wfd, data, self.base + off) == len(data)

    def same(self, off, data):  # by the descriptor that is mapped
        assert os.pwrite(self.fd, data, self.base + off) == len(data)

    def poke(self, off, data):
        a = self.base + off
        self.map[a : a + len(data)] = data
        first = a // mmap.PAGESIZE * mmap.PAGESIZE
        self.map.flush(first, a + len(data) - first)

    def store(self, off, data):  # left for the kernel to write
        a = self.base + off
        self.map[a : a + len(data)] = data

    def other(self, off, data):
        w = os.open(self.path, os.O_WRONLY)  # as dd conv=notrunc
        os.pwrite(w, data, self.base + off)
        os.close(w)


all_views = {k: View(*v) for k, v in views().items()}
stored = None


def turn(name):
    """The map of view @name is the one that is stored into."""
    global stored
    if stored == name:
        return
    if stored:
        try:
            os.open(all_views[name].path, os.O_RDWR)
            sys.exit(f"{name} is open for reading and writing beside {stored}")
        except OSError as e:
            assert e.errno == errno.EBUSY, e
        all_views[stored].close()
        all_views[stored].open(False)
    stored = name
    all_views[name].close()
    all_views[name].open(True)


want = bytearray(open(mnt + "/tensors/w", "rb").read())
for v in all_views.values():
    assert v.mapped(0, size) == want
end = time.monotonic() + seconds
rounds = 0
while time.monotonic() < end:
    name = rng.choice(list(all_views))
    how = rng.choice(["pwrite", "poke", "other", "same"])
    if how in ("poke", "same"):
        turn(name)
    off = rng.randrange(size)
    data = rng.randbytes(min(size - off, rng.choice([1, 100, 5000, 300000])))
    getattr(all_views[name], how)(off, data)
    want[off : off + len(data)] = data
    lo = max(0, off - 5000)
    for n, v in all_views.items():
        for see in ("pread", "mapped", "fresh"):
            got = getattr(v, see)(lo, len(data) + 10000)
            if got != want[lo : lo + len(data) + 10000]:
                sys.exit(f"{n}.{see} is old after {name}.{how} at {off}")
    rounds += 1

# A page that a map has written is older than a write through another view.
for _ in range(100):
    a, b = rng.sample(list(all_views), 2)
    turn(a)
    off = rng.randrange(size - 200)
    for name, how, at in ((a, "store", off), (b, rng.choice(["pwrite", "other"]), off + 100)):
        data = rng.randbytes(100)
        getattr(all_views[name], how)(at, data)
        want[at : at + 100] = data
    all_views[a].map.flush()
    for n, v in all_views.items():
        if v.pread(off, 200) != want[off : off + 200]:
            sys.exit(f"{n} lost bytes: {a}.store before a write to {b} at {off}")

# Several writers through different views of the same pages, and readers.
stop = time.monotonic() + seconds / 2
done = []


def churn(v, how, seed):
    r = random.Random(seed)
    n = 0
    while time.monotonic() < stop:
        off = r.randrange(size - 70000)
        getattr(v, how)(off, bytes(70000)) if seed % 3 else v.mapped(off, 70000)
        n += 1
    done.append(n)


threads = [
    threading.Thread(target=churn, args=(v, how, i), daemon=True)
    for i, (v, how) in enumerate(
        [(v, h) for k, v in all_views.items() for h in
         ("pwrite", "poke" if k == stored else "pwrite", "other", "pwrite")]
    )
]
for t in threads:
    t.start()
for t in threads:
    t.join(timeout=20)
    if t.is_alive():
        print("a writer waits for ever", file=sys.stderr)
        os._exit(3)
all_views[stored].map.flush()
got = {n: v.pread(0, size) for n, v in all_views.items()}
maps = {n: v.mapped(0, size) for n, v in all_views.items()}
first = next(iter(got.values()))
for n in got:
    assert got[n] == first, f"{n} differs at the end"
    assert maps[n] == first, f"the map of {n} differs at the end"
print(rounds, "rounds,", sum(done), "at once")
