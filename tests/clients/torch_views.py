# SPDX-License-Identifier: Apache-2.0
"""model.pt by torch.load, tensors/ by torch.from_file, and files by torch.save
as what is mounted."""
import itertools
import pathlib
import tempfile

from kit import case, checkpoints, example, expected, mounted, need, sha256

need("numpy", "torch")
import torch


def raw(tensor):
    if not tensor.numel():
        return b""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def flat(value, path=()):
    if isinstance(value, torch.Tensor):
        yield ".".join(map(str, path)), value
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from flat(below, (*path, key))
    elif isinstance(value, list):
        for i, below in enumerate(value):
            yield from flat(below, (*path, i))


def load(path):
    with example(path) as at:
        for mmap in True, False:
            tree = torch.load(at / "model.pt", mmap=mmap, weights_only=True)
            got = {n: sha256(raw(t)) for n, t in flat(tree)}
            assert got == {n: v[2] for n, v in expected(path).items()}


def from_file(path):
    with example(path) as at:
        for name, (dtype, shape, digest) in expected(path).items():
            n = 1
            for size in shape:
                n *= size
            got = torch.from_file(
                str(at / "tensors" / name), shared=False, size=n,
                dtype=getattr(torch, dtype),
            )
            assert sha256(raw(got)) == digest, name


def nested_as_it_was(tmp):
    shared = torch.arange(12.0).reshape(3, 4)
    saved = {
        "model": {"embed.weight": shared, "head.weight": shared, "bias": torch.ones(3)},
        "optimizer": {"groups": [{"m": torch.zeros(2)}, {"m": torch.ones(2)}]},
        "scalar": torch.tensor(7, dtype=torch.int64),
        "half": torch.arange(4).to(torch.bfloat16),
        "turned": shared.t(),
        "epoch": 3,
    }
    for form, protocol in itertools.product((True, False), (2, 3, 4, 5)):
        source = tmp / f"zip-{form}-{protocol}.pt"
        torch.save(saved, source, _use_new_zipfile_serialization=form, pickle_protocol=protocol)
        with mounted(source) as at:
            got = torch.load(at / "model.pt", mmap=True, weights_only=True)
            assert set(got["model"]) == {"embed.weight", "head.weight", "bias"}
            assert isinstance(got["optimizer"]["groups"], list)
            a, b = got["model"]["embed.weight"], got["model"]["head.weight"]
            assert torch.equal(a, shared)
            assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
            assert torch.equal(got["optimizer"]["groups"][1]["m"], torch.ones(2))
            assert got["scalar"].shape == () and got["scalar"] == 7
            assert got["half"].dtype == torch.bfloat16
            assert torch.equal(got["turned"], shared.t())


def every_dtype(tmp):
    made = {}
    for name in dir(torch):
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype) or str(dtype) != f"torch.{name}":
            continue
        try:
            t = torch.arange(64, dtype=torch.uint8).view(dtype)
            torch.save(t, tmp / "one.pt")
            torch.load(tmp / "one.pt", weights_only=True)
        except Exception:
            continue
        if not name.startswith("q"):
            made[name] = t
    assert len(made) > 15, sorted(made)
    torch.save(made, tmp / "all.pt")
    with mounted(tmp / "all.pt") as at:
        got = torch.load(at / "model.pt", weights_only=True)
        left = (at / ".unshard/problems").read_text()
        for name, t in made.items():
            if name not in got and f"tensor {name}: left out of model.pt" in left:
                continue
            assert got[name].dtype == t.dtype, name
            assert raw(got[name]) == raw(t), name


for path in checkpoints():
    case(load, f"load/{path.name}", path)
    case(from_file, f"from_file/{path.name}", path)
with tempfile.TemporaryDirectory() as at:
    case(nested_as_it_was, "nested", pathlib.Path(at))
    case(every_dtype, "dtypes", pathlib.Path(at))
