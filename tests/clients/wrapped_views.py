# SPDX-License-Identifier: Apache-2.0
"""A model of transformers as trainers wrap it, saved by two ranks: hf/ loads.

Compiled, whole and by layers; under DDP; behind a stateful object; with no
wrapping key at all; with what trainers save beside it.
"""
import pathlib
import tempfile

from kit import case, mounted, need

need("numpy", "torch", "safetensors", "transformers")
import torch
import transformers

import world

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    need("torch.distributed.fsdp.fully_shard")

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
RANKS = 2


def new():
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=28, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config)


def sharded(model):
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def moments(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    return optimizer


def compiled():
    """Names begin with _orig_mod., and a step and a state of a generator."""
    model = sharded(new())
    state = torch.compile(model).state_dict()
    assert all(n.startswith("_orig_mod.") for n in state)
    return {"model": state, "step": torch.tensor(7), "epoch": 3,
            "rng": torch.get_rng_state()}


def compiled_layers():
    model = sharded(new())
    for nr, layer in enumerate(model.model.layers):
        model.model.layers[nr] = torch.compile(layer)
    state = model.state_dict()
    assert any("layers.0._orig_mod." in n for n in state)
    return {"model": state}


def ddp():
    model = torch.nn.parallel.DistributedDataParallel(new())
    optimizer = moments(model)
    return {"model_state_dict": model.state_dict(),
            "optimizer_state_dict": optimizer.state_dict(), "loss": 0.5}


def stateful():
    from torch.distributed.checkpoint.state_dict import get_state_dict

    class App:
        def __init__(self, model):
            self.model, self.optimizer = model, moments(model)

        def state_dict(self):
            model, optimizer = get_state_dict(self.model, self.optimizer)
            return {"model": model, "optim": optimizer}

        def load_state_dict(self, state):
            raise NotImplementedError

    return {"app": App(sharded(new()))}


def flat():
    """The model's own names, which begin with model., and nothing around."""
    return sharded(new()).state_dict()


def recomputed():
    """Layers in wrappers that forget activations."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        checkpoint_wrapper,
    )

    model = new()
    for nr, layer in enumerate(model.model.layers):
        model.model.layers[nr] = checkpoint_wrapper(layer)
    return {"state_dict": sharded(model).state_dict(), "global_step": torch.tensor([9])}


WAYS = [compiled, compiled_layers, ddp, stateful, flat, recomputed]


def rank(nr, to):
    import torch.distributed.checkpoint as dcp

    for way in WAYS:
        dcp.save(way(), checkpoint_id=str(pathlib.Path(to, way.__name__)))


def same_model(source):
    want = new()
    want.config.architectures = ["LlamaForCausalLM"]
    want.config.save_pretrained(source)
    with mounted(source) as at:
        got, info = transformers.AutoModelForCausalLM.from_pretrained(
            at / "hf", output_loading_info=True
        )
        assert not info["unexpected_keys"] and not info["missing_keys"], info
        ids = torch.arange(14).reshape(2, 7)
        with torch.no_grad():
            a, b = (m.eval()(input_ids=ids).logits for m in (got, want))
        assert torch.equal(a, b), "other logits"
        del got


def main():
    with tempfile.TemporaryDirectory() as tmp:
        world.run(RANKS, rank, tmp)
        for way in WAYS:
            case(same_model, way.__name__, pathlib.Path(tmp, way.__name__))


main()
