# SPDX-License-Identifier: Apache-2.0
"""A model and its optimizer, out of model.pt into plain torch, trained on.

Two processes train with FSDP2 and save {"model", "optimizer"} by DCP, with
parameters by name.  A module and an optimizer that know nothing of FSDP load both
from the mount, by names and by ids, and do the next step bit for bit as the two do.
"""
import os
import pathlib
import subprocess
import tempfile

from kit import UNSHARD, case, mounted, need

need("numpy", "torch")
import torch

import world

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    need("torch.distributed.fsdp.fully_shard")

RANKS = 2
WIDTH = 16


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.norm = torch.nn.LayerNorm(2 * WIDTH)
        self.head = torch.nn.Linear(2 * WIDTH, 4, bias=False)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.embed(x))))


def groups(net):
    """Not in the order of the module."""
    first = list(net.norm.parameters()) + [net.head.weight]
    return [
        {"params": first, "weight_decay": 0.0},
        {"params": list(net.embed.parameters()), "lr": 3e-2},
    ]


OPTIMIZERS = {
    "adamw": lambda net: torch.optim.AdamW(groups(net), lr=1e-2, amsgrad=True),
    "sgd": lambda net: torch.optim.SGD(groups(net), lr=1e-2),
    "momentum": lambda net: torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9),
}


# What else there is, of one process.
FLATTENED = OPTIMIZERS | {
    "amsgrad": lambda net: torch.optim.Adam(net.parameters(), amsgrad=True),
    "tensor": lambda net: torch.optim.AdamW(
        [g | {"lr": torch.tensor(0.01 * (1 + n))} for n, g in enumerate(groups(net))]
    ),
    "alike": lambda net: torch.optim.Adam(
        [
            {"params": list(net.embed.parameters())},
            {"params": list(net.norm.parameters()), "eps": 1e-6},
            {"params": list(net.head.parameters())},
        ]
    ),
}


def step(net, optimizer, nr):
    g = torch.Generator().manual_seed(nr)
    x = torch.randn(8, WIDTH, generator=g)
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def save(name, to):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_state_dict,
    )

    torch.manual_seed(7)
    net = Net()
    fully_shard(net.embed)
    fully_shard(net)
    optimizer = OPTIMIZERS[name](net)
    for nr in range(2):
        step(net, optimizer, nr)
    model, state = get_state_dict(net, optimizer)
    dcp.save({"model": model, "optimizer": state, "step": 2}, checkpoint_id=str(to))
    state = flatten(net, optimizer)
    dcp.save({"model": model, "optimizer": state, "step": 2}, checkpoint_id=f"{to}.flat")
    step(net, optimizer, 2)
    whole = get_model_state_dict(
        net, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if torch.distributed.get_rank() == 0:
        torch.save(whole, f"{to}.next")
        torch.save(whole, f"{to}.flat.next")


def save_stages(to):
    import torch.distributed.checkpoint as dcp

    torch.manual_seed(7)
    net = Net()
    stage = torch.nn.ModuleDict(
        {"embed": net.embed} if torch.distributed.get_rank() == 0 else {"norm": net.norm}
    )
    optimizer = torch.optim.AdamW(stage.parameters())
    for p in stage.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    state = {"model": stage.state_dict(), "optimizer": flatten(stage, optimizer)}
    dcp.save(state, checkpoint_id=str(to))


def rank(nr, to):
    for name in OPTIMIZERS:
        save(name, pathlib.Path(to, name))
    save_stages(pathlib.Path(to, "stages"))


def goes_on(file, want, name, ids):
    saved = torch.load(file, weights_only=True, mmap=True)
    assert saved["step"] == 2
    keys = saved["optimizer"]["state"].keys()
    listed = [p for g in saved["optimizer"]["param_groups"] for p in g["params"]]
    if ids:
        assert listed == list(range(len(listed))), listed
    assert set(keys) <= set(listed) and all(isinstance(k, int) == ids for k in keys)
    net = Net()
    optimizer = FLATTENED[name.removesuffix(".flat")](net)
    net.load_state_dict(saved["model"], strict=True)
    optimizer.load_state_dict(saved["optimizer"])
    step(net, optimizer, 2)
    got = net.state_dict()
    assert got.keys() == want.keys()
    for n, t in want.items():
        assert torch.equal(got[n], t), n


def by_mount(tmp, name, ids):
    want = torch.load(f"{tmp}/{name}.next", weights_only=True)
    with mounted(pathlib.Path(tmp, name), optimizer="ids" if ids else "names") as at:
        goes_on(at / "model.pt", want, name, ids)


def by_export(tmp, name):
    want = torch.load(f"{tmp}/{name}.next", weights_only=True)
    out = f"{tmp}/{name}.pt"
    command = [UNSHARD, "export", "--to", "pt", "-o", "optimizer=ids"]
    subprocess.run(command + [f"{tmp}/{name}", out], check=True, capture_output=True)
    goes_on(out, want, name, True)


def again(tmp):
    """A file by torch.save has its numbers already, as numbers."""
    net = Net()
    optimizer = OPTIMIZERS["adamw"](net)
    step(net, optimizer, 0)
    file = pathlib.Path(tmp, "whole.pt")
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}, file)
    step(net, optimizer, 2)
    for ids in "names", "ids":
        with mounted(file, optimizer=ids) as at:
            goes_on(at / "model.pt", net.state_dict(), "adamw", True)


def flatten(net, optimizer):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    options = StateDictOptions(flatten_optimizer_state_dict=True)
    return get_optimizer_state_dict(net, optimizer, options=options)


def export(form, source, out, *options):
    """What it says, the checkpoint's name taken off."""
    command = [UNSHARD, "export", "--to", form, *options, source, out]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stderr.replace(str(source), "")


def flattened(tmp, name):
    """As get_optimizer_state_dict flattens it, in one process: shown as torch.optim has
    it; dcp/ has it as it was saved, for torch's own call."""
    import torch.distributed.checkpoint as dcp

    torch.manual_seed(7)
    net = Net()
    optimizer = FLATTENED[name](net)
    for nr in range(2):
        step(net, optimizer, nr)
    to = pathlib.Path(tmp, f"{name}.plain")
    saved = {"model": net.state_dict(), "optimizer": flatten(net, optimizer), "step": 2}
    dcp.save(saved, checkpoint_id=to, no_dist=True)
    step(net, optimizer, 2)
    for ids in False, True:
        options = ["-o", "optimizer=ids"] if ids else []
        out = f"{tmp}/{name}.{ids}.plain.pt"
        said = export("pt", to, out, *options)
        nr = len(optimizer.param_groups)
        assert f"with {nr} groups" in said, said
        goes_on(out, net.state_dict(), name, ids)
    export("dcp", to, f"{tmp}/{name}.dcp")
    export("pt", f"{tmp}/{name}.dcp", f"{tmp}/{name}.again.pt")
    goes_on(f"{tmp}/{name}.again.pt", net.state_dict(), name, False)
    with mounted(to) as at:
        loads(at / "dcp", net.state_dict(), name)


def loads(at, want, name):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    net = Net()
    optimizer = FLATTENED[name](net)
    step(net, optimizer, 0)
    state = {"model": net.state_dict(), "optimizer": flatten(net, optimizer)}
    dcp.load(state, checkpoint_id=at, no_dist=True)
    net.load_state_dict(state["model"])
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    set_optimizer_state_dict(net, optimizer, state["optimizer"], options=options)
    step(net, optimizer, 2)
    for n, t in want.items():
        assert torch.equal(net.state_dict()[n], t), n


def by_stages(tmp):
    """Of two ranks with other parameters each: no order of all, and so flat."""
    out = f"{tmp}/stages.pt"
    said = export("pt", f"{tmp}/stages", out)
    assert "several ranks" in said and "set_optimizer_state_dict" in said, said
    keys = torch.load(out, weights_only=True)["optimizer"].keys()
    assert "state.embed.weight.exp_avg" in keys and "param_groups" not in keys, keys


def without_order(tmp):
    """Of a file that is no DCP, and of a DCP made of that: no order, and so flat."""
    net = Net()
    optimizer = OPTIMIZERS["adamw"](net)
    step(net, optimizer, 0)
    file = pathlib.Path(tmp, "flat.pt")
    torch.save({"model": net.state_dict(), "optimizer": flatten(net, optimizer)}, file)
    assert "no order" in export("pt", file, f"{tmp}/flat.again.pt")
    export("dcp", file, f"{tmp}/flat.dcp")
    assert "several ranks" in export("pt", f"{tmp}/flat.dcp", f"{tmp}/flat.dcp.pt")


def main():
    with tempfile.TemporaryDirectory() as tmp:
        world.run(RANKS, rank, tmp)
        for name in OPTIMIZERS:
            case(by_mount, f"{name}/names", tmp, name, False)
            case(by_mount, f"{name}/ids", tmp, name, True)
            case(by_export, f"{name}/export", tmp, name)
        case(again, "torch.save", tmp)
        for name in OPTIMIZERS:
            case(by_mount, f"{name}/flattened/fsdp2", tmp, f"{name}.flat", True)
            case(by_export, f"{name}/flattened/fsdp2/export", tmp, f"{name}.flat")
        for name in FLATTENED:
            case(flattened, f"{name}/flattened", tmp, name)
        case(without_order, "torch.save/flattened", tmp)
        case(by_stages, "stages/flattened", tmp)


main()
