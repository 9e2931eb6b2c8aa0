#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/formats/layout/: cases of tests/cmd/lib/layouts.py, and bad ones.

usage: make_layout_examples.py   (then UPDATE_WANT=1 build/unit --filter 'formats/*')
"""
import json, pathlib, shutil, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
TAKEN = ["mesh-2d", "sizes-ceil", "one-dim-order-list", "flat", "padded", "stages", "raw", "torch", "key-tells",
         "key-template", "view", "boxes", "boxes-at"]


def put(name, ckpt, layout, change=lambda files: None, where="unshard-layout.json"):
    top = HERE / "layout" / name
    shutil.rmtree(top / "in", ignore_errors=True)
    shutil.copytree(ckpt, top / "in")
    text = layout if isinstance(layout, str) else json.dumps(layout, indent=1)
    (top / "in" / where).write_text(text + "\n")
    change(top / "in")
    return top


with tempfile.TemporaryDirectory() as tmp:
    subprocess.run([sys.executable, HERE.parent / "cmd/lib/layouts.py", tmp], check=True)
    cases = pathlib.Path(tmp)

    def layout(name):
        return json.loads((cases / name / "layout.json").read_text())

    for name in TAKEN:
        put(name, cases / name / "ckpt", layout(name))
    rows = cases / "rows-columns-beside/ckpt"
    good = layout("rows-columns-beside")
    put("file-missing", rows, good, lambda d: (d / "rank-00001.safetensors").unlink())
    put("file-damaged", rows, good, lambda d: (d / "rank-00000.safetensors").write_bytes(b"\7\0\0\0\0\0\0\0{\"w\": "))
    put("file-short", rows, good, lambda d: (d / "rank-00001.safetensors").write_bytes(
        (d / "rank-00001.safetensors").read_bytes()[:-40]))
    put("option", rows, good, where="other.json")
    (HERE / "layout/option/opts").write_text("layout=other.json\n")

    def bad(name, change):
        doc = json.loads(json.dumps(good))
        text = change(doc)
        put("bad-" + name, rows, text if isinstance(text, str) else doc)

    bad("no-json", lambda d: "{\"unshard_layout\": 1,")
    bad("version", lambda d: d.update(unshard_layout=2))
    bad("member", lambda d: d["tensors"][0].update(placment=1))
    bad("axis", lambda d: d["tensors"][0]["placement"].update(pp="replicate"))
    bad("sizes", lambda d: d["tensors"][0]["placement"]["tp"].update(sizes=[8]))
    bad("ranks", lambda d: d["mesh"].update(ranks=[1, 1]))
    bad("path-up", lambda d: d["files"][0].update(path="../../x{rank}"))
    bad("path-absolute", lambda d: d["files"][0].update(path="/etc/x{rank}"))
    bad("regex", lambda d: d["tensors"].append({"regex": "(a"}))
    bad("too-many-ranks", lambda d: d["mesh"]["axes"].append({"name": "a", "size": 2 ** 40}))
    bad("huge-shape", lambda d: d["tensors"][0].update(shape=[2 ** 61, 2 ** 61]))
    bad("shape", lambda d: d["tensors"][0].update(shape=[8, 7]))
    bad("dtype", lambda d: d["tensors"][0].update(dtype="int32"))
    bad("silent-axis", lambda d: d["tensors"][0].pop("placement"))
    bad("unmatched", lambda d: d["tensors"].pop())
    bad("overlap", lambda d: d["tensors"].append({"name": "x", "dtype": "uint8", "shape": [4], "boxes": [
        {"file": "rank-00000.safetensors", "offset": at, "start": [at], "size": [3]} for at in (0, 1)]}))
    bad("key-not-there", lambda d: d["tensors"].append({"name": "x", "dtype": "uint8", "shape": [4], "boxes": [
        {"file": "rank-00000.safetensors", "kind": "safetensors", "start": [0], "size": [4]}]}))
    bad("box-outside", lambda d: d["tensors"].append({"name": "x", "dtype": "uint8", "shape": [4], "boxes": [
        {"file": "y.bin", "offset": 2 ** 61, "start": [3], "size": [3]}]}))
