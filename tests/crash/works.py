# SPDX-License-Identifier: Apache-2.0
"""Ways of writing: what a run makes, does, and finds afterwards.

check(run, at) is given the place on the disk's tape where the power went, or None
where it did not: then what a process was told is on storage of this machine at least
in memory, and has to be there.
"""
import functools
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
import zipfile

LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount", "lib")
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "demo", "checkpoint")
ROWS, COLUMNS, PIECES = 40, 1001, 3
NOTHING = -1  # had been answered for by then


class Bad(Exception):
    def __init__(self, text, kind="wrong"):
        super().__init__(text)
        self.kind = kind


def torn(text):
    return Bad(text, "torn")


def lost(text):
    return Bad(text, "lost")


# ---- checkpoints ----

@functools.lru_cache(None)
def made(program, *args):
    """{name: bytes} of a folder that a program of tests/mount/lib writes."""
    import tempfile
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, os.path.join(LIB, program), os.path.join(d, "ckpt"),
                        *([os.path.join(d, "whole")] if program == "split.py" else []),
                        *map(str, args)], check=True)
        return read_folder(os.path.join(d, "ckpt"))


def read_folder(path):
    return {n: open(os.path.join(path, n), "rb").read() for n in sorted(os.listdir(path))
            if not n.startswith(".unshard-")}


def write_folder(path, files):
    os.makedirs(path)
    for n, data in files.items():
        with open(os.path.join(path, n), "wb") as f:
            f.write(data)


def split_whole(files):
    """Tensor w of what split.py makes, read without us."""
    parts = []
    for n, data in sorted(files.items()):
        if not n.startswith("shard-"):
            continue
        size = struct.unpack_from("<Q", data)[0]
        t = json.loads(data[8 : 8 + size])["w"]
        lo, hi = t["data_offsets"]
        width = t["shape"][1]
        body = data[8 + size + lo : 8 + size + hi]
        parts.append([body[i * width : (i + 1) * width] for i in range(t["shape"][0])])
    return b"".join(b"".join(row) for row in zip(*parts))


def zip_of(data):
    """A file of torch.save, of one tensor w of these bytes."""
    n = struct.pack("<i", len(data))
    pickle = (b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n(("
              b"X\x07\x00\x00\x00storagectorch\nByteStorage\nX\x01\x00\x00\x000"
              b"X\x03\x00\x00\x00cpuJ" + n + b"tQK\x00J" + n + b"\x85K\x01\x85\x89"
              b"ccollections\nOrderedDict\n)RtRs.")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("m/data.pkl", pickle)
        z.writestr("m/data/0", data)
        z.writestr("m/version", b"3\n")
    return out.getvalue()


def zip_whole(files):
    """Its tensor, whatever its sum is."""
    data = files["model.pt"]
    i = zipfile.ZipFile(io.BytesIO(data)).getinfo("m/data/0")
    name, extra = struct.unpack_from("<HH", data, i.header_offset + 26)
    return data[i.header_offset + 30 + name + extra :][: i.file_size]


# ---- what may be in a file that was written ----

def data_of(e):
    return random.Random(e["seed"]).randbytes(e["len"])


def known(e, at):
    """What it did had been answered for when the power went."""
    return e.get("end") is not None and not e["error"] and (at is None or e["end"] <= at)


def begun(e, at):
    return at is None or e["begun"] < at


def compare(old, now, events, at, what):
    """now is old after the events: all that are sure, of the others any part."""
    if len(now) != len(old):
        raise torn(f"{what}: {len(now)} bytes, not {len(old)}")
    synced = max((i for i, e in enumerate(events) if e["op"] == "sync" and known(e, at)),
                 default=-1)
    want, order, maybe = bytearray(old), [-1] * len(old), []
    for i, e in enumerate(events):
        if e["op"] != "write" or not begun(e, at):
            continue
        lo, hi = e["off"], e["off"] + e["len"]
        if known(e, at) and (at is None or i < synced):
            want[lo:hi] = data_of(e)
            order[lo:hi] = [i] * (hi - lo)
        else:
            maybe.append((i, lo, hi, data_of(e)))
    for i in range(len(old)):
        if now[i] == want[i] or any(lo <= i < hi and n > order[i] and d[i - lo] == now[i]
                                    for n, lo, hi, d in maybe):
            continue
        text = f"{what}: byte {i} is {now[i]:02x}, not {want[i]:02x}, the last of write {order[i]}"
        raise torn(text) if order[i] < 0 else lost(text)


class Work:
    process = "unshard-worker"
    mounts = True
    mine = ""  # option of -o

    def engine(self, run):
        return f"engine={run.fault.engine}" if run.fault else "engine=auto"

    def verified(self, run, path, what, kind=torn):
        """It is sealed, and as it was sealed."""
        code, out = run.command("verify", path)
        if code or "as they were sealed" not in out:
            raise kind(f"{what}: {out.strip()[-300:]}")

    def start(self, run, src, opts):
        """Whether it is mounted; a fault may be before that."""
        code, out = run.mount(src, opts + "," + self.engine(run), faulty=True)
        run.died = False
        if code:
            if not run.fault:
                raise Bad(f"mount: {out}")
            run.died = True
        return not code

    def finish(self, run):
        run.died = run.died or not run.processes("-worker")
        run.umount()

    def again(self, run, src, opts):
        code, out = run.mount(src, opts)
        if code:
            raise Bad(f"mounted again: {out}")

    def well(self, run, program):
        """What was done, where nothing has to fail."""
        events = run.apart(program)
        for e in events:
            if e["error"]:
                raise Bad(f"afterwards, {e['op']}: {e['error']}")
        return events

    def random_writes(self, run, path, size):
        """A program of writes, of which some are synced."""
        ops = []
        for i in range(14):
            n = run.rng.choice((1, 100, 3000, 9000))
            ops.append(("write", run.rng.randrange(size - n), n, f"{run.rng.random()}"))
            if run.rng.random() < 0.4:
                ops.append(("sync",))
        ops.append(("sync",))

        def program(do):
            fd = [-1]

            def start():
                fd[0] = os.open(path, os.O_RDWR)

            if not do(start, op="open"):
                return
            for o in ops:
                if o[0] == "sync":
                    do(lambda: os.fsync(fd[0]), op="sync")
                else:
                    _, off, n, seed = o
                    e = {"op": "write", "off": off, "len": n, "seed": seed}

                    def write():
                        if os.pwrite(fd[0], data_of(e), off) != n:
                            raise OSError(5, "short")

                    do(write, **e)
            do(lambda: os.close(fd[0]), op="close")

        return program


class Edit(Work):
    name = "edit"
    whole = staticmethod(split_whole)

    def contents(self):
        return made("split.py", ROWS, COLUMNS, PIECES)

    def settled(self, run):
        """Mounted again: what it mends by itself is mended."""

    def make(self, run):
        self.files = self.contents()
        run.old = self.whole(self.files)
        run.ckpt = os.path.join(run.src, "c")
        os.makedirs(run.src, exist_ok=True)
        write_folder(run.ckpt, self.files)
        if run.command("seal", run.ckpt)[0]:
            raise Bad("seal")

    def play(self, run):
        if self.start(run, run.ckpt, "rw"):
            run.write(self.random_writes(run, os.path.join(run.mnt, "tensors", "w"), len(run.old)))
        self.finish(run)

    def check(self, run, at=None):
        c = run.ckpt
        if not os.path.exists(os.path.join(c, ".unshard-edited")):
            self.verified(run, c, "at once, and no mark is there")
        compare(run.old, self.whole(read_folder(c)), run.events, at, "at once")
        # the next mount for writing puts right what was begun
        self.again(run, c, "rw")

        def one_byte():
            fd = os.open(os.path.join(run.mnt, "tensors", "w"), os.O_RDWR)
            os.pwrite(fd, os.pread(fd, 1, 0), 0)
            os.fsync(fd)
            os.close(fd)

        self.well(run, lambda do: do(one_byte, op="write"))
        self.settled(run)
        run.umount()
        self.verified(run, c, "after a mount for writing")
        compare(run.old, self.whole(read_folder(c)), run.events, at, "afterwards")


class EditSums(Edit):
    """Of a container with checksums, which follow at a sync."""

    name = "edit-sums"
    whole = staticmethod(zip_whole)

    def contents(self):
        return {"model.pt": zip_of(random.Random(5).randbytes(ROWS * COLUMNS))}

    def settled(self, run):
        end = time.monotonic() + 60
        while "user.unshard.writing" in os.listxattr(run.ckpt):
            if time.monotonic() > end:
                raise Bad("its sums are never said to be right")
            time.sleep(0.005)

    def check(self, run, at=None):
        super().check(run, at)
        with zipfile.ZipFile(os.path.join(run.ckpt, "model.pt")) as z:
            if z.testzip():
                raise torn("a sum is not that of the bytes")


class Replace(Edit):
    name = "replace"

    def play(self, run):
        run.new = random.Random(run.rng.random()).randbytes(len(run.old))
        path = os.path.join(run.mnt, "tensors", "w")

        def program(do):
            def copy():
                fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
                try:
                    for i in range(0, len(run.new), 9000):
                        os.write(fd, run.new[i : i + 9000])
                except OSError:
                    try:
                        os.close(fd)
                    except OSError:
                        pass
                    raise
                os.close(fd)

            do(lambda: None, op="nothing")
            do(copy, op="replace")

        if self.start(run, run.ckpt, "replace"):
            run.write(program)
        self.finish(run)

    def check(self, run, at=None):
        c = run.ckpt
        left = any(n.startswith(".unshard-redo-") for n in os.listdir(c))
        if left and not run.command("cat", c, "w")[0]:
            raise torn("read half-way")
        code, out = run.command("recover", c)
        if code:
            raise Bad(f"recover: {out}")
        now = split_whole(read_folder(c))
        if now not in (run.old, run.new):
            raise torn("some of the old, some of the new")
        if left and now != run.new:
            raise torn("what was to be written is not")
        if any(e["op"] == "replace" and known(e, at) for e in run.events) and now != run.new:
            raise lost("the new one was acknowledged")
        self.verified(run, c, "after recover")


class Overlay(Edit):
    name = "overlay"

    def make(self, run):
        super().make(run)
        run.over = os.path.join(run.src, "over")

    def play(self, run):
        if self.start(run, run.ckpt, f"overlay={run.over}"):
            run.write(self.random_writes(run, os.path.join(run.mnt, "tensors", "w"), len(run.old)))
        self.finish(run)

    def check(self, run, at=None):
        self.verified(run, run.ckpt, "the checkpoint below")
        self.again(run, run.ckpt, f"overlay={run.over}")
        now = subprocess.run(["cat", os.path.join(run.mnt, "tensors", "w")], check=True,
                             capture_output=True).stdout
        run.umount()
        compare(run.old, now, run.events, at, "overlay")


class PublishFiles(Work):
    """A new step of files, which may replace another."""

    name = "publish-files"

    def make(self, run):
        self.files = {n: open(os.path.join(DEMO, n), "rb").read() for n in os.listdir(DEMO)}
        os.makedirs(run.src, exist_ok=True)
        run.replaces = run.rng.random() < 0.4
        if run.replaces:
            write_folder(os.path.join(run.src, "s"), {**self.files, "old": b"old"})
            if run.command("seal", os.path.join(run.src, "s"))[0]:
                raise Bad("seal")

    def fill(self, run, do, name):
        """Whether all of it was published."""
        d = os.path.join(run.mnt, name)
        ok = do(lambda: os.path.isdir(d) or os.mkdir(d), op="mkdir")
        for n, data in sorted({**self.files, "new": b"new"}.items()):
            if n == ".metadata":
                continue

            def copy():
                with open(os.path.join(d, "shards", n), "wb") as f:
                    f.write(data)

            ok = ok and do(copy, op="copy")

        def index():
            tmp = os.path.join(d, "shards", ".metadata.tmp")
            with open(tmp, "wb") as f:
                f.write(self.files[".metadata"])
            os.rename(tmp, os.path.join(d, "shards", ".metadata"))

        def publish():
            code, out = run.command("publish", "--replace", "--as", "s", d)
            if code:
                raise OSError(5, out)

        ok = ok and do(index, op="index" if run.replaces else "publish")
        return ok and (not run.replaces or do(publish, op="publish"))

    def options(self, run):
        return "rw,publish=manual" if run.replaces else "rw"

    def play(self, run):
        if self.start(run, run.src, self.options(run)):
            run.write(lambda do: self.fill(run, do, "t" if run.replaces else "s"))
        self.finish(run)

    def look(self, run, at, when):
        """Whether the new one is there."""
        s = os.path.join(run.src, "s")
        done = any(e["op"] == "publish" and known(e, at) for e in run.events)
        for n in os.listdir(run.src):
            if not n.startswith(".") and n != "lost+found":
                self.verified(run, os.path.join(run.src, n), f"{when}: {n}")
        there = os.path.isdir(s)
        new = there and os.path.exists(os.path.join(s, "new"))
        if there:
            want = {**self.files, **({"new": b"new"} if new else {"old": b"old"})}
            if read_folder(s) != want:
                raise torn(f"{when}: not what was written")
        if done and not new:
            raise lost(f"{when}: it was acknowledged")
        if run.replaces and not there:
            raise lost(f"{when}: neither the old nor the new one is there")
        return new

    def check(self, run, at=None):
        self.look(run, at, "at once")
        code, out = run.command("recover", run.src)
        if code and "not complete" not in out:
            raise Bad(f"recover: {out}")
        if self.look(run, at, "after recover"):
            return
        # the same again ends whole
        run.command("gc", "--age", "0", run.src)
        self.again(run, run.src, self.options(run))
        events = run.apart(lambda do: self.fill(run, do, "t" if run.replaces else "s"))
        run.umount()
        if not self.look(run, NOTHING, "the same again"):
            raise Bad(f"the same again is not published: {[e for e in events if e['error']]}")


class PublishSlices(Work):
    name = "publish-slices"
    TENSORS = {"embed": (64, 250, "rows"), "head": (50, 256, "columns"), "norm": (1, 600, "copies")}
    LAYOUT = {
        "unshard_layout": 1,
        "mesh": {"axes": [{"name": "dp", "size": 2}, {"name": "tp", "size": 2}]},
        "tensors": [
            {"name": "embed", "dtype": "uint8", "shape": [64, 250],
             "placement": {"tp": {"shard": 0}, "dp": "replicate"}},
            {"name": "head", "dtype": "uint8", "shape": [50, 256],
             "placement": {"tp": {"shard": 1}, "dp": "replicate"}},
            {"name": "norm", "dtype": "uint8", "shape": [600]}],
        "write": {},
    }

    def make(self, run):
        os.makedirs(run.src, exist_ok=True)
        rng = random.Random(7)
        run.whole, run.slices = {}, {}
        for name, (rows, width, how) in self.TENSORS.items():
            data = rng.randbytes(rows * width)
            run.whole[name] = data
            for rank in range(4):
                tp = rank % 2
                if how == "rows":
                    part = data[tp * len(data) // 2 :][: len(data) // 2]
                elif how == "columns":
                    w = width // 2
                    part = b"".join(data[r * width + tp * w :][:w] for r in range(rows))
                else:
                    part = data
                run.slices[rank, name] = part

    def pieces(self, run):
        """(rank, tensor, offset, length) of all, in any order; copies only once."""
        out = []
        for (rank, name), part in sorted(run.slices.items()):
            if rank > 1 or (name == "norm" and rank):
                continue
            step = max(1, len(part) // 2)
            out += [(rank, name, at, min(step, len(part) - at)) for at in range(0, len(part), step)]
        run.rng.shuffle(out)
        return out

    def program(self, run, pieces, sync):
        d = os.path.join(run.mnt, "s")

        def layout():
            os.path.isdir(d) or os.mkdir(d)
            path = os.path.join(d, "unshard-layout.json")
            text = json.dumps(self.LAYOUT)
            try:
                with open(path) as f:
                    if f.read() == text:
                        return
            except OSError:
                pass
            with open(path, "w") as f:
                f.write(text)

        def put(rank, name, at, n):
            fd = os.open(os.path.join(d, "ranks", str(rank), name), os.O_RDWR)
            try:
                if os.pwrite(fd, run.slices[rank, name][at : at + n], at) != n:
                    raise OSError(5, "short")
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)

        def publish():
            # the last piece may have begun it
            code, out = run.command("publish", d)
            if code and not os.path.isdir(os.path.join(run.src, "s")):
                raise OSError(5, out)

        def program(do):
            if not do(layout, op="layout"):
                return
            for p in pieces:
                do(lambda: put(*p), op="write", piece=p)
            do(publish, op="publish")

        return program

    def play(self, run):
        run.all = self.pieces(run)
        if self.start(run, run.src, "rw,publish=manual"):
            run.write(self.program(run, run.all, True))
        self.finish(run)

    def look(self, run, at, when):
        s = os.path.join(run.src, "s")
        if not os.path.isdir(s):
            if any(e["op"] == "publish" and known(e, at) for e in run.events):
                raise lost(f"{when}: it was acknowledged")
            return False
        self.verified(run, s, when)
        for name, data in run.whole.items():
            p = subprocess.run([os.environ["UNSHARD"], "cat", s, name], capture_output=True, check=False)
            if p.stdout != data:
                raise torn(f"{when}: {name}: {p.stderr.decode()[-200:]}")
        return True

    def check(self, run, at=None):
        if self.look(run, at, "at once"):
            return
        code, out = run.command("recover", run.src)
        if self.look(run, at, "after recover"):
            return
        # who was told that a piece is there does not write it again
        told = [tuple(e["piece"]) for e in run.events if e["op"] == "write" and known(e, at)]
        left = [p for p in run.all if p not in told]
        self.again(run, run.src, "rw,publish=manual")
        status = subprocess.run(["cat", os.path.join(run.mnt, "s", ".unshard", "status")],
                                capture_output=True, text=True, check=False).stdout
        doomed = "doomed" in status
        if doomed:  # a failed fsync says so: all of it is to be written again
            left = run.all

        def again(do):
            if doomed:
                do(lambda: shutil.rmtree(os.path.join(run.mnt, "s")), op="rm")
            self.program(run, left, True)(do)

        events = run.apart(again)
        run.umount()
        if not self.look(run, NOTHING, f"{len(told)} pieces told, the others written again"):
            raise lost(f"not published with {len(told)} pieces told: "
                       f"{[e for e in events if e['error']]}; status: {status}")


class Command(Work):
    """A command by itself."""

    process = "unshard"
    mounts = False

    def act(self, run, *args):
        def program(do):
            def call():
                code, run.out = run.command(*args, faulty=True)
                if code:
                    raise OSError(5, run.out)
            do(call, op="command")
        run.died = False
        run.write(program)


class Seal(Command):
    name = "seal"
    contents = Edit.contents
    whole = staticmethod(split_whole)

    def make(self, run):
        Edit.make(self, run)
        os.remove(os.path.join(run.ckpt, ".unshard-manifest"))

    def play(self, run):
        self.act(run, "seal", run.ckpt)

    def check(self, run, at=None):
        if read_folder(run.ckpt) != self.files:
            raise torn("a shard is changed")
        code, out = run.command("verify", run.ckpt)
        sealed = "as they were sealed" in out
        if code or not (sealed or "is not sealed" in out):
            raise torn(out.strip()[-300:])
        if not sealed and any(known(e, at) for e in run.events):
            raise lost("it was acknowledged")
        code, out = run.command("seal", "--force", run.ckpt)
        if code:
            raise Bad(f"again: {out}")
        self.verified(run, run.ckpt, "again")


class Heal(Command):
    name = "heal"

    def make(self, run):
        self.files = made("copies.py", 2, 60, 500, 2)
        run.ckpt = os.path.join(run.src, "c")
        os.makedirs(run.src, exist_ok=True)
        write_folder(run.ckpt, self.files)
        if run.command("seal", run.ckpt)[0]:
            raise Bad("seal")
        for name, at in (("dp0-tp0", 1000), ("dp0-tp0", 9000), ("dp0-tp1", 5000)):
            with open(os.path.join(run.ckpt, name + ".safetensors"), "r+b") as f:
                f.seek(at)
                f.write(run.rng.randbytes(2000))

    def play(self, run):
        self.act(run, "heal", "--sealed", run.ckpt)

    def check(self, run, at=None):
        now = read_folder(run.ckpt)
        for n, data in self.files.items():
            if n.startswith("dp1") and now[n] != data:
                raise torn(f"{n}, which was right, is changed")
        if any(known(e, at) for e in run.events) and now != self.files:
            raise lost("it was acknowledged")
        code, out = run.command("heal", "--sealed", run.ckpt)
        if code:
            raise Bad(f"again: {out}")
        if read_folder(run.ckpt) != self.files:
            raise torn("again: not as it was sealed")
        self.verified(run, run.ckpt, "again")


WORKS = [Edit, EditSums, Replace, Overlay, PublishFiles, PublishSlices, Seal, Heal]
