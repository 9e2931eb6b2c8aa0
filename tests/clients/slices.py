# SPDX-License-Identifier: Apache-2.0
"""New checkpoints that are written as slices of tensors, by plain writes, and
loaded by the frameworks that know nothing of us: file by file by safetensors, and
onto another mesh by torch.distributed.checkpoint."""
import glob
import io
import json
import os
import subprocess
import tempfile
import zipfile

import kit

kit.need("torch", "safetensors")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402

TENSORS = {
    "embed.weight": (torch.float32, "float32", (52, 24), {"tp": {"shard": 0}}),
    "head.weight": (torch.bfloat16, "bfloat16", (24, 50), {
        "tp": {"shard": 1}, "dp": {"shard": 0, "sizes": "ceil"}}),
    "norm": (torch.float16, "float16", (2048,), {}),
    "step": (torch.int64, "int64", (), {}),
}
DP = TP = 2


def value(name):
    dtype, _, shape, _ = TENSORS[name]
    g = torch.Generator().manual_seed(sum(name.encode()))
    if dtype == torch.int64:
        return torch.randint(1 << 40, shape, generator=g)
    return torch.randn(shape, generator=g).to(dtype)


def raw(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def slice_of(name, dp, tp):
    t = value(name)
    for axis, at in ("dp", dp), ("tp", tp):
        cut = TENSORS[name][3].get(axis)
        if cut:
            t = torch.chunk(t, 2, cut["shard"])[at]
    return t.contiguous()


def layout(**more):
    return json.dumps({
        "unshard_layout": 1,
        "mesh": {"axes": [{"name": "dp", "size": DP}, {"name": "tp", "size": TP}]},
        "tensors": [{"name": n, "dtype": d, "shape": list(s), "placement": p}
                    for n, (_, d, s, p) in TENSORS.items()],
        "write": more})


WRITER = """
import mmap, os, sys
src, dst = sys.argv[1:]
for name in os.listdir(src):
    data = open(f"{src}/{name}", "rb").read()
    with open(f"{dst}/{name}", "r+b", buffering=0) as f:
        for at in reversed(range(0, len(data), 999)):
            f.seek(at)
            f.write(data[at:at + 999])
"""


def save(work, step, options="", **more):
    """Four processes, each with the slices of a rank."""
    src, mnt = f"{work}/src", f"{work}/mnt"
    os.makedirs(src, exist_ok=True)
    os.makedirs(mnt, exist_ok=True)
    run = [kit.UNSHARD, "mount", src, mnt, "-o", "rw" + options]
    subprocess.run(run, check=True)
    try:
        os.mkdir(f"{mnt}/{step}")
        with open(f"{mnt}/{step}/unshard-layout.json", "w") as f:
            f.write(layout(**more))
        jobs = []
        for rank in range(DP * TP):
            parts = f"{work}/{step}-{rank}"
            os.mkdir(parts)
            for name in TENSORS:
                with open(f"{parts}/{name}", "wb") as f:
                    f.write(raw(slice_of(name, rank // TP, rank % TP)))
            jobs.append(subprocess.Popen([
                "python3", "-c", WRITER, parts, f"{mnt}/{step}/ranks/{rank}"]))
        assert not any(j.wait() for j in jobs), "a writer"
        subprocess.run([kit.UNSHARD, "publish", f"{mnt}/{step}"], check=True,
                       stdout=subprocess.DEVNULL)
        for name in TENSORS:
            with open(f"{mnt}/{step}/tensors/{name}", "rb") as f:
                assert f.read() == raw(value(name)), name
    finally:
        subprocess.run([kit.UNSHARD, "umount", mnt], check=True)
    return f"{src}/{step}"


def opened_by_safetensors():
    with tempfile.TemporaryDirectory() as work:
        step = save(work, "step")
        seen = {}
        for path in sorted(glob.glob(f"{step}/*.safetensors")):
            with open(path, "rb") as f:
                n = int.from_bytes(f.read(8), "little")
                head = json.loads(f.read(n))
            rank = int(path[-17:-12])
            with safe_open(path, "pt") as s:
                for name in s.keys():
                    if name.startswith("__unshard_pad."):
                        continue
                    at = 8 + n + head[name]["data_offsets"][0]
                    assert at % 4096 == 0, (path, name, at)
                    want = slice_of(name, rank // TP, rank % TP)
                    got = s.get_tensor(name)
                    assert got.dtype == want.dtype, name
                    assert torch.equal(got, want), (path, name)
                    seen[name] = seen.get(name, 0) + got.numel()
        # copies are stored once
        assert seen == {n: value(n).numel() for n in TENSORS}, seen


def pairs_of_fp4():
    """Two elements a byte for torch, one by one for safetensors' header."""
    if not hasattr(torch, "float4_e2m1fn_x2"):
        return
    with tempfile.TemporaryDirectory() as work:
        src, mnt = f"{work}/src", f"{work}/mnt"
        os.mkdir(src)
        os.mkdir(mnt)
        want = torch.randint(256, (4, 8), dtype=torch.uint8)
        subprocess.run([kit.UNSHARD, "mount", src, mnt, "-o", "rw"], check=True)
        try:
            os.mkdir(f"{mnt}/fp4")
            with open(f"{mnt}/fp4/unshard-layout.json", "w") as f:
                json.dump({
                    "unshard_layout": 1,
                    "mesh": {"axes": [{"name": "tp", "size": 2}]},
                    "tensors": [{"name": "w", "dtype": "float4_e2m1fn_x2",
                                 "shape": [4, 8], "placement": {"tp": {"shard": 1}}}],
                    "write": {}}, f)
            with open(f"{mnt}/fp4/tensors/w", "r+b") as f:
                f.write(want.numpy().tobytes())
            subprocess.run([kit.UNSHARD, "publish", f"{mnt}/fp4"], check=True,
                           stdout=subprocess.DEVNULL)
        finally:
            subprocess.run([kit.UNSHARD, "umount", mnt], check=True)
        for rank in range(2):
            with safe_open(f"{src}/fp4/rank-0000{rank}.safetensors", "pt") as s:
                got = s.get_tensor("w")
                assert s.get_slice("w").get_shape() == [4, 8], rank
            assert got.dtype == torch.float4_e2m1fn_x2 and got.shape == (4, 4), got
            assert torch.equal(got.view(torch.uint8), want[:, 4 * rank:][:, :4])


def loaded_by_dcp():
    with tempfile.TemporaryDirectory() as work:
        for how in "", "option":
            step = save(work, "a" + how, ",shard-format=dcp" if how else "",
                        **({} if how else {"format": "dcp"}))
            state = {n: torch.zeros_like(value(n)) for n in TENSORS}
            dcp.load(state, checkpoint_id=step)
            for name in TENSORS:
                assert torch.equal(state[name], value(name)), name
            dcp_to_torch_save(step, f"{work}/all.pt")
            whole = torch.load(f"{work}/all.pt", weights_only=True)
            assert whole.keys() == TENSORS.keys(), whole.keys()
            for name in TENSORS:
                assert whole[name].dtype == TENSORS[name][0], name
                assert torch.equal(whole[name], value(name)), name
            meta = dcp.FileSystemReader(step).read_metadata()
            for info in meta.storage_data.values():
                with open(os.path.join(step, info.relative_path), "rb") as f:
                    f.seek(info.offset)
                    item = f.read(info.length)
                # its CRC-32 is right, and each is a file of torch.save
                assert zipfile.ZipFile(io.BytesIO(item)).testzip() is None, info
                torch.load(io.BytesIO(item), weights_only=True)


kit.case(opened_by_safetensors, "safetensors")
kit.case(pairs_of_fp4, "safetensors, of fp4")
kit.case(loaded_by_dcp, "torch.distributed.checkpoint")
