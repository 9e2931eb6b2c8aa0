# SPDX-License-Identifier: Apache-2.0
"""OneFlow: a net and its optimizer loaded by flow.load from model.pt, and trained
on; files of torch and of OneFlow itself, joined from parts too."""
import json
import pathlib
import tempfile

from kit import case, mounted, need

need("numpy", "torch", "oneflow")
import numpy as np
import torch

import oneflow as flow

WIDTH = 6


class Net(flow.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = flow.nn.Linear(WIDTH, 8)
        self.norm = flow.nn.LayerNorm(8)
        self.head = flow.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(flow.relu(self.norm(self.embed(x))))


def fresh():
    net = Net()
    groups = [
        {"params": list(net.head.parameters()), "lr": 2e-2},
        {"params": list(net.embed.parameters()) + list(net.norm.parameters())},
    ]
    return net, flow.optim.AdamW(groups, lr=1e-2, weight_decay=0.1)


def train(net, optimizer, steps):
    for nr in steps:
        x = np.random.default_rng(nr).standard_normal((5, WIDTH)).astype("float32")
        net(flow.tensor(x)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def weights(net):
    return {n: t.numpy().tobytes() for n, t in net.state_dict().items()}


def goes_on(file, want):
    saved = flow.load(str(file))
    net, optimizer = fresh()
    net.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    train(net, optimizer, range(2, 4))
    assert weights(net) == want


def back(tmp):
    net, optimizer = fresh()
    train(net, optimizer, range(2))
    flow.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, str(tmp / "ckpt"))
    train(net, optimizer, range(2, 4))
    goes_on_from = weights(net)
    for keys in "names", "ids":
        with mounted(tmp / "ckpt", optimizer=keys) as at:
            goes_on(at / "model.pt", goes_on_from)


def parts(tmp):
    """Rows of every tensor in two saves, as ranks leave them."""
    net, _ = fresh()
    whole = {n: t.numpy() for n, t in net.state_dict().items()}
    rules = {"head.*": "broadcast", "*": "split(0)"}
    for rank in range(2):
        cut = {
            n: flow.tensor(a if n.startswith("head") else np.array_split(a, 2)[rank])
            for n, a in whole.items()
        }
        flow.save(cut, str(tmp / f"all/rank{rank}"))
    place = {"type": "cpu", "ranks": [0, 1]}
    sbp = {"world_size": 2, "path": "rank{rank}", "rules": [
        {"key": k, "placement": place, "sbp": [s]} for k, s in rules.items()]}
    (tmp / "sbp.json").write_text(json.dumps(sbp))
    with mounted(tmp / "all", sbp=tmp / "sbp.json") as at:
        other, _ = fresh()
        other.load_state_dict(flow.load(str(at / "model.pt")))
        assert weights(other) == weights(net)


def from_torch(tmp):
    """The safetensors of another framework, through model.pt."""
    from safetensors.numpy import save_file

    net, _ = fresh()
    save_file({n: t.numpy() for n, t in net.state_dict().items()}, tmp / "m.safetensors")
    with mounted(tmp / "m.safetensors") as at:
        other, _ = fresh()
        other.load_state_dict(flow.load(str(at / "model.pt")))
        assert weights(other) == weights(net)


for test in back, parts, from_torch:
    with tempfile.TemporaryDirectory() as at:
        case(test, test.__name__, pathlib.Path(at))
