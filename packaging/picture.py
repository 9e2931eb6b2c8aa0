#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""picture.py UNSHARD >docs/terminal.svg: the README's picture, of a real run.

Each command is run here, on tests/demo/checkpoint; what it prints is drawn as it is."""
import html
import os
import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
WEIGHT = "model.model.layers.0.mlp.down_proj.weight"
COMMANDS = [
    "unshard mount run/step-1000 mnt",
    "ls mnt mnt/hf",
    f"unshard inspect run/step-1000 {WEIGHT} | head -9",
    f"sha256sum mnt/tensors/{WEIGHT} | cut -c1-16",
    "unshard umount mnt",
]
WIDTH, LINE, LEFT, TOPMOST = 760, 18, 16, 44


def lines(unshard):
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        (tmp / "bin").mkdir()
        (tmp / "run").mkdir()
        (tmp / "mnt").mkdir()
        os.symlink(pathlib.Path(unshard).resolve(), tmp / "bin/unshard")
        os.symlink(TOP / "tests/demo/checkpoint", tmp / "run/step-1000")
        env = {**os.environ, "PATH": f"{tmp}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8",
               "COLUMNS": "80"}
        for command in COMMANDS:
            yield True, command
            shown = command.replace("ls mnt", "ls -C -w 80 mnt")
            got = subprocess.run(["bash", "-c", shown], cwd=tmp, env=env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
            for line in got.stdout.splitlines():
                yield False, line


def main():
    all_lines = list(lines(sys.argv[1]))
    height = TOPMOST + LINE * len(all_lines) + 12
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
          f'viewBox="0 0 {WIDTH} {height}" font-family="ui-monospace, monospace" '
          'font-size="13">')
    print(f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#1e1e2e"/>')
    for k, colour in enumerate(("#f38ba8", "#f9e2af", "#a6e3a1")):
        print(f'<circle cx="{20 + 18 * k}" cy="18" r="6" fill="{colour}"/>')
    for k, (typed, line) in enumerate(all_lines):
        at = f'x="{LEFT}" y="{TOPMOST + LINE * k + 4}" xml:space="preserve"'
        text = html.escape(line)
        if typed:
            print(f'<text {at} fill="#cdd6f4"><tspan fill="#a6e3a1">$ </tspan>{text}</text>')
        else:
            print(f'<text {at} fill="#a6adc8">{text}</text>')
    print("</svg>")


main()
