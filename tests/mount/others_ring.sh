# SPDX-License-Identifier: Apache-2.0
# Who opens by io_uring has no more than he has himself: its threads keep groups and
# rights that the process has laid down since.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

mkdir -m 755 "$WORK/above"
make_safetensors "$WORK/above/ckpt/model.safetensors"
chmod 755 "$MNT" "$WORK/above/ckpt"
chmod 644 "$WORK/above/ckpt/model.safetensors"
as_user cat "$WORK/above/ckpt/model.safetensors" >/dev/null ||
	skip "$WORK is not open to others"
mount_ckpt "$WORK/above/ckpt" allow_other
# the kernel does not see this in the mode that is shown
chgrp 4321 "$WORK/above"
chmod 750 "$WORK/above"

"$PYTHON" - "$WORK/above/ckpt/model.safetensors" "$MNT/tensors/a" <<'Q'
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
SETUP, ENTER, CAPSET = 425, 426, {"x86_64": 126}.get(os.uname().machine, 91)
OPENAT, ASYNC, GETEVENTS = 18, 1 << 4, 1
DAC_OVERRIDE, SETGID = 1 << 1, 1 << 6

def syscall(*v):
    r = libc.syscall(*(ctypes.c_long(x) if isinstance(x, int) else x for x in v))
    if r < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r

class Ring:
    def __init__(self):
        p = ctypes.create_string_buffer(120)
        self.fd = syscall(SETUP, 4, p)
        v = struct.unpack_from("<30I", p)
        self.sq, self.cq = v[10:20], v[20:30]
        self.sqr = mmap.mmap(self.fd, self.sq[6] + v[0] * 4, offset=0)
        self.cqr = mmap.mmap(self.fd, self.cq[5] + v[1] * 16, offset=0x8000000)
        self.sqes = mmap.mmap(self.fd, v[0] * 64, offset=0x10000000)

    def open(self, path):
        """0, or an errno"""
        name = ctypes.create_string_buffer(path.encode())
        tail, = struct.unpack_from("<I", self.sqr, self.sq[1])
        mask, = struct.unpack_from("<I", self.sqr, self.sq[2])
        i = tail & mask
        self.sqes[i * 64:i * 64 + 64] = struct.pack(
            "<BBHiQQII32x", OPENAT, ASYNC, 0, -100, 0, ctypes.addressof(name), 0, 0)
        struct.pack_into("<I", self.sqr, self.sq[6] + 4 * i, i)
        struct.pack_into("<I", self.sqr, self.sq[1], tail + 1)
        syscall(ENTER, self.fd, 1, 1, GETEVENTS, 0, 0)
        head, = struct.unpack_from("<I", self.cqr, self.cq[0])
        mask, = struct.unpack_from("<I", self.cqr, self.cq[2])
        _, res, _ = struct.unpack_from("<QiI", self.cqr, self.cq[5] + 16 * (head & mask))
        struct.pack_into("<I", self.cqr, self.cq[0], head + 1)
        if res >= 0:
            os.close(res)
        return -min(res, 0)

def rights(caps):
    syscall(CAPSET, struct.pack("<II", 0x20080522, 0), struct.pack("<6I", caps, caps, 0, 0, 0, 0))

def himself(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
        return 0
    except OSError as e:
        return e.errno

def process(groups, caps, plain, shown):
    """Opens by a ring, lays down what it had, and opens again."""
    libc.prctl(8, 1, 0, 0, 0)
    os.setgroups(groups)
    os.setresgid(1234, 1234, 1234)
    os.setresuid(1234, 1234, 1234)
    rights(SETGID | caps)
    ring = Ring()
    for path in plain, shown:
        assert ring.open(path) == himself(path) == 0, "not as himself: " + path
    os.setgroups([])
    rights(0)
    for path in plain, shown:
        assert (ring.open(path), himself(path)) == (13, 13), "laid down, and used: " + path

try:
    Ring()
except OSError as e:
    print("io_uring:", e)
    sys.exit(77)
for had in ([4321], 0), ([], DAC_OVERRIDE):
    pid = os.fork()
    if not pid:
        process(*had, *sys.argv[1:])
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit(1)
Q
rc=$?
umount_ckpt
[ $rc = 77 ] && skip "no io_uring here"
[ $rc = 0 ] || fail "not as a plain file"
done_ok
