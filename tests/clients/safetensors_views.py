# SPDX-License-Identifier: Apache-2.0
"""model.safetensors and hf/ by safe_open, slices and load_file."""
import json

from kit import case, checkpoints, example, expected, need, sha256

need("numpy", "torch", "safetensors")
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def whole(path):
    with example(path) as at, safe_open(at / "model.safetensors", "pt") as f:
        want = expected(path)
        assert set(f.keys()) == set(want), set(f.keys()) ^ set(want)
        assert f.metadata()["format"] == "pt"
        for name, (_, shape, digest) in want.items():
            got = f.get_tensor(name)
            assert list(got.shape) == shape, name
            assert sha256(raw(got) if got.numel() else b"") == digest, name
        loaded = load_file(at / "model.safetensors")
        assert {n: sha256(raw(t)) for n, t in loaded.items()} == {
            n: v[2] for n, v in want.items()
        }


def slices(path):
    with example(path) as at, safe_open(at / "model.safetensors", "pt") as f:
        for name in f.keys():
            full, part = f.get_tensor(name), f.get_slice(name)
            assert part.get_shape() == list(full.shape)
            if full.ndim:
                assert raw(part[1:]) == raw(full[1:]), name
            if full.ndim > 1:
                assert raw(part[:, 2:-1]) == raw(full[:, 2:-1]), name


def metadata_is_kept(tmp):
    source = tmp / "in.safetensors"
    tensors = {"a": torch.arange(6.0), "b": torch.zeros(2, 3, dtype=torch.int8)}
    save_file(tensors, source, {"format": "pt", "author": "né \"x\"", "step": "7"})
    from kit import mounted

    with mounted(source) as at:
        for file in "model.safetensors", "hf/model.safetensors":
            with safe_open(at / file, "pt") as f:
                assert f.metadata() == {
                    "format": "pt", "author": "né \"x\"", "step": "7",
                }, f.metadata()


def index_of_many_files(path):
    with example(path, hf_shard_size="8K") as at:
        index = json.loads((at / "hf/model.safetensors.index.json").read_text())
        files = set(index["weight_map"].values())
        assert len(files) > 2, files
        listed = {p.name for p in (at / "hf").glob("model-*.safetensors")}
        assert listed == files, (listed, files)
        total = 0
        for file in files:
            with safe_open(at / "hf" / file, "pt") as f:
                names = set(f.keys())
                total += sum(f.get_tensor(n).nbytes for n in names)
            assert names == {n for n, x in index["weight_map"].items() if x == file}
        assert total == index["metadata"]["total_size"]


for path in checkpoints():
    case(whole, f"load/{path.name}", path)
    case(slices, f"slices/{path.name}", path)
case(index_of_many_files, "index", checkpoints()[0])
import pathlib
import tempfile

with tempfile.TemporaryDirectory() as at:
    case(metadata_is_kept, "metadata", pathlib.Path(at))
