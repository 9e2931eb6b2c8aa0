# SPDX-License-Identifier: Apache-2.0
"""hf/ of models under Megatron-Core's and torchtitan's names, with nothing but their
config.json beside them: from_pretrained gives the logits of the model itself.  The
way there is by others' code (others_code.py)."""
import json
import pathlib
import re
import tempfile

import others_code  # first: what it makes up, the others import
from kit import case, mounted, need

need("numpy", "torch", "safetensors", "transformers", "mbridge",
     "megatron.bridge.models.conversion.param_mapping", "torchtitan")
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
}


def model_of(which):
    torch.manual_seed(7)
    family, sizes = {**MODELS, **BRIDGED}[which]
    config = getattr(transformers, family + "Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():  # biases and norms are all alike in a new one
        for p in [*model.parameters(), *model.buffers()]:
            if p.is_floating_point():
                p += torch.randn_like(p) / 10
    model.tie_weights()
    return model


def logits(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32)
    assert not info["unexpected_keys"] and not info["missing_keys"], info
    with torch.no_grad():
        return model.eval()(torch.arange(1, 15).reshape(2, 7)).logits


def translated(which, convert):
    model = model_of(which)
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


def stacked(hf, config):
    """As dist checkpoints have them: layers, and experts of a layer, in one tensor."""
    out, parts = {}, {}
    for name, t in by_mbridge(hf, config).items():
        fit = re.fullmatch(r"decoder\.layers\.(\d+)\.(.*?)(?:weight(\d+))?", name)
        if not fit:
            out[name] = t
            continue
        layer, rest, expert = fit.groups()
        if expert:
            rest = rest.replace("experts.", "experts.experts.") + "weight"
        parts.setdefault(rest, {})[int(layer), int(expert or 0)] = t
    for rest, of in parts.items():
        whole = torch.stack([of[key] for key in sorted(of)])
        if "experts.experts." in rest:
            whole = whole.unflatten(0, (config.num_hidden_layers, -1))
        out["decoder.layers." + rest] = whole
    return out


def one_by_one(hf, config):
    """Experts that are not grouped."""
    return {re.sub(r"experts\.(linear_fc\d)\.weight(\d+)$",
                   r"experts.local_experts.\2.\1.weight", name): t
            for name, t in by_mbridge(hf, config).items()}


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
case(translated, "megatron-one-by-one/mixtral", "mixtral", one_by_one)
for which in ("llama", "llama-tied", "qwen3", "qwen3-moe", "deepseek-v3"):
    case(translated, f"titan/{which}", which, others_code.to_titan)
for which in ("llama", "qwen3-moe"):
    case(translated, f"titan-before/{which}", which, of_old)
case(warned)
