# SPDX-License-Identifier: Apache-2.0
"""save_turns.py FOLDER MIB: a state of so many MiB is saved in four ways, in turns;
prints the medians and their ratios.  What was saved is read by torch and compared."""
import logging
import mmap
import os
import pathlib
import shutil
import sys
import threading
import time
import warnings
from statistics import median

import torch
import torch.distributed.checkpoint as dcp
import unshard
import unshard.torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
from measure import compared, measured, spread, tell

folder, mib = sys.argv[1], int(sys.argv[2])
ROUNDS, THREADS, STRETCH = int(os.environ.get("BENCH_ROUNDS", "5")), 2, 16 << 20
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
unshard.configure(threads=THREADS)


def state():
    """Of tensors of 8, 14 and 2 MiB and of 4 KiB, by turns."""
    torch.manual_seed(0)
    out, left = {}, mib << 20
    for i, n in enumerate([8 << 20, 14 << 20, 2 << 20, 4096] * mib):
        if left < n:
            return out
        left -= n
        out[f"layers.{i}.weight"] = torch.randint(-30000, 30000, (n // 1024, 512),
                                                  dtype=torch.int16).view(torch.bfloat16)


saved = state()
target = f"{folder}/step"


def pwrite(flags=0):
    """The same bytes, each tensor at a multiple of 4 KiB of one file."""
    os.mkdir(target)
    fd = os.open(f"{target}/x", os.O_WRONLY | os.O_CREAT | flags)
    work, at = [], 0
    for t in saved.values():
        memory = memoryview(t.view(torch.uint8).numpy().reshape(-1))
        for k in range(0, len(memory), STRETCH):
            work.append((memory[k : k + STRETCH], at + k))
        at += (len(memory) + 4095) & -4096

    def run():
        aligned = memoryview(mmap.mmap(-1, STRETCH)) if flags else None
        while work:
            try:
                memory, at = work.pop(0)
            except IndexError:
                return
            if flags:  # whole pages from where pages begin
                aligned[: len(memory)] = memory
                memory = aligned[: (len(memory) + 4095) & -4096]
            while memory:
                n = os.pwrite(fd, memory, at)
                memory, at = memory[n:], at + n

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.fsync(fd)
    os.close(fd)


def direct():
    """That past the page cache."""
    pwrite(os.O_DIRECT)


def by_unshard():
    dcp.save(saved, storage_writer=unshard.torch.DCPWriter(target), no_dist=True)


def by_torch():
    dcp.save(saved, storage_writer=dcp.FileSystemWriter(target, thread_count=THREADS),
             no_dist=True)


def compare():
    got = {n: torch.zeros_like(t) for n, t in saved.items()}
    dcp.load(got, storage_reader=dcp.FileSystemReader(target), no_dist=True)
    assert all(torch.equal(got[n].view(torch.int16), t.view(torch.int16))
               for n, t in saved.items())


sides = {"pwrite": pwrite, "direct": direct, "unshard": by_unshard, "dcp": by_torch}
took = {name: [] for name in sides}
for turn in range(ROUNDS + 1):
    for name, save in list(sides.items())[:: -1 if turn % 2 else 1]:
        begun = time.perf_counter()
        save()
        if turn:
            took[name].append(time.perf_counter() - begun)
        if name in ("unshard", "dcp") and turn < 1:
            compare()
        shutil.rmtree(target)
for name, turns in took.items():
    measured(f"save_{name}", "s", turns)
    print(f"# {name}: {' '.join(f'{v:.2f}' for v in turns)}")
tell("save_rate", mib / median(took["unshard"]), "MiB/s",
     spread=spread([mib / t for t in took["unshard"]]), digits=0)
compared("save_vs_pwrite", took["pwrite"], took["unshard"], ">=0.9", "x")
compared("save_vs_dcp", took["dcp"], took["unshard"], ">=1.0", "x")
