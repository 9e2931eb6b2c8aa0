# SPDX-License-Identifier: Apache-2.0
"""The power goes: a disk that logs each write (tests/mount/blocklog.c) is played back
up to a place that the seed chooses, and what ext4 makes of that is looked at."""
import os
import random
import shutil
import struct
import subprocess

from works import Bad

SIZE = 16 << 20


def sh(*args):
    subprocess.run(args, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Disk:
    """An ext4 in which a work is played, and its tape."""

    def __init__(self, top, rig):
        self.top = top
        self.disk, self.base, self.tape = (os.path.join(top, n) for n in ("disk", "base", "tape"))
        self.rig, self.ext = os.path.join(top, "rig"), os.path.join(top, "ext")
        os.mkdir(self.rig)
        os.mkdir(self.ext)
        with open(self.disk, "wb") as f:
            f.truncate(SIZE)
        sh("mkfs.ext4", "-q", "-F", "-b", "1024", "-J", "size=1", self.disk)
        sh("cp", "--sparse=always", self.disk, self.base)
        self.p = subprocess.Popen([rig, self.disk, self.tape, self.rig])
        while not os.path.exists(os.path.join(self.rig, "disk")):
            if self.p.poll() is not None:
                raise OSError("the rig does not answer")
        sh("mount", "-o", "loop", os.path.join(self.rig, "disk"), self.ext)
        shutil.rmtree(os.path.join(self.ext, "lost+found"))

    def close(self):
        sh("umount", self.ext)
        sh("umount", self.rig)
        self.p.wait()

    def ends(self, start):
        """Where each write on the tape ends, from byte @start on."""
        at, out = 0, []
        with open(self.tape, "rb") as f:
            while head := f.read(16):
                f.seek(struct.unpack("<QQ", head)[1], 1)
                at = f.tell()
                if at >= start:
                    out.append(at)
        return out

    def replay(self, end, image):
        shutil.copyfile(self.base, image)
        with open(self.tape, "rb") as f, open(image, "r+b") as d:
            while f.tell() < end:
                off, n = struct.unpack("<QQ", f.read(16))
                d.seek(off)
                d.write(f.read(n))


def cuts(crash, works, Run, args, seed, fault):
    """Each work on a disk; of what was written then, some ends of writes."""
    each = 1000 if args.all else max(2, args.n // 40)
    for nr, work in enumerate(works):
        s = f"{seed}-power-{nr}"
        top = os.path.join(crash.top, f"power-{nr}")
        os.mkdir(top)
        disk = Disk(top, os.path.abspath(args.power))
        os.mkdir(os.path.join(top, "run"))
        run = Run(os.path.join(top, "run"), work, s, fault, 1, disk.tape)
        run.src = disk.ext + "/src"
        os.mkdir(run.src)
        try:
            work.make(run)
            sh("sync", "-f", disk.ext)
            begin = os.stat(disk.tape).st_size
            work.play(run)
            run.umount()
            run.fault = None
        finally:
            disk.close()
        ends = disk.ends(begin)
        # the same names, on the disk as it was
        top_of = run.src
        run.src = os.path.join(top, "cut")
        os.mkdir(run.src)
        for k in ("ckpt", "over"):
            if hasattr(run, k):
                setattr(run, k, getattr(run, k).replace(top_of, run.src + "/src"))
        root, run.src = run.src, run.src + "/src"
        rng = random.Random(s)
        for end in sorted(rng.sample(ends, min(each, len(ends)))):
            one(crash, run, disk, end, root, f"{work.name} power (seed {s})")
            if args.v:
                print(f"{work.name} power {end}", flush=True)
        run.page.close()


def one(crash, run, disk, end, root, what):
    image = os.path.join(run.top, "image")
    disk.replay(end, image)
    sh("mount", "-o", "loop", image, root)
    try:
        run.work.check(run, end)
        verdict = "right"
    except Bad as e:
        verdict = e.kind
        crash.bad.append(f"{what}, cut at {end}: {e.kind}: {e}")
    finally:
        try:
            run.umount()
        finally:
            sh("umount", root)
    crash.count["runs"] += 1
    crash.count["power"] += 1
    crash.count[verdict] += 1
