# SPDX-License-Identifier: Apache-2.0
"""views.py make DIR       sources and descriptions of views
   views.py check DIR     exported views against numpy"""
import json
import os
import struct
import sys

import numpy as np

HEADS, KV, D, LAYERS, FFN, VOCAB, PADDED = 6, 2, 4, 3, 10, 21, 24
HIDDEN = HEADS * D
# for any tensors: each has a document of its own, which is refused whole
BROKEN = ("member", "dtype", "regex", "unknown", "kvheads", "noheads", "both",
          "glob", "text", "slash", "many", "group", "from0", "zero", "more")
NUMPY = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "F64": "<f8"}
NAME = {"<f4": "F32", "<f2": "F16", "<i8": "I64", "<f8": "F64"}


def save(path, tensors):
    head, body = {}, b""
    for name, a in tensors.items():
        raw = np.ascontiguousarray(a).tobytes()
        head[name] = {"dtype": NAME[a.dtype.newbyteorder("<").str],
                      "shape": list(a.shape),
                      "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def load(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    end = 0
    for t in sorted(head.values(), key=lambda t: t["data_offsets"]):
        assert t["data_offsets"][0] == end, "a hole in the data"
        end = t["data_offsets"][1]
    assert 8 + n + end == len(data), "bytes behind the data"
    return {k: (t["dtype"], np.frombuffer(
        data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]],
        NUMPY[t["dtype"]]).reshape(t["shape"])) for k, t in head.items()}


def model():
    """(Hugging Face's tensors, Megatron's, Megatron's with stacked layers)"""
    r = np.random.default_rng(3)
    x = lambda *s: r.standard_normal(s).astype("<f4")
    hf, mg = {}, {}
    embed = x(PADDED, HIDDEN)
    hf["model.embed_tokens.weight"] = embed[:VOCAB]
    mg["model.embedding.word_embeddings.weight"] = embed
    layers = []
    for n in range(LAYERS):
        q, k, v = x(HEADS * D, HIDDEN), x(KV * D, HIDDEN), x(KV * D, HIDDEN)
        gate, up, down = x(FFN, HIDDEN), x(FFN, HIDDEN), x(HIDDEN, FFN)
        o, a, b = x(HIDDEN, HIDDEN), x(HIDDEN), x(HIDDEN)
        p = f"model.layers.{n}."
        hf |= {p + "self_attn.q_proj.weight": q, p + "self_attn.k_proj.weight": k,
               p + "self_attn.v_proj.weight": v, p + "self_attn.o_proj.weight": o,
               p + "mlp.gate_proj.weight": gate, p + "mlp.up_proj.weight": up,
               p + "mlp.down_proj.weight": down, p + "input_layernorm.weight": a,
               p + "post_attention_layernorm.weight": b}
        each = HEADS // KV * D
        qkv = np.concatenate([np.concatenate([
            q[g * each:(g + 1) * each], k[g * D:(g + 1) * D],
            v[g * D:(g + 1) * D]]) for g in range(KV)])
        gate1, up1, down1, o1, norm = x(FFN), x(FFN), x(HIDDEN), x(HIDDEN), x(D)
        hf |= {p + "mlp.gate_proj.bias": gate1, p + "mlp.up_proj.bias": up1,
               p + "mlp.down_proj.bias": down1, p + "self_attn.o_proj.bias": o1,
               p + "self_attn.q_norm.weight": norm,
               p + "self_attn.k_norm.weight": norm[::-1]}
        layers.append({
            "mlp.linear_fc1.bias": np.concatenate([gate1, up1]),
            "mlp.linear_fc2.bias": down1,
            "self_attention.linear_proj.bias": o1,
            "self_attention.q_layernorm.weight": norm,
            "self_attention.k_layernorm.weight": norm[::-1],
            "self_attention.linear_qkv.weight": qkv,
            "self_attention.linear_qkv.layer_norm_weight": a,
            "self_attention.linear_proj.weight": o,
            "mlp.linear_fc1.layer_norm_weight": b,
            "mlp.linear_fc1.weight": np.concatenate([gate, up]),
            "mlp.linear_fc2.weight": down})
    hf["model.norm.weight"] = mg["model.decoder.final_layernorm.weight"] = x(HIDDEN)
    hf["lm_head.weight"] = head = x(VOCAB, HIDDEN)
    mg["model.output_layer.weight"] = np.concatenate(
        [head, np.zeros((PADDED - VOCAB, HIDDEN), "<f4")])
    flat = mg | {f"model.decoder.layers.{n}.{k}": v
                 for n, layer in enumerate(layers) for k, v in layer.items()}
    # of TransformerEngine, and no weights
    flat["model.decoder.layers.0.self_attention.core_attention._extra_state"] = x(3)
    stacked = mg | {f"model.decoder.layers.{k}": np.stack([y[k] for y in layers])
                    for k in layers[0]}
    return hf, flat, stacked


def edges():
    """Floats whose rounding is easy to get wrong."""
    u = np.array([0, 1 << 31, 0x7f800000, 0xff800000, 0x7fc00000, 1, 0x3f808000,
                  0x3f818000, 0x3f808001, 0x7f7fffff, 0x477fefff, 0x477ff000,
                  0x33000000, 0x33000001, 0x00008000, 0x80018000], "<u4")
    r = np.random.default_rng(4).integers(0, 1 << 32, 4081, dtype="u4")
    return np.concatenate([u, r]).view("<f4")


def bf16(a):
    u = a.astype("<f4").view("<u4").astype("u8")
    out = ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(a), 0x7fc0, out).astype("<u2")


PLAIN = {"model.a.weight": edges(), "model.a.bias": np.arange(7, dtype="<f4"),
         "model.b.norm": np.arange(5, dtype="<f4") / 3,
         "model.steps": np.arange(3, dtype="<i8"),
         "model.wide": np.arange(9, dtype="<f8") / 7,
         "model.half": np.arange(9, dtype="<f2") / 7}


def make(d):
    hf, flat, stacked = model()
    for name, t in (("hf", hf), ("flat", flat), ("stacked", stacked),
                    ("plain", PLAIN)):
        save(f"{d}/{name}.safetensors", t)
    preset = {"name": "megatron-llama", "heads": HEADS, "kv_heads": KV,
              "vocab": VOCAB}
    views = {
        "preset": {"preset": preset},
        "padded": {"preset": {k: v for k, v in preset.items() if k != "vocab"}},
        "bf16": {"dtype": "bfloat16", "keep": ["*norm"]},
        "fp16": {"dtype": "float16", "exclude": ["*.wide"]},
        "some": {"include": ["*.a.*", "*norm"], "exclude": ["*bias"],
                 "rename": [{"from": r"^model\.(.)\.", "to": r"\1\1/"},
                            {"from": "norm$", "to": "n"}],
                 "rows": {"aa/weight": 100}},
        "clash": {"rename": [{"from": r"\.[ab]\..*", "to": ".x"}]},
        "member": {"inclde": []}, "dtype": {"dtype": "int8"},
        "regex": {"rename": [{"from": "(", "to": ""}]},
        "rows": {"rows": {"*.bias": 8}}, "none": {"include": ["nothing"]},
        "heads": {"preset": {"name": "megatron-llama"}},
        "norule": {"preset": preset, "rename": []},
        "turned": {"transpose": ["*.a.bias"]},
        "unknown": {"preset": {"name": "x"}},
        "kvheads": {"preset": preset | {"kvheads": 2}},
        "noheads": {"preset": preset | {"heads": 0}},
        "both": {"include": ["*"], "exclude": ["*.b.*", "*"]},
        "glob": {"keep": ["a\0b"]}, "text": {"part": "model\0x"},
        "many": {"exclude": ["*"] * 257},
        "unused": {"include": ["*.a.*", "*.c.*"], "keep": ["*nrom*"],
                   "rename": [{"from": "xyz", "to": ""}],
                   "rows": {"*.a.weight": 3, "*.a.weigth": 2}},
        "zero": {"rename": [{"from": "^.*$", "to": "a\0b"}]},
        "more": {"rename": [{"from": "a", "to": "b", "form": "c"}]},
        "from0": {"rename": [{"from": "a\0b", "to": "x"}]},
        "group": {"rename": [{"from": r"^(.)(.*)$", "to": r"\2\9"}]},
        "slash": {"rename": [{"from": "x", "to": "\\"}]},
    }
    for i, to in enumerate(("__metadata__", "", "/x", "../x", "a/..", "\xff")):
        views[f"to{i}"] = {"include": ["*.a.bias"],
                           "rename": [{"from": ".*", "to": to}]}
    views["to5"]["rename"] = [{"from": "(m)", "to": "é"}, {"from": "^.", "to": ""}]
    for name in BROKEN:
        json.dump({"views": {name: views.pop(name)}},
                  open(f"{d}/{name}.json", "w"))
    json.dump({"views": views}, open(f"{d}/views.json", "w"))


def same(got, want):
    assert got.keys() == want.keys(), got.keys() ^ want.keys()
    for k, (dtype, a) in got.items():
        assert dtype == want[k][0], (k, dtype)
        b = want[k][1]
        assert a.shape == b.shape, (k, a.shape, b.shape)
        if dtype == "BF16":
            a, b = [(x.astype("u4") << 16).view("f4") for x in (a, b)]
        if a.dtype.kind == "f":
            assert np.array_equal(np.signbit(a) & ~np.isnan(a),
                                  np.signbit(b) & ~np.isnan(b)), k
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), k


def check(d):
    np.seterr(all="ignore")
    hf = {k: ("F32", v) for k, v in model()[0].items()}
    for name in "flat", "stacked":
        same(load(f"{d}/{name}.out/model.safetensors"), hf)
    cast = {k: ("BF16", bf16(v.astype("f4"))) for k, v in PLAIN.items()}
    for k in "model.b.norm", "model.steps":
        cast[k] = NAME[PLAIN[k].dtype.str], PLAIN[k]
    same(load(f"{d}/bf16/model.safetensors"), cast)
    half = {k: ("F16", v.astype("<f2")) for k, v in PLAIN.items()
            if k != "model.wide"}
    half["model.steps"] = "I64", PLAIN["model.steps"]
    same(load(f"{d}/fp16/model.safetensors"), half)
    same(load(f"{d}/some/model.safetensors"),
         {"aa/weight": ("F32", PLAIN["model.a.weight"][:100]),
          "bb/n": ("F32", PLAIN["model.b.norm"])})


{"make": make, "check": check}[sys.argv[1]](sys.argv[2])
