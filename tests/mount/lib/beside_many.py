# SPDX-License-Identifier: Apache-2.0
# Usage: beside_many.py MAPPED WRITTEN@BASE FLAGS SECONDS
# Six processes have words of their own in the same two pages: two store through
# a map of MAPPED and sync now and then; two write to WRITTEN, the same file or
# another view of it that has its first byte at BASE, opened with FLAGS; two
# write a word, and when that has returned store what was there before through a
# map of their own.  Each looks at what it wrote at once, and later: no byte may
# be lost, nor at the end.
import mmap, os, pickle, random, sys, time

mapped, written, how, seconds = sys.argv[1:]
written, _, base = written.partition("@")
base = int(base or 0)
flags = 0
for f in how.split("|"):
    flags |= getattr(os, "O_" + f)
PAGE, LEN = 8192, 8192  # the last of the first views' pages are not whole
size = os.stat(mapped).st_size
ready, go = os.pipe(), os.pipe()


class Words:
    def __init__(self, nr, nr_all):
        self.places = range(PAGE + 8 * nr, PAGE + LEN - 8, 8 * nr_all)
        self.rng = random.Random(os.getpid())
        self.has, self.turns = {}, 0

    # an open has the kernel drop pages that others may be just writing through
    def begin(self):
        os.write(ready[1], b".")
        os.read(go[0], 1)
        self.end = time.monotonic() + float(seconds)

    def goes_on(self):
        return self.turns < 25 or time.monotonic() < self.end

    def turn(self):
        self.turns += 1
        return self.rng.choice(self.places), os.urandom(8)

    def check(self, at, is_now, what):
        if at in self.has:
            assert is_now == self.has[at], f"{what} at {at} was lost"


class Map:
    def __init__(self):
        self.fd = os.open(mapped, os.O_RDWR)
        self.m = mmap.mmap(self.fd, size)

    def flush(self):
        self.m.flush(PAGE, LEN)

    def sees(self, at):
        return self.m[at : at + 8]

    def reads(self, at):
        return os.pread(self.fd, 8, at)


def store(w):
    m = Map()
    w.begin()
    while w.goes_on():
        at, word = w.turn()
        w.check(at, m.sees(at), "a store")
        m.m[at : at + 8] = w.has[at] = word
        if w.rng.random() < 0.2:
            m.flush()
            at = w.rng.choice(list(w.has))
            w.check(at, m.reads(at), "a synced store")
    m.flush()


def write(w):
    fd = os.open(written, flags)
    r = os.open(written, os.O_RDONLY)
    w.begin()
    while w.goes_on():
        at, word = w.turn()
        w.check(at, os.pread(r, 8, base + at), "a write")
        assert os.pwrite(fd, word, base + at) == 8
        w.has[at] = word
        w.check(at, os.pread(r, 8, base + at), "what was just written")


# what it replaced is a store as every other, once the write has returned
def put_back(w):
    fd = os.open(written, flags)
    m = Map()
    w.begin()
    while w.goes_on():
        at, word = w.turn()
        was = m.sees(at)
        w.check(at, was, "a store of what was there before")
        assert os.pwrite(fd, word, base + at) == 8
        m.m[at : at + 8] = w.has[at] = was
        if w.rng.random() < 0.3:
            time.sleep(w.rng.random() / 500)
        w.check(at, m.sees(at), "such a store, just done,")
        if w.rng.random() < 0.5:
            m.flush()
            w.check(at, m.reads(at), "such a store, synced,")
    m.flush()


def start(nr, nr_all, role):
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        return reader
    w = Words(nr, nr_all)
    said = None
    try:
        role(w)
    except BaseException as e:
        said = f"{how}: {role.__name__}, turn {w.turns}: {e!r}"
    with os.fdopen(writer, "wb") as f:
        pickle.dump((said, w.has), f)
    os._exit(0)


roles = [store, store, write, write, put_back, put_back]
readers = [start(i, len(roles), r) for i, r in enumerate(roles)]
for _ in roles:
    os.read(ready[0], 1)
os.write(go[1], b"." * len(roles))
failed, left = [], {}
for r in readers:
    with os.fdopen(r, "rb") as f:
        said, has = pickle.load(f)
    failed += [said] if said else []
    left.update(has)
for _ in readers:
    assert os.wait()[1] == 0
with open(mapped, "rb") as f:
    now = f.read()
lost = [at for at, word in left.items() if now[at : at + 8] != word]
if lost:
    failed.append(f"{how}: lost {len(lost)} of {len(left)} words: {lost[:8]}")
sys.exit("\n".join(failed) or 0)
