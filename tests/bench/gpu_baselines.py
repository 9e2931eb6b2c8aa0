# SPDX-License-Identifier: Apache-2.0
"""gpu_baselines.py LOADER DIR cold|resident: a line of JSON, as tests/bench-gpu has it.

Every file of safetensors in DIR into memory of the first GPU, or of the host where torch
has none and the loader goes without, GB/s (1e9), median of three after one that does not
count.  Ends with 77, and a line that says why, where the loader is not there.
"""
import glob
import importlib
import json
import os
import statistics
import sys
import time
from importlib import metadata

ROUNDS = 4


def absent(why):
    print(json.dumps({"absent": why}))
    sys.exit(77)


def safetensors(files, device):
    load_file = importlib.import_module("safetensors.torch").load_file
    return [t for f in files for t in load_file(f, device=device).values()]


def fastsafetensors(files, device):
    fastsafe_open = importlib.import_module("fastsafetensors").fastsafe_open
    with fastsafe_open(filenames=files, device=device, nogds=device == "cpu") as f:
        return [f.get_tensor(name) for name in f.keys()]


def instanttensor(files, device):
    safe_open = importlib.import_module("instanttensor").safe_open
    with safe_open(files, framework="pt", device=device) as f:
        return [tensor for _, tensor in f.tensors()]


def runai(files, device):
    streamer = importlib.import_module("runai_model_streamer").SafetensorsStreamer
    with streamer() as s:
        s.stream_files(files)
        # What it yields is a view of a buffer that it uses again.
        return [t.to(device) if device != "cpu" else t.clone() for _, t in s.get_tensors()]


LOADERS = {
    "safetensors": (safetensors, "safetensors", True),
    "fastsafetensors": (fastsafetensors, "fastsafetensors", True),
    "instanttensor": (instanttensor, "instanttensor", False),
    "runai": (runai, "runai-model-streamer", True),
}


def forget(files):
    for f in files:
        fd = os.open(f, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def main(name, folder, cache):
    load, package, on_host = LOADERS[name]
    try:
        version = metadata.version(package)
        import torch
    except (ImportError, metadata.PackageNotFoundError) as e:
        absent(f"{package} or torch: {e}")
    gpu = torch.cuda.is_available()
    if not gpu and not on_host:
        absent(f"{package} {version}: torch has no GPU here")
    files = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
    took, size = [], 0
    for _ in range(ROUNDS):
        if cache == "cold":
            forget(files)
        begun = time.monotonic()
        tensors = load(files, "cuda:0" if gpu else "cpu")
        if gpu:
            torch.cuda.synchronize()
        took.append(time.monotonic() - begun)
        size = sum(t.nbytes for t in tensors)
        del tensors
    whole = sum(os.path.getsize(f) for f in files)
    if not 0 <= whole - size < 65536 * len(files):
        raise SystemExit(f"{size} bytes of tensors in files of {whole}")
    rate = size / statistics.median(took[1:]) / 1e9
    print(json.dumps({"rate": round(rate, 2), "cache": cache, "version": version,
                      "into": "device" if gpu else "host"}))


try:
    main(*sys.argv[1:])
except ImportError as e:
    absent(str(e))
except Exception as e:
    print(json.dumps({"error": f"{type(e).__name__}: {e}"[:300].replace("\n", " ")}))
    sys.exit(1)
