# SPDX-License-Identifier: Apache-2.0
"""Optimizers that ranks saved in shards, out of model.pt and into torch.optim.

The module and optimizer that a trainer had before it sharded them load what a mount,
and an export, has of the examples; every state is what the shards hold, and the next
step is that of an optimizer that was never sharded.
"""
import copy
import pathlib
import pickle
import subprocess
import tempfile

from kit import UNSHARD, case, mounted, need

need("numpy", "torch", "safetensors")
import torch
from safetensors.torch import load_file

FORMATS = pathlib.Path(__file__).parents[1] / "formats"


def forms(source, part=""):
    """model.pt of a mount, and of an export."""
    with mounted(source) as at:
        yield torch.load(at / part / "model.pt", weights_only=True)
    with tempfile.TemporaryDirectory() as tmp:
        out = pathlib.Path(tmp) / "all.pt"
        command = [UNSHARD, "export", "--to", "pt", str(source / part), str(out)]
        subprocess.run(command, check=True, capture_output=True)
        yield torch.load(out, weights_only=True)


def same_next_step(make, params, saved, want):
    """@saved, and @want, loaded by optimizers of @params: the same from then on."""
    ours = [torch.nn.Parameter(p.detach().clone()) for p in params]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in params]
    a, b = make(ours), make(theirs)
    a.load_state_dict(saved)
    b.load_state_dict(copy.deepcopy(want))  # it steps in place
    for p, q in zip(ours, theirs):
        assert set(a.state[p]) == set(b.state[q]), set(a.state[p])
        for key, value in b.state[q].items():
            assert torch.equal(a.state[p][key], value), key
        for state in a.state[p], b.state[q]:  # examples have any bytes there
            if "exp_avg_sq" in state:
                state["exp_avg_sq"] = state["exp_avg_sq"].abs()
    torch.manual_seed(3)
    for _ in range(2):
        for p, q in zip(ours, theirs):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        a.step()
        b.step()
    for i, (p, q) in enumerate(zip(ours, theirs)):
        assert torch.equal(p, q), i
        assert not torch.equal(p, params[i]), i
        for key, value in b.state[q].items():
            assert torch.equal(a.state[p][key], value), (i, key)
    return a


# ---- ColossalAI ----


def colossalai_states(folder):
    """Read from the files themselves: {number: {key: value}}, groups."""
    states, groups = {}, None
    for file in sorted(folder.iterdir()):
        if file.suffix == ".safetensors":
            for name, t in load_file(file).items():
                if t.dtype == torch.uint8:
                    t = pickle.loads(bytes(t.tolist()))
                if name == "param_groups":
                    groups = t
                elif name.startswith("state."):
                    _, number, key = name.split(".", 2)
                    states.setdefault(int(number), {})[key] = t
        elif "_group" in file.name:
            groups = torch.load(file, weights_only=True)
        elif file.suffix == ".bin" and file.name.startswith("optimizer"):
            whole = torch.load(file, weights_only=True)
            states, groups = whole["state"], whole["param_groups"]
        elif file.suffix == ".bin" and "optim" in file.name:
            states |= torch.load(file, weights_only=True)
    return {"state": states, "param_groups": groups}


def adamw(want):
    """Of as many parameters in as many groups."""

    def make(params):
        groups = [
            {"params": [params[i] for i in g["params"]]} for g in want["param_groups"]
        ]
        return torch.optim.AdamW(groups)

    return make


def colossalai(example, part):
    folder = FORMATS / "colossalai" / example / "in"
    want = colossalai_states(folder)
    assert want["state"] and want["param_groups"], want
    # what AdamW wants to know of those of Lamb
    for group in want["param_groups"]:
        group.setdefault("amsgrad", False)
    params = [torch.ones(s["exp_avg"].shape) for _, s in sorted(want["state"].items())]
    for saved in forms(folder, part):
        assert set(saved) == {"state", "param_groups"}, set(saved)
        optimizer = same_next_step(adamw(want), params, saved, want)
        for group, had in zip(optimizer.param_groups, want["param_groups"]):
            assert group["betas"] == had["betas"] and group["lr"] == had["lr"]


for words in (
    "optim-bin-prefix",
    "optim-async",
    "optim-async-0.4.7",
    "optim-one optimizer.bin",
    "optim-one-async optimizer.safetensors",
):
    name, *part = words.split()
    case(colossalai, f"colossalai/{name}", name, *part or [""])
