# SPDX-License-Identifier: Apache-2.0
"""Runs the transcripts of a manual: what follows a command is what it prints.

usage: transcript.py PAGE [--python]     in an empty folder
       transcript.py PAGE --section NAME  below that heading only, and what it works
                                         on is there

Lines of four blanks and "$ " are commands, with --python those with ">>> " too;
the others up to the next are their output, in which "…" is any number of lines
and times and rates are any.  What the commands work on is made here.
"""
import code
import contextlib
import gc
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[3]
UNSHARD = os.environ.get("UNSHARD", str(TOP / "build/unshard"))
DEMO = TOP / "tests/demo/checkpoint"
LLAMA = TOP / "tests/clients/data/llama-fsdp2/in"


def section(text, name):
    """With the numbers that its lines have."""
    within, kept = False, []
    for line in text.splitlines():
        if line.startswith("#"):
            within = line.lstrip("# ") == name
        kept.append(line if within else "")
    return "\n".join(kept)


def parse(text):
    """[line, command, output]"""
    found, fresh = [], False
    for nr, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if not line.startswith("    "):
            fresh = False
            continue
        line = line[4:]
        if line.startswith("$ ") or line.startswith(">>> "):
            found.append([nr, line, []])
            fresh = True
        elif fresh and line.startswith("... "):
            found[-1][1] += "\n" + line
        elif fresh and not line.startswith(("# ", "demo: ")):
            found[-1][2].append(line)
    return found


# ---- what is there before ----

def writable(path):
    for p in [path, *path.rglob("*")]:
        p.chmod(p.stat().st_mode | 0o200)


def copy(source, to):
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)
    writable(pathlib.Path(to))


def world():
    for name in "llama-fsdp2", "llama-tied-f32", "llama-tied-adamw":
        copy(TOP / "tests/clients/data" / name, name)
    for name in "ckpt", "before", "short", "evil":
        copy(DEMO, name)
    os.truncate("short/__3_0.distcp", 20000)
    pathlib.Path("evil/.metadata").write_bytes(
        b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R."
    )
    for step in 10, 20, 30:
        copy(LLAMA, f"runs/step-{step}")
    for name in ".metadata", "__1_0.distcp", "__2_0.distcp", "__3_0.distcp":
        os.unlink(f"runs/step-30/{name}")
    os.symlink(TOP / "tests", "tests")
    os.makedirs("build/demo/mnt")
    os.mkdir("mnt")


def folders():
    shutil.rmtree("out")
    for name in "optimizer_0", "pytorch_model_fsdp_0":
        copy(LLAMA, f"out/checkpoint-100/{name}")


def edited():
    """What numpy does above, without it."""
    subprocess.run([UNSHARD, "seal", "ckpt"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([UNSHARD, "mount", "ckpt", "mnt", "-o", "rw"], check=True)
    with open("mnt/tensors/model.model.norm.weight", "r+b") as f:
        f.seek(12)
        f.write(b"\0\0\0\x3f")
    free("mnt")


def forget():
    """What is mapped keeps a mount busy."""
    if console.locals.get("torch"):
        imports()
        gc.collect()


def free(at):
    if os.path.ismount(at):
        subprocess.run([UNSHARD, "umount", at], check=True)


def saved_optimizer():
    """A model and an optimizer of the kind that was saved."""
    free("mnt")
    subprocess.run([UNSHARD, "mount", "llama-tied-adamw/in", "mnt"], check=True)
    exec(
        "config = AutoConfig.from_pretrained('llama-tied-adamw/config')\n"
        "net = AutoModelForCausalLM.from_config(config)\n"
        "optimizer = torch.optim.AdamW(net.parameters())\n",
        console.locals,
    )


def imports():
    console.locals.clear()
    exec(
        "import warnings, numpy, numpy as np, torch, torch.distributed.checkpoint as dcp\n"
        "import transformers\n"
        "from safetensors import safe_open\n"
        "from transformers import AutoConfig, AutoModelForCausalLM\n"
        "warnings.simplefilter('ignore')\n"
        "transformers.utils.logging.disable_progress_bar()\n",
        console.locals,
    )


console = code.InteractiveConsole()
BEFORE = {
    "$ unshard diff before ckpt": edited,
    "$ unshard ls out": folders,
    '>>> saved = torch.load("mnt/model.pt", mmap=True, weights_only=True)': saved_optimizer,
}


# ---- running ----

def shell(command):
    got = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, "LC_ALL": "C"},
    ).stdout
    return got.replace(os.getcwd(), "/data")


def python(command):
    lines = [line[4:] for line in command.splitlines()]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for line in lines:
            console.push(line)
        if len(lines) > 1:
            console.push("")
    return out.getvalue()


def matches(want, got):
    plain = [
        re.sub(r"\d+(\.\d+)?(?= (s|[GMK]i?B/s)\b)", "N", line.rstrip()) for line in want
    ]
    pattern = "".join(
        "(?:.*\n)*?" if line.strip() == "…" else re.escape(line) + "\n" for line in plain
    )
    got = re.sub(r"\d+(\.\d+)?(?= (s|[GMK]i?B/s)\b)", "N", got)
    got = "".join(line.rstrip() + "\n" for line in got.splitlines() if line.strip())
    return re.fullmatch(pattern, got)


def run(page, with_python, text=None):
    faults, ran = [], 0
    for nr, command, want in parse(text or page.read_text()):
        if command.startswith(">>>") and not with_python:
            continue
        if command.startswith("$ unshard mount") or command in BEFORE:
            forget()
            free("mnt")
        BEFORE.get(command, lambda: None)()
        if command == "$ cat views.json":
            json.loads("".join(want))
            pathlib.Path("views.json").write_text("\n".join(want) + "\n")
        if command.startswith("$"):
            got = shell(command[2:])
        else:
            got = python(command)
        ran += 1
        if command.startswith("$ ls "):  # in columns or in lines
            want, got = " ".join(want).split(), "\n".join(got.split())
        if not matches(want, got):
            faults.append(f"{page.name}:{nr}: {command}\n{got}")
    return ran, faults


def check(page, with_python):
    """How many commands ran, and what differed."""
    world()
    try:
        if with_python:
            imports()
        return run(page, with_python)
    finally:
        forget()
        free("mnt")
        free("build/demo/mnt")


def main():
    page = pathlib.Path(sys.argv[1])
    if sys.argv[2:3] == ["--section"]:
        ran, faults = run(page, False, section(page.read_text(), sys.argv[3]))
    else:
        ran, faults = check(page, "--python" in sys.argv)
    sys.exit("\n".join(faults) if faults or not ran else print(ran, "commands"))


if __name__ == "__main__":
    main()
