#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files by torch.save with other pickle protocols than the usual 2, and sums of
what they hold; and files with tensors that no name leads to. The bytes that are
committed are PyTorch 2.15.0's.

    make_torch_examples.py [FOLDER]     needs torch; default: torch/ beside this
"""
import argparse
import collections
import hashlib
import pathlib
import sys
import warnings

import torch

warnings.simplefilter("ignore")
OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "torch")


def value():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {
        "model": {
            "whole": base,
            "turned": base.t(),
            "steps": base[1:3, ::2],
            "half": (torch.arange(5) / 3).to(torch.bfloat16),
            "scalar": torch.tensor(-3),
            "none": torch.empty(0, 4),
            "given": torch.nn.Parameter(torch.full((2, 2), 0.5, dtype=torch.float64)),
        },
        "epoch": 7,
        "list": [torch.ones(2), torch.tensor([True, False])],
    }


def leaves(v, path=()):
    if isinstance(v, torch.Tensor):
        yield ".".join(path), v
    elif isinstance(v, (dict, list)):
        for key, below in v.items() if isinstance(v, dict) else enumerate(v):
            yield from leaves(below, (*path, str(key)))


def lost():
    """Keys that are no texts, and objects with tensors inside."""
    ones = torch.ones
    inside = argparse.Namespace(mean=ones(6), rest=[ones(7)])
    inside.again = inside
    yield "lost-keys", {
        "w": ones(1),
        1.5: ones(2),
        None: {"deep": [ones(3)]},
        torch.float32: ones(4),
        2**70: ones(5),
        (0, 0): "plain",
        "sub": {(1, 2): ones(8), 3: ones(9)},
        **{(n,): ones(1) for n in range(16)},
    }
    yield "lost-inside", {
        "w": ones(1),
        "stats": inside,
        "plain": argparse.Namespace(lr=0.5),
        "queue": [collections.deque([ones(2), ones(3)])],
        "set": {ones(4)},
    }
    yield "lost-all", {"model": torch.nn.Linear(2, 1), "epoch": 3}


def main():
    for name, value_lost in lost():
        (OUT / name / "in").mkdir(parents=True, exist_ok=True)
        torch.save(value_lost, OUT / name / "in" / "model.pt")
    for form in "legacy", "zip":
        for protocol in 1, 3, 4, 5:
            case = OUT / f"protocol-{protocol}-{form}"
            (case / "in").mkdir(parents=True, exist_ok=True)
            torch.save(
                value(),
                case / "in" / "model.pt",
                pickle_protocol=protocol,
                _use_new_zipfile_serialization=form == "zip",
            )
            with open(case / "sums", "w") as sums:
                for name, t in leaves(torch.load(case / "in" / "model.pt", weights_only=False)):
                    raw = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                    print(hashlib.sha256(raw).hexdigest(), name, file=sums)


main()
