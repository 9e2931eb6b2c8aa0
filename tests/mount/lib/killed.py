# SPDX-License-Identifier: Apache-2.0
"""killed.py FILE MODEL PID N: writes until PID, killed in the middle, is gone.

MODEL becomes what the acknowledged writes make of it, MODEL.maybe the same
with the write that got no answer.
"""
import os
import random
import signal
import sys
import threading

path, model, pid, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(n)
want = bytearray(open(model, "rb").read())
maybe = want
fd = os.open(path, os.O_WRONLY)
for i in range(1000):
    if i == n:
        threading.Timer(0.001, os.kill, (pid, signal.SIGKILL)).start()
    off = rng.randrange(len(want))
    data = rng.randbytes(min(len(want) - off, 300000))
    maybe = bytearray(want)
    maybe[off : off + len(data)] = data
    try:
        assert os.pwrite(fd, data, off) == len(data)
    except OSError:
        break
    want = maybe
else:
    sys.exit("it lives")
open(model, "wb").write(want)
open(model + ".maybe", "wb").write(maybe)
