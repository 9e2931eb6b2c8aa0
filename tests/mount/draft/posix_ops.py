# SPDX-License-Identifier: Apache-2.0
"""What POSIX calls answer in a directory, one line each: NAME RESULT.

    posix_ops.py DIR

The same lines on two file systems mean that they behave alike.  Each case is
made by combining calls with the kinds of things that a name can be.
"""
import errno
import fcntl
import itertools
import mmap
import os
import stat
import sys

os.chdir(sys.argv[1])
os.umask(0o22)
KINDS = ("none", "file", "empty", "full", "link", "dangling", "dirlink", "noread")


def make(kind, name):
    """A thing of that kind, called @name."""
    if kind in ("file", "noread"):
        with open(name, "w") as f:
            f.write(kind)
        if kind == "noread":
            os.chmod(name, 0)
    elif kind == "empty":
        os.mkdir(name)
    elif kind == "full":
        os.mkdir(name)
        open(f"{name}/in", "w").close()
    elif kind == "link":
        with open(f"{name}.to", "w") as f:
            f.write("to")
        os.symlink(f"{name}.to", name)
    elif kind == "dangling":
        os.symlink(f"{name}.nowhere", name)
    elif kind == "dirlink":
        os.mkdir(f"{name}.to")
        os.symlink(f"{name}.to", name)


def shown(name):
    """What is there, without times and numbers."""
    try:
        st = os.lstat(name)
    except OSError as e:
        return errno.errorcode[e.errno]
    mode = stat.filemode(st.st_mode)
    if stat.S_ISLNK(st.st_mode):
        return f"{mode[0]}->{os.readlink(name)}"
    if stat.S_ISDIR(st.st_mode):
        return f"{mode}:{','.join(sorted(os.listdir(name)))}"
    return f"{mode}:{st.st_size}:{st.st_nlink}"


def say(name, call, *args):
    try:
        got = call(*args)
    except OSError as e:
        got = errno.errorcode.get(e.errno, e.errno)
    print(name, str(got).replace("\n", " "))


number = itertools.count()


def fresh():
    return f"n{next(number)}"


def close(fd):
    os.close(fd)
    return "ok"


FLAGS = {
    "r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR,
    "creat": os.O_CREAT | os.O_WRONLY,
    "excl": os.O_CREAT | os.O_EXCL | os.O_RDWR,
    "trunc": os.O_WRONLY | os.O_TRUNC,
    "creattrunc": os.O_CREAT | os.O_TRUNC | os.O_RDWR,
    "append": os.O_WRONLY | os.O_APPEND,
    "dir": os.O_RDONLY | os.O_DIRECTORY,
    "nofollow": os.O_RDONLY | os.O_NOFOLLOW,
    "dirw": os.O_RDWR | os.O_DIRECTORY,
    "sync": os.O_WRONLY | os.O_SYNC | os.O_CREAT,
}
for kind in KINDS:
    for word, flags in FLAGS.items():
        n = fresh()
        make(kind, n)
        say(f"open.{kind}.{word}", lambda: close(os.open(n, flags, 0o640)))
        print(f"open.{kind}.{word}.after", shown(n).replace(n, "N"))

CALLS = {
    "unlink": os.unlink, "rmdir": os.rmdir,
    "mkdir": lambda n: os.mkdir(n, 0o751),
    "mkdirslash": lambda n: os.mkdir(n + "/", 0o751),
    "symlink": lambda n: os.symlink("x", n),
    "chmod600": lambda n: os.chmod(n, 0o600),
    "chmod4711": lambda n: os.chmod(n, 0o4711),
    "chmod0": lambda n: os.chmod(n, 0),
    "truncate9": lambda n: os.truncate(n, 9),
    "truncate0": lambda n: os.truncate(n, 0),
    "truncatebig": lambda n: os.truncate(n, 1 << 32),
    "truncateneg": lambda n: os.truncate(n, -1),
    "utime": lambda n: os.utime(n, (5, 7)),
    "readlink": lambda n: os.readlink(n).replace(n, "N"),
    "listdir": lambda n: sorted(os.listdir(n)),
    "stat": lambda n: stat.filemode(os.stat(n).st_mode),
    "access": lambda n: os.access(n, os.R_OK | os.W_OK),
    "chownsame": lambda n: os.chown(n, os.getuid(), os.getgid()),
    "notdir": lambda n: os.stat(n + "/x"),
    "statslash": lambda n: stat.filemode(os.stat(n + "/").st_mode),
    "long": lambda n: os.stat("y" * 256),
    "mkdirlong": lambda n: os.mkdir("y" * 256),
    "mknodfile": lambda n: os.mknod(n, stat.S_IFREG | 0o640),
}
for kind in KINDS:
    for word, call in CALLS.items():
        n = fresh()
        make(kind, n)
        say(f"{word}.{kind}", call, n)
        print(f"{word}.{kind}.after", shown(n).replace(n, "N"))

for a in KINDS:
    for b in KINDS:
        m, n = fresh(), fresh()
        make(a, m)
        make(b, n)
        say(f"rename.{a}.{b}", os.rename, m, n)
        print(f"rename.{a}.{b}.after", shown(m).replace(m, "M"),
              shown(n).replace(n, "N").replace(m, "M"))
n = fresh()
make("full", n)
say("rename.intoself", os.rename, n, f"{n}/sub")
say("rename.same", os.rename, n, n)
say("rename.deep", os.rename, f"{n}/in", fresh())
say("rename.dotdot", os.rename, n, f"{n}/..")
say("rmdir.dot", os.rmdir, f"{n}/.")
say("unlink.slash", os.unlink, f"{n}/")

# ---- bytes
n = fresh()
fd = os.open(n, os.O_CREAT | os.O_RDWR, 0o644)
say("write", os.write, fd, b"0123456789")
say("pwrite.hole", os.pwrite, fd, b"end", 5000)
say("pread", os.pread, fd, 5, 8)
say("pread.hole", lambda: os.pread(fd, 20, 4990).count(b"\0"))
say("pread.past", os.pread, fd, 5, 9000)
say("size", lambda: os.fstat(fd).st_size)
say("ftruncate", os.ftruncate, fd, 4)
say("ftruncate.grow", os.ftruncate, fd, 6000)
say("zeros", lambda: os.pread(fd, 6000, 0).count(b"\0"))
say("seek.data", lambda: os.lseek(fd, 0, os.SEEK_DATA) >= 0)
say("seek.hole", lambda: os.lseek(fd, 0, os.SEEK_HOLE) <= 6000)
say("seek.past", os.lseek, fd, 7000, os.SEEK_DATA)
say("fallocate", os.posix_fallocate, fd, 0, 7000)
say("fallocate.size", lambda: os.fstat(fd).st_size)
say("fsync", os.fsync, fd)
say("fdatasync", os.fdatasync, fd)
say("fchmod", os.fchmod, fd, 0o600)
say("futimes", os.utime, fd, (3, 4))
say("mtime", lambda: os.fstat(fd).st_mtime)
say("lock", fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
say("flock", fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
say("write.big", os.write, fd, b"b" * 3000000)
m = mmap.mmap(fd, 8192)
m[4000:4010] = b"M" * 10
m.flush()
say("mmap", lambda: os.pread(fd, 12, 3999).count(b"M"))
os.pwrite(fd, b"W" * 10, 4000)
m.close()
say("unlinked", lambda: (os.unlink(n), os.fstat(fd).st_nlink,
                         os.pwrite(fd, b"U", 0), os.pread(fd, 1, 0),
                         os.ftruncate(fd, 3), os.fstat(fd).st_size)[1:])
os.close(fd)
fd = os.open(n, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for word in (b"a", b"bb", b"ccc"):
    os.write(fd, word)
say("append.pwrite", os.pwrite, fd, b"zz", 0)
say("append", lambda: open(n).read())
say("read.writeonly", os.read, fd, 1)
os.close(fd)
fd = os.open(n, os.O_RDONLY)
say("write.readonly", os.write, fd, b"x")
say("ftruncate.readonly", os.ftruncate, fd, 1)
say("fchmod.readonly", os.fchmod, fd, 0o640)
os.close(fd)
before = os.stat(n)
os.utime(n, (1, 2))
with open(n, "ab") as f:
    f.write(b"x")
say("mtime.moves", lambda: os.stat(n).st_mtime > 2)
d = fresh()
os.mkdir(d)
os.utime(d, (1, 2))
open(f"{d}/x", "w").close()
say("mtime.dir", lambda: os.stat(d).st_mtime > 2)
fd = os.open(d, os.O_RDONLY)
say("fsync.dir", os.fsync, fd)
say("openat", lambda: close(os.open("y", os.O_CREAT | os.O_RDWR, dir_fd=fd)))
os.unlink(f"{d}/x")
say("scandir", lambda: [(e.name, e.is_file()) for e in os.scandir(fd)])
os.close(fd)
deep = "/".join(["d"] * 60)
say("makedirs", os.makedirs, deep)
say("deep", lambda: open(f"{deep}/f", "w").write("deep"))
say("removedirs", lambda: (os.unlink(f"{deep}/f"), os.removedirs(deep))[1])
many = fresh()
os.mkdir(many)
for i in range(700):
    open(f"{many}/{i:04}", "w").close()
say("many", lambda: sorted(os.listdir(many)) == [f"{i:04}" for i in range(700)])
for name in os.listdir(many):
    os.unlink(f"{many}/{name}")
say("many.rmdir", os.rmdir, many)
for name in ("é", "a b", "new\nline", "-", "...", "x" * 255, "\\", "%2f"):
    say("name", lambda: (open(name, "w").close(), name in os.listdir("."),
                         os.unlink(name))[1])
