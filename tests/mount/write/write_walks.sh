# SPDX-License-Identifier: Apache-2.0
# Of each view, a write goes over the spans of its file once, whatever has to be done for it:
# sums of containers, a manifest, replicas, float32 masters, maps that are open,
# an overlay.  The statistics count it.
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3

cat >"$WORK/walks.py" <<'END'
import mmap, os, sys

mnt, views = sys.argv[1], sys.argv[2:]


def stats():
    with open(mnt + "/.unshard/stats") as f:
        all = dict(line.split(None, 1) for line in f)
    return int(all["writes"]), int(all["span_walks"])


def file_of(view):
    path = mnt + "/" + view
    if os.path.isdir(path):
        path += "/" + max(sorted(os.listdir(path)), key=lambda n: os.stat(path + "/" + n).st_size)
    return path


def changeable(fd, shown):
    """Where a byte of a tensor was changed: others, of a header or between, are EPERM."""
    size = len(shown)
    for at in range(size // 2, size, 1009):
        try:
            os.pwrite(fd, bytes([shown[at] ^ 1]), at)
        except PermissionError:
            continue
        return at


files = [file_of(v) for v in views]
maps = []
for path in files:
    with open(path, "rb") as f:
        maps.append(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
        maps[-1][:]
for path, shown in zip(files, maps):
    for flags in os.O_WRONLY, os.O_RDWR:
        try:
            fd = os.open(path, flags)
        except OSError:
            assert flags == os.O_RDWR and "master=also" in os.environ["HOW"], path
            continue
        if flags == os.O_RDWR:
            stored = mmap.mmap(fd, 0)
        size = os.fstat(fd).st_size
        os.pwrite(fd, shown[size // 2 : size // 2 + 8], size // 2)  # tables are made
        writes, walks = stats()
        for i in range(20):
            at = size * i // 20
            data = shown[at : at + min(size // 3 + 1, 1 << 20)]
            assert os.pwrite(fd, data, at) == len(data)
        w, s = stats()
        assert (w - writes, s - walks) == (20, 20), (path, w - writes, s - walks)
        os.fsync(fd)
        if flags == os.O_RDWR:
            at = changeable(fd, bytes(shown))
            stored[at] ^= 1
            writes, walks = stats()
            stored.flush()
            w, s = stats()
            assert w > writes and w - writes == s - walks, (path, w, s)
            stored.close()
        os.close(fd)
END
walks() { # HOW VIEW...
	mount_ckpt "$WORK/ckpt" "$1"
	HOW=$1 python3 "$WORK/walks.py" "$MNT" "${@:2}" || fail "$*"
	umount_ckpt
}
example() {
	rm -rf "$WORK/ckpt"
	cp -r "$here/tests/formats/$1/in" "$WORK/ckpt"
	chmod -R u+w "$WORK/ckpt"
}

all="tensors npy model.safetensors model.pt model.ckpt hf dcp"
make_split "$WORK/ckpt" 300 4097 4
for o in rw,direct=auto rw,direct=off "overlay=$WORK/over"; do
	walks "$o" $all
done
"$UNSHARD" seal "$WORK/ckpt" >/dev/null || fail seal
walks rw $all
rm -rf "$WORK/ckpt"
python3 "$here/tests/mount/lib/copies.py" "$WORK/ckpt" 3 30 39990 2 || fail copies
walks rw $all
example dcp/2.14-layouts # sums
walks rw $all
example deepspeed/zero2-3ranks
walks rw,master=also $all
done_ok
