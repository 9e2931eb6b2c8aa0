# SPDX-License-Identifier: Apache-2.0
"""failing.py FILE OP:ERRNO...: does each OP on one descriptor, and compares.

OP is open, for reading and writing, which is done first if it is not named;
write (all of the file, in one call of at most 1 MiB), read (all of it), sync or
close; ERRNO a name, or 0.
"""
import errno
import os
import sys

path, ops = sys.argv[1], sys.argv[2:]
fd, size, fill = -1, 0, 0


def start():
    global fd, size
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size


def write():
    global fill
    fill += 1
    n = min(size, 1 << 20)
    assert os.pwrite(fd, bytes([fill]) * n, 0) == n


def read():
    """All of it; a lost byte is an error where a read begins with it."""
    at = 0
    while at < size:
        got = len(os.pread(fd, size - at, at))
        assert got, f"the file ends at {at} of {size}"
        at += got


if not ops[0].startswith("open"):
    start()
do = {
    "open": start,
    "write": write,
    "read": read,
    "sync": lambda: os.fsync(fd),
    "close": lambda: os.close(fd),
}
for i, op in enumerate(ops):
    name, want = op.split(":")
    got = "0"
    try:
        do[name]()
    except OSError as e:
        got = errno.errorcode.get(e.errno, str(e.errno))
    if got != want:
        sys.exit(f"{name}, number {i + 1}: expected {want}, got {got}")
