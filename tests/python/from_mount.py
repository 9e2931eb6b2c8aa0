# SPDX-License-Identifier: Apache-2.0
"""unshard.open() of what is in a mount reads the shards themselves, by .unshard/map."""
import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile

from kit import DATA, copy_of, case, mounted, need, refused

if not os.path.exists("/dev/fuse") or os.environ.get("MOUNT") == "skip":
    print("skip python/from_mount no /dev/fuse", flush=True)
    raise SystemExit(0)
need("numpy")
import unshard

LLAMA = DATA / "llama-fsdp2/in"
NORM = "model.model.norm.weight"


def reads(at):
    """Tensors' bytes that the mount was asked for, in requests."""
    lines = (at / ".unshard/stats").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.split()[0] in ("reads", "bytes"))


def same(ck, by):
    assert len(ck)
    for name, t in ck.items():
        assert t.tobytes() == by[name].tobytes(), name
    for name, t in ck.load(device="simulated:late=20").items():
        assert t.tobytes() == by[name].tobytes(), name


def views():
    """The mount, and what of it is a checkpoint or a file of one."""
    with unshard.open(LLAMA) as plain, mounted(LLAMA) as at:
        names = {t.name: t for t in plain.model().values()}
        hf = plain.model()
        for what in ("", "hf", "model.safetensors", "dcp"):
            with unshard.open(at / what) as ck:
                same(ck, hf if what == "hf" else plain)
        assert names and reads(at) == 0, reads(at)
        here = os.getcwd()
        try:  # a relative path, and "." itself
            os.chdir(at)
            same(unshard.open("."), plain)
            same(unshard.open("hf"), hf)
        finally:
            os.chdir(here)
        assert reads(at) == 0
        with unshard.open(at) as ck:  # other processes of the node
            with unshard.open(at, image=ck.image()) as other:
                same(other, plain)
        assert reads(at) == 0
        (at / "tensors" / NORM).read_bytes()
        assert reads(at) > 0


def runs():
    with tempfile.TemporaryDirectory() as tmp, unshard.open(LLAMA) as plain:
        for step in ("step-200", "step-300"):
            shutil.copytree(LLAMA, f"{tmp}/runs/{step}")
        with mounted(f"{tmp}/runs") as at:
            for one in (at / "step-200", at / "latest", at / "step-300/hf"):
                same(unshard.open(one), plain.model() if one.name == "hf" else plain)
            same(unshard.open(at, step="step-200"), plain)
            same(unshard.open(at, step="latest"), plain)
            assert reads(at / "step-200") == reads(at / "step-300") == 0
            refused(unshard.OpenError, lambda: unshard.open(at), "2 checkpoints", "name one")
        shutil.rmtree(f"{tmp}/runs/step-200")
        with mounted(f"{tmp}/runs") as at:  # its only one
            same(unshard.open(at), plain)
            assert reads(at / "step-300") == 0
        for part in "actor", "critic":  # nor is a step of parts none
            shutil.copytree(LLAMA, f"{tmp}/runs/step-400/{part}")
        with mounted(f"{tmp}/runs") as at:
            refused(unshard.OpenError, lambda: unshard.open(at), "2 checkpoints", "name one")
        shutil.rmtree(f"{tmp}/runs/step-300")
        shutil.rmtree(f"{tmp}/runs/step-400/critic")
        with mounted(f"{tmp}/runs") as at:
            same(unshard.open(at), plain)


def options():
    """What the mount was told of views, and files that links lead to."""
    with copy_of(LLAMA) as at, tempfile.TemporaryDirectory() as apart:
        shard = at / "__0_0.distcp"
        shutil.move(shard, f"{apart}/shard")
        shard.symlink_to(f"{apart}/shard")
        with mounted(at, follow=apart, strip_prefix="model.model.") as mnt:
            with unshard.open(LLAMA) as plain:
                same(unshard.open(mnt), plain)
            assert "norm.weight" in unshard.open(mnt / "hf")


def replaced():
    with copy_of(LLAMA) as at, mounted(at) as mnt:
        assert unshard.open(mnt)[NORM].tobytes()
        shard = at / "__1_0.distcp"
        data = shard.read_bytes()
        shard.unlink()
        shard.write_bytes(data)
        os.utime(shard, ns=(1, 1))
        e = refused(unshard.OpenError, lambda: unshard.open(mnt), "is a mount", "__1_0.distcp")
        assert e.errno == errno.ESTALE, e


@contextlib.contextmanager
def away(path):
    """Meanwhile nothing is at that path; the mount goes on."""
    os.rename(path, f"{path}.away")
    try:
        yield
    finally:
        os.rename(f"{path}.away", path)


def opened(folder):
    """Shards in it that this process has open."""
    links = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    paths = [os.readlink(at) for at in links if os.path.exists(at)]
    return [at for at in paths if at.startswith(str(folder)) and at.endswith(".distcp")]


def out_of_sight():
    """Where the shards cannot be seen, the mount hands their descriptors over."""
    with copy_of(LLAMA) as at, mounted(at) as mnt, unshard.open(LLAMA) as plain:
        with away(at):
            for what in ("", "hf", "model.safetensors"):
                with unshard.open(mnt / what) as ck:
                    same(ck, plain.model() if what == "hf" else plain)
                    assert len(opened(f"{at}.away")) == 4
            assert reads(mnt) == 0
        shard = at / "__1_0.distcp"
        data = shard.read_bytes()
        shard.unlink()
        shard.write_bytes(data)
        with away(at):
            e = refused(unshard.OpenError, lambda: unshard.open(mnt), "shards", "__1_0.distcp")
            assert e.errno == errno.ESTALE, e


def one_file():
    with copy_of(DATA / "llama-tied-f32/in") as at:
        one = at / "model-00001-of-00002.safetensors"
        with unshard.open(one) as plain, mounted(one) as mnt, away(at):
            same(unshard.open(mnt), plain)
            assert reads(mnt) == 0


def apart(mnt, hidden, *how):
    """What child() prints, in a namespace where a folder is hidden."""
    script = f"mount -t tmpfs none {hidden} && exec {sys.executable} {__file__} child {mnt}"
    return subprocess.run(["unshare", "--propagation", "private", "-m", *how, "sh", "-c", script],
                          check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def child(mnt):
    with unshard.open(mnt) as ck:
        print(hashlib.sha256(b"".join(t.tobytes() for t in ck.values())).hexdigest(),
              len(opened("/")) - len(opened(mnt)))


def namespaces():
    if os.geteuid():
        print("skip python/from_mount/namespaces needs root", flush=True)
        return
    with tempfile.TemporaryDirectory() as tmp, unshard.open(LLAMA) as plain:
        want = hashlib.sha256(b"".join(t.tobytes() for t in plain.values())).hexdigest()
        shutil.copytree(LLAMA, f"{tmp}/ckpt")
        with mounted(f"{tmp}/ckpt") as mnt:
            assert apart(mnt, tmp) == [want, "4"]
            assert reads(mnt) == 0
            # Nobody is reached from another network: the mount is read.
            assert apart(mnt, tmp, "-n") == [want, "0"]


def others():
    """Who may not read a shard gets no descriptor of it."""
    if os.geteuid():
        print("skip python/from_mount/others needs root", flush=True)
        return
    with copy_of(LLAMA) as at:
        os.chmod(at.parent, 0o755)
        (at / "__2_0.distcp").chmod(0o600)
        with mounted(at, allow_other=True) as mnt:
            pid = os.fork()
            if not pid:
                try:
                    as_nobody(mnt)
                finally:
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 7 << 8


def as_nobody(mnt):
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    with open(mnt / "shards/__1_0.distcp") as f:
        assert token(f.fileno())
    try:
        open(mnt / "shards/__2_0.distcp")
    except PermissionError:
        os._exit(7)


ASK = 2 << 30 | 64 << 16 | ord("u") << 8 | 0x75  # CK_MAP_ASK_TOKEN


def token(fd):
    """The socket and the token; None: there is none of such a file."""
    try:
        got = fcntl.ioctl(fd, ASK, bytes(64))
    except OSError as e:
        assert e.errno == errno.ENOTTY, e
        return None
    return b"\0" + got[:48].rstrip(b"\0"), got[48:]


def call(at, *said):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(at)
    for one in said:
        s.send(one)
    return s


def sockets():
    """A token is good once, no other bytes are, and nobody keeps others waiting."""
    with copy_of(LLAMA) as at, mounted(at) as mnt, away(at):
        with open(mnt / "shards/__0_0.distcp", "rb") as f:
            name, good = token(f.fileno())
            silent = [call(name) for _ in range(40)]
            with call(name, bytes(16)) as s:
                assert socket.recv_fds(s, 1, 1)[:2] == (b"", [])
            with call(name, good[:15]) as s:
                assert socket.recv_fds(s, 1, 1)[:2] == (b"", [])
            with call(name, good) as s:
                [fd] = socket.recv_fds(s, 1, 1)[1]
            assert os.pread(fd, 1 << 20, 0) == f.read()
            assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            os.close(fd)
            with call(name, good) as s:
                assert socket.recv_fds(s, 1, 1)[:2] == (b"", [])
            many = [token(f.fileno())[1] for _ in range(300)]
            with call(name, many[0]) as s:
                assert socket.recv_fds(s, 1, 1)[:2] == (b"", [])
            with call(name, many[-1]) as s:
                os.close(socket.recv_fds(s, 1, 1)[1][0])
            assert len(unshard.open(mnt)) == 12
            for s in silent:
                s.close()
        for other in (mnt / "tensors" / NORM, mnt / "shards", mnt / ".unshard/stats"):
            fd = os.open(other, os.O_RDONLY)
            assert token(fd) is None, other
            os.close(fd)
    with mounted(LLAMA, map="off") as mnt, open(mnt / "shards/__0_0.distcp", "rb") as f:
        assert token(f.fileno()) is None


def without():
    """Then the mount itself is read, as any folder of files."""
    with unshard.open(LLAMA) as plain:
        with mounted(LLAMA, map="off") as at:
            assert not (at / ".unshard/map").exists()
            for what in ("model.safetensors", "dcp", ""):
                same(unshard.open(at / what), plain)
            assert reads(at) > 0
        with copy_of(LLAMA) as to, mounted(to, rw=True) as at:
            assert not (at / ".unshard/map").exists()
            same(unshard.open(at), plain)
        with tempfile.TemporaryDirectory() as tmp:
            shutil.copytree(LLAMA, f"{tmp}/step-1")
            with mounted(tmp, map="off") as at:
                same(unshard.open(at), plain)
                same(unshard.open(at / "step-1"), plain)
                same(unshard.open(at, step="step-1"), plain)


def planted():
    """A file of a checkpoint is never taken for a map."""
    with copy_of(LLAMA) as at, mounted(DATA / "llama-fsdp2/in") as mnt:
        (at / ".unshard").mkdir()
        shutil.copy(mnt / ".unshard/map", at / ".unshard/map")
        for shard in at.glob("*.distcp"):
            os.utime(shard, ns=(1, 1))
        with unshard.open(LLAMA) as plain:
            same(unshard.open(at), plain)


if sys.argv[1:2] == ["child"]:
    child(sys.argv[2])
else:
    for test in (views, runs, options, replaced, out_of_sight, one_file, namespaces, others,
                 sockets, without, planted):
        case(test)
