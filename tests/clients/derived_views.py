# SPDX-License-Identifier: Apache-2.0
"""-o views=: a Llama and a GPT-2 under Megatron's names, a Llama under FSDP's, one
cast, matrices transposed, by from_pretrained."""
import json
import pathlib
import re
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
        for kind in "weight", "bias":
            if f"{p}self_attn.q_proj.{kind}" in hf:
                q, k, v = (hf[f"{p}self_attn.{x}_proj.{kind}"].chunk(KV) for x in "qkv")
                out[to + "self_attention.linear_qkv." + kind] = torch.cat(
                    [torch.cat(group) for group in zip(q, k, v)])
            if f"{p}mlp.up_proj.{kind}" in hf:
                out[to + "mlp.linear_fc1." + kind] = torch.cat(
                    [hf[f"{p}mlp.{x}_proj.{kind}"] for x in ("gate", "up")])
        for a, b in (
            ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
            ("mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"),
            ("self_attention.linear_proj.weight", "self_attn.o_proj.weight"),
            ("mlp.linear_fc2.weight", "mlp.down_proj.weight"),
            ("self_attention.linear_proj.bias", "self_attn.o_proj.bias"),
            ("mlp.linear_fc2.bias", "mlp.down_proj.bias"),
            ("self_attention.q_layernorm.weight", "self_attn.q_norm.weight"),
            ("self_attention.k_layernorm.weight", "self_attn.k_norm.weight"),
        ):
            if p + b in hf:
                out[to + a] = hf[p + b]
    return {k: v.contiguous() for k, v in out.items()}


def logits(folder, kind=transformers.LlamaForCausalLM, **options):
    model, info = kind.from_pretrained(
        folder, output_loading_info=True, **options)
    assert not info["unexpected_keys"] and not info["missing_keys"], info
    ids = torch.arange(1, 15).reshape(2, 7)
    with torch.no_grad():
        return model.eval()(ids).logits


def family(which):
    """Models of the Llama family that have more than Llama."""
    torch.manual_seed(7)
    sizes = dict(
        vocab_size=67, hidden_size=24, intermediate_size=40, num_hidden_layers=3,
        num_attention_heads=HEADS, num_key_value_heads=KV, max_position_embeddings=32,
        tie_word_embeddings=False)
    if which == "biases":
        config = transformers.LlamaConfig(**sizes, attention_bias=True, mlp_bias=True)
    elif which == "qwen2":
        config = transformers.Qwen2Config(**sizes)
    else:
        config = transformers.Qwen3Config(**sizes, head_dim=10)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # biases and norms are all alike in a new one
        for p in model.parameters():
            p += torch.randn_like(p) / 10
    return model


def preset(which=None):
    model = family(which) if which else llama()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "hf")
        (tmp / "mg").mkdir()
        save_file(megatron(model.state_dict()), tmp / "mg/model.safetensors")
        views = {"llama": {"preset": {"name": "megatron-llama", "heads": HEADS,
                                      "kv_heads": KV, "vocab": 67}}}
        (tmp / "v.json").write_text(json.dumps({"views": views}))
        want = logits(tmp / "hf", type(model), dtype=torch.float32)
        with mounted(tmp / "mg", views=tmp / "v.json", config=tmp / "hf") as at:
            got = logits(at / "views/llama", type(model), dtype=torch.float32)
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


def float8():
    """What is too large, both ways, rows and columns; PyTorch saturates one type."""
    largest = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
    x = torch.cat([
        torch.tensor([float("inf"), float("nan")]),
        *(m * torch.tensor([1, 1 + 1 / 32, 1 + 1 / 28, 17 / 16, 15 / 14, 9 / 8, 2, 1e30])
          for m in largest.values()),
        torch.arange(0, 2**31, 2**31 // 3000, dtype=torch.int32).view(torch.float32),
    ])
    x = torch.cat([x, -x])[:6000].reshape(60, 100).contiguous()
    views = {f"{n}.{how}{turn}": {"dtype": n, "overflow": how, "transpose": ["w"] * turn}
             for n in largest for how in ("nan", "saturate") for turn in (0, 1)}
    with tempfile.TemporaryDirectory() as tmp:
        save_file({"w": x}, f"{tmp}/model.safetensors")
        pathlib.Path(tmp, "v.json").write_text(json.dumps({"views": views}))
        with mounted(tmp, views=f"{tmp}/v.json") as at:
            for name, view in views.items():
                n = view["dtype"]
                most = largest[n]
                if view["overflow"] == "saturate":
                    want = x.clamp(-most, most)
                elif n == "float8_e4m3fn":
                    want = x.masked_fill(x.abs() > 464, float("nan"))
                else:
                    want = x
                want = want.to(getattr(torch, n))
                got = load_file(at / "views" / name / "model.safetensors")["w"]
                got = got.T.contiguous() if view["transpose"] else got
                nan = want.isnan()
                assert got.dtype == want.dtype and torch.equal(got.isnan(), nan), name
                assert torch.equal(got.view(torch.uint8)[~nan], want.view(torch.uint8)[~nan]), name


def gpt2():
    torch.manual_seed(6)
    config = transformers.GPT2Config(
        vocab_size=67, n_positions=32, n_embd=24, n_layer=3, n_head=HEADS,
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():  # biases and norms are all alike in a new one
        for p in model.parameters():
            p += torch.randn_like(p) / 10
    return model


def megatron_gpt2(hf, stacked):
    """GPT-2's names -> Megatron-Core's: Linear for Conv1D, heads interleaved."""
    out = {
        "embedding.word_embeddings.weight": padded(hf["transformer.wte.weight"]),
        "embedding.position_embeddings.weight": hf["transformer.wpe.weight"],
        "decoder.final_layernorm.weight": hf["transformer.ln_f.weight"],
        "decoder.final_layernorm.bias": hf["transformer.ln_f.bias"],
    }
    layers = []
    for n in range(3):
        p = f"transformer.h.{n}."
        layer = {}
        for kind in "weight", "bias":
            fused = hf[f"{p}attn.c_attn.{kind}"].T
            q, k, v = (x.chunk(HEADS) for x in fused.chunk(3))
            layer[f"self_attention.linear_qkv.{kind}"] = torch.cat(
                [torch.cat(head) for head in zip(q, k, v)])
            for a, b in (
                ("self_attention.linear_proj.", "attn.c_proj."),
                ("mlp.linear_fc1.", "mlp.c_fc."),
                ("mlp.linear_fc2.", "mlp.c_proj."),
                ("self_attention.linear_qkv.layer_norm_", "ln_1."),
                ("mlp.linear_fc1.layer_norm_", "ln_2."),
            ):
                t = hf[p + b + kind]
                layer[a + kind] = t.T if t.ndim == 2 else t
        layers.append(layer)
    for name in layers[0]:
        if stacked:
            out["decoder.layers." + name] = torch.stack([x[name] for x in layers])
        for n, layer in enumerate(layers):
            if not stacked:
                out[f"decoder.layers.{n}.{name}"] = layer[name]
    return {k: v.contiguous() for k, v in out.items()}


def preset_gpt2(stacked):
    model = gpt2()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "hf")
        (tmp / "mg").mkdir()
        save_file(megatron_gpt2(model.state_dict(), stacked), tmp / "mg/model.safetensors")
        of = {"name": "megatron-gpt2", "heads": HEADS, "vocab": 67}
        views = {"gpt2": {"preset": of}, "half": {"preset": of, "dtype": "bfloat16"}}
        (tmp / "v.json").write_text(json.dumps({"views": views}))
        kind = transformers.GPT2LMHeadModel
        want = logits(tmp / "hf", kind, dtype=torch.float32)
        with mounted(tmp / "mg", views=tmp / "v.json", config=tmp / "hf") as at:
            got = logits(at / "views/gpt2", kind, dtype=torch.float32)
            assert torch.equal(got, want), (got - want).abs().max()
            half = load_file(at / "views/half/model.safetensors")
            for name, t in half.items():
                assert torch.equal(t, model.state_dict()[name].bfloat16()), name


def preset_fsdp():
    model = llama()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "hf")
        (tmp / "fsdp").mkdir()
        wrapped = {}
        for name, t in model.state_dict().items():
            name = re.sub(
                r"layers\.(\d+)\.",
                r"layers.\1._fsdp_wrapped_module._checkpoint_wrapped_module.", name)
            wrapped["module._orig_mod._fsdp_wrapped_module." + name] = t
            wrapped["optimizer.state." + name] = torch.zeros(1)
        save_file(wrapped, tmp / "fsdp/model.safetensors")
        of = {"name": "fsdp-llama"}
        views = {"llama": {"preset": of, "exclude": ["optimizer.*"]}, "all": {"preset": of}}
        (tmp / "v.json").write_text(json.dumps({"views": views}))
        want = logits(tmp / "hf", dtype=torch.float32)
        with mounted(tmp / "fsdp", views=tmp / "v.json", config=tmp / "hf") as at:
            assert [p.name for p in (at / "views").iterdir()] == ["llama"]
            why = (at / ".unshard/problems").read_text()
            assert "optimizer.state" in why and "the preset has no rule" in why, why
            got = logits(at / "views/llama", dtype=torch.float32)
    assert torch.equal(got, want), (got - want).abs().max()


case(preset, "megatron-llama")
for which in "biases", "qwen2", "qwen3":
    case(preset, "megatron-llama-" + which, which)
case(preset_gpt2, "megatron-gpt2", False)
case(preset_gpt2, "megatron-gpt2-stacked", True)
case(preset_fsdp, "fsdp-llama")
case(casts, "casts")
case(float8, "float8")
