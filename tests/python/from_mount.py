# SPDX-License-Identifier: Apache-2.0
"""unshard.open() of what is in a mount reads the shards themselves, by .unshard/map."""
import errno
import os
import shutil
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


def gone():
    """The shards are not to be seen under the path that the map says."""
    with copy_of(LLAMA) as at:
        with mounted(at) as mnt:
            os.rename(at, f"{at}.away")
            try:
                refused(unshard.NotFound, lambda: unshard.open(mnt), "is a mount", str(at))
            finally:
                os.rename(f"{at}.away", at)


def without():
    """Then the mount itself is read, as any folder of files."""
    with unshard.open(LLAMA) as plain:
        with mounted(LLAMA, map="off") as at:
            assert not (at / ".unshard/map").exists()
            same(unshard.open(at / "model.safetensors"), plain)
            assert reads(at) > 0
        with copy_of(LLAMA) as to, mounted(to, rw=True) as at:
            assert not (at / ".unshard/map").exists()


def planted():
    """A file of a checkpoint is never taken for a map."""
    with copy_of(LLAMA) as at, mounted(DATA / "llama-fsdp2/in") as mnt:
        (at / ".unshard").mkdir()
        shutil.copy(mnt / ".unshard/map", at / ".unshard/map")
        for shard in at.glob("*.distcp"):
            os.utime(shard, ns=(1, 1))
        with unshard.open(LLAMA) as plain:
            same(unshard.open(at), plain)


for test in (views, runs, options, replaced, gone, without, planted):
    case(test)
