# SPDX-License-Identifier: Apache-2.0
"""The gguf package: its readers on the mount, and a file written from it."""
import pathlib
import tempfile

from kit import DATA, case, checkpoints, example, expected, mounted, need, sha256

need("numpy", "gguf")
import gguf
import numpy as np


def local(path):
    """What llama.cpp's converter reads safetensors with."""
    try:
        from gguf.utility import SafetensorsLocal
    except ImportError:
        return "this gguf has no reader of safetensors"
    with example(path) as at:
        want = expected(path)
        got = SafetensorsLocal(at / "model.safetensors").tensors
        assert set(got) == set(want), set(got) ^ set(want)
        for name, (_, shape, digest) in want.items():
            t = got[name]
            assert list(t.shape) == shape, name
            empty = not t.data_range.size # cannot be mapped, from any file
            assert sha256(b"" if empty else t.mmap_bytes().tobytes()) == digest, name


def f32_tensors(at):
    tensors = {}
    for file in sorted((at / "npy").glob("*.npy")):
        a = np.load(file, mmap_mode="r")
        if a.dtype == np.float32 and a.ndim and a.size:
            tensors[file.name[:-4]] = a
    return tensors


def written(path):
    """A GGUF file of the mount's arrays, read as a file and below shards/."""
    with example(path) as at, tempfile.TemporaryDirectory() as tmp:
        tensors = f32_tensors(at)
        if not tensors:
            return "no tensor of a type that GGUF has too"
        folder = pathlib.Path(tmp, "in")
        folder.mkdir()
        w = gguf.GGUFWriter(folder / "model.gguf", "llama")
        for name, a in tensors.items():
            w.add_tensor(name, a)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        (folder / "model.safetensors").write_bytes(
            (at / "model.safetensors").read_bytes()
        )
        same(folder / "model.gguf", tensors)
        with mounted(folder) as its:
            same(its / "shards/model.gguf", tensors)


def same(file, tensors):
    got = {t.name: t for t in gguf.GGUFReader(file).tensors}
    assert set(got) == set(tensors), set(got) ^ set(tensors)
    for name, a in tensors.items():
        assert np.array_equal(got[name].data.reshape(a.shape), a), name


for path in checkpoints():
    case(local, f"safetensors/{path.name}", path)
case(written, "written", DATA / "llama-tied-f32")
