# SPDX-License-Identifier: Apache-2.0
"""Conversions that others wrote, without what they import to train: the way from
Hugging Face's names to Megatron-Core's is mbridge's or Megatron-Bridge's, that to
torchtitan's its own."""
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import pathlib
import sys
import types
from unittest import mock

SOURCES = pathlib.Path(sys.prefix) / "sources"
sys.path.append(str(SOURCES))

# Modules that are taken as they are; all else below these packages is made up.
REAL = {
    "torchtitan": ("protocols.state_dict_adapter", "models.utils",
                   "models.llama3.state_dict_adapter", "models.qwen3.state_dict_adapter",
                   "models.deepseek_v3.state_dict_adapter",
                   "models.gpt_oss.state_dict_adapter"),
    "nemo": ("lightning.io.state", "collections.llm.gpt.model.llama",
             "collections.llm.gpt.model.phi3mini"),
    "torchtitan_before": (),  # of SOURCES
    "megatron": ("bridge.models.conversion.param_mapping", "bridge.models.deepseek.common",
                 "bridge.models.deepseek.deepseek_v2_bridge",
                 "bridge.models.gemma.gemma_bridge", "bridge.models.gemma.gemma2_bridge",
                 "bridge.models.gemma.gemma3_bridge", "bridge.utils.common_utils",
                 "bridge.models.gpt_oss.gpt_oss_bridge",
                 "bridge.models.mistral.mistral_bridge"),
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

    def __getitem__(cls, of):
        return cls


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


class _Bridge:
    """What a model's bridge is derived from: of that all that counts is its table."""

    @staticmethod
    def register_bridge(**_):
        return lambda bridge: bridge


def bridge_of(config):
    """The table of names and conversions that Megatron-Bridge has for the model."""
    import importlib

    models = "megatron.bridge.models."
    importlib.import_module(models + "conversion.model_bridge").MegatronModelBridge = _Bridge
    importlib.import_module(
        models + "conversion.mapping_registry").MegatronMappingRegistry = lambda *m: m
    conversion = importlib.import_module(models + "conversion.param_mapping")
    conversion.get_pg_size, conversion.get_pg_rank = lambda group: 1, lambda group: 0
    folder, file, name = {
        "deepseek_v2": ("deepseek", "deepseek_v2", "DeepSeekV2Bridge"),
        "gemma": ("gemma", "gemma", "GemmaBridge"),
        "gemma2": ("gemma", "gemma2", "Gemma2Bridge"),
        "gemma3_text": ("gemma", "gemma3", "Gemma3ModelBridge"),
        "gpt_oss": ("gpt_oss", "gpt_oss", "GPTOSSBridge"),
        "mistral": ("mistral", "mistral", "MistralBridge"),
    }[config.model_type]
    return getattr(importlib.import_module(f"{models}{folder}.{file}_bridge"), name)()


def _converted(bridge, mapping, hf, config):
    """What one rank would hold of it: all."""
    if isinstance(mapping.hf_param, str):
        load = getattr(bridge, "maybe_modify_loaded_hf_weight", lambda name, of: of[name])
        mapping._mapping = types.SimpleNamespace(hf_to_megatron=lambda t, module: t)
        return mapping.hf_to_megatron(load(mapping.hf_param, hf), None)
    mapping._get_config = lambda module: types.SimpleNamespace(
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads, hidden_size=config.hidden_size,
        kv_channels=getattr(config, "head_dim", None), attention_output_gate=False)
    mapping._tp_mapping = types.SimpleNamespace(hf_to_megatron=lambda t, module: t)
    return mapping.hf_to_megatron(
        {k: hf[v] for k, v in mapping.hf_param.items()}, None)


def to_megatron_by_bridge(hf, config, padded):
    """Megatron-Core's state dict of @hf, every weight by Megatron-Bridge."""
    import torch

    left, out = set(hf), {}
    bridge = bridge_of(config)
    experts = next((getattr(config, n) for n in ("n_routed_experts", "num_local_experts")
                    if getattr(config, n, 0)), 0)
    for row in bridge.mapping_registry():
        before = set(left)  # several rows may be for one weight: the first is taken
        for of in _numbers(row.megatron_param, config.num_hidden_layers, experts):
            mapping = row.resolve(of) if of else row
            names = mapping.hf_param
            names = {names} if isinstance(names, str) else set(names.values())
            if names <= before:
                out[mapping.megatron_param] = _converted(
                    bridge, mapping, hf, config).contiguous()
                left -= names
    assert not left, sorted(left)[:9]
    return _padded(out, config, padded)


def _numbers(name, *sizes):
    """What stands for each * of it."""
    return itertools.product(*([str(n) for n in range(size)]
                               for size in sizes[:name.count("*")]))


def _padded(out, config, padded):
    """With rows that pad the vocabulary, which nobody asks for."""
    import torch

    for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
        if name in out:
            more = torch.ones(padded - config.vocab_size, config.hidden_size)
            out[name] = torch.cat([out[name], more])
    return out


class _Connector:
    """What NeMo's importers are derived from; of these the table counts."""

    def __class_getitem__(cls, of):
        return cls


def nemo_of(config):
    """(state, names, conversions) that NeMo's importer of the model gives for its own
    of @hf: a function of it."""
    state = importlib.import_module("nemo.lightning.io.state")
    importlib.import_module("nemo.lightning").io = types.SimpleNamespace(
        **{**vars(state), "apply_transforms": lambda source, target, mapping, transforms: (
            source.state_dict(), mapping, transforms)},
        ModelConnector=_Connector, model_importer=lambda *_: lambda c: c,
        model_exporter=lambda *_: lambda c: c)
    file, name = {"llama4_text": ("llama", "HFLlamaImporter"),
                  "phi3": ("phi3mini", "HFPhi3Importer")}[config.model_type]
    module = importlib.import_module("nemo.collections.llm.gpt.model." + file)
    layers = range(config.num_hidden_layers)
    moe = getattr(config, "moe_layers", None) or []
    importer = type("Importer", (getattr(module, name),), {"config": types.SimpleNamespace(
        num_layers=len(layers), moe_layer_freq=[n in moe for n in layers])})()
    return lambda hf: importer.convert_state(
        types.SimpleNamespace(config=config, state_dict=lambda: dict(hf)), None)


def to_megatron_by_nemo(hf, config, padded):
    """Megatron-Core's state dict of @hf, every weight by NeMo."""
    state, mapping, transforms = nemo_of(config)(hf)
    target = types.SimpleNamespace(config=types.SimpleNamespace(
        num_attention_heads=config.num_attention_heads, hidden_size=config.hidden_size,
        num_query_groups=config.num_key_value_heads,
        kv_channels=getattr(config, "head_dim", None)
        or config.hidden_size // config.num_attention_heads))
    rows = [((a,), b, lambda t: t) for a, b in mapping.items()]
    for t in transforms:  # after the names, in whose place they are
        of = (t.source_key,) if isinstance(t.source_key, str) else t.source_key
        rows.append((of, t.target_key, t.transform))
    left, out = set(state), {}
    for sources, name, function in rows:
        context = [types.SimpleNamespace(target=target)] * (
            "ctx" in inspect.signature(function).parameters)
        for of in _numbers(name, config.num_hidden_layers,
                           getattr(config, "num_local_experts", 0)):
            names = [x.replace("*", "{}").format(*of) for x in sources]
            if set(names) <= set(state):
                out[name.replace("*", "{}").format(*of)] = function(
                    *context, *(state[x] for x in names)).contiguous()
                left -= set(names)
    assert not left, sorted(left)[:9]
    return _padded(out, config, padded)


def _file(name, path):
    """Module @name of a file of SOURCES."""
    spec = importlib.util.spec_from_file_location(name, SOURCES / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gpt2_of_megatron(state, config):
    """transformers' state dict of @state, Megatron-LM's of version 3, by its own script."""
    model = {"embedding": {}, "encoder": {}}
    for name, t in state.items():
        _, part, rest = name.split(".", 2)
        if part == "embedding":
            model[part][rest.split(".")[0]] = {"weight": t}
        else:
            model[part][rest] = t
    script = _file("gpt2_of_megatron",
                   "transformers/models/megatron_gpt2/convert_megatron_gpt2_checkpoint.py")
    return script.convert_megatron_checkpoint(
        None, {"checkpoint_version": 3.0, "model": {"language_model": model}}, config)


def to_titan_before(hf, config):
    """torchtitan's state dict of a Llama 4, by its adapter of 0.2.2; it knows the
    language model as a part of one that sees, and leaves out what balances experts."""
    import importlib

    import torch

    importlib.import_module("torchtitan_before.models.llama4.model")
    path = "models/llama4/model/state_dict_adapter"
    adapter = _file("torchtitan_before." + path.replace("/", "."),
                    f"torchtitan/{path}.py").Llama4StateDictAdapter(None, None)
    out = adapter.from_hf({"language_model." + k: v for k, v in hf.items()})
    assert len(out) == len(hf) + sum(k.endswith("gate_up_proj") for k in hf), set(out)
    for n in range(config.num_hidden_layers):
        out[f"layers.{n}.moe.expert_bias"] = torch.randn(config.num_local_experts)
    back = adapter.to_hf(out)
    assert set(back) == {"language_model." + k for k in hf}, set(back)
    return {k: v.contiguous().clone() for k, v in out.items()}


def to_titan_by_mxfp4(published, config):
    """torchtitan's state dict of a GPT-OSS as it is published, in four bits: named by
    its adapter, which leaves shapes as they are, and unpacked by Megatron-Bridge, as it
    is stored (torch's own reader, 2.15, unpacks the first group of each row alone)."""
    import torch

    bridge_of(config)
    unpack = importlib.import_module(
        "megatron.bridge.models.gpt_oss.gpt_oss_bridge")._dequantize_mxfp4
    module = importlib.import_module("torchtitan.models.gpt_oss.state_dict_adapter")
    adapter = module.GptOssStateDictAdapter(types.SimpleNamespace(
        layers=[types.SimpleNamespace(attention=types.SimpleNamespace(
            rope=module.CosSinRoPE.Config()))] * config.num_hidden_layers), None)
    state = {k: unpack(v, published[k[:-6] + "scales"], dtype=torch.float32)
             if k.endswith("_blocks") else v
             for k, v in published.items() if not k.endswith("_scales")}
    return {k: v.contiguous().clone() for k, v in adapter.from_hf(state).items()}


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
