# SPDX-License-Identifier: Apache-2.0
"""hf/ by accelerate's loaders: the tensors and the logits of from_pretrained."""
import json

from kit import DATA, case, example, need

need("numpy", "torch", "safetensors", "transformers", "accelerate")
import torch
import transformers
from accelerate import (
    init_empty_weights,
    load_checkpoint_and_dispatch,
    load_checkpoint_in_model,
)

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def empty(hf):
    config = transformers.AutoConfig.from_pretrained(hf)
    with init_empty_weights():
        return transformers.AutoModelForCausalLM.from_config(config)


def dispatched(hf):
    model = empty(hf)
    model.tie_weights()
    return load_checkpoint_and_dispatch(model, hf, device_map={"": "cpu"})


def in_model(hf):
    config = transformers.AutoConfig.from_pretrained(hf)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for p in model.parameters():
        torch.nn.init.constant_(p, 7)
    load_checkpoint_in_model(model, hf)
    model.tie_weights()
    return model


def as_from_pretrained(load, name, **options):
    inputs = json.loads((DATA / name / "input.json").read_text())
    inputs = {k: torch.tensor(v) for k, v in inputs.items()}
    with example(DATA / name, **options) as at, torch.no_grad():
        want = transformers.AutoModelForCausalLM.from_pretrained(
            at / "hf", dtype=torch.float32
        )
        got = load(str(at / "hf")).float()
        have, names = got.state_dict(), set(want.state_dict())
        assert set(have) == names, set(have) ^ names
        for key, value in want.state_dict().items():
            assert torch.equal(have[key], value), key
        assert torch.equal(got.eval()(**inputs).logits, want.eval()(**inputs).logits)


for name in "llama-fsdp2", "llama-tied-f32":
    case(as_from_pretrained, f"dispatch/{name}", dispatched, name)
    case(as_from_pretrained, f"in-model/{name}", in_model, name)


def many_files():
    as_from_pretrained(dispatched, "llama-fsdp2", hf_shard_size="8K")


case(many_files, "dispatch-of-many-files")
