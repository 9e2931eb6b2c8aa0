# SPDX-License-Identifier: Apache-2.0
"""Optimizers that ranks saved in shards, out of model.pt and into torch.optim.

The module and optimizer that a trainer had before it sharded them load what a mount,
and an export, has of the examples; every state is what the shards hold, and the next
step is that of an optimizer that was never sharded.
"""
import copy
import json
import math
import pathlib
import pickle
import re
import subprocess
import tempfile
import types

from kit import UNSHARD, case, mounted, need, sha256

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


# ---- DeepSpeed ----


class Stub:
    """What a pickle has of DeepSpeed's own, which is not here."""

    def __init__(self, *args):
        pass

    def __setstate__(self, state):
        pass


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return Stub if module.startswith("deepspeed") else super().find_class(module, name)


def read(file):
    module = types.ModuleType("stubs")
    module.Unpickler = Unpickler
    module.load = lambda f, **words: Unpickler(f, **words).load()
    return torch.load(file, pickle_module=module, weights_only=False)


def volume(shape):
    return math.prod(shape)


class Stage:
    """What the files of one stage of a pipeline say, merged as DeepSpeed does."""

    def __init__(self, folder, mp, model):
        files = sorted(
            folder.glob(f"*zero_pp_rank_*_mp_rank_{mp:02}_optim_states.pt"),
            key=lambda f: int(re.search(r"pp_rank_(\d+)_", f.name)[1]),
        )
        self.shapes = model["param_shapes"]
        self.ranks = [read(f)["optimizer_state_dict"] for f in files]
        third = "fp32_flat_groups" in self.ranks[0]
        key = "optimizer_state_dict" if third else "base_optimizer_state"
        self.base = [r[key] for r in self.ranks]
        self.groups = self.base[0]["param_groups"]
        self.states = {}  # name -> {key: value}
        (self.third if third else self.second)()

    def keys(self):
        return self.base[0]["state"][0]

    def second(self):
        paddings = self.ranks[0].get("param_alignment_paddings")
        for vec, shapes in enumerate(self.shapes):
            pad = paddings[vec] if paddings else [0] * len(shapes)
            for key in self.keys():
                parts = [b["state"][vec][key] for b in self.base]
                flat, at = parts[0] if key == "step" else torch.cat(parts), 0
                for (name, shape), unused in zip(shapes.items(), pad):
                    n = volume(shape)
                    one = flat if key == "step" else flat[at : at + n].view(shape)
                    self.states.setdefault(name, {})[key] = one.clone()
                    at += n + unused

    def third(self):
        at = 0
        for vec, shapes in enumerate(self.shapes):
            at = 0
            for name, shape in shapes.items():
                n = volume(shape)
                each = -(-n // len(self.base))
                for key in self.keys():
                    parts = [b["state"][vec][key] for b in self.base]
                    one = parts[0]
                    if key != "step":
                        one = torch.cat([p[at : at + each] for p in parts])[:n].view(shape)
                    self.states.setdefault(name, {})[key] = one.clone()
                at += each


class Net(torch.nn.Module):
    """The module that was saved: its names, in its order."""

    def __init__(self, tensors, buffers, shared):
        super().__init__()
        made = {}
        for name, t in tensors.items():
            *path, last = name.split(".")
            at = self
            for part in path:
                if part not in at._modules:
                    at.add_module(part, torch.nn.Module())
                at = at._modules[part]
            if name in buffers:
                at.register_buffer(last, torch.zeros(t.shape, dtype=t.dtype))
                continue
            of = shared.get(name, name)
            made.setdefault(of, torch.nn.Parameter(torch.zeros(t.shape)))
            at.register_parameter(last, made[of])


def deepspeed_module(saved, model, trained):
    """Loaded strictly, in full precision."""
    names = [n for n in model["module"] or saved["fp32"] if n in saved["fp32"]]
    tensors = {n: saved["fp32"][n] for n in names}
    assert set(names) == set(saved["fp32"]), set(saved["fp32"]) ^ set(names)
    net = Net(tensors, model["buffer_names"], model["shared_params"])
    net.load_state_dict(saved["fp32"], strict=True)
    for name, p in net.named_parameters():
        p.requires_grad_(name in trained)
    return net


def deepspeed(example, made):
    folder = FORMATS / "deepspeed" / example / "in"
    models = sorted(
        list(folder.glob("mp_rank_*_model_states.pt"))
        or list(folder.glob("zero_pp_rank_0_mp_rank_*_model_states.pt"))
    )
    models = [read(f) for f in models]
    stages = [Stage(folder, i, m) for i, m in enumerate(models)]
    states = {n: s for stage in reversed(stages) for n, s in stage.states.items()}
    for saved in forms(folder):
        if len(models) == 1:
            net = deepspeed_module(saved, models[0], states)
            order = [n for n, p in net.named_parameters() if p.requires_grad]
        else:  # tied ones first, then layer by layer
            order = sorted(states, key=lambda n: (n[0] != "t", int(n[0]) if n[0] != "t" else 0))
        owner = {}
        for number, group in enumerate(stages[0].groups):
            for stage in stages:
                for vec in group["params"]:
                    owner |= {n: number for n in stage.shapes[vec]}
        groups = [[n for n in order if owner[n] == g] for g in range(len(stages[0].groups))]
        flat = [n for group in groups for n in group]
        assert sorted(flat) == sorted(states), (flat, sorted(states))
        want = {
            "state": {i: states[n] for i, n in enumerate(flat)},
            "param_groups": [
                g | {"params": [flat.index(n) for n in names]}
                for g, names in zip(stages[0].groups, groups)
            ],
        }

        def make(params):
            tables = [
                {"params": [params[i] for i in g["params"]]} for g in want["param_groups"]
            ]
            return made(tables)

        params = [saved["fp32"][n].float() for n in flat]
        optimizer = same_next_step(make, params, saved["optimizer"], want)
        for group, had in zip(optimizer.param_groups, stages[0].groups):
            for key, value in had.items():
                assert key == "params" or group[key] == value, (key, group[key], value)


def universal(example, like):
    """The same as of the files that it was made of."""
    source = FORMATS / "deepspeed"
    want, _ = forms(source / like / "in")
    want = want["optimizer"]
    for saved in forms(source / example / "in"):
        got = saved["optimizer"]
        assert got["param_groups"] == want["param_groups"], got["param_groups"]
        assert set(got["state"]) == set(want["state"])
        for i, state in want["state"].items():
            for key, value in state.items():
                assert torch.equal(torch.as_tensor(got["state"][i][key]), torch.as_tensor(value))


def without_zero(example):
    folder = FORMATS / "deepspeed" / example / "in"
    want = read(folder / "mp_rank_00_model_states.pt")["optimizer"]
    params = [torch.ones(s["exp_avg"].shape) for _, s in sorted(want["state"].items())]
    for saved in forms(folder):
        same_next_step(adamw(want), params, saved["optimizer"], want)


def experts(example):
    """Those of all ranks, in the order of a module that has them all."""
    folder = FORMATS / "deepspeed" / example
    lines = (folder / "sums").read_text().splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    others = "alpha emb.weight mid.0.weight mid.0.bias norm.weight norm.bias".split()
    others += [f"moes.{i}.deepspeed_moe.gate.wg.weight" for i in (0, 1)] + ["head.weight"]
    own = [
        f"moes.{layer}.deepspeed_moe.experts.deepspeed_experts.{i}.{name}"
        for layer, nr in ((0, 4), (1, 2))
        for i in range(nr)
        for name in ("0.weight", "0.bias", "1.weight", "1.bias")
    ]
    for saved in forms(folder / "in"):
        params = [torch.nn.Parameter(saved["fp32"][n].float()) for n in others + own]
        nr = len(others)
        optimizer = torch.optim.AdamW([{"params": params[:nr]}, {"params": params[nr:]}])
        optimizer.load_state_dict(saved["optimizer"])
        for name, p in zip(others + own, params):
            state = optimizer.state[p]
            assert state["step"] == 2, state["step"]
            data = state["exp_avg"].reshape(-1).view(torch.uint8).numpy().tobytes()
            assert sha256(data) == sums[f"exp_avg.{name}"], name
            p.grad = torch.ones_like(p)
        optimizer.step()


def unknown(example):
    """By name, as there is no order, or nobody has the groups."""
    for saved in forms(FORMATS / "deepspeed" / example / "in"):
        assert not saved.get("optimizer"), saved["optimizer"]
        assert set(saved["exp_avg"]) == set(saved["exp_avg_sq"]) <= set(saved["fp32"])


def composed(example):
    """Views of the mount have names alone: all, or nothing, of the form is there."""
    views = {
        "half": {"dtype": "bfloat16"},
        "moments": {"include": ["exp_avg*"]},
        "renamed": {"rename": [{"from": "^exp_avg\\.", "to": "m."}]},
    }
    with tempfile.TemporaryDirectory() as tmp:
        file = pathlib.Path(tmp) / "views.json"
        file.write_text(json.dumps({"views": views}))
        with mounted(FORMATS / "deepspeed" / example / "in", views=file) as at:
            plain = torch.load(at / "model.pt", weights_only=True)
            whole = {n: t for n, t in plain["fp32"].items()}
            for name in views:
                saved = torch.load(at / "views" / name / "model.pt", weights_only=True)
                assert "optimizer" not in saved, name
                kind = "m" if name == "renamed" else "exp_avg"
                had = [n for n in whole if f"{kind}.{n}" in saved]
                assert len(had) == len(plain["optimizer"]["state"]), (name, had)


for words in (
    "optim-bin-prefix",
    "optim-async",
    "optim-async-0.4.7",
    "optim-one optimizer.bin",
    "optim-one-async optimizer.safetensors",
):
    name, *part = words.split()
    case(colossalai, f"colossalai/{name}", name, *part or [""])

for name in (
    "zero1-groups",
    "zero1-bf16optimizer",
    "zero1-round-robin",
    "zero1-small-group",
    "zero2-3ranks",
    "zero2-aligned",
    "zero3-frozen",
    "zero3-five-ranks",
    "zero3-tiny",
    "legacy-container",
    "pipeline",
):
    case(deepspeed, f"deepspeed/{name}", name, torch.optim.AdamW)
case(
    deepspeed,
    "deepspeed/zero2-momentum",
    "zero2-momentum",
    lambda groups: torch.optim.SGD(groups, lr=1, momentum=0.5),
)
case(universal, "deepspeed/universal2", "universal2", "zero2-3ranks")
case(universal, "deepspeed/universal3", "universal3", "zero3-frozen")
case(without_zero, "deepspeed/stage0", "stage0")
case(experts, "deepspeed/moe-named", "moe-named")
case(unknown, "deepspeed/elastic", "elastic")
case(unknown, "deepspeed/moe-zero2-4ranks", "moe-zero2-4ranks")
case(composed, "deepspeed/composed", "zero2-3ranks")
