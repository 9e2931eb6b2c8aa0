# SPDX-License-Identifier: Apache-2.0
# half.py FILE mmap|pwrite|all|fallocate - a safetensors file of one U8 tensor
# "w" of 1 MiB: made as long as it will be, and half of it written; then it waits
# to be killed.  "all" writes all, with zeros in the middle.
import json
import mmap
import os
import signal
import struct
import sys

path, how = sys.argv[1:]
size = 1 << 20
head = json.dumps({"w": {"dtype": "U8", "shape": [size],
                         "data_offsets": [0, size]}}).encode()
head += b" " * (4088 - len(head))
head = struct.pack("<Q", len(head)) + head
data = os.urandom(size // 2)

fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
if how == "fallocate":
    os.posix_fallocate(fd, 0, len(head) + size)
os.ftruncate(fd, len(head) + size)
if how == "mmap":
    m = mmap.mmap(fd, len(head) + size)
    m[:len(head)] = head
    m[len(head):len(head) + len(data)] = data
    m.flush()
else:
    os.pwrite(fd, head + data, 0)
if how == "all":
    os.pwrite(fd, bytes(size - len(data)), len(head) + len(data))
    sys.exit()
print("half", flush=True)
signal.pause()
