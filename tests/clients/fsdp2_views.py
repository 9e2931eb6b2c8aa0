# SPDX-License-Identifier: Apache-2.0
"""Models trained a step and saved here by FSDP2, as {"model", "optimizer"}.

A Llama, a mixture of experts and a T5 on two processes of gloo, the state dict
saved by DCP beside config and tokenizer: hf/ has the logits of the model.
"""
import os
import pathlib
import tempfile

from kit import case, mounted, need

need("numpy", "torch", "safetensors", "transformers", "tokenizers")
import torch
import transformers

import world

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    need("torch.distributed.fsdp.fully_shard")

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
VOCAB, RANKS = 67, 2


def llama():
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM, config


def moe():
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=40, moe_intermediate_size=20,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        num_experts=3, num_experts_per_tok=2, tie_word_embeddings=True,
    )
    return transformers.Qwen3MoeForCausalLM, config


def t5():
    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=4,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration, config


MODELS = {"llama": llama, "moe": moe, "t5": t5}
BLOCKS = "LlamaDecoderLayer", "Qwen3MoeDecoderLayer", "T5Block"


def inputs(name):
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(1, VOCAB, (2, 7), generator=g)
    return {"input_ids": ids} | ({"decoder_input_ids": ids.flip(1)} if name == "t5" else {})


def logits(model, name):
    with torch.no_grad():
        return model.eval()(**inputs(name)).logits


def save(name, to):
    """One rank's part; the first leaves the logits of the whole model."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_state_dict,
    )

    kind, config = MODELS[name]()
    torch.manual_seed(11)
    model = kind(config)
    for block in [m for m in model.modules() if type(m).__name__ in BLOCKS]:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    labels = inputs(name)["input_ids"]
    model(**inputs(name), labels=labels).loss.backward()
    optimizer.step()
    state, moments = get_state_dict(model, optimizer)
    dcp.save({"model": state, "optimizer": moments}, checkpoint_id=str(to))
    whole = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if torch.distributed.get_rank() == 0:
        plain = kind(config)
        plain.load_state_dict(whole)
        torch.save(logits(plain, name), f"{to}.logits")
        config.architectures = [kind.__name__]
        config.save_pretrained(to)
        tokenizer().save_pretrained(to)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    t = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, unk_token="w0")


def rank(nr, to):
    for name in MODELS:
        save(name, pathlib.Path(to, name))


def same_logits(tmp, name):
    source = pathlib.Path(tmp, name)
    with mounted(source) as at:
        kind = MODELS[name]()[0]
        model, info = kind.from_pretrained(at / "hf", output_loading_info=True)
        assert not info["unexpected_keys"] and not info["missing_keys"], info
        want = torch.load(f"{source}.logits")
        assert torch.equal(logits(model, name), want), "other logits"
        words = transformers.AutoTokenizer.from_pretrained(at / "hf")
        assert words("w5 w17")["input_ids"] == [5, 17]
        tensors = os.listdir(at / "tensors")
        assert any("exp_avg" in n for n in tensors), "the optimizer is not shown"


def main():
    with tempfile.TemporaryDirectory() as tmp:
        world.run(RANKS, rank, tmp)
        for name in MODELS:
            case(same_logits, name, tmp, name)


main()
