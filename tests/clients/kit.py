# SPDX-License-Identifier: Apache-2.0
"""What tests/clients and tests/python share: mounts, the examples, and results.

A test prints lines "pass NAME", "fail NAME WHY", "skip NAME WHY"; tests/run-clients and
tests/run-python count them.
"""
import contextlib
import gc
import hashlib
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path.append(str(TOP / "tests/lib"))
DATA = HERE / "data"
EXAMPLES = TOP / "tests/formats"
UNSHARD = os.environ.get("UNSHARD", str(TOP / "build/unshard"))
_test = pathlib.Path(sys.argv[0]).resolve()
NAME = f"{_test.parent.name}/{_test.stem}"


def result(status, name, why=""):
    print(status, f"{NAME}/{name}", " ".join(str(why).split())[-1000:], flush=True)


def need(*modules):
    """Ends the test as skipped unless all of them can be imported."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as e:
            print("skip", NAME, f"no {module}: {type(e).__name__}", flush=True)
            sys.exit(0)


def case(function, name=None, *args):
    """Runs it, and says what came of it; what it returns is why it was skipped."""
    name = name or function.__name__.replace("_", "-")
    try:
        why = function(*args)
    except Exception as e:
        traceback.print_exc()
        result("fail", name, f"{type(e).__name__}: {e}")
    else:
        result("skip" if why else "pass", name, why or "")
    unmount_all()


def refused(kind, call, *words):
    """The exception of that kind that call() raises, whose line has these words."""
    try:
        call()
    except kind as e:
        line = str(e)
        assert line and "\n" not in line, line
        for word in words:
            assert str(word) in line, f"no {word!r} in {line!r}"
        return e
    raise AssertionError(f"no {kind.__name__}")


def checkpoints():
    return sorted(p for p in DATA.iterdir() if (p / "in").is_dir())


def expected(example):
    """name -> (dtype, shape, sha256)"""
    return json.loads((example / "expected.json").read_text())


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def until(condition, what, seconds=60):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, what
        time.sleep(0.05)


def logits(folder):
    """Of a causal model that transformers loads from there, and nothing missing."""
    import torch
    import transformers

    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32)
    assert not info["unexpected_keys"] and not info["missing_keys"], info
    with torch.no_grad():
        return model.eval()(torch.arange(1, 15).reshape(2, 7)).logits


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


@contextlib.contextmanager
def copy_of(source):
    """A copy that may be damaged."""
    with tempfile.TemporaryDirectory() as tmp:
        to = pathlib.Path(tmp) / "in"
        shutil.copytree(source, to, symlinks=True)
        yield to


def options_of(example):
    """Of an example below tests/formats, as arguments of unshard.open()."""
    file = example / "opts"
    if not file.exists():
        return {}
    out = {}
    for line in file.read_text().split():
        name, is_set, value = line.partition("=")
        out[name.replace("-", "_")] = value if is_set else True
    return out


def python(code, *args, **env):
    """(exit code, stdout, stderr) of a Python of its own."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, args)], text=True,
                          capture_output=True, timeout=120, env={**os.environ, **env})
    return done.returncode, done.stdout, done.stderr
