# SPDX-License-Identifier: Apache-2.0
"""Whole mounts by rsync, tar, cp, cmp, find and du."""
import pathlib
import shutil
import subprocess
import tempfile

from kit import DATA, case, checkpoints, example, mounted


def run(*words, **more):
    return subprocess.run(
        [str(w) for w in words], check=True, capture_output=True, text=True, **more
    ).stdout


def copies(at):
    """All ways to copy give the same files."""
    with tempfile.TemporaryDirectory() as tmp:
        to = pathlib.Path(tmp)
        run("cp", "-r", f"{at}/.", to / "cp")
        (to / "tar").mkdir()
        tar = run("sh", "-c", 'tar -C "$0" -cf - . | tar -C "$1" -xf -', at, to / "tar")
        assert not tar
        folders = ["cp", "tar"]
        if shutil.which("rsync"):
            run("rsync", "-a", f"{at}/", to / "rsync")
            folders.append("rsync")
            assert not run("rsync", "-ani", "--size-only", f"{at}/", to / "rsync",
                           "--exclude", ".unshard")
        files = [p for p in at.rglob("*") if p.is_file() and ".unshard" not in p.parts]
        assert len(files) > 20
        for file in files:
            for folder in folders:
                run("cmp", file, to / folder / file.relative_to(at))
        subprocess.run(["chmod", "-R", "u+w", tmp], check=True)


def looks(at):
    assert not run("find", at, "-type", "f", "-size", "0", "-name", "*.safetensors")
    assert run("ls", "-lR", at)
    # what du adds up is what the files say
    sizes = sum(p.stat().st_size for p in at.rglob("*") if p.is_file())
    assert int(run("du", "-sb", at).split()[0]) >= sizes
    assert int(run("du", "-sk", at).split()[0]) * 1024 >= sizes // 2


def one(path):
    with example(path) as at:
        looks(at)
        copies(at)


def many():
    with tempfile.TemporaryDirectory() as tmp:
        for step in 1, 2:
            shutil.copytree(DATA / "llama-fsdp2/in", pathlib.Path(tmp, f"step-{step}"))
        with mounted(tmp) as at:
            looks(at)
            copies(at)


for path in checkpoints():
    case(one, path.name, path)
case(many, "steps")
