# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that several processes wrote to at the same time, the same bytes
among them, as its framework loads it: its sums are right, every element is of one
of them, and the framework has what the mount showed.  MindSpore's case needs it:
V/bin/python tests/clients/edited_together.py, V being an environment that has it.
"""
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from kit import UNSHARD, case, mounted, need, result, unmount_all

need("numpy")
import numpy as np

ROWS, COLUMNS = 700, 513
WRITER = """
import os, sys
path, value, base, whole, step = sys.argv[1], *map(int, sys.argv[2:])
import struct
fd = os.open(path, os.O_WRONLY)
data = struct.pack("<f", value) * (step // 4)
for turn in range(3):
    for at in range(0, whole, step):
        n = min(step, whole - at)
        assert os.pwrite(fd, data[:n], base + at) == n
    os.fsync(fd)
os.close(fd)
"""


def start(file, value, whole, step):
    base = os.stat(file).st_size - whole
    return subprocess.Popen([sys.executable, "-c", WRITER, str(file), str(value),
                             str(base), str(whole), str(step)])


def together(at, name):
    """Four writers of tensor @name, in two views; what the mount shows then."""
    whole = ROWS * COLUMNS * 4
    files = [at / "tensors" / name, at / "npy" / (name + ".npy")]
    running = [start(files[k % 2], k + 1, whole, 40000 + 4 * k) for k in range(4)]
    for p in running:
        assert p.wait() == 0
    shown = np.fromfile(files[0], "f4").reshape(ROWS, COLUMNS)
    assert np.isin(shown, [1, 2, 3, 4]).all(), "an element of nobody"
    return shown


def edited(source, name):
    with mounted(source, rw=True) as at:
        shown = together(at, name)
    unmount_all()
    subprocess.run([UNSHARD, "verify", "-r", str(source)], check=True,
                   stdout=subprocess.DEVNULL)
    return shown


def made():
    return {"before": np.arange(7, dtype="f4"), "w": np.zeros((ROWS, COLUMNS), "f4"),
            "z": np.arange(9, dtype="f4")}


def same(got, want):
    assert np.array_equal(got["w"], want), "not what the mount showed"
    for name in "before", "z":
        assert np.array_equal(got[name], made()[name]), name


def torch_save(tmp):
    torch = importlib.import_module("torch")
    (tmp / "c").mkdir()
    file = tmp / "c" / "model.pt"
    torch.save({n: torch.from_numpy(a) for n, a in made().items()}, file)
    subprocess.run([UNSHARD, "seal", str(tmp / "c")], check=True,
                   stdout=subprocess.DEVNULL)
    want = edited(tmp / "c", "w")
    with zipfile.ZipFile(file) as z:
        assert z.testzip() is None, "a sum is wrong"
    got = torch.load(file, weights_only=True)
    same({n: t.numpy() for n, t in got.items()}, want)


def safetensors(tmp):
    st = importlib.import_module("safetensors.numpy")
    (tmp / "c").mkdir()
    st.save_file(made(), tmp / "c" / "model.safetensors")
    want = edited(tmp / "c", "w")
    same(st.load_file(tmp / "c" / "model.safetensors"), want)


def mindspore(tmp):
    ms = importlib.import_module("mindspore")
    (tmp / "c").mkdir()
    file = str(tmp / "c" / "net.ckpt")
    ms.save_checkpoint([{"name": n, "data": ms.Tensor(a)} for n, a in made().items()],
                       file, crc_check=True)
    want = edited(tmp / "c", "w")
    got = ms.load_checkpoint(file, crc_check=True)
    same({n: t.asnumpy() for n, t in got.items()}, want)


for module, test in ("torch", torch_save), ("safetensors", safetensors), \
        ("mindspore", mindspore):
    try:
        importlib.import_module(module)
    except ImportError:
        result("skip", test.__name__, f"no {module}")
        continue
    with tempfile.TemporaryDirectory() as where:
        case(test, test.__name__, pathlib.Path(where))
