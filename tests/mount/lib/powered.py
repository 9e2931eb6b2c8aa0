# SPDX-License-Identifier: Apache-2.0
"""What may be in a file that was written when the power went.

powered.py write FILE TAPE LOG N SEED	N random writes, a sync after most; LOG
					has where the tape of the disk stood
powered.py check LOG OLD END IS		IS is what the file may hold of them when
					the tape ends at byte END: what was synced
					before, and what came after in any part
"""
import json
import mmap
import os
import random
import sys


def data_of(op):
    return random.Random(op["seed"]).randbytes(op["len"])


def write(path, tape, log, n, seed):
    rng = random.Random(seed)
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    m = mmap.mmap(fd, size)
    ops = []
    for i in range(n):
        length = rng.randrange(1, rng.choice((300, 20000, 300000)))
        off = rng.randrange(size - length)
        op = {"off": off, "len": length, "seed": f"{seed} {i}",
              "begun": os.stat(tape).st_size, "safe": None}
        ops.append(op)
        if how := i % 4:
            assert os.pwrite(fd, data_of(op), off) == length
        else:
            m[off : off + length] = data_of(op)
        if i % 3 == 2:
            continue  # not synced
        if how:
            os.fsync(fd)
        else:
            m.flush()  # MS_SYNC of all of it
        for o in ops:
            if o["safe"] is None:
                o["safe"] = os.stat(tape).st_size
    json.dump(ops, open(log, "w"))


def check(log, old, end, now):
    want, got = bytearray(open(old, "rb").read()), open(now, "rb").read()
    ops = json.load(open(log))
    assert len(got) == len(want), "another size"
    safe = max([i for i, o in enumerate(ops) if o["safe"] is not None and o["safe"] <= end],
               default=-1)
    for o in ops[: safe + 1]:
        want[o["off"] : o["off"] + o["len"]] = data_of(o)
    later = [(o["off"], data_of(o)) for o in ops[safe + 1 :] if o["begun"] < end]
    for i, (a, b) in enumerate(zip(got, want)):
        if a != b and not any(off <= i < off + len(d) and d[i - off] == a for off, d in later):
            sys.exit(f"byte {i} is {a:02x}, synced was {b:02x}, after {safe + 1} of "
                     f"{len(ops)} writes, {len(later)} under way")


if sys.argv[1] == "write":
    write(*sys.argv[2:5], int(sys.argv[5]), int(sys.argv[6]))
else:
    check(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
