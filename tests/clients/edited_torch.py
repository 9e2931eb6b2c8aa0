# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that was written to through a mount, as its framework loads it:
exactly the edited elements have changed."""
import io
import os
import pathlib
import random
import tempfile
import zipfile

from kit import case, mounted, need

need("numpy", "torch")
import numpy
import torch


def tensors():
    torch.manual_seed(1)
    return {
        "layer.weight": torch.randn(300, 513),
        "layer.half": torch.randn(700, 257).to(torch.bfloat16),
        "layer.turned": torch.randn(129, 300).t(),
        "ids": torch.arange(5000),
    }


def raw(t):
    return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def edit(at, state):
    """Edits each tensor by pwrite and by a map; what it should be then."""
    want = {}
    rng = random.Random(2)
    for name, t in state.items():
        path = at / "tensors" / name
        bytes_now = raw(t).copy()
        fd = os.open(path, os.O_RDWR)
        for _ in range(10):
            off = rng.randrange(len(bytes_now))
            data = rng.randbytes(min(len(bytes_now) - off, rng.choice([1, 3, 4000, 90000])))
            assert os.pwrite(fd, data, off) == len(data)
            bytes_now[off : off + len(data)] = numpy.frombuffer(data, "u1")
        os.close(fd)
        mapped = numpy.memmap(path, "u1", "r+")
        mapped[5:900:7] ^= 0x55
        mapped.flush()
        bytes_now[5:900:7] ^= 0x55
        assert numpy.array_equal(mapped, bytes_now), name
        del mapped
        want[name] = torch.from_numpy(bytes_now).view(t.dtype).reshape(t.shape)
    return want


def equal(got, want):
    for name, t in want.items():
        assert got[name].shape == t.shape and got[name].dtype == t.dtype, name
        assert numpy.array_equal(raw(got[name]), raw(t)), name


def save(tmp):
    """torch.save, which keeps a CRC of each storage"""
    state = tensors()
    torch.save({"model": state, "step": 7}, tmp / "model.pt")
    with mounted(tmp / "model.pt", rw=True) as at:
        names = {f"model.{n}": t for n, t in state.items()}
        want = edit(at, names)
    for mmap in True, False:
        got = torch.load(tmp / "model.pt", mmap=mmap, weights_only=True)
        assert got["step"] == 7
        equal({f"model.{n}": t for n, t in got["model"].items()}, want)
    with zipfile.ZipFile(tmp / "model.pt") as z:
        assert z.testzip() is None


def dcp(tmp):
    """torch.distributed.checkpoint, one zip a tensor"""
    import torch.distributed.checkpoint as dcp

    state = {n: t.contiguous() for n, t in tensors().items()}
    dcp.save(state, checkpoint_id=tmp / "dcp", no_dist=True)
    with mounted(tmp / "dcp", rw=True) as at:
        want = edit(at, state)
    got = {n: torch.zeros_like(t) for n, t in state.items()}
    dcp.load(got, checkpoint_id=tmp / "dcp", no_dist=True)
    equal(got, want)
    meta = dcp.FileSystemReader(tmp / "dcp").read_metadata()
    for info in meta.storage_data.values():
        data = (tmp / "dcp" / info.relative_path).read_bytes()
        item = data[info.offset : info.offset + info.length]
        assert zipfile.ZipFile(io.BytesIO(item)).testzip() is None, info


def replaced(tmp):
    """ndarray.tofile and numpy.save over what a mount shows"""
    state = {"w": torch.randn(400, 300)}
    torch.save(state, tmp / "w.pt")
    new = numpy.random.default_rng(3).normal(size=(400, 300)).astype("f4")
    with mounted(tmp / "w.pt", replace=True) as at:
        new.tofile(at / "tensors" / "w")
        assert numpy.array_equal(numpy.load(at / "npy" / "w.npy"), new)
        numpy.save(at / "npy" / "w.npy", new * 2)
        try:
            numpy.save(at / "npy" / "w.npy", new[:100])
        except OSError:
            pass
        else:
            assert False, "an array of another shape was taken"
    assert numpy.array_equal(torch.load(tmp / "w.pt")["w"].numpy(), new * 2)


def megatron(tmp):
    """bfloat16 weights and their copies, as Megatron-Core names them in DCP"""
    import torch.distributed.checkpoint as dcp

    w = torch.randn(40, 30)
    copy = "optimizer.state.fp32_param.w"
    for name in copy, "optimizer.state.param.w", f"chained_1.{copy}":
        where = tmp / name
        dcp.save({"w": w.to(torch.bfloat16), name: w}, checkpoint_id=where, no_dist=True)
        with mounted(where, rw=True) as at:
            try:
                open(at / "tensors/w", "r+b")
            except PermissionError:
                pass
            else:
                assert False, "a write that training would undo"
        with mounted(where, rw=True, master="also") as at:
            with open(at / "tensors/w", "r+b") as f:
                f.seek(2 * 77)
                f.write(raw(torch.tensor([1.5, -3], dtype=torch.bfloat16)).tobytes())
        got = {"w": torch.zeros(40, 30, dtype=torch.bfloat16), name: torch.zeros(40, 30)}
        dcp.load(got, checkpoint_id=where, no_dist=True)
        want = w.clone()
        want.view(-1)[77:79] = torch.tensor([1.5, -3])
        assert torch.equal(got["w"], want.to(torch.bfloat16)), name
        assert torch.equal(got[name], want), name


for test in save, dcp, replaced, megatron:
    with tempfile.TemporaryDirectory() as at:
        case(test, test.__name__, pathlib.Path(at))
