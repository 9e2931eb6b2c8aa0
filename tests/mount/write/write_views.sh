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
	umount_ckpt
done

# What docs/writing.md says of stores through maps that were not written yet.
cat >"$WORK/stores.py" <<'END'
import mmap, os, sys

mnt = sys.argv[1]
size = os.stat(mnt + "/tensors/w").st_size
base = os.stat(mnt + "/npy/w.npy").st_size - size


class Map:
    def __init__(self, name, base):
        self.base = base
        self.fd = os.open(mnt + name, os.O_RDWR)
        self.m = mmap.mmap(self.fd, os.fstat(self.fd).st_size)

    def store(self, at, b):
        self.m[self.base + at : self.base + at + len(b)] = b

    def sees(self, at):
        return self.m[self.base + at : self.base + at + 4]

    def read(self, at):
        return os.pread(self.fd, 4, self.base + at)


def open_all():
    return Map("/tensors/w", 0), Map("/tensors/w", 0), Map("/npy/w.npy", base)


def agree(at):
    seen = {f(at) for v in (one, same, npy) for f in (v.sees, v.read)}
    assert len(seen) == 1, (at, seen)
    return seen.pop()


X, Y = 5000, 5100  # in one page
new = lambda: os.urandom(4)
one, same, npy = open_all()

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
a, b = new(), new()
one.store(X, a)
assert os.pwrite(npy.fd, b, base + Y) == 4
one.m.flush()
assert (agree(X), agree(Y)) == (a, b), "a map and a write"

# maps of several views: a page is sent whole, and loses nothing of another's
st = Map("/model.safetensors", 0)
st.base = st.m.find(one.m[:64])
assert st.base > 0
for i in range(60):
    views = [(one, npy), (st, one), (npy, st), (st, npy, same)][i % 4]
    if i // 4 % 2:
        views = views[::-1]
    stored = [(v, X + 60 * k, new()) for k, v in enumerate(views)]
    for v, at, b in stored:
        v.store(at, b)
    for v in views if i // 8 % 2 else views[:1]:
        v.m.flush()
    for v in views:
        v.m.flush()
    for v, at, b in stored:
        assert agree(at) == st.sees(at) == b, "round %d: lost" % i
    # what is stored afterwards is not taken for old: as it was before
    v = stored[-1][0]
    was = v.sees(X + 300)
    one.store(X + 300, bytes(b ^ 1 for b in was))
    one.m.flush()
    v.store(X + 300, was)
    v.m.flush()
    assert agree(X + 300) == was, "round %d: taken for old" % i
END
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	python3 "$WORK/stores.py" "$MNT" || fail "stores with -o $o"
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

# and what was stored in one of them stays where one page of a file has both
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/tied" "rw,$o"
	python3 - "$MNT" <<'END' || fail "tied tensors in one page, -o $o"
import mmap, os, sys

mnt = sys.argv[1]
both = [mnt + "/tensors/" + n for n in ("full", "tied")]
now = open(both[0], "rb").read()
for name in ("model.safetensors", "model.pt", "dcp/__0_0.distcp"):
    fd = os.open(mnt + "/" + name, os.O_RDWR)
    m = mmap.mmap(fd, 0)
    i = m.find(now)
    j = m.find(now, i + 1)
    assert i > 0 and i // 4096 == j // 4096, name
    for step, base in enumerate((i, j, i, j)):
        new, at = os.urandom(4), 16 * step
        now = now[:at] + new + now[at + 4 :]
        if step < 2:
            m[base + at : base + at + 4] = new
            m.flush()
        else:
            os.pwrite(fd, new, base + at)
            os.fsync(fd)
        for f in both:
            assert open(f, "rb").read() == now, (name, step, f)
        for at in i, j:
            assert m[at : at + len(now)] == now, (name, step, at)
END
	umount_ckpt
done

# and of what was stored in both, or stored in one and written to the other
rm -rf "$WORK/tied"
cp -r "$here/tests/formats/nnscaler/bf16-zero1/in" "$WORK/tied"
chmod -R u+w "$WORK/tied"
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/tied" "rw,master=ignore,$o"
	python3 - "$MNT" <<'END' || fail "stores into tied tensors, -o $o"
import mmap, os, sys

both = ["%s/tensors/model.%s.weight" % (sys.argv[1], n) for n in ("emb", "head")]
now = open(both[0], "rb").read()
fd = os.open(sys.argv[1] + "/model.safetensors", os.O_RDWR)
m = mmap.mmap(fd, 0)
i = m.find(now)
j = m.find(now, i + 1)
assert i > 0 and i // 4096 == j // 4096


def check(what):
    m.flush()
    for f in both:
        assert open(f, "rb").read() == now, (what, f)
    for at in i, j:
        assert m[at : at + len(now)] == now, (what, at)


for a, b in ((i, j), (j, i)) * 3:
    new, more, third = (os.urandom(4) for _ in range(3))
    now = new + now[4:8] + more + now[12:]
    m[a : a + 4] = new
    os.pwrite(fd, more, b + 8)
    check("a store and a write")
    now = more + third + new + now[12:]
    m[a : a + 4] = more
    m[b + 4 : b + 8] = third
    m[a + 8 : a + 12] = new
    check("stores into both")
END
	umount_ckpt
done
done_ok
