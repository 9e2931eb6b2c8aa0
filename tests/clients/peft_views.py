# SPDX-License-Identifier: Apache-2.0
"""A LoRA adapter by peft: on a base model of the mount, and from a mount."""
import json
import shutil
import tempfile

from kit import DATA, case, example, mounted, need, unmount_all

need("numpy", "torch", "safetensors", "transformers", "peft")
import pathlib

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
NAME = "llama-fsdp2"
inputs = {
    k: torch.tensor(v)
    for k, v in json.loads((DATA / NAME / "input.json").read_text()).items()
}


def base(hf):
    return transformers.AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32)


def logits(model):
    with torch.no_grad():
        return model.eval()(**inputs).logits


def make(hf, to):
    """An adapter whose effect can be seen; its logits."""
    torch.manual_seed(5)
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(base(hf), lora)
    model.save_pretrained(to)
    return logits(model)


def on_the_mount():
    with example(DATA / NAME) as at, tempfile.TemporaryDirectory() as tmp:
        copy = pathlib.Path(tmp, "copy")
        shutil.copytree(at / "hf", copy)
        want = make(copy, pathlib.Path(tmp, "adapter"))
        assert not torch.equal(want, logits(base(copy)))
        got = PeftModel.from_pretrained(base(at / "hf"), pathlib.Path(tmp, "adapter"))
        assert torch.equal(logits(got), want)
        merged = got.merge_and_unload().state_dict()
        assert set(merged) == set(base(copy).state_dict())


def from_the_mount():
    with example(DATA / NAME) as at, tempfile.TemporaryDirectory() as tmp:
        adapter = pathlib.Path(tmp, "adapter")
        want = make(at / "hf", adapter)
        with mounted(adapter) as its:
            got = PeftModel.from_pretrained(base(at / "hf"), its / "shards")
            assert torch.equal(logits(got), want)
            names = load_file(adapter / "adapter_model.safetensors")
            seen = load_file(its / "model.safetensors")
            assert set(seen) == set(names)
            assert all(torch.equal(seen[n], names[n]) for n in names)
            del got, seen
        unmount_all()


case(on_the_mount, "base-of-the-mount")
case(from_the_mount, "adapter-of-the-mount")
