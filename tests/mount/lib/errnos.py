# SPDX-License-Identifier: Apache-2.0
"""errnos.py MNT: what a mount for writing answers to what it does not do."""
import ctypes
import errno
import fcntl
import mmap
import os
import subprocess
import sys

mnt = sys.argv[1]
t = mnt + "/tensors/w"
npy = mnt + "/npy/w.npy"
libc = ctypes.CDLL(None, use_errno=True)
before = open(t, "rb").read()
size = len(before)
bad = []


def check(what, want, fn, *args):
    """@want: an errno, or None for success."""
    try:
        fn(*args)
        got = None
    except OSError as e:
        got = e.errno
    if got != want:
        name = lambda c: errno.errorcode.get(c, c) if c else "success"
        bad.append(f"{what}: expected {name(want)}, got {name(got)}")


def call(fn, *args):
    if fn(*args) < 0:
        raise OSError(ctypes.get_errno(), "")


def fallocate(fd, mode):
    call(libc.fallocate, fd, mode, ctypes.c_long(0), ctypes.c_long(4096))


def renameat2(a, b, flags):
    call(libc.renameat2, -100, a.encode(), -100, b.encode(), flags)


fd = os.open(t, os.O_RDWR)
app = os.open(t, os.O_WRONLY | os.O_APPEND)
check("a second view for reading and writing", errno.EBUSY, os.open, npy, os.O_RDWR)
nfd = os.open(npy, os.O_WRONLY)

check("read past the end", None, lambda: os.pread(fd, 10, size + 5) == b"" or 1 / 0)
check("write across the end", errno.EFBIG, os.pwrite, fd, b"x" * 100, size - 50)
check("write at the end", errno.EFBIG, os.pwrite, fd, b"x", size)
check("write past the end", errno.EFBIG, os.pwrite, fd, b"x", size + 12345)
check("append", errno.EFBIG, os.write, app, b"x" * 10)
check("open O_TRUNC", errno.EPERM, os.open, t, os.O_WRONLY | os.O_TRUNC)
check("open O_CREAT|O_TRUNC", errno.EPERM, os.open, t, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
check("open O_CREAT|O_EXCL", errno.EEXIST, os.open, t, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
check("open O_CREAT", None, lambda: os.close(os.open(t, os.O_WRONLY | os.O_CREAT)))
check("truncate to the same size", None, os.truncate, t, size)
check("ftruncate to the same size", None, os.ftruncate, fd, size)
check("truncate to 0", errno.EPERM, os.truncate, t, 0)
check("truncate to less", errno.EPERM, os.truncate, t, size - 1)
check("truncate to more", errno.EPERM, os.truncate, t, size + 1)
check("fallocate", errno.EOPNOTSUPP, fallocate, fd, 0)
check("punch a hole", errno.EOPNOTSUPP, fallocate, fd, 3)
for d in (mnt, mnt + "/tensors", mnt + "/npy", mnt + "/.unshard"):
    n = d + "/new"
    check(f"create in {d}", errno.EPERM, os.open, n, os.O_WRONLY | os.O_CREAT)
    check(f"mkdir in {d}", errno.EPERM, os.mkdir, n)
    check(f"mknod in {d}", errno.EPERM, os.mknod, n)
    check(f"symlink in {d}", errno.EPERM, os.symlink, "w", n)
    check(f"link in {d}", errno.EPERM, os.link, t, n)
    check(f"rename of a tensor to {d}", errno.EPERM, os.rename, t, n)
check("unlink", errno.EPERM, os.unlink, t)
check("rmdir", errno.EPERM, os.rmdir, mnt + "/tensors")
check("rename onto a tensor", errno.EPERM, os.rename, t, mnt + "/tensors/cut.rows")
check("rename NOREPLACE", errno.EPERM, renameat2, t, t + "x", 1)
check("rename EXCHANGE", errno.EPERM, renameat2, t, mnt + "/tensors/cut.rows", 2)
check("rename to another filesystem", errno.EXDEV, os.rename, t, "/tmp/nothing")
check("chmod", errno.EPERM, os.chmod, t, 0o600)
check("chown", errno.EPERM, os.chown, t, 1, 1)
check("utimens", None, os.utime, t, (1, 1))
check("touch", None, subprocess.check_call, ["touch", t])
check("setxattr", errno.EOPNOTSUPP, os.setxattr, t, "user.x", b"y")
check("removexattr", errno.EOPNOTSUPP, os.removexattr, t, "user.unshard.dtype")
check("getxattr", None, os.getxattr, t, "user.unshard.dtype")
check("setxattr of another's", errno.EOPNOTSUPP, os.setxattr, t, "user.unshard.dtype", b"y")
check("SEEK_DATA", None, lambda: os.lseek(fd, 5, os.SEEK_DATA) == 5 or 1 / 0)
check("SEEK_HOLE", None, lambda: os.lseek(fd, 5, os.SEEK_HOLE) == size or 1 / 0)
check("SEEK_DATA at the end", errno.ENXIO, os.lseek, fd, size, os.SEEK_DATA)
check("fsync", None, os.fsync, fd)
check("fdatasync", None, os.fdatasync, fd)
d = os.open(mnt + "/tensors", os.O_RDONLY)
check("fsync of a directory", None, os.fsync, d)
os.close(d)
check("name of 256 bytes", errno.ENAMETOOLONG, os.stat, mnt + "/tensors/" + "n" * 256)
check("no such name", errno.ENOENT, os.stat, mnt + "/tensors/none")
check("write to .unshard/stats", errno.EPERM, os.open, mnt + "/.unshard/stats", os.O_WRONLY)

# read in other ways, and copied from here and there
other = open("/proc/self/exe", "rb")
out = os.open("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp", os.O_TMPFILE | os.O_RDWR)
check("sendfile", None, lambda: os.sendfile(out, fd, 0, size) == size or 1 / 0)
r, w = os.pipe()
check("splice", None, lambda: os.splice(fd, w, 4096, 7) == 4096 or 1 / 0)
assert os.read(r, 4096) == before[7 : 7 + 4096] and os.pread(out, size, 0) == before
check("copy_file_range from elsewhere", errno.EXDEV, os.copy_file_range,
      other.fileno(), fd, 100, 0, 0)
check("copy_file_range to elsewhere", errno.EXDEV, os.copy_file_range, fd, out, 100, 0, 0)
FICLONE = 0x40049409
for what, a, b in ("from", other.fileno(), fd), ("to", fd, out):
    check(f"FICLONE {what} elsewhere", errno.EXDEV, fcntl.ioctl, b, FICLONE, a)
for lock in fcntl.flock, fcntl.lockf:
    check(lock.__name__, None, lock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    check(lock.__name__, None, lock, fd, fcntl.LOCK_UN)
m = mmap.mmap(fd, size)
m[3:6] = before[3:6]
check("msync", None, m.flush)
m.close()
check("rename to another area", errno.EXDEV, os.rename, t, mnt + "/shards/w")

# headers are made from the checkpoint
head = open(npy, "rb").read(64)
check("the same header", None, os.pwrite, nfd, head, 0)
check("another header", errno.EPERM, os.pwrite, nfd, b"x", 20)
check("a header and data", errno.EPERM, os.pwrite, nfd, b"x" * 300, 0)

# nothing of all this was kept, and the file has its size
assert os.stat(t).st_size == size
st = os.statvfs(mnt)
if not st.f_blocks:
    bad.append("statfs: no blocks")

# O_DIRECT, not aligned; the same bytes
dfd = os.open(t, os.O_RDWR | os.O_DIRECT)
buf = mmap.mmap(-1, 8192)
buf[:] = before[:8192]
check("O_DIRECT", None, os.pwritev, dfd, [buf], 0)
check("O_DIRECT, not aligned", None, os.pwritev, dfd, [memoryview(before)[5:1005]], 5)
for f in (fd, app, nfd, dfd):
    os.close(f)
if open(t, "rb").read() != before:
    bad.append("what was refused was written all the same")
print("\n".join(bad))
sys.exit(bool(bad))
