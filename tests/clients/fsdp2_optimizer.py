# SPDX-License-Identifier: Apache-2.0
"""A model and its optimizer, out of model.pt into plain torch, trained on.

Two processes train with FSDP2 and save {"model", "optimizer"} by DCP, with
parameters by name.  A module and an optimizer that know nothing of FSDP load both
from the mount, by names and by ids, and do the next step bit for bit as the two do.
"""
import os
import pathlib
import socket
import subprocess
import tempfile

from kit import UNSHARD, case, mounted, need

need("numpy", "torch")
import torch

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
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(7)
    net = Net()
    fully_shard(net.embed)
    fully_shard(net)
    optimizer = OPTIMIZERS[name](net)
    for nr in range(2):
        step(net, optimizer, nr)
    model, state = get_state_dict(net, optimizer)
    dcp.save({"model": model, "optimizer": state, "step": 2}, checkpoint_id=str(to))
    step(net, optimizer, 2)
    whole = get_model_state_dict(
        net, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if torch.distributed.get_rank() == 0:
        torch.save(whole, f"{to}.next")


def rank(nr, port, to):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=nr, world_size=RANKS)
    for name in OPTIMIZERS:
        save(name, pathlib.Path(to, name))
    torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def goes_on(file, want, name, ids):
    saved = torch.load(file, weights_only=True, mmap=True)
    assert saved["step"] == 2
    keys = saved["optimizer"]["state"].keys()
    listed = [p for g in saved["optimizer"]["param_groups"] for p in g["params"]]
    if ids:
        assert listed == list(range(len(listed))), listed
    assert set(keys) <= set(listed) and all(isinstance(k, int) == ids for k in keys)
    net = Net()
    optimizer = OPTIMIZERS[name](net)
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


def flattened(tmp, name):
    """As get_optimizer_state_dict flattens it: shown so, with a note, and loaded by
    torch's own call."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(flatten_optimizer_state_dict=True)
    torch.manual_seed(7)
    net = Net()
    optimizer = OPTIMIZERS[name](net)
    for nr in range(2):
        step(net, optimizer, nr)
    flat = get_optimizer_state_dict(net, optimizer, options=options)
    to, out = f"{tmp}/{name}.flat", f"{tmp}/{name}.flat.pt"
    dcp.save({"model": net.state_dict(), "optimizer": flat}, checkpoint_id=to, no_dist=True)
    done = subprocess.run([UNSHARD, "export", "--to", "pt", to, out], check=True,
                          capture_output=True, text=True)
    assert "set_optimizer_state_dict" in done.stderr, done.stderr
    step(net, optimizer, 2)
    saved = torch.load(out, weights_only=True)
    other = Net()
    optimizer = OPTIMIZERS[name](other)
    other.load_state_dict(saved["model"])
    set_optimizer_state_dict(other, optimizer, saved["optimizer"], options=options)
    step(other, optimizer, 2)
    for n, t in net.state_dict().items():
        assert torch.equal(other.state_dict()[n], t), n


def main():
    torch.set_num_threads(1)  # as the ranks: sums in the same order
    with tempfile.TemporaryDirectory() as tmp:
        torch.multiprocessing.spawn(rank, (free_port(), tmp), RANKS)
        for name in OPTIMIZERS:
            case(by_mount, f"{name}/names", tmp, name, False)
            case(by_mount, f"{name}/ids", tmp, name, True)
            case(by_export, f"{name}/export", tmp, name)
        case(again, "torch.save", tmp)
        for name in OPTIMIZERS:
            case(flattened, f"{name}/flattened", tmp, name)


if __name__ == "__main__":  # the ranks import this file
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        need("torch.distributed.fsdp.fully_shard")
    main()
