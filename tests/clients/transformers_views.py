# SPDX-License-Identifier: Apache-2.0
"""hf/ by from_pretrained: the logits of the model that was saved.

Bit for bit those of a copy that safetensors itself wrote, and those that were
written down when the model was saved.  Processors may round sums differently:
where the copy's logits are not the recorded ones either, that is skipped.
"""
import json
import pathlib
import shutil
import tempfile

from kit import DATA, case, example, mounted, need

need("numpy", "torch", "safetensors", "transformers")
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def logits(folder, inputs):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    model, info = kind.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not info["unexpected_keys"], info
    assert not info["missing_keys"], info
    with torch.no_grad():
        return model.eval()(**inputs).logits.float().numpy()


def inputs_of(path):
    text = (path / "input.json").read_text()
    return {k: torch.tensor(v) for k, v in json.loads(text).items()}


def copy(hf, to):
    """The same tensors in a file by safetensors itself."""
    tensors = {}
    for file in hf.glob("*.safetensors"):
        tensors |= load_file(file)
    for file in hf.glob("*.json"):
        if "index" not in file.name:
            shutil.copy(file, to)
    save_file(tensors, to / "model.safetensors", {"format": "pt"})


def same_logits(name, **options):
    path = DATA / name
    inputs, want = inputs_of(path), np.load(path / "logits.npy")
    with example(path, **options) as at, tempfile.TemporaryDirectory() as tmp:
        got = logits(at / "hf", inputs)
        copy(at / "hf", pathlib.Path(tmp))
        again = logits(tmp, inputs)
    assert got.tobytes() == again.tobytes(), "not those of a plain copy"
    if got.tobytes() != want.tobytes():
        return f"this processor rounds differently: {np.abs(got - want).max():.3g}"


def no_optimizer(name):
    with example(DATA / name) as at:
        names = set(load_file(at / "hf/model.safetensors"))
    assert names and not [n for n in names if "optimizer" in n or "exp_avg" in n]


def tokenizer(name):
    with example(DATA / name) as at:
        t = transformers.AutoTokenizer.from_pretrained(at / "hf")
        assert t(t.decode([5, 17, 33]))["input_ids"]


def saved_again(name):
    """A directory of checkpoints: each entry has its own hf/."""
    with tempfile.TemporaryDirectory() as tmp:
        for step in 1, 20:
            shutil.copytree(DATA / name / "in", pathlib.Path(tmp, f"step-{step}"))
        with mounted(tmp, config=DATA / name / "config") as at:
            path = DATA / name
            got = logits(at / "latest/hf", inputs_of(path))
            assert got.tobytes() == logits(at / "step-1/hf", inputs_of(path)).tobytes()


for name in sorted(p.name for p in DATA.iterdir() if (p / "logits.npy").exists()):
    case(same_logits, f"logits/{name}", name)
case(lambda n: same_logits(n, hf_shard_size="8K"), "logits-of-many-files", "mixtral-fsdp2")
case(no_optimizer, "no-optimizer", "llama-tied-adamw")
case(tokenizer, "tokenizer", "llama-fsdp2")
case(saved_again, "steps", "llama-fsdp2")
