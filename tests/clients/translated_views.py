# SPDX-License-Identifier: Apache-2.0
"""hf/ of models under Megatron-Core's and torchtitan's names, with nothing but their
config.json beside them: from_pretrained gives the logits of the model itself.  The
way there is by others' code (others_code.py)."""
import json
import pathlib
import re
import tempfile

import others_code  # first: what it makes up, the others import
from kit import case, logits, mounted, need

need("numpy", "torch", "safetensors", "transformers", "mbridge",
     "megatron.bridge.models.conversion.param_mapping", "torchtitan",
     "nemo.lightning.io.state")
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
PADDED = 72
DENSE = dict(
    vocab_size=67, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
    num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=32,
    tie_word_embeddings=False)
EXPERTS = dict(DENSE, moe_intermediate_size=20, num_experts_per_tok=2)
MODELS = {
    "llama": ("Llama", dict(DENSE)),
    "llama-tied": ("Llama", dict(DENSE, tie_word_embeddings=True)),
    "qwen2": ("Qwen2", dict(DENSE)),
    "qwen3": ("Qwen3", dict(DENSE, head_dim=10)),
    "mixtral": ("Mixtral", dict(DENSE, num_local_experts=3, num_experts_per_tok=2,
                             head_dim=4)),
    "qwen2-moe": ("Qwen2Moe", dict(EXPERTS, num_experts=3,
                                   shared_expert_intermediate_size=12)),
    "qwen3-moe": ("Qwen3Moe", dict(EXPERTS, num_experts=3, head_dim=10)),
    "deepseek-v3": ("DeepseekV3", dict(
        EXPERTS, num_key_value_heads=6, n_routed_experts=4, n_shared_experts=1,
        n_group=1, topk_group=1, first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=10,
        qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5)),
}
GEMMA = dict(DENSE, head_dim=10, tie_word_embeddings=True)
BRIDGED = {
    "mistral": ("Mistral", dict(DENSE, head_dim=10)),
    "gemma": ("Gemma", GEMMA),
    "gemma2": ("Gemma2", dict(GEMMA, query_pre_attn_scalar=10, sliding_window=4)),
    "gemma3": ("Gemma3Text", dict(GEMMA, query_pre_attn_scalar=10, sliding_window=4,
                              layer_types=["sliding_attention", "full_attention"])),
    "deepseek-v2": ("DeepseekV2", dict(
        EXPERTS, num_key_value_heads=6, n_routed_experts=4, n_shared_experts=1,
        n_group=1, topk_group=1, first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=10,
        qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5, head_dim=4)),
    "deepseek-v2-lite": ("DeepseekV2", dict(
        EXPERTS, num_key_value_heads=6, n_routed_experts=4, n_shared_experts=2,
        n_group=1, topk_group=1, first_k_dense_replace=1, kv_lora_rank=8,
        q_lora_rank=None, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5,
        head_dim=4)),
    "gpt-oss": ("GptOss", dict(DENSE, hidden_size=32, intermediate_size=64, head_dim=4,
                               num_local_experts=3, num_experts_per_tok=2)),
}
LLAMA4 = dict(DENSE, intermediate_size=20, intermediate_size_mlp=40, head_dim=4,
              num_local_experts=3, num_experts_per_tok=1, pad_token_id=0)
IMPORTED = {
    "phi3": ("Phi3", dict(DENSE, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "llama4": ("Llama4Text", dict(LLAMA4, interleave_moe_layer_step=2)),
    "llama4-experts": ("Llama4Text", LLAMA4),
}
OTHERS = {
    "gpt2": ("GPT2", dict(vocab_size=67, n_embd=24, n_layer=2, n_head=6, n_positions=32,
                          bos_token_id=1, eos_token_id=2)),
}


def model_of(which):
    torch.manual_seed(7)
    family, sizes = {**MODELS, **BRIDGED, **IMPORTED, **OTHERS}[which]
    config = getattr(transformers, family + "Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():  # biases and norms are all alike in a new one
        for p in [*model.parameters(), *model.buffers()]:
            if p.is_floating_point():
                p += torch.randn_like(p) / 10
    model.tie_weights()
    return model


def translated(which, convert):
    """@convert gives what is stored of the model's tensors."""
    shown(model_of(which), convert)


def shown(model, convert):
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "hf")
        hf = load_file(tmp / "hf/model.safetensors")
        (tmp / "run").mkdir()
        save_file(convert(hf, model.config), tmp / "run/model.safetensors")
        config = (tmp / "hf/config.json").read_text()
        (tmp / "run/config.json").write_text(config)
        want = logits(tmp / "hf")
        with mounted(tmp / "run") as at:
            problems = (at / ".unshard/problems").read_text()
            assert "hf:" not in problems, problems
            got = load_file(at / "hf/model.safetensors")
            more = set(got) ^ set(hf)  # a tied head may be kept twice
            assert more <= {"lm_head.weight"} and (
                not more or model.config.tie_word_embeddings), more
            for name in hf:
                assert torch.equal(got[name], hf[name]), name
            assert torch.equal(logits(at / "hf"), want)
            assert not torch.allclose(noise(at / "hf"), want)


def noise(folder):
    """Nothing that was loaded: what a model of the same config has at random."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        return model(torch.arange(1, 15).reshape(2, 7)).logits


def gpt2(old):
    """The other way round: what the script makes of Megatron-LM's is what is wanted."""
    model = model_of("gpt2")
    config = model.config
    layer = {"input_layernorm": (24,), "post_attention_layernorm": (24,),
             "self_attention.query_key_value": (72, 24), "self_attention.dense": (24, 24),
             "mlp.dense_h_to_4h": (96, 24), "mlp.dense_4h_to_h": (24, 96)}
    shapes = {"embedding.word_embeddings.weight": (PADDED, 24),
              "embedding.position_embeddings.weight": (32, 24)}
    for n in range(config.n_layer):
        for name, shape in layer.items():
            name = name.replace("self_attention", "attention") if old else name
            shapes[f"encoder.layers.{n}.{name}.weight"] = shape
            shapes[f"encoder.layers.{n}.{name}.bias"] = shape[:1]
    shapes["encoder.final_layernorm.weight"] = shapes["encoder.final_layernorm.bias"] = (24,)
    state = {"language_model." + k: torch.randn(v) / 4 for k, v in shapes.items()}
    hf = others_code.gpt2_of_megatron(state, config)
    missing, unexpected = model.load_state_dict(hf, strict=False)
    assert not missing and all("attn." in x for x in unexpected), (missing, unexpected)
    shown(model, lambda *_: state)


def published(rename):
    """A GPT-OSS as it is published, in four bits: what transformers makes of these, and
    what torchtitan calls them."""
    from transformers.integrations import mxfp4

    model = model_of("gpt-oss")
    config, packed = model.config, {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not re.search(r"experts\.(gate_up|down)_proj$", name):
                continue
            experts, rows, columns = p.transpose(1, 2).shape
            of = torch.randint(0, 256, (experts, rows, columns // 32, 16),
                               dtype=torch.uint8)
            scales = torch.randint(120, 125, of.shape[:-1], dtype=torch.uint8)
            packed[name + "_blocks"], packed[name + "_scales"] = of, scales
            p.copy_(mxfp4.convert_moe_packed_tensors(of, scales, dtype=torch.float32))

    def convert(hf, config):
        rest = {k: v for k, v in hf.items() if k + "_blocks" not in packed}
        return {rename(k): v for k, v in
                others_code.to_titan_by_mxfp4({**rest, **packed}, config).items()}
    shown(model, convert)


def warned():
    """A family that nobody's code was found to compare with, under these names."""
    model = model_of("llama")
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "hf")
        (tmp / "run").mkdir()
        save_file(others_code.to_titan(load_file(tmp / "hf/model.safetensors"),
                                       model.config), tmp / "run/model.safetensors")
        config = json.loads((tmp / "hf/config.json").read_text())
        config["architectures"] = ["MistralForCausalLM"]
        (tmp / "run/config.json").write_text(json.dumps(config))
        with mounted(tmp / "run") as at:
            problems = (at / ".unshard/problems").read_text()
            assert "that nobody has compared models" in problems, problems
            assert len(load_file(at / "hf/model.safetensors")) == 21


def by_mbridge(hf, config):
    return others_code.to_megatron(hf, config, PADDED)


def by_bridge(hf, config):
    return others_code.to_megatron_by_bridge(hf, config, PADDED)


def by_nemo(hf, config):
    return others_code.to_megatron_by_nemo(hf, config, PADDED)


def stacked(hf, config, by=by_mbridge):
    """As dist checkpoints have them: layers, and experts of a layer, in one tensor."""
    out, parts = {}, {}
    for name, t in by(hf, config).items():
        fit = re.fullmatch(r"decoder\.layers\.(\d+)\.(.*?)(?:(weight|bias)(\d+))?", name)
        if not fit:
            out[name] = t
            continue
        layer, rest, kind, expert = fit.groups()
        if expert:
            rest = rest.replace("experts.", "experts.experts.") + kind
        parts.setdefault(rest, {})[int(layer), int(expert or 0)] = t
    for rest, of in parts.items():
        whole = torch.stack([of[key] for key in sorted(of)])
        if "experts.experts." in rest:
            whole = whole.unflatten(0, (config.num_hidden_layers, -1))
        out["decoder.layers." + rest] = whole
    return out


def one_by_one(hf, config, by=by_mbridge):
    """Experts that are not grouped."""
    return {re.sub(r"experts\.(linear_fc\d)\.(weight|bias)(\d+)$",
                   r"experts.local_experts.\3.\1.\2", name): t
            for name, t in by(hf, config).items()}


def of_old(hf, config):
    """torchtitan's names of before, which are Meta's."""
    new = (("attention.qkv_linear.", "attention."), ("lm_head.", "output."),
           ("moe.routed_experts.inner_experts.", "moe.experts."), ("_EFD", ""),
           ("_EDF", ""), ("expert_bias_E", "expert_bias"))
    out = {}
    for name, t in others_code.to_titan(hf, config).items():
        for a, b in new:
            name = name.replace(a, b)
        out[name] = t
    return out


for which in MODELS:
    case(translated, f"megatron/{which}", which, by_mbridge)
for which in BRIDGED:
    case(translated, f"megatron-bridge/{which}", which, by_bridge)
for which in ("llama", "qwen3-moe"):
    case(translated, f"megatron-stacked/{which}", which, stacked)
for which in IMPORTED:
    case(translated, f"nemo/{which}", which, by_nemo)
for old in False, True:
    case(gpt2, "megatron-lm/gpt2" + "-old" * old, old)
case(translated, "megatron-one-by-one/mixtral", "mixtral", one_by_one)
for form in stacked, one_by_one:
    name = "megatron-" + form.__name__.replace("_", "-")
    case(translated, name + "/gpt-oss", "gpt-oss", lambda *a: form(*a, by=by_bridge))
    case(translated, name + "/llama4", "llama4-experts", lambda *a: form(*a, by=by_nemo))
for which in ("llama", "llama-tied", "qwen3", "qwen3-moe", "deepseek-v3"):
    case(translated, f"titan/{which}", which, others_code.to_titan)
for which in ("llama", "qwen3-moe"):
    case(translated, f"titan-before/{which}", which, of_old)
case(warned)
case(translated, "titan-before/llama4", "llama4-experts", others_code.to_titan_before)
case(published, "titan/gpt-oss", lambda name: re.sub(
    r"(mlp1_weight|mlp1_bias|mlp2_weight|mlp2_bias)$",
    lambda m: m[1] + {"mlp1_weight": "_EGD", "mlp1_bias": "_EG", "mlp2_weight": "_EDF",
                      "mlp2_bias": "_ED"}[m[1]], name))
case(published, "titan-before/gpt-oss", lambda name: name.replace(
    "routed_experts.inner_experts", "experts").replace("qkv_linear.", ""))
