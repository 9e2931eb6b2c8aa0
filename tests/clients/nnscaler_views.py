# SPDX-License-Identifier: Apache-2.0
"""The module that nnScaler parallelized and its optimizer, loaded from model.pt of what
its ranks saved: strictly, and with every byte that make_nnscaler.py cut."""
import pathlib
import subprocess
import sys
import tempfile

from kit import case, mounted, need

need("torch")
import torch

MAKE = pathlib.Path(__file__).parents[1] / "formats/make_nnscaler.py"
# of a block, in the order that the file's origin_param_names has
PARAMS = "norm.weight", "up.weight", "up.bias", "down.weight", "gain"
PLANS = "plan=2 units=2", "plan=2 units=2 zero=1 groups=2", "plan=2 units=2 zero=3"


class Block(torch.nn.Module):
    """As it was before nnScaler, of the sizes of @saved."""

    def __init__(self, saved):
        super().__init__()
        wide, narrow = saved["up.weight"].shape
        self.norm = torch.nn.RMSNorm(narrow)
        self.up = torch.nn.Linear(narrow, wide)
        self.down = torch.nn.Linear(wide, narrow, bias=False)
        self.gain = torch.nn.Parameter(torch.empty(saved["gain"].shape))
        self.register_buffer("shift", torch.empty(narrow))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


class Net(torch.nn.Module):
    def __init__(self, saved):
        super().__init__()
        words, width = saved["emb.weight"].shape
        layers = 1 + max(int(n.split(".")[1]) for n in saved if n.startswith("blocks."))
        self.emb = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(
            Block({n.removeprefix(f"blocks.{i}."): t for n, t in saved.items()})
            for i in range(layers))
        if "head.weight" in saved:  # of some sizes only
            self.head = torch.nn.Linear(width, words, bias=False)


def raw(t):
    return t.reshape(-1).view(torch.uint8).numpy().tobytes()


def same_states(tmp, net, optimizer):
    nr = 0
    for name, p in net.named_parameters():
        for key, t in optimizer.state[p].items():
            want = (tmp / "want" / f"optimizer.{name}.{key}").read_bytes()
            assert raw(t) == want, (name, key)
            nr += key != "step"
    assert nr >= 10, nr


def loads(tmp, words):
    subprocess.run([sys.executable, MAKE, tmp, *words.split()], check=True)
    with mounted(tmp / "ck") as at:
        saved = torch.load(at / "model.pt", weights_only=True, mmap=True)
        net = Net(saved["model"])
        net.load_state_dict(saved["model"], strict=True)
        order = ["emb.weight"]
        order += [f"blocks.{i}.{n}" for i in range(len(net.blocks)) for n in PARAMS]
        optimizer = torch.optim.Adam(net.get_parameter(n) for n in order)
        optimizer.load_state_dict(saved["optimizer"])
        assert optimizer.param_groups[0]["lr"] == 0.1, optimizer.param_groups
        same_states(tmp, net, optimizer)
    nr = 0
    for name, t in net.state_dict().items():
        want = (tmp / "want" / f"model.{name}").read_bytes()
        assert raw(t) == want, name
        nr += 1
    assert nr >= 8, nr


for words in PLANS:
    with tempfile.TemporaryDirectory() as at:
        case(loads, words.replace(" ", ","), pathlib.Path(at), words)
