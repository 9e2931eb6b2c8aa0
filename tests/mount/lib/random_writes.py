# SPDX-License-Identifier: Apache-2.0
"""random_writes.py FILE MODEL N: N random writes to both; reads compared.

FILE is in a mount, MODEL an ordinary file with the same bytes.
"""
import os
import random
import sys

path, model, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(n)
want = bytearray(open(model, "rb").read())
fd = os.open(path, os.O_RDWR)
assert os.fstat(fd).st_size == len(want)
for _ in range(n):
    off = rng.randrange(len(want))
    size = min(len(want) - off, rng.choice([1, 7, 100, 5000, 100000, 3 << 20]))
    data = rng.randbytes(size)
    assert os.pwrite(fd, data, off) == size
    want[off : off + size] = data
    off = rng.randrange(len(want))
    size = min(len(want) - off, rng.randrange(200000))
    assert os.pread(fd, size, off) == want[off : off + size], (off, size)
os.fsync(fd)
os.close(fd)
assert open(path, "rb").read() == want
open(model, "wb").write(want)
