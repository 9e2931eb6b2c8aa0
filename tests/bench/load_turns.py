# SPDX-License-Identifier: Apache-2.0
"""load_turns.py PROGRAM DATA THREADS load|slices|open: loads by bench/load and by
PyTorch's and safetensors' own ways, in turns; prints the medians and their ratios."""
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
from measure import compared, measured, ratios, spread, tell

program, data, threads, what = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "6"))
MERGED, SHARDS = f"{data}/merged.safetensors", f"{data}/dcp"
warnings.simplefilter("ignore")
torch.set_num_threads(threads)


class Program:
    def __init__(self, box):
        self.p = subprocess.Popen([program, SHARDS, str(threads), box], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, word):
        print(word, file=self.p.stdin, flush=True)
        return float(self.p.stdout.readline())


def timed(f):
    begun = time.perf_counter()
    f()
    return time.perf_counter() - begun


def turns(sides):
    """What each side took; the first turn does not count.  Every other turn goes
    backwards: what runs after another side that left the caches cold is slower."""
    took = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name, f in list(sides.items())[::-1 if turn % 2 else 1]:
            t = f()
            if turn:
                took[name].append(t)
    return took


def fast_safetensors(mine):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    def load():
        loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
        loader.add_filenames({0: [MERGED]})
        held = loader.copy_files_to_device()
        for k, t in mine.items():
            t.copy_(held.get_tensor(k))
        held.close()
        loader.close()
    return load


def run_ai(mine):
    from runai_model_streamer import SafetensorsStreamer

    def load():
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(MERGED)
            for k, t in streamer.get_tensors():
                mine[k].copy_(t)
    return load


def others(mine):
    """Loaders of merged files that a person may have; what is not installed is said."""
    os.environ.setdefault("RUNAI_STREAMER_CONCURRENCY", str(threads))
    os.environ.setdefault("RUNAI_STREAMER_LOG_TO_STDERR", "0")
    for name, make in ("fastsafetensors", fast_safetensors), ("runai-model-streamer", run_ai):
        try:
            load = make(mine)
        except ImportError as e:
            print(f"no {name} to compare with: {e}", flush=True)
            continue
        print(f"{name} {importlib.metadata.version(name)}", flush=True)
        yield name, lambda load=load: timed(load)


def whole():
    ours = Program("whole")
    with safe_open(MERGED, "pt") as f:
        mine = {k: torch.ones_like(f.get_tensor(k)) for k in f.keys()}

    def merged():
        for k, t in safetensors.torch.load_file(MERGED).items():
            mine[k].copy_(t)
    more = dict(others(mine))
    m = turns({
        "load": lambda: ours("load"), "scatter": lambda: ours("scatter"),
        "dcp.load": lambda: timed(lambda: dcp.load(mine, checkpoint_id=SHARDS)),
        "load_file": lambda: timed(merged),
        "populate": lambda: ours("populate"), "fresh": lambda: ours("fresh"), **more})
    for name, t in m.items():
        measured("load_" + name, "s", t)
    compared("load_to_scatter", m["scatter"], m["load"], ">=0.95")
    compared("load_to_dcp.load", m["dcp.load"], m["load"], ">=4")
    compared("load_to_load_file", m["load_file"], m["load"], ">=1")
    for name in more:
        compared("load_to_" + name, m[name], m["load"], ">=1")
    both = [p + t for p, t in zip(m["populate"], m["load"])]
    tell("fresh_to_populate_and_load",
         median(m["fresh"]) / (median(m["populate"]) + median(m["load"])), "ratio", "<=1.3",
         spread(ratios(m["fresh"], both)))


def peak():
    ours = Program("whole")
    for _ in range(2):
        ours("load")
    tell("load_peak_above_tensors", ours("peak"), "MiB", "<=64")


def cold():
    ours = Program("whole")
    m = turns({"cold": lambda: ours("cold"), "raw": lambda: ours("raw")})
    for name, t in m.items():
        measured("load_" + name, "s", t)
    compared("cold_to_raw", m["raw"], m["cold"], ">=1")


def box(shape, dim):
    d = dim % len(shape)
    n = shape[d] // 8
    return (slice(None),) * d + (slice(3 * n, 4 * n),)


def slices():
    sides = {}
    for name, dim in ("first", 0), ("last", -1):
        def merged(dim=dim, mine={}):
            def some(keys):
                with safe_open(MERGED, "pt") as f:
                    for k in keys:
                        s = f.get_slice(k)
                        t = s[box(s.get_shape(), dim)]
                        mine.setdefault(k, torch.ones_like(t)).copy_(t)
            with safe_open(MERGED, "pt") as f:
                keys = list(f.keys())
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(some, [keys[i::threads] for i in range(threads)]))
        ours = Program(name)
        sides[name] = lambda ours=ours: ours("load")
        sides[name + "_get_slice"] = lambda f=merged: timed(f)
        sides[name + "_bytes"] = lambda ours=ours: ours("bytes")
    torch.set_num_threads(1)
    m = turns(sides)
    for name, t in m.items():
        measured(name, "bytes/byte" if name.endswith("_bytes") else "s", t,
                 "<=1.1" if name == "first_bytes" else "")
    compared("first_to_get_slice", m["first_get_slice"], m["first"], ">=1")
    compared("last_to_get_slice", m["last_get_slice"], m["last"], ">=0.5")


def opens():
    ours = Program("whole")
    m = turns({"load": lambda: ours("load"), "open": lambda: ours("open"),
               "load_after_open": lambda: ours("load")})
    measured("open_and_first_byte", "s", m["open"], "<=0.03")
    compared("load_after_open_to_before", m["load_after_open"], m["load"], "<=1.1")


for f in {"load": (whole, peak, cold), "slices": (slices,), "open": (opens,)}[what]:
    f()
