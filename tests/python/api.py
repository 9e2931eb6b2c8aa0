# SPDX-License-Identifier: Apache-2.0
"""The package's calls on good checkpoints, by what NumPy makes of the same slices."""
import copy
import difflib
import json
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest.mock
import warnings

from kit import DATA, EXAMPLES, case, copy_of, need, python, refused

need("numpy")
import numpy as np
import unshard

warnings.filterwarnings("ignore", message="ComplexHalf")
LLAMA = DATA / "llama-fsdp2/in"
DTYPES = EXAMPLES / "dcp/2.14-dtypes/in"
MATRIX = "model.lm_head.weight"


def imports_nothing():
    code = ("import sys, unshard; ck = unshard.open(sys.argv[1]); ck[sys.argv[2]].tobytes();"
            "ck[sys.argv[2]].read_into(bytearray(ck[sys.argv[2]].nbytes));"
            "print([m for m in ('numpy', 'torch') if m in sys.modules])")
    status, out, err = python(code, LLAMA, MATRIX)
    assert (status, out.strip()) == (0, "[]"), err


def wrong_abi():
    status, _, err = python("import unshard", UNSHARD_LIBRARY="libc.so.6")
    assert status == 1 and "ImportError: unshard:" in err, err


def files():
    """How many of shards, catalogs and parsers are open; a thread's ring is its own."""
    at = [f"/proc/self/fd/{nr}" for nr in os.listdir("/proc/self/fd")]
    return sum(not os.readlink(one).endswith("[io_uring]") for one in at if os.path.lexists(one))


def mapping():
    with unshard.open(LLAMA) as ck:
        assert len(ck) == len(ck.keys()) == len(list(ck)) == len(ck.items()) == 12
        assert MATRIX in ck and "x" not in ck and ck.get("x") is None
        assert ck.format == "dcp" and ck.problems() == []
        assert ck.nbytes == sum(t.nbytes for t in ck.values())
        t = ck[MATRIX]
        assert (t.shape, t.dtype, t.ndim, t.itemsize, t.state, t.pieces) == (
            (149, 18), "float32", 2, 4, "ok", 4)
        assert t.size * 4 == t.nbytes == len(t.tobytes())
        assert t.plan() and t[2:5].plan() and ck.plan(MATRIX + "[2:5, :]")
        for wrong in ("model.lm_head.weigth", "model.lm_head.weigth[2:5, :]"):
            e = refused(unshard.UnknownName, lambda: ck.plan(wrong), MATRIX)
        refused(ValueError, lambda: ck.plan(MATRIX + "[x]"), "slice")
        e = refused(KeyError, lambda: ck["model.lm_head.weigth"], MATRIX)
        assert isinstance(e, unshard.Error)
    refused(ValueError, t.tobytes, "closed")
    before = files()
    w = unshard.open(LLAMA)[MATRIX]
    assert len(w.tobytes()) == w.nbytes and files() > before
    del w
    assert files() == before and ck == ck and hash(ck)
    assert unshard.steps(LLAMA) == []


def objects():
    with unshard.open(EXAMPLES / "dcp/2.14-nested/in") as ck:
        assert "big" in ck.objects and "x" not in ck.objects
        for name, one in ck.objects.items():
            assert one.name == name and len(one.tobytes()) == one.nbytes
        refused(KeyError, lambda: ck.objects["bi"], "big")


def settings():
    """Of what is opened afterwards; what was opened before goes on."""
    caps = unshard.caps()
    assert caps["version"] and "plain" in caps["engines"] and caps["parser_found"], caps
    code = """
import numpy, os, sys, time, unshard
tasks = lambda: set(os.listdir("/proc/self/task"))
first = unshard.open(sys.argv[1])
unshard.configure(threads=int(sys.argv[2]), engine="plain")
want = {n: t.tobytes() for n, t in first.items()}
before = tasks()
ck = unshard.open(sys.argv[1])
assert {n: t.tobytes() for n, t in ck.load(framework="numpy").items()} == want
end = time.monotonic() + 30  # that which opened it may be about to end
while len(tasks() - before) > int(sys.argv[2]) and time.monotonic() < end:
    time.sleep(0.01)
assert len(tasks() - before) == int(sys.argv[2]), (tasks(), before)
"""
    for nr in 1, 5:
        # all of whose places are in its index: no parser stays, nor who awaits it
        status, _, err = python(code, EXAMPLES / "hf/indexed/in", nr)
        assert status == 0, err
    for wrong in ({"threads": 0}, {"engine": "fast"}, {"spool": "a\0b"}):
        refused(ValueError, lambda: unshard.configure(**wrong))
    refused(TypeError, lambda: unshard.configure(threads=2.5))


def whole_or_not_at_all():
    with unshard.open(LLAMA, whole=True) as ck:
        assert len(ck) == len(pickle.loads(pickle.dumps(ck))) == 12
    with copy_of(LLAMA) as at:
        os.truncate(sorted(at.glob("*.distcp"))[-1], 20000)
        assert len(unshard.open(at)) == 12
        refused(unshard.OpenError, lambda: unshard.open(at, whole=True), "not all of it")


def run_directories():
    with tempfile.TemporaryDirectory() as runs:
        for step in ("step-10", "step-20", "step-30"):
            shutil.copytree(LLAMA, f"{runs}/{step}")
        os.unlink(f"{runs}/step-30/.metadata")  # its save did not finish
        assert unshard.steps(runs) == ["step-10", "step-20", "latest"]
        refused(unshard.OpenError, lambda: unshard.open(runs), "step-10")
        refused(unshard.NotFound, lambda: unshard.open(runs, step="step-40"))
        want = unshard.open(LLAMA)[MATRIX].tobytes()
        for step in ("step-10", "latest"):
            assert unshard.open(runs, step=step)[MATRIX].tobytes() == want
    with tempfile.TemporaryDirectory() as runs:
        for step in ("global_step3", "global_step4"):
            shutil.copytree(EXAMPLES / "deepspeed/zero2-3ranks/in", f"{runs}/{step}")
        mark = pathlib.Path(runs, "latest")  # as DeepSpeed says which is
        mark.write_text("global_step4")
        assert unshard.steps(runs) == ["global_step3", "global_step4", "latest"]
        assert len(unshard.open(runs, step="latest"))
        mark.write_text("global_step3")
        refused(unshard.OpenError, lambda: unshard.open(runs, step="latest"), "global_step3")


def keys_of(shape, rng):
    for n in shape:
        if rng.randrange(3) == 0 and n:
            yield rng.randrange(-n, n)
        else:
            ends = [None, rng.randrange(-n - 2, n + 2), rng.randrange(-n - 2, n + 2)]
            yield slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2, 3]))


def slices():
    rng = random.Random(1)
    with unshard.open(LLAMA) as ck:
        for t in ck.values():
            whole = t.numpy()
            for _ in range(40):
                key = tuple(keys_of(t.shape, rng))
                some, want = t[key], whole[key]
                assert (some.shape, some.nbytes) == (want.shape, want.nbytes), key
                assert some.tobytes() == np.ascontiguousarray(want).tobytes(), key
                assert np.array_equal(np.asarray(some), want), key
                into = np.zeros(want.shape[::-1], np.float64).T
                some.read_into(into)
                assert np.array_equal(into, want), key
                if some.ndim:
                    again = tuple(keys_of(some.shape, rng))
                    assert np.array_equal(some[again].numpy(), want[again]), (key, again)
        t = ck[MATRIX]
        assert np.array_equal(t[..., 3].numpy(), t.numpy()[..., 3])
        assert np.array_equal(np.stack([r.numpy() for r in t]), t.numpy())
        for key in ((0, 0, 0), 149, -150, (..., ...)):
            refused(IndexError, lambda: t[key])
        for key in ([0, 1], None, True, 1.0, "x"):
            refused(TypeError, lambda: t[key])
        refused(ValueError, lambda: t[::-1], "step")
        refused(ValueError, lambda: t[::0])


def places():
    with unshard.open(LLAMA) as ck:
        t = ck[MATRIX]
        want, raw = t.numpy(), t.tobytes()
        room = np.zeros((149, 40), np.float32)
        assert t.read_into(room[:, 39:3:-2]) == t.nbytes
        assert np.array_equal(room[:, 39:3:-2], want) and not room[:, 38::-2].any()
        for buf in (bytearray(t.nbytes), memoryview(bytearray(t.nbytes + 5)),
                    np.zeros(t.nbytes, np.uint8)):
            assert t.read_into(buf) == t.nbytes and bytes(buf)[: t.nbytes] == raw
        for dtype in (np.float16, np.float64):
            assert np.array_equal(t.numpy(dtype), want.astype(dtype))
        assert np.array_equal(np.asarray(t, np.float64), want)
        assert np.array_equal(np.from_dlpack(t), want)
        assert np.array_equal(np.from_dlpack(t[2:5, ::2]), want[2:5, ::2])


class OnlyDLPack:
    """A tensor that shows no more than its memory, as those of other frameworks."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **how):
        return self.tensor.__dlpack__(**how)


def steps_into_any_memory():
    """With a step above 1 too: by DLPack alone, with strides, cast."""
    try:
        import torch
    except ImportError:
        return "no torch"
    with unshard.open(LLAMA) as ck, unshard.open(DTYPES) as dtypes:
        for key in ((slice(3, 90, 7), slice(None, None, 2)), (5, slice(1, None, 3)),
                    (slice(0, 0), slice(None, None, 2)), (slice(2, 9), slice(4, 8))):
            want = ck[MATRIX].torch()[key]
            for kind in (torch.float32, torch.bfloat16, torch.float64, torch.float8_e5m2):
                room = torch.zeros(*want.shape, 2, dtype=kind)
                assert ck[MATRIX][key].read_into(OnlyDLPack(room[..., 1])) == room[..., 1].nbytes
                assert torch.equal(room[..., 1].double(), want.to(kind).double()), (key, kind)
                assert not room[..., 0].double().any()
            assert torch.equal(ck[MATRIX][key].torch(torch.bfloat16), want.bfloat16())
            assert torch.equal(torch.from_dlpack(ck[MATRIX][key]), want)
        t = next(t for n, t in dtypes.items() if n == "sh.bfloat16")
        want, room = t.torch()[::2], torch.zeros(t[::2].shape)
        for target in (room, room.numpy(), OnlyDLPack(room)):
            room.zero_()
            assert t[::2].read_into(target) == room.nbytes and torch.equal(room, want.float())
        assert np.array_equal(t[::2].numpy("float32"), want.float().numpy())


def maps():
    with unshard.open(EXAMPLES / "safetensors/metadata/in") as ck:
        nr = 0
        for t in ck.values():
            try:
                got = np.from_dlpack(t.map())
            except (BufferError, RuntimeError):
                continue  # not in one stretch; NumPy has no bfloat16
            assert got.tobytes() == t.tobytes() and not (t.size and got.flags.writeable), t
            nr += 1
        assert nr, "none is mapped"
        t = max(ck.values(), key=lambda t: t.nbytes)
        want, rows = t[:1].tobytes(), np.from_dlpack(t[:1].map())
    assert rows.tobytes() == want  # a map holds the file
    with unshard.open(LLAMA) as ck:
        refused(BufferError, lambda: np.from_dlpack(ck[MATRIX].map()), MATRIX)


def many():
    with unshard.open(LLAMA) as ck:
        want = {n: t.numpy() for n, t in ck.items()}
        same = lambda got: got.keys() == want.keys() and all(
            np.array_equal(got[n], want[n]) for n in want)
        seen = []
        assert same(ck.load(framework="numpy", progress=lambda *at: seen.append(at)))
        assert not seen or seen[-1][0] <= seen[-1][1]
        assert list(ck.load([MATRIX], framework="np")) == [MATRIX]
        half = ck.load(framework="numpy", dtype="float16")
        assert all(np.array_equal(half[n], want[n].astype(np.float16)) for n in want)
        for window in (1, "4K", "1G"):
            assert same(dict(ck.stream(framework="numpy", window=window)))
        for _ in ck.stream(framework="numpy", window=1):
            break
        refused(KeyError, lambda: ck.load(["x"], framework="numpy"), "nearest")
        refused(TypeError, lambda: ck.load("x", framework="numpy"))
        refused(ValueError, lambda: list(ck.stream(window="3X", framework="numpy")))
        refused(ValueError, lambda: ck.load(framework="jpeg"))

        def stop(done, total):
            raise KeyboardInterrupt

        try:
            ck.load(framework="numpy", progress=stop)
        except KeyboardInterrupt:
            pass


def no_such_memory():
    """A dtype that the framework lacks, or a size that nobody has, is that tensor's error."""
    for at, name, kind in ((EXAMPLES / "mindspore/2.10-names/in", "note", TypeError),
                           (EXAMPLES / "dcp/big-offsets/in", "w", MemoryError)):
        with unshard.open(at) as ck:
            for how in (ck.load, lambda **k: dict(ck.stream(**k))):
                refused(kind, lambda: how(framework="numpy"), name)
                errors = {}
                got = how(framework="numpy", errors=errors)
                assert isinstance(errors[name], kind) and name in str(errors[name]), errors
                assert not got.keys() & errors.keys()
                assert got.keys() | errors.keys() == set(ck), (got.keys(), errors)


def images():
    """Another process opens it without parsing."""
    with unshard.open(LLAMA) as ck:
        fd, want = ck.image(), ck[MATRIX].tobytes()
    os.set_inheritable(fd, True)
    code = ("import sys, unshard; ck = unshard.open(sys.argv[1], image=int(sys.argv[2]));"
            "sys.stdout.buffer.write(ck[sys.argv[3]].tobytes())")
    run = subprocess.run([sys.executable, "-c", code, LLAMA, str(fd), MATRIX],
                         pass_fds=[fd], capture_output=True)
    os.close(fd)
    assert run.returncode == 0 and run.stdout == want, run.stderr
    refused(unshard.OpenError, lambda: unshard.open(LLAMA, image=0x7fffffff))


def meshes():
    with unshard.open(LLAMA) as ck:
        whole = ck.load(framework="numpy")
        parts = [ck.load(framework="numpy", mesh="dim0=2", rank=r) for r in (0, 1)]
        for name, want in whole.items():
            got = [p[name] for p in parts if name in p]
            assert any(np.array_equal(np.concatenate(got[:n]), want) for n in (1, 2)), name
        refused(ValueError, lambda: ck.load(framework="numpy", mesh="dim0=2", rank=2), "rank")
        refused(ValueError, lambda: ck.load(framework="numpy", mesh="dim0=x"))


def sums():
    """Of a partial sum the first rank holds all, others zeros, and who is not in it nothing."""
    with tempfile.TemporaryDirectory() as folder, unshard.open(DTYPES) as ck:
        mesh = pathlib.Path(folder, "sbp.json")
        mesh.write_text(json.dumps({"world_size": 3, "rules": [
            {"key": "*", "placement": {"ranks": [0, 1]}, "sbp": "partial_sum"}]}))
        names = [n for n, t in ck.items() if t.itemsize]
        for framework in ("numpy", "torch", "dlpack"):
            try:
                whole = ck.load(names, framework=framework, errors={})
            except ImportError:
                continue
            first, second, none = (ck.load(names, framework=framework, mesh=mesh, rank=r,
                                           errors={}) for r in range(3))
            assert whole and set(first) == set(second) == set(whole) and not none
            for name, want in whole.items():
                got = second[name]
                assert (got.shape, got.dtype) == (want.shape, want.dtype), name
                if framework == "torch":
                    import torch

                    got = got.reshape(-1).view(torch.uint8).numpy()
                assert not any(got.tobytes()), (framework, name)
        (name,) = [n for n in names if ck[n].dtype == "float32"][:1]
        got = ck.load([name], framework="numpy", mesh=mesh, rank=1, dtype="float16")[name]
        assert got.dtype == np.float16 and got.shape == ck[name].shape and not got.any()


def torch_and_dlpack():
    try:
        import torch
    except ImportError:
        return "no torch"
    raw = lambda t: t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    seen = set()
    with unshard.open(DTYPES) as ck:
        for name, t in ck.items():
            if not isinstance(getattr(torch, t.dtype, None), torch.dtype):
                continue
            want, value = t.tobytes(), t.torch()
            assert str(value.dtype) == f"torch.{t.dtype}" and raw(value) == want, name
            target = torch.empty_like(value)
            assert t.read_into(target) == t.nbytes and raw(target) == want, name
            try:
                taken = torch.from_dlpack(t)
            except BufferError:
                continue
            assert (taken.dtype, taken.shape) == (value.dtype, value.shape), name
            assert raw(taken) == want, name
            seen.add(t.dtype)
    assert {"bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "complex64"} <= seen, seen
    with unshard.open(LLAMA) as ck:
        t = ck[MATRIX]
        want = t.torch()
        param = torch.nn.Parameter(torch.zeros(149, 40))
        t.read_into(param[:, 3:39:2])
        assert torch.equal(param[:, 3:39:2], want) and not param[:, ::2].any()
        assert torch.equal(t.torch(dtype=torch.bfloat16), want.bfloat16())
        half = ck.load(framework="torch", dtype="bfloat16")
        assert half[MATRIX].dtype is torch.bfloat16 and torch.equal(half[MATRIX], want.bfloat16())
        refused(ValueError, lambda: t.read_into(torch.zeros(1, 1).expand(149, 18)))
        refused(ValueError, lambda: t.read_into(torch.zeros(149, 18, device="meta")))


def a_large_file(folder):
    """128 MiB of zeros, of which the disk has none."""
    size, file = 1 << 27, os.path.join(folder, "model.safetensors")
    header = b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    with open(file, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.truncate(8 + len(header) + size)
    return file


def capsules_that_nobody_takes():
    """No memory is kept of them, and who refuses one says so as ever."""
    with open("/proc/self/statm") as f, tempfile.TemporaryDirectory() as tmp:
        pages = lambda: (f.seek(0), int(f.read().split()[1]))[1]
        with unshard.open(a_large_file(tmp)) as ck:
            ck["a"].__dlpack__()
            before = pages()
            for how in ({}, {"max_version": (1, 0)}):
                capsule = ck["a"].__dlpack__(**how)
                assert pages() > before + 30000
                del capsule
                assert pages() < before + 3000, (before, pages())
                capsule = ck["a"].map().__dlpack__(max_version=(1, 0))
                maps = lambda: pathlib.Path("/proc/self/maps").read_text().count(tmp)
                assert maps() == 1
                del capsule
                assert maps() == 0
        with unshard.open(DTYPES) as ck, unshard.open(LLAMA) as llama:
            odd = next(t for t in ck.values() if t.dtype == "bfloat16")
            big = max(llama.values(), key=lambda t: t.nbytes)
            for nr in range(3000):
                refused((RuntimeError, BufferError), lambda: np.from_dlpack(odd))
                big.__dlpack__()
                big.__dlpack__(max_version=(1, 0))
                if nr == 300:
                    before = pages()
            assert pages() < before + 1000, (before, pages())


def ml_dtypes_arrays():
    try:
        import ml_dtypes
    except ImportError:
        return "no ml_dtypes"
    with unshard.open(DTYPES) as ck:
        for t in ck.values():
            if t.dtype not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
                continue
            got = t.numpy()
            assert got.dtype.name == t.dtype and got.tobytes() == t.tobytes()
            into = np.zeros(t.shape, got.dtype)
            t.read_into(into)
            assert into.tobytes() == t.tobytes()


def threads_and_pickles():
    with unshard.open(LLAMA) as ck:
        want = {n: t.tobytes() for n, t in ck.items()}
        wrong = []

        def work():
            if {n: t.tobytes() for n, t in ck.items()} != want:
                wrong.append(1)

        all_of = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in all_of], [t.join() for t in all_of]
        assert not wrong
        with pickle.loads(pickle.dumps(ck)) as again:
            assert again[MATRIX].tobytes() == want[MATRIX]


def written(file, names, dtype="F32"):
    """Of safetensors: a tensor of one float each, that is its place in names + 1."""
    head = {n: {"dtype": dtype, "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
            for i, n in enumerate(names)}
    text = json.dumps(head).encode()
    with open(file, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.write(np.arange(1, len(names) + 1, dtype=np.float32).tobytes())


def lazy_tensors_elsewhere():
    """Unpickled they are found by name, whatever else is there by then; a copy is itself."""
    with tempfile.TemporaryDirectory() as tmp, unshard.open(LLAMA) as ck:
        part = ck[MATRIX][3:9, 2]
        assert copy.copy(part) is copy.deepcopy(part) is part
        again = pickle.loads(pickle.dumps(part))
        assert again.shape == (6,) and again.tobytes() == part.tobytes()
        file = tmp + "/model.safetensors"
        written(file, ["b", "c"])
        with unshard.open(file) as two:
            kept = pickle.dumps(two["b"])
        os.unlink(file)
        written(file, ["a", "b", "c"])
        assert pickle.loads(kept).numpy() == [2]
        os.unlink(file)
        written(file, ["a", "c"])
        refused(unshard.UnknownName, lambda: pickle.loads(kept), "'b'")
        os.unlink(file)
        written(file, ["b", "c"], "I32")
        refused(unshard.OpenError, lambda: pickle.loads(kept), "b was float32 [1]", "int32 [1]")


class Rows:
    """A dataset for the workers of a DataLoader that are spawned."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return self.tensor[i].torch()


def spawned_workers():
    try:
        import torch
        import torch.utils.data
    except ImportError:
        return "no torch"
    with unshard.open(LLAMA) as ck:
        rows = torch.utils.data.DataLoader(Rows(ck[MATRIX]), batch_size=3, num_workers=2,
                                           multiprocessing_context="spawn")
        assert torch.equal(torch.cat(list(rows)), ck[MATRIX][:6].torch())


def missed_names():
    """get() of what is not there looks for nothing near."""
    with tempfile.TemporaryDirectory() as tmp:
        file = tmp + "/model.safetensors"
        names = [f"model.layers.{i}.mlp.experts.{j}.w" for i in range(40) for j in range(40)]
        written(file, names)
        with unshard.open(file) as ck, unittest.mock.patch("difflib.SequenceMatcher") as match:
            assert ck.get("x") is None and ck.get("x", 3) == 3 and ck.get(names[7]).shape == (1,)
            assert not match.called
        with unshard.open(file) as ck:
            for name in random.Random(1).sample(names, 5):
                for wrong in (name[:-1] + "v", name.replace("experts", "expert"), name + ".bias"):
                    near = difflib.get_close_matches(wrong, names, 1, 0.0)[0]
                    ratio = difflib.SequenceMatcher(None, near, wrong).ratio()
                    got = str(refused(KeyError, lambda: ck[wrong])).split("'")[-2]
                    assert difflib.SequenceMatcher(None, got, wrong).ratio() == ratio, (got, near)


# Nothing for a worker that was spawned.
for one in () if __name__ != "__main__" else (imports_nothing, wrong_abi, mapping, objects, settings, whole_or_not_at_all,
            run_directories, slices, places, steps_into_any_memory, maps, many,
            no_such_memory, images, meshes, sums, torch_and_dlpack, capsules_that_nobody_takes, ml_dtypes_arrays, threads_and_pickles,
            lazy_tensors_elsewhere, spawned_workers, missed_names):
    case(one)
