# SPDX-License-Identifier: Apache-2.0
# Writes to tensors go to the shards, in each way of delivery; what does not
# change a tensor's bytes within its size is refused with the right errno.
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3

make_split "$WORK/ckpt" 600 4097 5
cp "$WORK/whole.w" "$WORK/model.w"

# A trainer looks before it saves: what is free is what is free below.
room_of() {
	python3 - "$MNT" "$1" <<'END' || fail "statfs $2"
import os, sys
top, below = map(os.statvfs, sys.argv[1:])
free = [(s.f_bfree * s.f_frsize, s.f_bavail * s.f_frsize) for s in (top, below)]
assert free[0][1] > 0, free
assert all(abs(a - b) < 1 << 30 for a, b in zip(*free)), free
assert top.f_blocks > top.f_bfree and bool(top.f_ffree) == bool(below.f_ffree), top
END
}

for o in direct=auto direct=off engine=plain; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	python3 "$here/tests/mount/lib/errnos.py" "$MNT" >"$WORK/said" 2>&1 ||
		fail "with -o $o: $(cat "$WORK/said")"
	python3 "$here/tests/mount/lib/random_writes.py" "$MNT/tensors/w" \
		"$WORK/model.w" 300 || fail "random writes with -o $o"
	room_of "$WORK/ckpt" "with -o $o"
	# dd as people use it
	head -c 100000 /dev/urandom >"$WORK/new"
	dd if="$WORK/new" of="$MNT/tensors/w" bs=4099 seek=7 conv=notrunc \
		status=none || fail dd
	dd if="$WORK/new" of="$WORK/model.w" bs=4099 seek=7 conv=notrunc \
		status=none
	same "$MNT/tensors/w" "$WORK/model.w"
	umount_ckpt
done

# what was written is in the shards, as a mount that cannot write sees them
mount_ckpt "$WORK/ckpt"
same "$MNT/tensors/w" "$WORK/model.w"
same "$MNT/tensors/cut.rows" "$WORK/whole.rows"
python3 - "$MNT" "$WORK" <<'END' || fail "a mount that is not for writing"
import errno, fcntl, mmap, os, sys

mnt = sys.argv[1]
t, other = mnt + "/tensors/w", mnt + "/tensors/cut.rows"
size = os.path.getsize(t)
fd = os.open(t, os.O_RDONLY)
bad = []


def check(what, want, fn, *args):
    try:
        fn(*args)
        got = None
    except OSError as e:
        got = e.errno
    if got != want:
        bad.append(f"{what}: expected {want}, got {got}")


ro = errno.EROFS
for flags in "O_WRONLY", "O_RDWR", "O_APPEND|O_WRONLY", "O_TRUNC|O_WRONLY":
    bits = eval("|".join("os." + f for f in flags.split("|")))
    check(f"open {flags}", ro, os.open, t, bits)
for d in mnt, mnt + "/tensors", mnt + "/npy", mnt + "/shards":
    check(f"create in {d}", ro, os.open, d + "/new", os.O_WRONLY | os.O_CREAT)
    check(f"mkdir in {d}", ro, os.mkdir, d + "/new")
    check(f"mknod in {d}", ro, os.mknod, d + "/new")
    check(f"symlink in {d}", ro, os.symlink, "w", d + "/new")
    check(f"link in {d}", ro, os.link, t, d + "/new")
    check(f"rename to {d}", ro, os.rename, t, d + "/new")
check("truncate to the same size", ro, os.truncate, t, size)
check("truncate", ro, os.truncate, t, 0)
check("unlink", ro, os.unlink, t)
check("rmdir", ro, os.rmdir, mnt + "/tensors")
check("rename onto a tensor", ro, os.rename, t, other)
check("chmod", ro, os.chmod, t, 0o600)
check("chown", ro, os.chown, t, 1, 1)
check("utimens", ro, os.utime, t, (1, 1))
check("setxattr", ro, os.setxattr, t, "user.x", b"y")
check("write", errno.EBADF, os.write, fd, b"x")
check("fallocate", errno.EBADF, os.posix_fallocate, fd, 0, 10)
check("a map for writing", errno.EACCES, mmap.mmap, fd, size)
check("a map", None, mmap.mmap, fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
check("fsync", None, os.fsync, fd)
check("read past the end", None, lambda: os.pread(fd, 9, size) == b"" or 1 / 0)
check("SEEK_HOLE", None, lambda: os.lseek(fd, 3, os.SEEK_HOLE) == size or 1 / 0)
check("SEEK_DATA", None, lambda: os.lseek(fd, 3, os.SEEK_DATA) == 3 or 1 / 0)
check("SEEK_DATA at the end", errno.ENXIO, os.lseek, fd, size, os.SEEK_DATA)
direct = os.open(t, os.O_RDONLY | os.O_DIRECT)
check("O_DIRECT, not aligned", None, lambda: len(os.pread(direct, 999, 7)) == 999 or 1 / 0)
whole = os.pread(fd, size, 0)
m = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
check("a map's bytes", None, lambda: m[:] == whole or 1 / 0)
out = os.open(sys.argv[2], os.O_TMPFILE | os.O_RDWR)
check("sendfile", None, lambda: os.sendfile(out, fd, 0, size) == size or 1 / 0)
check("its bytes", None, lambda: os.pread(out, size, 0) == whole or 1 / 0)
check("copy_file_range to elsewhere", errno.EXDEV, os.copy_file_range, fd, out, 100, 0, 0)
check("FICLONE to elsewhere", errno.EXDEV, fcntl.ioctl, out, 0x40049409, fd)
for lock in fcntl.flock, fcntl.lockf:
    check(lock.__name__, None, lock, fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    check(lock.__name__, None, lock, fd, fcntl.LOCK_UN)
d = os.open(mnt + "/tensors", os.O_RDONLY)
check("fsync of a directory", None, os.fsync, d)
check("fdatasync", None, os.fdatasync, fd)
check("getxattr", None, os.getxattr, t, "user.unshard.dtype")
check("listxattr", None, lambda: "user.unshard.dtype" in os.listxattr(t) or 1 / 0)
check("removexattr", ro, os.removexattr, t, "user.unshard.dtype")
check("rename to another area", ro, os.rename, t, mnt + "/shards/w")
check("close", None, os.close, direct)
check("no such name", errno.ENOENT, os.stat, mnt + "/tensors/none")
check("a long name", errno.ENAMETOOLONG, os.stat, mnt + "/tensors/" + "n" * 256)
st = os.statvfs(mnt)
if not st.f_blocks or st.f_bfree:
    bad.append(f"statfs: {st}")
print("\n".join(bad), file=sys.stderr)
sys.exit(bool(bad))
END
done_ok
