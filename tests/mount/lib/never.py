# SPDX-License-Identifier: Apache-2.0
"""never.py MNT FILE: a mount of the type of ours that answers INIT and what
looks at its root, writes to FILE what else it was asked, and answers that never."""

import ctypes
import os
import struct
import sys

INIT, GETATTR = 26, 3

libc = ctypes.CDLL(None, use_errno=True)
mnt, said = sys.argv[1:]
fd = os.open("/dev/fuse", os.O_RDWR)
opts = f"fd={fd},rootmode=40755,user_id=0,group_id=0"
if libc.mount(b"never", mnt.encode(), b"fuse.unshardfs", 0, opts.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))


def answer(unique, body):
    os.write(fd, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)


while True:
    request = os.read(fd, 1 << 20)
    length, op, unique, node = struct.unpack_from("<IIQQ", request)
    if op == INIT:
        answer(unique, struct.pack("<IIIIHHIIHHI", 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, 0) + bytes(28))
    elif op == GETATTR:
        attr = struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
        answer(unique, struct.pack("<QII", 60, 0, 0) + attr)
    else:
        with open(said, "a", encoding="ascii") as f:
            f.write(f"{op}\n")
