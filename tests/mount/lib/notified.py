# SPDX-License-Identifier: Apache-2.0
"""notified.py SOCKET COMMAND...: what COMMAND tells SOCKET, a message a line,
"=" ones only, until it ends; and then its exit code."""
import os
import socket
import subprocess
import sys

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
path = sys.argv[1]
s.bind("\0" + path[1:] if path[0] == "@" else path)
p = subprocess.Popen(sys.argv[2:], env={**os.environ, "NOTIFY_SOCKET": path})
while True:
    s.settimeout(0.1 if p.poll() is None else 0)
    try:
        print(s.recv(4096).decode().replace("\n", " "), flush=True)
    except (TimeoutError, BlockingIOError):
        if p.poll() is not None:
            break
print("exit", p.returncode, flush=True)
