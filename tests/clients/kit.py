# SPDX-License-Identifier: Apache-2.0
"""What the client tests share: mounts, the examples, and results.

A test prints lines "pass NAME", "fail NAME WHY", "skip NAME WHY"; tests/run-clients
counts them.
"""
import contextlib
import gc
import hashlib
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

HERE = pathlib.Path(__file__).parent
DATA = HERE / "data"
UNSHARD = os.environ.get("UNSHARD", str(HERE.parents[1] / "build/unshard"))
NAME = "clients/" + pathlib.Path(sys.argv[0]).stem


def result(status, name, why=""):
    print(status, f"{NAME}/{name}", " ".join(str(why).split()), flush=True)


def need(*modules):
    """Ends the test as skipped unless all of them can be imported."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as e:
            print("skip", NAME, f"no {module}: {type(e).__name__}", flush=True)
            sys.exit(0)


def case(function, name, *args):
    """Runs it, and says what came of it."""
    try:
        why = function(*args)
    except Exception as e:
        traceback.print_exc()
        result("fail", name, f"{type(e).__name__}: {e}")
    else:
        result("skip" if why else "pass", name, why or "")
    unmount_all()


def checkpoints():
    return sorted(p for p in DATA.iterdir() if (p / "in").is_dir())


def expected(example):
    """name -> (dtype, shape, sha256)"""
    return json.loads((example / "expected.json").read_text())


def sha256(data):
    return hashlib.sha256(data).hexdigest()


mounts = []


def unmount_all():
    """Only after a case: what it mapped keeps a mount busy while it runs."""
    gc.collect()
    while mounts:
        at = mounts.pop()
        subprocess.run([UNSHARD, "umount", at], check=True)
        os.rmdir(at)


@contextlib.contextmanager
def mounted(source, **options):
    """The mount point; options are those of -o."""
    words = [
        "%s=%s" % (k.replace("_", "-"), v) if v is not True else k.replace("_", "-")
        for k, v in options.items()
    ]
    at = tempfile.mkdtemp()
    command = [UNSHARD, "mount", str(source), at]
    subprocess.run(command + (["-o", ",".join(words)] if words else []), check=True)
    mounts.append(at)
    yield pathlib.Path(at)


def example(path, **options):
    """An example mounted, with its config files where they lie apart."""
    if (path / "config").is_dir():
        options["config"] = path / "config"
    return mounted(path / "in", **options)
