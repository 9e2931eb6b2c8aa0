#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damages what OneFlow 0.9.0 wrote: graphs, from oneflow/0.9-graph.

usage: make_oneflow_examples.py        (then UPDATE_WANT=1 make check-unit)
"""
import pathlib, shutil

HERE = pathlib.Path(__file__).resolve().parent / "oneflow"


def case(name, source="0.9-graph"):
    to = HERE / name
    shutil.rmtree(to / "in", ignore_errors=True)
    shutil.copytree(HERE / source / "in", to / "in")
    return to / "in"


shutil.rmtree(case("bad-graph-missing") / "m.fc1.bias")

# Another variable's folder in its place, and one that no graph has.
at = case("bad-graph-another")
shutil.rmtree(at / "m.fc1.weight")
shutil.copytree(at / "m.fc2.weight", at / "m.fc1.weight")
shutil.copytree(at / "m.fc2.bias", at / "m.fc3.bias")

# Cut after the first two variables; the third is not there either.
at = case("bad-graph-cut")
text = (at / "model.mlir").read_text()
(at / "model.mlir").write_text(text[: text.index("m.fc2.weight")])
shutil.rmtree(at / "m.fc2.weight")

(case("bad-graph-empty") / "model.mlir").write_text("module {\n}\n")

# One of the ranks' pickles is empty, as a full disk leaves it.
at = case("bad-pickle-empty", "plain-pickles")
max(at.iterdir()).write_bytes(b"")
