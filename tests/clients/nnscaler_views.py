# SPDX-License-Identifier: Apache-2.0
"""The module that nnScaler parallelized, loaded from model.pt of what its ranks saved:
strictly, and with every byte that make_nnscaler.py cut."""
import pathlib
import subprocess
import sys
import tempfile

from kit import case, mounted, need

need("torch")
import torch

MAKE = pathlib.Path(__file__).parents[1] / "formats/make_nnscaler.py"
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
        self.shift = torch.nn.Parameter(torch.empty(narrow))
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


def loads(tmp, words):
    subprocess.run([sys.executable, MAKE, tmp, *words.split()], check=True)
    with mounted(tmp / "ck") as at:
        saved = torch.load(at / "model.pt", weights_only=True, mmap=True)["model"]
        net = Net(saved)
        net.load_state_dict(saved, strict=True)
    nr = 0
    for name, t in net.state_dict().items():
        want = (tmp / "want" / f"model.{name}").read_bytes()
        assert t.reshape(-1).view(torch.uint8).numpy().tobytes() == want, name
        nr += 1
    assert nr >= 8, nr


for words in PLANS:
    with tempfile.TemporaryDirectory() as at:
        case(loads, words.replace(" ", ","), pathlib.Path(at), words)
