# SPDX-License-Identifier: Apache-2.0
# lost_direct.py - one O_DIRECT read of a file whose end is lost, in two ways
#
#	lost_direct.py FILE ROOM	what pread and libaio's calls give
import ctypes
import mmap
import os
import platform
import struct
import sys

NUMBERS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}
path, room = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
m = mmap.mmap(-1, room)
try:
    print(os.preadv(fd, [m], 0))
except OSError as e:
    print(-e.errno)
if platform.machine() not in NUMBERS:
    sys.exit(77)
setup, submit, events = NUMBERS[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
ctx = ctypes.c_ulong(0)
assert libc.syscall(setup, 1, ctypes.byref(ctx)) == 0, os.strerror(ctypes.get_errno())
where = ctypes.addressof(ctypes.c_char.from_buffer(m))
job = ctypes.create_string_buffer(
    struct.pack("<QIIHhIQQqQII", 0, 0, 0, 0, 0, fd, where, room, 0, 0, 0, 0))
at = ctypes.c_void_p(ctypes.addressof(job))
assert libc.syscall(submit, ctx, 1, ctypes.byref(at)) == 1, os.strerror(ctypes.get_errno())
done = ctypes.create_string_buffer(32)
assert libc.syscall(events, ctx, 1, 1, done, None) == 1
print(struct.unpack("<QQqq", done.raw)[2])
