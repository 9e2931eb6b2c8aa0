# SPDX-License-Identifier: Apache-2.0
"""What loaders get of files in which tensors have lost bytes: all the others.

A save of one file a tensor, of which some are gone and one is cut, in the views
that hold many tensors; past the page cache, and through it with a large
read-ahead.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from kit import case, mounted, need

need("numpy", "torch", "safetensors")
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file

PAGE = 4096
FILES = "model.safetensors", "hf/model.safetensors", "model.pt"
HOW = {"direct": {}, "cached": {"direct": "off"}}
GONE = {"a", "gone", "n"}
CUT = "cut"
LOST = GONE | {CUT}


def tensors():
    torch.manual_seed(1)
    sizes = {"a": 8, "b": 1 << 16, "gone": 1 << 19, CUT: 1 << 19, "z": 1000}
    state = {k: torch.rand(n) + 1 for k, n in sizes.items()}
    state["n"] = torch.full((3,), 7, dtype=torch.uint8)
    state["odd"] = torch.full((4097,), 9, dtype=torch.uint8)
    return state


def damaged(at):
    """Saves them; the bytes of GONE are lost, the second half of CUT's too."""
    state = tensors()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=at, no_dist=True,
                 storage_writer=dcp.FileSystemWriter(at, single_file_per_rank=False))
    places = dcp.FileSystemReader(at).read_metadata().storage_data
    for key, place in places.items():
        file = at / place.relative_path
        if key.fqn in GONE:
            file.unlink()
        elif key.fqn == CUT:
            os.truncate(file, file.stat().st_size // 2)
    return state


def header(file):
    with open(file, "rb") as f:  # buffered: it reads far more than it is asked for
        size = int.from_bytes(f.read(8), "little")
        return 8 + size, json.loads(f.read(size))


def places(file):
    """name -> its bytes in the file"""
    data, entries = header(file)
    return {k: range(*(data + x for x in v["data_offsets"])) for k, v in
            entries.items() if k != "__metadata__"}


def check_safetensors(file, state):
    with safe_open(file, "pt") as f:
        assert set(f.keys()) == set(state), f.keys()
        for name in set(state) - LOST:
            assert torch.equal(f.get_tensor(name), state[name]), name
    with safe_open(file, "pt", backend="pread") as f:
        for name in state:
            try:
                got = f.get_tensor(name)
            except Exception:
                assert name in LOST, name
            else:
                assert torch.equal(got, state[name]), name
    at = places(file)
    assert file.stat().st_size == max(r.stop for r in at.values())
    pages = {n: set(x // PAGE for x in r) for n, r in at.items()}
    good = set().union(*(pages[n] for n in state if n not in LOST))
    bad = set().union(*(pages[n] for n in state if n in LOST))
    assert not bad & (good | set(range(min(r.start for r in at.values()) // PAGE)))


def check_torch(file, state):
    loaded = torch.load(file, mmap=True, weights_only=True)
    assert set(loaded) == set(state), sorted(loaded)
    for name in set(state) - LOST:
        assert torch.equal(loaded[name], state[name]), name


def read_ahead(at, kib):
    """Of the mount's maps and cached reads; False: not allowed to set it."""
    dev = os.stat(at).st_dev
    knob = pathlib.Path(f"/sys/class/bdi/{os.major(dev)}:{os.minor(dev)}/read_ahead_kb")
    try:
        knob.write_text(str(kib))
    except OSError:
        return False
    return True


MAPPED = """
import mmap, sys
with open(sys.argv[1], "rb") as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
sys.stdout.buffer.write(m[int(sys.argv[2]):int(sys.argv[3])])
"""


def mapped(file, r):
    """The bytes through a map; None: the signal."""
    done = subprocess.run([sys.executable, "-c", MAPPED, file, str(r.start), str(r.stop)],
                          capture_output=True)
    assert done.returncode in (0, -7), done.stderr
    return done.stdout if done.returncode == 0 else None


def raw(tensor):
    return tensor.view(torch.uint8).numpy().tobytes()


def check_maps(file, state):
    for name, r in places(file).items():
        got = mapped(file, r)
        if name in LOST:
            assert got is None, f"{name}: a map has bytes that are lost"
        else:
            assert got == raw(state[name]), name


def check_reads(file, state):
    """Each read: right bytes up to the first lost one, an error from there."""
    fd = os.open(file, os.O_RDONLY)
    at = places(file)
    for name, r in at.items():
        want = raw(state[name])
        there = 0 if name in LOST else len(want)
        for step in 1 << 20, 5000:
            got = b""
            try:
                while len(got) < len(want):
                    more = os.pread(fd, min(step, len(want) - len(got)), r.start + len(got))
                    assert more, "the file ends"
                    got += more
            except OSError as e:
                assert name in LOST, (name, e)
            else:
                assert name not in LOST, name
            assert got == want[: len(got)], f"{name}: wrong bytes"
            assert len(got) >= there, (name, len(got))
    lost = min(r.start for n, r in at.items() if n in LOST)
    assert len(os.pread(fd, 1 << 20, lost - 100)) == 100
    try:
        os.pread(fd, 1, lost)
    except OSError:
        return os.close(fd)
    raise AssertionError("a lost byte was read")


def whole(view, options):
    with tempfile.TemporaryDirectory() as tmp:
        ck = pathlib.Path(tmp) / "ck"
        state = damaged(ck)
        with mounted(ck, **options) as at:
            read_ahead(at, 1024)
            if view == "model.pt":
                return check_torch(at / view, state)
            check_safetensors(at / view, state)
            check_maps(at / view, state)
            check_reads(at / view, state)


def nothing_lost_changes_nothing():
    with tempfile.TemporaryDirectory() as tmp:
        ck = pathlib.Path(tmp) / "ck"
        state = tensors()
        dcp.save(state, checkpoint_id=ck, no_dist=True)
        with mounted(ck) as at:
            end, _ = header(at / FILES[0])
            assert end % 8 == 0 and end < PAGE, end
            got = load_file(at / FILES[0])
            assert all(torch.equal(got[k], v) for k, v in state.items())


case(nothing_lost_changes_nothing, "nothing_lost_changes_nothing")
for how, options in HOW.items():
    for view in FILES:
        case(whole, f"{how}:{view.replace('/', '_')}", view, options)
