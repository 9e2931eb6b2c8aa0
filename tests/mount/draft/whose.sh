# SPDX-License-Identifier: Apache-2.0
# What other users make in a new checkpoint is theirs: files, folders and links, which
# they may remove again where only their owner may.
. "$(dirname "$0")/../lib/common.sh"
requires setpriv "${PYTHON:=python3}"
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

SRC=$WORK/src
mkdir -m 755 "$SRC"
chmod 755 "$MNT"
as_user ls "$SRC" >/dev/null 2>&1 || skip "$WORK is not open to others"
mount_ckpt "$SRC" rw,allow_other
mkdir "$MNT/s" && chmod 1777 "$MNT/s/shards" || fail mkdir
P=$MNT/s/shards
mkdir -p "$P/a/sticky" "$P/group" "$P/setgid" && chmod 755 "$P/a" &&
	chmod 1777 "$P/a/sticky" && chmod 770 "$P/group" && chmod 2777 "$P/setgid" &&
	chgrp 4321 "$P/group" "$P/setgid" || fail folders

cat >"$WORK/whose.py" <<'Q'
import errno, os

def by(uid, groups, f):
    """f(), by that user: 0, or an errno"""
    pid = os.fork()
    if not pid:
        os.setgroups(groups), os.setgid(uid), os.setuid(uid)
        try:
            f()
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def want(code, uid, groups, f, what):
    got = by(uid, groups, f)
    assert got == code, f"{what}: {errno.errorcode.get(got, got)}"

def is_his(path, uid, gid):
    st = os.lstat(path)
    assert (st.st_uid, st.st_gid) == (uid, gid), f"{path} is {st.st_uid}:{st.st_gid}'s"
Q
export PYTHONPATH=$WORK PYTHONDONTWRITEBYTECODE=1
"$PYTHON" - "$P" <<'Q' || fail "not as on any disk"
import sys
from whose import *
P = sys.argv[1]

def make(d):
    open(f"{d}/f", "x").close()
    os.mkdir(f"{d}/d")
    os.symlink("f", f"{d}/l")

def remove(d):
    os.unlink(f"{d}/l")
    os.rmdir(f"{d}/d")
    os.unlink(f"{d}/f")

for d in P, f"{P}/a/sticky":
    want(0, 1234, [], lambda: make(d), f"making in {d}")
    for n in "fdl":
        is_his(f"{d}/{n}", 1234, 1234)
    assert os.readlink(f"{d}/l") == "f"
    want(errno.EEXIST, 1234, [], lambda: os.symlink("f", f"{d}/l"), "a link again")
    want(errno.EPERM, 1235, [], lambda: os.unlink(f"{d}/l"), "removed by another")
    want(0, 1234, [], lambda: remove(d), f"removing in {d}")
want(errno.EPERM, 1234, [], lambda: os.symlink("/etc/passwd", f"{P}/out"), "a link out")
want(errno.EPERM, 1234, [], lambda: os.symlink("../../x", f"{P}/out"), "a link out")
want(errno.EACCES, 1234, [], lambda: os.symlink("f", f"{P}/group/l"), "no right to")
want(0, 1234, [4321], lambda: os.symlink("f", f"{P}/group/l"), "by a group")
is_his(f"{P}/group/l", 1234, 1234)
want(0, 1234, [], lambda: os.symlink("f", f"{P}/setgid/l"), "set-group-ID")
is_his(f"{P}/setgid/l", 1234, 4321)
os.symlink("f", f"{P}/roots")
is_his(f"{P}/roots", 0, 0)
# the same call again is another link, however long it is
long = "x/" * 1400 + "y"
for _ in range(2):
    want(0, 1234, [], lambda: os.symlink(long, f"{P}/long"), "a long one")
    is_his(f"{P}/long", 1234, 1234)
    want(0, 1234, [], lambda: os.unlink(f"{P}/long"), "a long one removed")
Q

# a write takes such bits, also those that came after the file was opened
"$PYTHON" - "$P" <<'Q' || fail "set-user-ID after a write"
import sys
from whose import *
P = sys.argv[1]

def write_own(mode, later):
    os.umask(0)
    f = os.open(f"{P}/id", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755 if later else mode)
    if later:
        os.fchmod(f, mode)
    os.write(f, b"x")
    os.close(f)

for mode, kept in (0o4775, 0o775), (0o2775, 0o775), (0o2765, 0o2765):
    for later in False, True:
        for uid in 1234, 0:
            want(0, uid, [], lambda: write_own(mode, later), "writing his own")
            got = os.stat(f"{P}/id").st_mode & 0o7777
            assert got == (kept if uid else mode), f"{mode:o} {later} {uid}: {got:o}"
            os.unlink(f"{P}/id")

# by another, who has it open already
for flags in os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND:
    want(0, 1234, [], lambda: open(f"{P}/id", "x").close(), "id")
    os.chmod(f"{P}/id", 0o777)
    f = os.open(f"{P}/id", flags)
    os.chmod(f"{P}/id", 0o4777)
    want(0, 1235, [], lambda: os.write(f, b"code"), "writing another's")
    os.close(f)
    got = os.stat(f"{P}/id").st_mode & 0o7777
    assert got == 0o777, f"another's, {flags:o}: {got:o}"
    os.unlink(f"{P}/id")
Q

# whose it is by now, and not when the kernel was told
umount_ckpt
UNSHARD_KEEP=60 mount_ckpt "$SRC" rw,allow_other
"$PYTHON" - "$P" "$SRC/.staging-s/files" <<'Q' || fail "by who was its owner"
import ctypes, sys
from whose import *
P, F = sys.argv[1:]

def exchange(a, b):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2):
        raise OSError(ctypes.get_errno(), "renameat2")

D = "a/sticky"
FROM_HIM = {
    "unlink": lambda f, own: os.unlink(f),
    "rename": lambda f, own: os.rename(f, f + "-2"),
    "rename elsewhere": lambda f, own: os.rename(f, f"{P}/elsewhere"),
    "replace": lambda f, own: os.rename(own, f),
    "exchange": lambda f, own: exchange(own, f),
    "exchanged": lambda f, own: exchange(f, own),
}
for what, f in FROM_HIM.items():
    for n in "f", "own":
        want(0, 1234, [], lambda: open(f"{P}/{D}/{n}", "x").close(), n)
        is_his(f"{P}/{D}/{n}", 1234, 1234)
    os.chown(f"{F}/{D}/f", 1235, 1235)
    want(errno.EPERM, 1234, [], lambda: f(f"{P}/{D}/f", f"{P}/{D}/own"), what)
    assert os.stat(f"{F}/{D}/f").st_uid == 1235, f"{what}: it is gone"
    os.chown(f"{F}/{D}/f", 1234, 1234)
    want(0, 1234, [], lambda: f(f"{P}/{D}/f", f"{P}/{D}/own"), f"{what} of his own")
    for d in D, ".":
        for n in "f", "f-2", "own", "elsewhere":
            if os.path.lexists(f"{P}/{d}/{n}"):
                os.unlink(f"{P}/{d}/{n}")
# modes and times too: he has it open, so that nobody looks it up again
def held(uid, mode, groups, now, f):
    """f(fd) by 1234, whose it was; meanwhile it became @uid's, of group 4321"""
    os.close(os.open(f"{P}/held", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.chown(f"{P}/held", 1234, 1234)
    def his():
        fd = os.open(f"{P}/held", os.O_RDWR)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        f(fd)
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.read(ready[0], 1)
        os.chown(f"{F}/held", uid, 4321)
        os.chmod(f"{F}/held", mode)
        os.write(go[1], b"x")
        os._exit(0)
    want(now, 1234, groups, his, "what he held")
    os.waitpid(pid, 0)
    for end in ready + go:
        os.close(end)
    st = os.stat(f"{F}/held")
    os.unlink(f"{P}/held")
    return st

EPERM, EACCES = errno.EPERM, errno.EACCES
st = held(1235, 0o600, [], EPERM, lambda fd: os.fchmod(fd, 0o666))
assert st.st_mode & 0o777 == 0o600, "a mode that was not his"
st = held(1235, 0o600, [], EPERM, lambda fd: os.utime(fd, ns=(5, 5)))
assert st.st_mtime_ns != 5, "times that were not his"
held(1235, 0o644, [], EACCES, lambda fd: os.utime(fd))
held(1235, 0o666, [], 0, lambda fd: os.utime(fd))
held(1235, 0o600, [], EPERM, lambda fd: os.fchown(fd, 1234, -1))
held(1235, 0o600, [], EPERM, lambda fd: os.fchown(fd, -1, 1234))
for groups in [], [4321]:
    st = held(1234, 0o600, groups, 0, lambda fd: os.fchmod(fd, 0o2755))
    mode = 0o2755 if groups else 0o755
    assert st.st_mode & 0o7777 == mode, f"{st.st_mode:o} of {groups}"
st = held(1235, 0o4766, [], 0, lambda fd: os.write(fd, b"x"))
assert st.st_mode & 0o7777 == 0o766, f"written: {st.st_mode:o}"

want(0, 1234, [], lambda: os.mkdir(f"{P}/{D}/d"), "mkdir")
is_his(f"{P}/{D}/d", 1234, 1234)
os.chown(f"{F}/{D}/d", 1235, 1235)
want(errno.EPERM, 1234, [], lambda: os.rmdir(f"{P}/{D}/d"), "rmdir")
os.rmdir(f"{P}/{D}/d")
Q
[ -z "${SAN:-}" ] || done_ok
for p in $(pids_of unshard-asker); do
	awk '$1 == "CapPrm:" { exit $2 != "00000000000000c0" }' "/proc/$p/status" ||
		fail "an asker has more rights: $(grep Cap "/proc/$p/status")"
done
done_ok
