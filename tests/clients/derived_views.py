# SPDX-License-Identifier: Apache-2.0
"""-o views=: a Llama under Megatron's names, and one cast, by from_pretrained."""
import json
import pathlib
import tempfile

from kit import case, mounted, need

need("numpy", "torch", "safetensors", "transformers")
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
HEADS, KV, PADDED = 6, 2, 72


def llama():
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=67, hidden_size=24, intermediate_size=40, num_hidden_layers=3,
        num_attention_heads=HEADS, num_key_value_heads=KV, tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config)


def padded(t):
    return torch.cat([t, torch.zeros(PADDED - len(t), *t.shape[1:])])


def megatron(hf):
    """Hugging Face's names -> Megatron-Core's, fused as it fuses them."""
    out = {
        "embedding.word_embeddings.weight": padded(hf["model.embed_tokens.weight"]),
        "decoder.final_layernorm.weight": hf["model.norm.weight"],
        "output_layer.weight": padded(hf["lm_head.weight"]),
    }
    for n in range(3):
        p, to = f"model.layers.{n}.", f"decoder.layers.{n}."
        q, k, v = (hf[f"{p}self_attn.{x}_proj.weight"].chunk(KV) for x in "qkv")
        out[to + "self_attention.linear_qkv.weight"] = torch.cat(
            [torch.cat(group) for group in zip(q, k, v)])
        out[to + "mlp.linear_fc1.weight"] = torch.cat(
            [hf[p + "mlp.gate_proj.weight"], hf[p + "mlp.up_proj.weight"]])
        for a, b in (
            ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
            ("mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"),
            ("self_attention.linear_proj.weight", "self_attn.o_proj.weight"),
            ("mlp.linear_fc2.weight", "mlp.down_proj.weight"),
        ):
            out[to + a] = hf[p + b]
    return {k: v.contiguous() for k, v in out.items()}


def logits(folder, **options):
    model, info = transformers.LlamaForCausalLM.from_pretrained(
        folder, output_loading_info=True, **options)
    assert not info["unexpected_keys"] and not info["missing_keys"], info
    ids = torch.arange(1, 15).reshape(2, 7)
    with torch.no_grad():
        return model.eval()(ids).logits


def preset():
    model = llama()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "hf")
        (tmp / "mg").mkdir()
        save_file(megatron(model.state_dict()), tmp / "mg/model.safetensors")
        views = {"llama": {"preset": {"name": "megatron-llama", "heads": HEADS,
                                      "kv_heads": KV, "vocab": 67}}}
        (tmp / "v.json").write_text(json.dumps({"views": views}))
        want = logits(tmp / "hf", dtype=torch.float32)
        with mounted(tmp / "mg", views=tmp / "v.json", config=tmp / "hf") as at:
            got = logits(at / "views/llama", dtype=torch.float32)
    assert torch.equal(got, want), (got - want).abs().max()


def casts():
    """Every tensor as torch casts it."""
    model = llama()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "hf")
        names = ["bfloat16", "float16", "float8_e5m2", "float64"]
        views = {n: {"dtype": n} for n in names}
        (tmp / "v.json").write_text(json.dumps({"views": views}))
        with mounted(tmp / "hf", views=tmp / "v.json") as at:
            for n in names:
                got = load_file(at / f"views/{n}/model.safetensors")
                for name, t in model.state_dict().items():
                    t = t.to(getattr(torch, n))
                    assert got[name].dtype == t.dtype
                    assert torch.equal(got[name].view(torch.uint8),
                                       t.contiguous().view(torch.uint8)), (n, name)
            got = logits(at / "views/bfloat16", dtype=torch.bfloat16)
            assert torch.equal(got, logits(tmp / "hf", dtype=torch.bfloat16))


case(preset, "megatron-llama")
case(casts, "casts")
