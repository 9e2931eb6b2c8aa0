# SPDX-License-Identifier: Apache-2.0
"""from_pretrained() with lazy tensors of an FSDP2 checkpoint: weights and logits as from
merged safetensors; vLLM's iterator and its lazy weights, without vLLM."""
import os
import tempfile
import warnings

from kit import DATA, case, need, refused

need("numpy", "torch", "transformers", "safetensors.torch")
import safetensors.torch
import torch
import transformers
import unshard
import unshard.transformers
import unshard.vllm

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
LLAMA, TIED = DATA / "llama-fsdp2", DATA / "llama-tied-f32"


def configs(example):
    return example / ("config" if (example / "config").is_dir() else "in")


def merged(example, to):
    """What a person would make without us: the model's tensors in one file."""
    with unshard.open(example / "in") as ck:
        state = {n: t.torch() for n, t in ck.model().items()}
    seen = {}
    state = {n: t for n, t in state.items() if seen.setdefault(t.data_ptr(), n) == n}
    safetensors.torch.save_file(state, os.path.join(to, "model.safetensors"),
                                metadata={"format": "pt"})
    for file in configs(example).glob("*config.json"):
        with open(os.path.join(to, file.name), "w") as f:
            f.write(file.read_text())


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([[1, 5, 9, 2]])).logits


def pretrained(example):
    config = transformers.AutoConfig.from_pretrained(configs(example))
    kind = getattr(transformers, config.architectures[0])
    with tempfile.TemporaryDirectory() as tmp, unshard.open(example / "in") as ck:
        merged(example, tmp)
        want = kind.from_pretrained(tmp, dtype="auto")
        lazy = unshard.transformers.lazy(ck)
        got, info = kind.from_pretrained(None, config=config, state_dict=lazy, dtype="auto",
                                         output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        a, b = want.state_dict(), got.state_dict()
        assert a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)
        assert all(a[n].dtype == b[n].dtype for n in a)
        assert torch.equal(logits(want), logits(got))


def for_vllm():
    path = str(LLAMA / "in")
    with unshard.open(path) as ck:
        want = {n: t.torch() for n, t in ck.model().items()}
    got = dict(unshard.vllm.weights({"checkpoint": path}, "/nonexistent"))
    assert got.keys() == want.keys() and all(torch.equal(got[n], want[n]) for n in want)
    nr = 0
    for name, w in list(unshard.vllm.weights({"slices": True}, path)):
        full = want[name]
        assert (w.shape, w.dtype, w.dim()) == (full.shape, full.dtype, full.dim())
        param = torch.zeros_like(full)
        param.copy_(w)
        assert torch.equal(param, full), name
        half = full.shape[0] // 2
        for cut in (w.narrow(0, half, half), w.detach().narrow(0, half, half), w[half:2 * half]):
            assert type(cut) is unshard.vllm.LazyWeight
            part = torch.zeros_like(full[half:2 * half])
            part.copy_(cut)
            assert torch.equal(part, full[half:2 * half]), name
        assert torch.equal(w.data + 1, full + 1) and torch.equal(w.t().contiguous(),
                                                                 full.t().contiguous())
        once, again = w.narrow(0, 0, half), w[:half]
        once.data.mul_(2)
        again[0] = 7
        again += 1
        assert torch.equal(once + 0, 2 * full[:half]) and torch.equal(once[:1] + 0, 2 * full[:1])
        assert (again[0] == 8).all() and torch.equal(again[1:] + 0, full[1:half] + 1), name
        nr += 1
    assert nr == len(want)
    refused(ValueError, lambda: list(unshard.vllm.weights({"x": 1}, path)), "checkpoint")


case(pretrained, "llama", LLAMA)
case(pretrained, "tied", TIED)
case(for_vllm)
