#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Another mesh with more ranks than there are heads of keys and values: each rank has the
# head that its queries are of, whole, as vLLM and Megatron give it; and it is said.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"

mkdir "$WORK/ckpt"
cat >"$WORK/heads.py" <<'PY'
import json, pathlib, random, struct, sys
WORK, MNT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
HEADS, KV, HEAD, HIDDEN, MLP, VOCAB = 8, 2, 4, 32, 48, 64
ROWS = 4 * HIDDEN  # bytes of a row
SHAPES = {"embed_tokens": (VOCAB, HIDDEN), "norm": (HIDDEN,)}
SHAPES.update({f"layers.0.self_attn.{n}_proj": (r, HIDDEN)
               for n, r in (("q", HEADS * HEAD), ("k", KV * HEAD), ("v", KV * HEAD))})
SHAPES.update({
    "layers.0.self_attn.o_proj": (HIDDEN, HEADS * HEAD),
    "layers.0.mlp.gate_proj": (MLP, HIDDEN), "layers.0.mlp.up_proj": (MLP, HIDDEN),
    "layers.0.mlp.down_proj": (HIDDEN, MLP), "layers.0.input_layernorm": (HIDDEN,),
    "layers.0.post_attention_layernorm": (HIDDEN,)})


def make():
    random.seed(5)
    head, data = {}, b""
    for name, shape in SHAPES.items():
        size = 4
        for n in shape:
            size *= n
        head[f"model.{name}.weight"] = {"dtype": "F32", "shape": list(shape),
                                        "data_offsets": [len(data), len(data) + size]}
        data += random.randbytes(size)
    text = json.dumps(head).encode()
    (WORK / "ckpt/model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (WORK / "ckpt/config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": HEAD,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "hidden_size": HIDDEN,
        "intermediate_size": MLP, "vocab_size": VOCAB, "num_hidden_layers": 1}))


def tensor(path, name):
    data = path.read_bytes()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    t = json.loads(data[8:at])[name]
    return data[at + t["data_offsets"][0]:at + t["data_offsets"][1]]


def check():
    for tp in 2, 4, 8:
        files = sorted((MNT / f"reshard/tp={tp}").glob("*.safetensors"))
        assert len(files) == tp, files
        for rank, path in enumerate(files):
            for of, heads in ("q", HEADS), ("k", KV), ("v", KV):
                name = f"model.layers.0.self_attn.{of}_proj.weight"
                whole = (MNT / "tensors" / name).read_bytes()
                first, nr = rank * heads // tp, max(1, heads // tp)
                want = whole[first * HEAD * ROWS:(first + nr) * HEAD * ROWS]
                assert tensor(path, name) == want, (tp, rank, name)


make() if sys.argv[3] == "make" else check()
PY
"$PYTHON" "$WORK/heads.py" "$WORK" "$MNT" make || fail "no checkpoint"
mount_ckpt "$WORK/ckpt"
"$PYTHON" "$WORK/heads.py" "$WORK" "$MNT" check || fail "other heads"
grep -q 'tp=4: 2 heads for 4 ranks, so that each is whole on 2: ' "$MNT/.unshard/problems" ||
	fail "not said: $(cat "$MNT/.unshard/problems")"
umount_ckpt
done_ok
