# SPDX-License-Identifier: Apache-2.0
# Usage: beside_map.py FILE FLAGS; FLAGS is RDWR, WRONLY, RDWR|DIRECT or, with
# SAME+ before it, of the descriptor that is mapped.
# One process stores into a byte of a page through a map, over and over, and
# syncs it; another writes to other bytes of the page, through a descriptor of
# its own, or with SAME a thread through the one that is mapped.  None of these
# writes may be lost, and no store.
import mmap, os, sys, threading

PAGE, WRITES = 8192, 40

path, how = sys.argv[1:]
same = how.startswith("SAME+")
flags = 0
for f in how.removeprefix("SAME+").split("|"):
    flags |= getattr(os, "O_" + f)
size = os.stat(path).st_size
reader, writer = os.pipe()


def store(fd):
    m = mmap.mmap(fd, size)
    for k in range(1 << 30):
        m[PAGE] = k % 256
        if k % 5 == 0:
            m.flush(PAGE, 4096)
        assert m[PAGE] == k % 256, "a store was lost"
        if k % 5 == 0:
            os.write(writer, b".")


def store_apart():
    os.close(reader)
    try:
        store(os.open(path, os.O_RDWR))
    except BrokenPipeError:
        os._exit(0)
    except BaseException as e:
        print(e, file=sys.stderr)
    os._exit(1)


def store_here():
    try:
        store(fd)
    except BaseException as e:
        print(e, file=sys.stderr)
        os._exit(1)


if same:
    fd = os.open(path, flags)
    threading.Thread(target=store_here, daemon=True).start()
else:
    child = os.fork()
    if not child:
        store_apart()
    os.close(writer)
    fd = os.open(path, flags)
assert os.read(reader, 1), "the other ended"
wrote = {}
for at in range(PAGE + 8, PAGE + 8 + WRITES * 8, 8):
    wrote[at] = os.urandom(4)
    assert os.pwrite(fd, wrote[at], at) == 4
    for i in range(2):  # two more syncs of the page
        assert os.read(reader, 1), "the other ended"
if not same:
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
with open(path, "rb") as f:
    now = f.read()
lost = [at for at, b in wrote.items() if now[at : at + 4] != b]
assert not lost, f"{how}: lost {len(lost)} of {WRITES}: {lost[:8]}"
os._exit(0)
