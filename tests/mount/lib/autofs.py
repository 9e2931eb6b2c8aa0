# SPDX-License-Identifier: Apache-2.0
"""autofs.py FOLDER COMMAND...: plays an automounter, as systemd is one.

FOLDER waits for its first visitor; then the command is run, in the automounter's own
group of processes, and is to mount something there.  Prints what the visitor listed.
"""
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys

READY, FAIL, CATATONIC = 0x9360, 0x9361, 0x9362  # AUTOFS_IOC_*
folder, command = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
os.setpgrp()
r, w = os.pipe()
options = f"fd={w},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct".encode()
if libc.mount(b"automounter", folder.encode(), b"autofs", 0, options):
    print("no autofs:", os.strerror(ctypes.get_errno()))
    sys.exit(77)
os.close(w)
place = os.open(folder, os.O_RDONLY)
visitor = subprocess.Popen(["ls", folder], start_new_session=True,
                           stdout=subprocess.PIPE, text=True)
select.select([r], [], [])
token = struct.unpack_from("iiI", os.read(r, 4096))[2]
status = 1
try:
    status = subprocess.run(command, timeout=20).returncode
finally:
    fcntl.ioctl(place, FAIL if status else READY, token)
    print(visitor.communicate()[0], end="")
    fcntl.ioctl(place, CATATONIC, 0)
sys.exit(status)
