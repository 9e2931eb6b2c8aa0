# SPDX-License-Identifier: Apache-2.0
# All views of the same bytes show what was written to one of them, at once,
# mapped or not; several writers to several views do not wait for each other
# for ever, also where few workers serve.
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3

make_split "$WORK/ckpt" 200 4097 5
for o in direct=auto direct=off threads=2,direct=off threads=2; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	python3 "$here/tests/mount/lib/coherent.py" "$MNT" 1.5 \
		>"$WORK/said" 2>&1 || fail "with -o $o: $(tail -n 5 "$WORK/said")"
	# what was closed is in nobody's way, whoever writes beside it
	python3 - "$MNT/tensors/w" "$MNT/npy/w.npy" <<'END' || fail "closed files, with -o $o"
import os, sys

beside = [os.open(p, os.O_WRONLY) for p in sys.argv[1:]]
for _ in range(1500):
    for p in sys.argv[1:]:
        os.close(os.open(p, os.O_RDWR))
END
	umount_ckpt
done

# What docs/writing.md says of stores through maps that were not written yet.
cat >"$WORK/stores.py" <<'END'
import errno, mmap, os, sys

mnt = sys.argv[1]
size = os.stat(mnt + "/tensors/w").st_size
base = os.stat(mnt + "/npy/w.npy").st_size - size


class Map:
    def __init__(self, name, base, flags):
        self.base = base
        self.fd = os.open(mnt + name, flags)
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if flags == os.O_RDWR else 0)
        self.m = mmap.mmap(self.fd, os.fstat(self.fd).st_size, prot=prot)

    def store(self, at, b):
        self.m[self.base + at : self.base + at + len(b)] = b

    def sees(self, at):
        return self.m[self.base + at : self.base + at + 4]

    def read(self, at):
        return os.pread(self.fd, 4, self.base + at)


def agree(at):
    seen = {f(at) for v in (one, same, npy) for f in (v.sees, v.read)}
    assert len(seen) == 1, (at, seen)
    return seen.pop()


def busy(name):
    try:
        os.close(os.open(mnt + name, os.O_RDWR))
    except OSError as e:
        assert e.errno == errno.EBUSY, (name, e)
        return
    sys.exit(name + " is opened for reading and writing too")


X, Y = 5000, 5100  # in one page
new = lambda: os.urandom(4)
one = Map("/tensors/w", 0, os.O_RDWR)
same = Map("/tensors/w", 0, os.O_RDWR)
npy = Map("/npy/w.npy", base, os.O_RDONLY)
wfd = os.open(mnt + "/npy/w.npy", os.O_WRONLY)

# one view at a time is open for reading and writing, and others as they were
for name in "/npy/w.npy", "/model.safetensors":
    busy(name)

# seen by the views once it was written, at the latest by msync
was, a = npy.read(X), new()
one.store(X, a)
assert npy.read(X) in (was, a)
assert same.sees(X) == a
one.m.flush()
assert agree(X) == a

# two maps of one file
a, b = new(), new()
one.store(X, a)
same.store(Y, b)
one.m.flush()
same.m.flush()
assert (agree(X), agree(Y)) == (a, b), "two maps of one file"

# a map beside a write through another view
for i in range(60):
    a, b = new(), new()
    one.store(X, a)
    assert os.pwrite(wfd, b, base + Y) == 4
    if i % 2:  # what is stored now is newer, whatever it is
        one.store(Y, a)
        b = a
    one.m.flush()
    assert (agree(X), agree(Y)) == (a, b), "a map and a write"

# unmapped and closed, another may; and then this one may not
for v in one, same:
    v.m.close()
    busy("/npy/w.npy")
    os.close(v.fd)
st = Map("/model.safetensors", 0, os.O_RDWR)
st.base = st.m.find(open(mnt + "/tensors/w", "rb").read(64))
assert st.base > 0
busy("/tensors/w")
busy("/tensors/cut.rows")
a = new()
st.store(X, a)
st.m.flush()
assert npy.read(X) == npy.sees(X) == a
END
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	: >"$LOG"
	python3 "$WORK/stores.py" "$MNT" || fail "stores with -o $o"
	wait_for 5 grep -q \
		'npy/w.npy: tensors/w is open for reading and writing' "$LOG" ||
		fail "the log does not say why: $(cat "$LOG")"
	umount_ckpt
done

# tensors that are stored in the same bytes
cp -r "$here/tests/formats/torch/views/in" "$WORK/tied"
chmod -R u+w "$WORK/tied"
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/tied" "rw,$o"
	python3 - "$MNT/tensors" <<'END' || fail "tied tensors with -o $o"
import mmap, os, sys

full, tied = (os.path.join(sys.argv[1], n) for n in ("full", "tied"))
before = open(full, "rb").read()
assert open(tied, "rb").read() == before
f = open(tied, "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
assert m[:] == before
fd = os.open(full, os.O_RDWR)
new = bytes(b ^ 0x21 for b in before)
os.pwrite(fd, new, 0)
assert m[:] == new, "a map of the other is old"
assert open(tied, "rb").read() == new
os.pwrite(fd, before, 0)
assert m[:] == before
END
	umount_ckpt
done

# one write over more tensors than a batch of anything holds, each mapped
mkdir "$WORK/many"
cat >"$WORK/many.py" <<'END'
import json, mmap, os, struct, sys

ckpt, mnt = sys.argv[1:]
N, SIZE = 150, 256
name = ckpt + "/model.safetensors"
if not mnt:
    head = {
        "t%03d" % i: {
            "dtype": "F32",
            "shape": [SIZE // 4],
            "data_offsets": [i * SIZE, i * SIZE + SIZE],
        }
        for i in range(N)
    }
    text = json.dumps(head).encode()
    with open(name, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + os.urandom(N * SIZE))
    sys.exit()
maps = []
for i in range(N):
    with open("%s/tensors/t%03d" % (mnt, i), "rb") as f:
        maps.append(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
    maps[i][:]  # its page is there
fd = os.open(mnt + "/model.safetensors", os.O_RDWR)
new = os.urandom(N * SIZE)
data = os.fstat(fd).st_size - len(new)
assert os.pwrite(fd, new, data) == len(new)
old = [i for i in range(N) if maps[i][:] != new[i * SIZE : (i + 1) * SIZE]]
assert not old, "%d maps are old, the first of tensor %d" % (len(old), old[0])
END
python3 "$WORK/many.py" "$WORK/many" ''
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/many" "rw,$o"
	python3 "$WORK/many.py" "$WORK/many" "$MNT" || fail "many maps, -o $o"
	umount_ckpt
done

# a file that has both is not open for reading and writing, which a map takes;
# nor is the one while the other is open for writing
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/tied" "rw,$o"
	python3 - "$MNT" <<'END' || fail "tied tensors in one file, -o $o"
import errno, mmap, os, sys

mnt = sys.argv[1]
both = [mnt + "/tensors/" + n for n in ("full", "tied")]
now = open(both[0], "rb").read()


def busy(name, flags):
    try:
        os.close(os.open(name, flags))
    except OSError as e:
        assert e.errno == errno.EBUSY, (name, e)
        return
    sys.exit(name + " is opened")


for name in ("model.safetensors", "model.pt", "dcp/__0_0.distcp"):
    name = mnt + "/" + name
    busy(name, os.O_RDWR)
    r, w = os.open(name, os.O_RDONLY), os.open(name, os.O_WRONLY)
    m = mmap.mmap(r, 0, prot=mmap.PROT_READ)
    i = m.find(now)
    j = m.find(now, i + 1)
    assert i > 0 and i // 4096 == j // 4096, name
    for step, base in enumerate((i, j, i, j)):
        new, at = os.urandom(4), 16 * step
        now = now[:at] + new + now[at + 4 :]
        os.pwrite(w, new, base + at)
        os.fsync(w)
        for f in both:
            assert open(f, "rb").read() == now, (name, step, f)
        for at in i, j:
            assert m[at : at + len(now)] == now, (name, step, at)
    os.close(w)
fd = os.open(both[0], os.O_RDWR)
busy(both[1], os.O_RDWR)
busy(both[1], os.O_WRONLY)
os.close(fd)
fd = os.open(both[0], os.O_WRONLY)
busy(both[1], os.O_RDWR)
os.close(os.open(both[1], os.O_WRONLY))
os.close(fd)
END
	umount_ckpt
done

# a file that was just closed is not in the way, however often
mount_ckpt "$WORK/ckpt" rw
python3 - "$MNT" <<'END' || fail "closed files"
import mmap, os, sys
names = [sys.argv[1] + n for n in ("/tensors/w", "/npy/w.npy", "/model.safetensors")]
for i in range(600):
    fd = os.open(names[i % 3], os.O_RDWR)
    if i % 2:
        m = mmap.mmap(fd, 4096)
        m[4090] = m[4090]
        m.close()
    os.close(fd)
END
umount_ckpt
done_ok
