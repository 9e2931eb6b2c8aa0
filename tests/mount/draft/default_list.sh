# SPDX-License-Identifier: Apache-2.0
# What others make in a new checkpoint has the mode and the access lists that it has in
# a plain folder: a default list counts instead of their umask, set-user-ID stays, and a
# step in a set-group-ID folder is that folder's group's.
. "$(dirname "$0")/../lib/common.sh"
requires "${PYTHON:=python3}"
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

mkdir -m 755 "$WORK/src" "$WORK/plain"
chmod 755 "$MNT"
as_user ls "$WORK/src" >/dev/null 2>&1 || skip "$WORK is not open to others"
mount_ckpt "$WORK/src" rw,allow_other,publish=manual
mkdir "$MNT/s" || fail mkdir
"$PYTHON" - "$WORK/plain" "$MNT" "$WORK/src" <<'Q'
import itertools, os, shutil, struct, sys
plain, mnt, src = sys.argv[1:]
below, through = src + "/.staging-s/files", mnt + "/s/shards"
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NONE = 0xffffffff

def rows(*v):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *r) for r in v)

LISTS = [
    None,
    rows((1, 7, NONE), (2, 6, 1234), (4, 0, NONE), (16, 7, NONE), (32, 0, NONE)),
    rows((1, 6, NONE), (4, 4, NONE), (8, 7, 4321), (16, 5, NONE), (32, 2, NONE)),
    rows((1, 4, NONE), (4, 7, NONE), (32, 5, NONE)),
]

def by(uid, umask, f):
    pid = os.fork()
    if not pid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.umask(umask)
        try:
            f()
        except OSError as e:
            os._exit(e.errno)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert not code, os.strerror(code)

def make(folder, mode):
    fd = os.open(folder + "/f", os.O_CREAT | os.O_EXCL | os.O_RDONLY, mode)
    os.close(fd)
    os.mknod(folder + "/n", 0o100000 | mode)
    os.mkdir(folder + "/d", mode)

def look(path):
    st, lists = os.stat(path), []
    for name in (ACCESS, DEFAULT):
        try:
            lists.append(os.getxattr(path, name).hex())
        except OSError:
            lists.append("")
    return "%o" % st.st_mode, st.st_uid, st.st_gid, *lists

def prepare(folder, mode, rights):
    os.chown(folder, 0, 4321)
    os.chmod(folder, mode)
    try:
        os.removexattr(folder, DEFAULT)
    except OSError:
        pass
    if rights:
        os.setxattr(folder, DEFAULT, rights)

os.umask(0)
try:
    os.setxattr(plain, DEFAULT, LISTS[1])
    os.removexattr(plain, DEFAULT)
except OSError:
    LISTS = LISTS[:1]
    print("access lists are not known here", file=sys.stderr)
bad = 0

def same(what, one, other):
    global bad
    if one != other:
        bad += 1
        print(*what, "\n  plain:", *one, "\n  mount:", *other, file=sys.stderr)

for rights, how, umask, mode, uid in itertools.product(
        LISTS, (0o777, 0o2777), (0, 0o22, 0o77), (0o666, 0o600, 0o4755, 0o1777), (0, 1234)):
    for base, at in (plain, plain), (below, through):
        os.mkdir(base + "/x")
        prepare(base + "/x", how, rights)
        by(uid, umask, lambda: make(at + "/x", mode))
    for name in "fnd":
        same(("%o in %o" % (mode, how), rights, "umask %o" % umask, uid, name),
             look(plain + "/x/" + name), look(below + "/x/" + name))
    for base in plain, below:
        shutil.rmtree(base + "/x")

# a step, whose own user may always change it
for rights, how, umask in itertools.product(LISTS[:3], (0o777, 0o2777), (0o22, 0o77)):
    for base, at in (plain, plain), (src, mnt):
        prepare(base, how, rights)
        by(1234, umask, lambda: os.mkdir(at + "/t", 0o777))
    one, other = look(plain + "/t"), look(src + "/.staging-t")
    if one[0][-3] == "7":
        same(("a step in %o" % how, rights, "umask %o" % umask), one, other)
    else:
        same(("a step's owner",), one[1:3], other[1:3])
    os.rmdir(plain + "/t")
    os.rmdir(mnt + "/t")
sys.exit(bad > 0)
Q
[ $? = 0 ] || fail "another mode than in a plain folder"
umount_ckpt
done_ok
