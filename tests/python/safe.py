# SPDX-License-Identifier: Apache-2.0
"""safe_open and load_file beside the real ones of safetensors: signatures, and what
each call gives, of the same files; and of checkpoints that those cannot open."""
import inspect
import os
import random
import tempfile

from kit import DATA, EXAMPLES, case, need, refused

need("numpy", "safetensors", "torch", "safetensors.torch")
import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
import unshard


def signatures():
    own, real = (inspect.signature(f) for f in (unshard.load_file, safetensors.torch.load_file))
    shape = lambda s: [(p.name, p.kind, p.default) for p in s.parameters.values()]
    assert shape(own) == shape(real), (own, real)
    text = safetensors.safe_open.__text_signature__
    names = [p.strip().partition("=")[0] for p in text.strip("()").split(",")]
    assert [n for n in names if n not in ("$self", "*")] == list(
        inspect.signature(unshard.safe_open).parameters), text
    for theirs, ours in ((safetensors.safe_open, unshard.safe_open),):
        lack = [n for n in dir(theirs) if not hasattr(ours, n)]
        assert not lack, lack


def state():
    rng = torch.Generator().manual_seed(1)
    of = lambda *shape: torch.randn(shape, generator=rng)
    return {"w": of(37, 53), "half": of(8, 4).half(), "bf": of(5, 7, 3).bfloat16(),
            "fp8": of(16, 16).to(torch.float8_e4m3fn), "n": torch.arange(9), "one": of(),
            "none": of(0, 4), "flag": torch.tensor([True, False])}


def same_answers():
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as tmp:
        file = os.path.join(tmp, "model.safetensors")
        safetensors.torch.save_file(state(), file, metadata={"format": "pt", "by": "me"})
        for framework in ("pt", "np"):
            with safetensors.safe_open(file, framework) as f, \
                    unshard.safe_open(file, framework) as g:
                assert sorted(f.keys()) == sorted(g.keys())
                placed = [n for n in f.offset_keys() if n != "none"]  # it has no bytes
                assert [*placed, "none"] == g.offset_keys() != g.keys()
                assert f.metadata() == g.metadata()
                for name in f.keys():
                    if framework == "np" and name in ("bf", "fp8"):
                        continue
                    a, b = f.get_slice(name), g.get_slice(name)
                    assert (a.get_shape(), a.get_dtype()) == (b.get_shape(), b.get_dtype())
                    compare(f.get_tensor(name), g.get_tensor(name), name)
                    for key in keys(a.get_shape(), rng):
                        try:
                            want = a[key]
                        except safetensors.SafetensorError:
                            continue  # not every framework has every index
                        compare(want, b[key], (name, key))
        with safetensors.safe_open(file, "pt") as f, unshard.safe_open(file, "pt") as g:
            left = f.get_slice("w"), g.get_slice("w")
        compare(left[0][1:3], left[1][1:3], "a slice that is left")
        safetensors.torch.save_file(state(), file)
        with safetensors.safe_open(file, "pt") as f, unshard.safe_open(file, "pt") as g:
            assert f.metadata() is g.metadata() is None
        want, got = safetensors.torch.load_file(file), unshard.load_file(file)
        assert want.keys() == got.keys()
        for name in want:
            compare(want[name], got[name], name)


def keys(shape, rng):
    yield ...
    if not shape:
        return
    yield slice(None)
    for _ in range(20):
        out = []
        for n in shape:
            out.append(rng.choice([slice(None), slice(0, n // 2), slice(n // 3, None, 2)] +
                                  ([rng.randrange(n), -1] if n else [])))
        yield tuple(out)
    if len(shape) < 3 and shape[0] > 2:
        yield [0, 2]
        yield None


def compare(a, b, what):
    assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape, what
    if isinstance(a, torch.Tensor):
        a, b = (t.double() if t.dtype.is_floating_point else t for t in (a, b))
        assert torch.equal(a, b), what
    else:
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), what


def refusals():
    with tempfile.TemporaryDirectory() as tmp:
        refused(FileNotFoundError, lambda: unshard.safe_open(tmp + "/x", "pt"))
        refused(FileNotFoundError, lambda: unshard.load_file(tmp + "/x"))
    at = EXAMPLES / "safetensors/dtypes/in"
    refused(ValueError, lambda: unshard.safe_open(DATA / "llama-fsdp2/in", "foo"))
    with unshard.safe_open(DATA / "llama-fsdp2/in", "pt") as f:
        refused(KeyError, lambda: f.get_tensor("x"), "nearest")
        part = f.get_slice("model.lm_head.weight")
        refused(IndexError, lambda: part[149])
        refused(ValueError, lambda: part[::-1])
    refused(Exception, f.keys, "closed")
    assert at.exists()


def other_formats():
    """What a person has who calls it for a DCP or a DeepSpeed checkpoint."""
    for at in (DATA / "llama-fsdp2/in", EXAMPLES / "deepspeed/zero3-five-ranks/in"):
        with unshard.safe_open(at, framework="pt", device="cpu") as f, unshard.open(at) as ck:
            for name in f.keys():
                compare(ck[name].torch(), f.get_tensor(name), name)
                assert f.get_slice(name).get_shape() == list(ck[name].shape)


for one in (signatures, same_answers, refusals, other_formats):
    case(one)
