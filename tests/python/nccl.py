# SPDX-License-Identifier: Apache-2.0
"""Ranks that load to a GPU each: which way they take, with the driver and the NCCL of
tests/fakes.  Without torch, which has an NCCL of its own."""
import os
import subprocess
import sys
import tempfile

from kit import DATA, case, need

need("numpy")

LLAMA = DATA / "llama-fsdp2/in"
RANK = """
import ctypes, os, pathlib, sys, time
out, rank, ordinals, kind, path = sys.argv[1:]
rank, ordinals = int(rank), ordinals.split(",")
for name in "libcuda.so.1", "libnccl.so.2":
    ctypes.CDLL(os.path.join(os.environ["B"], "fakes", name), os.RTLD_GLOBAL)
import unshard
from unshard import _comm

def told(text, turn=[0]):
    turn[0] += 1
    at = [pathlib.Path(out, f"{turn[0]}-{i}") for i in range(len(ordinals))]
    pathlib.Path(out, f"new-{rank}").write_text(text)
    os.rename(pathlib.Path(out, f"new-{rank}"), at[rank])
    while not all(p.exists() for p in at):
        time.sleep(0.001)
    return [p.read_text() for p in at]

def meet(group, device):
    comm = _comm.Comm(rank, len(ordinals), told, device=device)
    assert comm.kind == kind, comm.kind
    return comm

_comm.of_group = meet
with unshard.open(path) as ck:
    want = {n: t.tobytes() for n, t in ck.items()}
    got = ck.load(device=ordinals[rank], framework="dlpack", group=True)
    assert {n: t.tobytes() for n, t in got.items()} == want
    del got
"""


def ranks(kind, ordinals, scripts=("", "")):
    env = dict(os.environ, FAKE_CUDA="count=4,device=late=20")
    with tempfile.TemporaryDirectory() as out:
        words = [sys.executable, "-c", RANK, out]
        all_of_them = [
            subprocess.Popen([*words, str(i), ",".join(ordinals), kind, str(LLAMA)],
                             env=dict(env, FAKE_NCCL=scripts[min(i, 1)]),
                             stderr=subprocess.PIPE, text=True)
            for i in range(len(ordinals))]
        said = [rank.communicate(timeout=100)[1] for rank in all_of_them]
    assert not any(rank.returncode for rank in all_of_them), said


case(ranks, "each to its GPU", "nccl", ["cuda:0", "cuda:1", "cuda:3"])
case(ranks, "two of one GPU", "shm", ["cuda:0", "cuda:1", "cuda:1"])
case(ranks, "one of the host", "shm", ["cuda:0", "host"])
case(ranks, "unlike NCCL", "shm", ["cuda:0", "cuda:1"], ("", "version=22808"))
case(ranks, "too old an NCCL", "shm", ["cuda", "cuda:1"], ("version=21705", "version=21705"))
