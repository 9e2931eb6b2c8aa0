# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments, damaged checkpoints, and ones that change while they are read: an
exception each time, that says what; never other bytes, never a signal."""
import json
import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock
import warnings
import weakref

from kit import DATA, EXAMPLES, case, copy_of, need, python, refused, until

need("numpy")
import numpy as np
import unshard

LLAMA = DATA / "llama-fsdp2/in"
MATRIX = "model.lm_head.weight"


class Copied:
    """Whose memory DLPack's taker has for himself."""

    def __dlpack__(self, **how):
        return np.zeros((149, 18), np.float32).__dlpack__(**how, copy=True)

    @classmethod
    def can(cls):
        return np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def wrong_targets():
    with unshard.open(LLAMA) as ck:
        t, size = ck[MATRIX], 149 * 18 * 4
        into = lambda target: lambda: t.read_into(target)
        before = os.stat(LLAMA).st_atime_ns
        frozen = np.zeros((149, 18), np.float32)
        frozen.flags.writeable = False
        odd = np.zeros(149 * 18 * 5 + 5, np.uint8)[: 149 * 18 * 5]
        odd = np.ndarray((149, 18), np.float32, odd, strides=(18 * 5, 5))
        for target in (frozen, bytes(size), np.zeros((18, 149), np.float32),
                       np.zeros((149, 18), np.int32), np.zeros((149, 18), ">f4"),
                       bytearray(size - 1), memoryview(bytearray(size))[::2], odd,
                       np.zeros((149, 18), object), np.zeros(size + 8, np.uint8)[::2],
                       np.broadcast_to(np.zeros(18, np.float32), (149, 18))):
            refused(ValueError, into(target))
        for target in (3, None, "x", [0.0] * 10, t, ck):
            refused(TypeError, into(target))
        if Copied.can():
            refused(ValueError, into(Copied()), "copy")
        refused(ValueError, lambda: t.numpy("int32"))
        refused(ValueError, lambda: t.numpy("float17"))
        refused(ValueError, lambda: ck.load(framework="numpy", dtype="float8_e8m0fnu"))
        assert os.stat(LLAMA).st_atime_ns == before


def memory_that_is_not_there():
    """Storage that was let go, values, pages that are gone: never another's memory."""
    with tempfile.TemporaryDirectory() as tmp, unshard.open(LLAMA) as ck:
        t = ck[MATRIX]
        refused(TypeError, lambda: t[0, 0].read_into(np.float32(0)))
        for shape, steps in ((149, 18), (1, 1)), ((149, 18), (18, 0)):
            room = np.lib.stride_tricks.as_strided(np.zeros(149 * 18, np.float32), shape,
                                                   [4 * s for s in steps])
            refused(ValueError, lambda: t.read_into(room), "one place")
            refused(ValueError, lambda: t[::2].read_into(room[:75]), "one place")
        with open(tmp + "/f", "w+b") as f:
            f.truncate(t.nbytes)
            gone = mmap.mmap(f.fileno(), t.nbytes)
            f.truncate(0)
            refused(ValueError, lambda: t.read_into(gone), "cannot be written")
        assert not ck.problems() and len(t.tobytes()) == t.nbytes
        e = refused(unshard.Error, lambda: ck.load(framework="numpy", progress=lambda *_:
                                                   t.tobytes()), "progress()")
        assert not isinstance(e, unshard.MissingBytes), e
        try:
            import torch
        except ImportError:
            return
        for size in 0, 8, t.nbytes - 4:
            for at in 0, 100:
                room = torch.zeros(149 + at, 18)[at:]
                rows = room[1:]
                room.untyped_storage().resize_(size + (at * 18 * 4 if size else 0))
                refused(ValueError, lambda: t.read_into(room), "of its storage")
                refused(ValueError, lambda: t[1:].read_into(rows), "of its storage")
        from torch._subclasses import FakeTensorMode
        with FakeTensorMode():
            fake = torch.empty(149, 18), torch.empty(18, 149).t()
        for room in fake:
            refused(ValueError, lambda: t.read_into(room), "no memory")
            refused(ValueError, lambda: unshard.save(tmp + "/s", {"a": room}), "tensor a: ")
            refused(TypeError, lambda: unshard.save(tmp + "/n", {7: np.zeros(2)}), "7: expected a str")
            assert not os.path.exists(tmp + "/.staging-n")


def tensors_that_are_more_than_bytes():
    """Quantized ones: saved without their scales they would be other numbers."""
    try:
        import torch
        import torch.distributed.checkpoint as dcp
        import unshard.torch
    except ImportError:
        return
    with tempfile.TemporaryDirectory() as tmp, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = torch.quantize_per_tensor(torch.ones(3, 4), 0.5, 3, torch.qint8)
        refused(TypeError, lambda: unshard.save(tmp + "/s", {"q": q}), "q: a quantized")
        try:
            dcp.save({"q": q}, storage_writer=unshard.torch.DCPWriter(tmp + "/s"), no_dist=True)
            raise AssertionError("it was saved")
        except dcp.CheckpointException as e:
            assert "q: a quantized" in str(e), e
        assert not os.path.exists(tmp + "/s")


def begun(t):
    """A load of t under way."""
    room = np.zeros(t.shape, t.dtype)
    return unshard._load.Request(t._ck._open_handle(), [t._item(room.ctypes.data, keep=room)])


def in_a_callback():
    """progress() reads nothing, and what is let go of there ends with nothing written behind."""
    size, seen = 48 << 20, []
    with tempfile.TemporaryDirectory() as tmp:
        unshard.save(tmp + "/s", {"a": np.full(size, 7, np.uint8), "b": np.full(size, 9, np.uint8)})
        ck = unshard.open(tmp + "/s")

        def read(done, total):
            """Memory of a read that was refused is taken anew: is it written to?"""
            if not seen:
                for way in (ck["b"].numpy, ck["b"][: size // 2].tobytes,
                            lambda: ck.load(["b"], framework="numpy"),
                            lambda: next(ck.stream(["b"], framework="numpy"))):
                    refused(unshard.Error, way, "progress()")
                    seen.append(np.zeros(size, np.uint8))

        got = ck.load(["a", "b"], framework="numpy", progress=read)
        time.sleep(0.2)
        assert len(seen) == 4 and not any(v.any() for v in seen), [len(seen)] + [int(v.sum()) for v in seen]
        assert (got["a"] == 7).all() and (got["b"] == 9).all()
        seen.clear()
        under_way = [begun(ck[n]) for n in "abab"]
        ends = [weakref.ref(r._items[0].keep) for r in under_way]
        real, go = unshard._load._End._run, threading.Event()

        def drop(done, total):
            if under_way:
                under_way.clear()  # as the garbage collector does
                seen.extend(end() is not None for end in ends)
                go.set()

        with unittest.mock.patch.object(unshard._load._End, "_run",
                                        lambda end: go.wait() and real(end)):
            got = ck.load(["a"], framework="numpy", progress=drop)
        assert (got["a"] == 7).all() and seen == [True] * 4, seen
        until(lambda: not any(end() is not None for end in ends), "they end")
        assert ck["b"].numpy().max() == 9  # and it reads as ever


def no_checkpoints():
    with tempfile.TemporaryDirectory() as tmp:
        refused(unshard.NotFound, lambda: unshard.open(tmp + "/x"), tmp + "/x")
        e = refused(unshard.OpenError, lambda: unshard.open(tmp), tmp)
        assert isinstance(e, OSError) and isinstance(e, unshard.Error)
        refused(unshard.OpenError, lambda: unshard.open(__file__))
        refused(unshard.Error, lambda: unshard.open(LLAMA, nonsense="x"), "nonsense")
        refused(unshard.Error, lambda: unshard.open(LLAMA, format="nonsense"), "nonsense")
        refused(unshard.NotFound, lambda: unshard.steps(tmp + "/x"))
        refused(ValueError, lambda: unshard.open(tmp + "/\0"))


def a_torn_shard():
    with copy_of(LLAMA) as at:
        victim = sorted(at.glob("*.distcp"))[-1]
        os.truncate(victim, 20000)
        with unshard.open(LLAMA) as whole, unshard.open(at) as ck:
            good = bad = 0
            for name, t in ck.items():
                try:
                    assert t.tobytes() == whole[name].tobytes(), name
                    good += 1
                except unshard.MissingBytes as e:
                    bad += 1
                    assert (e.tensor, e.file) == (name, victim.name), (e.tensor, e.file, str(e))
                    assert e.offset is not None and e.errno, vars(e)
                    assert name in str(e) and victim.name in str(e), str(e)
                    refused(unshard.MissingBytes, lambda: ck.load([name], framework="numpy"))
            assert good and bad and ck.problems()
            refused(unshard.MissingBytes, lambda: ck.load(framework="numpy"), victim.name)
            for how in (ck.load, lambda **k: dict(ck.stream(window="1K", **k))):
                errors = {}
                got = how(framework="numpy", errors=errors)
                assert len(got) == good and len(errors) == bad, (len(got), len(errors))
                assert not got.keys() & errors.keys()
                for name, value in got.items():
                    assert value.tobytes() == whole[name].tobytes(), name
                for name, e in errors.items():
                    assert isinstance(e, unshard.MissingBytes) and e.tensor == name, e
            rows = ck[MATRIX]
            assert rows[:5].tobytes() == whole[MATRIX][:5].tobytes()


def deleted_and_replaced():
    for change in (lambda f: f.unlink(), lambda f: os.truncate(f, 100),
                   lambda f: (f.rename(f"{f}.old"), shutil.copy(f"{f}.old", f))):
        with copy_of(LLAMA) as at, unshard.open(at) as ck, unshard.open(LLAMA) as whole:
            assert ck[MATRIX][:1].tobytes() == whole[MATRIX][:1].tobytes()
            for file in sorted(at.glob("*.distcp")):
                change(file)
            for name, t in ck.items():
                try:
                    assert t.tobytes() == whole[name].tobytes(), name
                except unshard.MissingBytes as e:
                    assert e.tensor == name and name in str(e)


def cut_while_loading():
    """Whatever the moment: each tensor is whole or an exception."""
    with tempfile.TemporaryDirectory() as tmp:
        header = b'{"a":{"dtype":"F32","shape":[4194304],"data_offsets":[0,16777216]}}'
        file = os.path.join(tmp, "model.safetensors")
        values = np.arange(1 << 22, dtype=np.float32)
        for delay in (0, 0.001, 0.003):
            with open(file, "wb") as f:
                f.write(len(header).to_bytes(8, "little") + header + values.tobytes())
            with unshard.open(file) as ck:
                def cut():
                    time.sleep(delay)
                    os.truncate(file, 1 << 20)

                other = threading.Thread(target=cut)
                other.start()
                try:
                    got = ck.load(framework="numpy")
                    assert np.array_equal(got["a"], values)
                except unshard.MissingBytes as e:
                    assert e.tensor == "a", e.tensor
                other.join()
                refused(unshard.MissingBytes, ck["a"].tobytes, "model.safetensors")
            os.unlink(file)


def hostile_pickles():
    made = os.path.join(tempfile.gettempdir(), "unshard-never-made")
    for name in ("dcp/bad-runs-code", "dcp/bad-other-class"):
        refused(unshard.OpenError, lambda: unshard.open(EXAMPLES / name / "in"), ".metadata")
    with tempfile.TemporaryDirectory() as tmp:
        open(tmp + "/__0_0.distcp", "w").close()
        with open(tmp + "/.metadata", "wb") as f:
            f.write(b"cos\nsystem\n(S'touch " + made.encode() + b"'\ntR.")
        refused(unshard.OpenError, lambda: unshard.open(tmp), "os.system")
    assert not os.path.exists(made)


def a_parser_that_dies():
    """One that fails, that hangs up, that never ends: an error, and the process is whole."""
    with tempfile.TemporaryDirectory() as tmp:
        for body in ("exit 1", "kill -9 $$", "echo garbage", "exec cat /dev/zero >&3",
                     "exec cat /dev/urandom >&3", "exec sleep 100 3>&-"):
            path = os.path.join(tmp, "unshard-parser")
            with open(path, "w") as f:
                f.write(f"#!/bin/sh\n{body}\n")
            os.chmod(path, 0o755)
            status, out, err = python(
                "import sys, unshard\n"
                "try: unshard.open(sys.argv[1])\n"
                "except unshard.Error as e: print(type(e).__name__, e)", LLAMA,
                UNSHARD_PARSER=path)
            assert status == 0 and out.startswith("OpenError "), (body, status, out, err)


def after_fork():
    """A child that reads what its parent opened: an exception, not a hang."""
    code = """
import os, sys, unshard
ck = unshard.open(sys.argv[1]); t = ck[sys.argv[2]]; t.tobytes()
pid = os.fork()
if not pid:
    for call in (t.tobytes, lambda: list(ck.stream(framework="numpy")), ck.problems,
                 lambda: t.read_into(bytearray(t.nbytes))):
        try:
            call(); os._exit(1)
        except unshard.Forked as e:
            assert "fork" in str(e)
    ck.close()
    with unshard.open(sys.argv[1]) as again:
        os._exit(0 if len(again[sys.argv[2]].tobytes()) == t.nbytes else 2)
assert os.waitpid(pid, 0)[1] == 0
assert len(t.tobytes()) == t.nbytes
"""
    status, _, err = python(code, LLAMA, MATRIX)
    assert status == 0, err


def data_loader():
    try:
        import torch.utils.data
    except ImportError:
        return "no torch"

    class Rows(torch.utils.data.Dataset):
        def __init__(self, ck, again):
            self.ck, self.again = ck, again

        def __len__(self):
            return 4

        def __getitem__(self, i):
            if self.again:
                with unshard.open(self.ck.path) as ck:
                    return ck[MATRIX][i].torch()
            return self.ck[MATRIX][i].torch()

    with unshard.open(LLAMA) as ck:
        want = ck[MATRIX].torch()
        load = lambda again: torch.cat(list(torch.utils.data.DataLoader(
            Rows(ck, again), batch_size=2, num_workers=1, multiprocessing_context="fork")))
        try:
            load(False)
        except Exception as e:
            assert "fork" in str(e), e
        else:
            raise AssertionError("no exception")
        assert torch.equal(load(True), want[:4])


def no_memory():
    """An allocation that cannot be had: MemoryError, and the next read works."""
    code = """
import resource, sys, unshard
ck = unshard.open(sys.argv[1]); t = ck[sys.argv[2]]; want = t.tobytes()
limit = resource.getrlimit(resource.RLIMIT_AS)
big = unshard.open(sys.argv[3])
name = max(big, key=lambda n: big[n].nbytes)
try:
    big[name].tobytes()
except (MemoryError, unshard.MissingBytes):
    pass
assert t.tobytes() == want
"""
    status, _, err = python(code, LLAMA, MATRIX, EXAMPLES / "dcp/big-offsets/in")
    assert status == 0, err


def interrupted():
    """Ctrl-C while much is loaded ends it, and Python goes on."""
    with tempfile.TemporaryDirectory() as tmp:
        file = os.path.join(tmp, "model.safetensors")
        size = 1 << 28
        header = b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
        with open(file, "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header)
            f.truncate(8 + len(header) + size)
        code = ("import sys, unshard\nck = unshard.open(sys.argv[1])\n"
                "try:\n print('on', flush=True)\n while True: ck['a'].tobytes()\n"
                "except KeyboardInterrupt: print(len(ck['a'][:5].tobytes()))")
        run = subprocess.Popen([sys.executable, "-c", code, file], stdout=subprocess.PIPE,
                               text=True)
        assert run.stdout.readline() == "on\n"
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=60)
        assert (run.returncode, out) == (0, "5\n"), (run.returncode, out)


def interrupted_twice():
    """A second Ctrl-C, whatever function begins when it comes behind the first one, leaves no
    load under way, which would write to memory that is somebody else's by then."""
    held = lambda: sum(os.path.lexists(f"/proc/self/fd/{n}")
                       and os.readlink(f"/proc/self/fd/{n}") == str(LLAMA)
                       for n in os.listdir("/proc/self/fd"))

    def read(left):
        """Whether fewer functions than that began behind the first one."""
        def trace(frame, _what, _arg):
            nonlocal left
            left -= frame.f_code.co_filename.startswith(os.path.dirname(unshard.__file__))
            if not left:
                left -= 1
                raise KeyboardInterrupt

        def first(*_args):
            sys.settrace(trace)
            raise KeyboardInterrupt

        ck = unshard.open(LLAMA)
        with unittest.mock.patch.object(unshard._abi.lib, "unshard_wait", first), \
                unittest.mock.patch.object(sys, "unraisablehook"):
            try:
                ck[MATRIX].numpy()
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
        ck.close()
        return left > 0

    before, nr = held(), 1
    while not read(nr):
        assert held() == before, f"before function {nr}: a load is left"
        nr += 1
    assert nr > 1 and held() == before, nr


def interrupted_while_opening():
    """Ctrl-C while a parser hangs."""
    with tempfile.TemporaryDirectory() as tmp:
        parser, on = os.path.join(tmp, "unshard-parser"), os.path.join(tmp, "on")
        os.mkfifo(on)
        with open(parser, "w") as f:
            f.write(f"#!/bin/sh\necho >{on}\nexec sleep 1000\n")
        os.chmod(parser, 0o755)
        for call in "open", "steps":
            code = (f"import sys, unshard\ntry: unshard.{call}(sys.argv[1])\n"
                    "except KeyboardInterrupt: print('ended')")
            run = subprocess.Popen([sys.executable, "-c", code, LLAMA], text=True,
                                   stdout=subprocess.PIPE,
                                   env={**os.environ, "UNSHARD_PARSER": parser})
            with open(on):
                begun = time.monotonic()
            run.send_signal(signal.SIGINT)
            out, _ = run.communicate(timeout=60)
            assert (run.returncode, out) == (0, "ended\n"), (run.returncode, out)
            assert time.monotonic() - begun < 5, time.monotonic() - begun


def interrupted_at_any_time():
    """Ctrl-C wherever it comes while a checkpoint is opened is what is raised, and what it was
    opened with is closed."""
    class Late(TimeoutError):
        pass

    def stop(*_args):
        raise Late

    rng = random.Random(1)
    rings = lambda n: os.readlink(f"/proc/self/fd/{n}").endswith("[io_uring]")
    held = lambda: {n for n in os.listdir("/proc/self/fd")
                    if os.path.lexists(f"/proc/self/fd/{n}") and not rings(n)}
    unshard.open(LLAMA).close()
    known, before = held(), signal.signal(signal.SIGALRM, stop)
    try:
        for i in range(250):
            try:
                # Half of them while the thread begins.
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 5e-4 if i % 2 else 2e-2))
                while True:
                    unshard.open(LLAMA).close()
            except Late:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    until(lambda: held() <= known, "they are closed")


def interrupted_while_places_are_found():
    """Ctrl-C while the parser that finds items stands still."""
    code = """
import os, signal, sys, time, unshard
ck = unshard.open(sys.argv[1]); t = ck[sys.argv[2]]
parser, = [int(p) for task in os.listdir("/proc/self/task")
           for p in open(f"/proc/self/task/{task}/children").read().split()]
os.kill(parser, signal.SIGSTOP)
begun = time.monotonic()
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    t[:1].tobytes()
except KeyboardInterrupt:
    print("ended", time.monotonic() - begun < 5)
os.kill(parser, signal.SIGCONT) if os.path.exists(f"/proc/{parser}") else None
assert len(t.tobytes()) == t.nbytes
"""
    status, out, err = python(code, LLAMA, MATRIX)
    assert (status, out) == (0, "ended True\n"), (status, out, err)


def closed_while_others_read():
    """Reads of other threads end well or with ValueError; never a signal."""
    code = """
import sys, threading, unshard
def read(what):
    on.wait()
    try:
        while True:
            what()
    except ValueError as e:
        left.append(str(e))
for _ in range(20):
    ck = unshard.open(sys.argv[1])
    t, on, left = ck[sys.argv[2]], threading.Barrier(5), []
    reads = [lambda: t.tobytes(), lambda: t[:3].numpy(), lambda: t[1:5, ::2].tobytes(),
             lambda: ck.plan(t.name)]
    threads = [threading.Thread(target=read, args=(r,)) for r in reads]
    [x.start() for x in threads]
    on.wait()
    ck.close()
    [x.join() for x in threads]
    assert len(left) == 4 and all("closed" in x for x in left), left
"""
    status, _, err = python(code, LLAMA, MATRIX)
    assert status == 0, (status, err)


def images_that_are_none():
    for fd in -1, 0, 1 << 32:
        try:
            unshard.open(LLAMA, image=fd)
        except ValueError:
            continue
        raise AssertionError(f"image={fd} was taken")


def names_of_others():
    """What hf/ of a mount would not show is no model's, nor what it translates."""
    at = EXAMPLES / "megatron/before-core/in"
    with unshard.open(at) as ck:
        refused(ValueError, ck.model, "Megatron's")
    with unshard.open(at, names="asis") as ck:
        assert set(ck.model()) <= set(ck), set(ck.model())


def names_that_break_lines():
    """What a hostile name would have a terminal do is escaped, wherever it is said."""
    evil = "w\n\x1b[31mred\udcff"
    with tempfile.TemporaryDirectory() as tmp:
        file = tmp + "/model.safetensors"
        name = json.dumps(evil[:-1]).encode()
        header = b'{%s:{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}' % name
        with open(file, "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + bytes(16))
        with unshard.open(file) as ck:
            t = ck[evil[:-1]]
            shown = r"w\x0a\x1b[31mred"
            assert shown in repr(t) and "\n" not in repr(t), repr(t)
            for kind, call in ((ValueError, lambda: t.read_into(np.zeros(3, np.float32))),
                               (ValueError, lambda: t.read_into(bytearray(3))),
                               (ValueError, lambda: t.numpy("int8")),
                               (IndexError, lambda: t[4]),
                               (BufferError, lambda: t.map().__dlpack__())):
                line = str(refused(kind, call))
                assert "\x1b" not in line and (shown in line or kind is BufferError), line
            os.truncate(file, 8 + len(header) + 15)
            e = refused(unshard.MissingBytes, t.numpy, shown)
            assert e.tensor == t.name and "\x1b" not in str(e), e
            refused(KeyError, lambda: ck["w\n"], r"w\n\x1b[31mred")
    assert unshard._errors.shown(evil) == shown + r"\xff"


def ranks_of_no_mesh():
    with unshard.open(LLAMA) as ck:
        refused(ValueError, lambda: ck.load(framework="numpy", rank=3), "mesh=")
        for rank in 0.5, "1", None:
            refused(TypeError, lambda: ck.load(framework="numpy", mesh="dim0=2", rank=rank))
        for rank in -1, 2, 1 << 40:
            refused(ValueError, lambda: ck.load(framework="numpy", mesh="dim0=2", rank=rank))


def interrupted_while_it_is_told():
    """Ctrl-C while the library hands over its text: raised, and not dropped."""
    with unshard.open(LLAMA) as ck:
        for stop in KeyboardInterrupt, MemoryError:
            with unittest.mock.patch("ctypes.string_at", side_effect=stop):
                try:
                    raise AssertionError(ck._json("catalog"))
                except stop:
                    pass
        assert ck.problems() == []
        rng, size = random.Random(1), len(ck._json("catalog"))
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            for _ in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-3))
                    while True:
                        assert len(ck._json("catalog")) == size
                except KeyboardInterrupt:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def configured_while_another_opens():
    """What is under way goes on with the settings that it began with."""
    with tempfile.TemporaryDirectory() as tmp:
        for step in "step-1", "step-2":
            shutil.copytree(LLAMA, f"{tmp}/runs/{step}")
        parser, on, go = (os.path.join(tmp, n) for n in ("parser", "on", "go"))
        os.mkfifo(on), os.mkfifo(go)
        real = unshard.caps()["parser"]
        with open(parser, "w") as f:
            f.write(f"#!/bin/sh\nif mkdir {tmp}/once 2>&-; then echo >{on}; read x <{go}; fi\n"
                    f"exec {real}\n")
        os.chmod(parser, 0o755)
        code = """
import sys, threading, unshard
found = []
other = threading.Thread(target=lambda: found.append(unshard.steps(sys.argv[1])))
other.start()
open(sys.argv[2]).read()  # a writer whose reader has gone is killed
unshard.configure(threads=1)
others = [unshard.caps() for _ in range(20)]
open(sys.argv[3], "w").close()
other.join()
print(found)
"""
        status, out, err = python(code, tmp + "/runs", on, go, UNSHARD_PARSER=parser)
        assert (status, out) == (0, "[['step-1', 'step-2', 'latest']]\n"), (status, out, err)


def no_descriptors():
    """Whichever of them is the one too many: a line, and nothing is lost."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    rings = lambda one: one.endswith("[io_uring]")  # a thread of the library keeps its own
    open_now = lambda: sum(not rings(os.readlink(f"/proc/self/fd/{n}"))
                           for n in os.listdir("/proc/self/fd")
                           if os.path.lexists(f"/proc/self/fd/{n}"))
    begun = open_now()
    for limit in range(3, 40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            with unshard.open(LLAMA) as ck:
                ck[MATRIX][:1].tobytes()
        except (unshard.OpenError, unshard.MissingBytes) as e:
            assert "oo many open files" in str(e), e
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_now() == begun


def no_threads():
    """None for a load: no bytes are missing."""
    code = """
import os, resource, sys, unshard
ck = unshard.open(sys.argv[1])
if not os.getuid():
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    ck[sys.argv[2]].tobytes()
except unshard.Error as e:
    print(type(e).__name__, e)
"""
    status, out, err = python(code, LLAMA, MATRIX)
    assert (status, out) == (0, "Error threads to load with: Resource temporarily "
                             "unavailable\n"), (status, out, err)


for one in (names_that_break_lines, ranks_of_no_mesh, interrupted_while_it_is_told,
            configured_while_another_opens, no_descriptors, no_threads, names_of_others, wrong_targets, memory_that_is_not_there, tensors_that_are_more_than_bytes, in_a_callback, closed_while_others_read, images_that_are_none, no_checkpoints,
            a_torn_shard, deleted_and_replaced, cut_while_loading, hostile_pickles, a_parser_that_dies, after_fork, data_loader, no_memory, interrupted, interrupted_twice,
            interrupted_while_opening, interrupted_at_any_time, interrupted_while_places_are_found):
    case(one)
