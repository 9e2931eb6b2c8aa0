# SPDX-License-Identifier: Apache-2.0
"""Conversions that others wrote, without what they import to train: the way from
Hugging Face's names to Megatron-Core's is mbridge's, that to torchtitan's its own."""
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from unittest import mock

# Modules that are taken as they are; all else below these packages is made up.
REAL = {
    "torchtitan": ("protocols.state_dict_adapter", "models.utils",
                   "models.llama3.state_dict_adapter", "models.qwen3.state_dict_adapter",
                   "models.deepseek_v3.state_dict_adapter"),
    "megatron": (),
}
# Models of pictures, which import the trainer's by *.
MADE_UP = tuple("mbridge.models." + x for x in (
    "gemma3", "glm4_vl", "glm4moe", "internvl3", "mimo", "qwen2_5_vl"))


def _made_up(owner, name):
    """A function or value of theirs; a class, where it is called as one."""
    if name.startswith("__"):
        raise AttributeError(name)
    value = mock.MagicMock() if name[0].islower() else _Type(name, (), {})
    setattr(owner, name, value)
    return value


class _Type(type):
    __getattr__ = _made_up


class _MadeUp(types.ModuleType):
    __path__ = []
    __getattr__ = _made_up


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        top, _, rest = name.partition(".")
        if not name.startswith(MADE_UP) and (
                top not in REAL or rest in REAL[top]):
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        real = importlib.machinery.PathFinder.find_spec(name, path)
        spec.submodule_search_locations = list(
            real.submodule_search_locations or []) if real else []
        return spec

    def create_module(self, spec):
        module = _MadeUp(spec.name)
        module.__path__ = spec.submodule_search_locations
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _Finder())


def mbridge_of(config, padded):
    """What converts a model of this config.json, with a padded vocabulary."""
    from mbridge.core import auto_bridge, bridge  # registers the models
    import mbridge.models

    registry = next(v for v in vars(bridge).values()
                    if isinstance(v, dict) and "llama" in v)
    made = object.__new__(registry[config.model_type])
    made.hf_config, made.dtype = config, None
    made.config = types.SimpleNamespace(
        mtp_num_layers=0, num_layers=config.num_hidden_layers)
    made.vocab_size, made.padded_vocab_size = config.vocab_size, padded
    made.make_vocab_size_divisible_by = 8
    return made


def to_megatron(hf, config, padded):
    """Megatron-Core's state dict of @hf, every weight by mbridge."""
    bridge = mbridge_of(config, padded)
    layers, left, out = range(config.num_hidden_layers), set(hf), {}
    experts = next((getattr(config, n) for n in ("num_experts", "n_routed_experts",
                    "num_local_experts") if getattr(config, n, 0)), 0)
    names = list(bridge._DIRECT_MAPPING)
    for n in layers:
        p = f"decoder.layers.{n}."
        for key in (*bridge._ATTENTION_MAPPING, *bridge._MLP_MAPPING):
            key = key.replace("pre_mlp_layernorm.weight", "pre_mlp_layernorm")
            if key.startswith("shared_experts"):
                key = "mlp." + key
            if key == "pre_mlp_layernorm":
                key += ".weight"
            if "mlp.experts.linear_fc" in key:
                if not key.endswith(".weight"):
                    key += ".weight"
                names += [f"{p}{key}{e}" for e in range(experts)]
            else:
                names.append(p + key)
    for name in names:
        of = bridge._weight_name_mapping_mcore_to_hf(name)
        if all(x in hf for x in of) and (left & set(of)):
            out[name] = bridge._weight_to_mcore_format(
                name, [hf[x] for x in of]).contiguous()
            left -= set(of)
    assert not left, sorted(left)[:9]
    return out


def to_titan(hf, config):
    """torchtitan's state dict of @hf, by its own adapter."""
    import importlib

    kind = {"llama": ("llama3", "Llama3"), "deepseek_v3": ("deepseek_v3", "DeepSeekV3"),
            "qwen3": ("qwen3", "Qwen3"), "qwen3_moe": ("qwen3", "Qwen3")}[config.model_type]
    module = importlib.import_module(f"torchtitan.models.{kind[0]}.state_dict_adapter")
    adapter = next(v for k, v in vars(module).items() if k.startswith(kind[1])
                   and k.endswith("StateDictAdapter"))
    rope = (vars(module).get("ComplexRoPE") or module.CosSinRoPE).Config
    experts = getattr(config, "num_experts", None) or getattr(
        config, "n_routed_experts", None)
    attention = types.SimpleNamespace(
        n_heads=config.num_attention_heads, n_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None), rope=rope(),
        q_lora_rank=getattr(config, "q_lora_rank", None) or 0)
    layer = types.SimpleNamespace(
        attention=attention,
        moe=types.SimpleNamespace(num_experts=experts) if experts else None)
    made = adapter(types.SimpleNamespace(
        layers=[layer] * config.num_hidden_layers, dim=config.hidden_size,
        enable_weight_tying=config.tie_word_embeddings), None)
    return {k: v.contiguous().clone() for k, v in made.from_hf(dict(hf)).items()}
