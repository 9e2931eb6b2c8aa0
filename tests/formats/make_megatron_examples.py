#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the examples of Megatron-LM's checkpoints, whole and damaged.

usage: make_megatron_examples.py        (then UPDATE_WANT=1 make check-unit)

Needs torch.  A model of known values is cut as Megatron-LM's layers cut it, by
code that has nothing to do with the reader's; args are an argparse.Namespace of
what the reader asks for and of something else.  `sums` in each case is what
`unshard cat` must give, for tests/cmd/sums.sh.
"""
import argparse, hashlib, pathlib, shutil
from collections import OrderedDict

import torch

HERE = pathlib.Path(__file__).resolve().parent / "megatron"
COUNT = [0]


def values(*shape, dtype=torch.float32):
    n = 1
    for d in shape:
        n *= d
    COUNT[0] += 1000
    return torch.arange(COUNT[0], COUNT[0] + n, dtype=torch.float32).reshape(shape).to(dtype)


def split(t, axis, tp):
    return [c.clone() for c in t.chunk(tp, axis)]


def gated(t, tp):
    gate, up = t.chunk(2, 0)
    return [torch.cat(p, 0) for p in zip(gate.chunk(tp, 0), up.chunk(tp, 0))]


def same(t, tp):
    return [t.clone() for _ in range(tp)]


def cut(name, t, tp, swiglu):
    if "linear_fc1" in name or "dense_h_to_4h" in name:
        return gated(t, tp) if swiglu else split(t, 0, tp)
    if any(w in name for w in ("qkv", "query_key_value", "word_embeddings", "output_layer", "_up_proj", "q_down")):
        return split(t, 0, tp)
    if name.endswith("weight") or name[-1].isdigit():
        if any(w in name for w in ("linear_proj", "linear_fc2", "dense")):
            return split(t, 1, tp)
    return same(t, tp)


def attention(h=8, heads=4, groups=2, kv=2, bias=True):
    rows = (heads + 2 * groups) * kv
    yield "self_attention.linear_proj.weight", (h, heads * kv)
    if bias:
        yield "self_attention.linear_proj.bias", (h,)
    yield "self_attention.linear_qkv.weight", (rows, h)
    if bias:
        yield "self_attention.linear_qkv.bias", (rows,)


def mlp(h=8, ffn=6, swiglu=True, bias=True):
    rows = ffn * (2 if swiglu else 1)
    yield "mlp.linear_fc1.weight", (rows, h)
    if bias:
        yield "mlp.linear_fc1.bias", (rows,)
    yield "mlp.linear_fc2.weight", (h, ffn)


def small(h=4):
    """A layer in few bytes."""
    yield "input_layernorm.weight", (h,)
    yield "mlp.linear_fc2.weight", (h, 4)


def namespace(**more):
    base = dict(num_layers=1, num_attention_heads=4, num_query_groups=2, group_query_attention=True, kv_channels=2, swiglu=True,
                tensor_model_parallel_size=1, pipeline_model_parallel_size=1, expert_model_parallel_size=1, num_experts=None,
                pipeline_model_parallel_layout=None, untie_embeddings_and_output_weights=False, params_dtype=torch.float32)
    return argparse.Namespace(**{**base, **more})


class Case:
    def __init__(self, name, **args):
        self.at = HERE / name
        shutil.rmtree(self.at, ignore_errors=True)
        (self.at / "in").mkdir(parents=True)
        self.args, self.whole, self.ranks, self.opts = namespace(**args), OrderedDict(), {}, None

    def put(self, rank, key, name, t, top=None):
        state = self.ranks.setdefault(rank, {"checkpoint_version": 3.0, "iteration": 10, "args": self.args})
        state.setdefault(key, OrderedDict())[name] = t

    def add(self, name, t, ranks, key="model", stored=None, know=True):
        """ranks: of each tensor-parallel rank, the folders that have its shard."""
        for shard, folders in zip(cut(name, t, len(ranks), self.args.swiglu), ranks):
            for folder in folders if isinstance(folders, (list, tuple)) else [folders]:
                self.put(folder, key, stored or name, shard)
        if know:
            self.whole[name] = t

    def write(self, keep=lambda name: True, sums=True):
        for rank, state in self.ranks.items():
            path = self.at / "in" / f"mp_rank_{rank}" / "model_optim_rng.pt"
            path.parent.mkdir(exist_ok=True)
            torch.save(state, path)
        lines = [f"{hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()} {n}\n"
                 for n, t in self.whole.items() if keep(n)]
        if sums:
            (self.at / "sums").write_text("".join(lines))
        if self.opts:
            (self.at / "opts").write_text(self.opts + "\n")
        return self.at / "in"


def fill(c, prefix, shapes, ranks, **kw):
    for name, shape in shapes:
        c.add(prefix + name, values(*shape), ranks, **kw)


def whole():
    c = Case("gated-gqa-tp2", tensor_model_parallel_size=2)
    c.add("embedding.word_embeddings.weight", values(12, 8), ["00", "01"])
    fill(c, "decoder.layers.0.", [*attention(), *mlp(), ("pre_mlp_layernorm.weight", (8,))], ["00", "01"])
    for r in ("00", "01"):
        c.put(r, "model", "decoder.layers.0.mlp.linear_fc1._extra_state", None)
        c.ranks[r]["optimizer"] = {"optimizer": {"state": {0: {"exp_avg": values(3)}}, "param_groups": [{"lr": 0.5, "params": [0]}]}}
        c.ranks[r]["rng_state"] = [{"torch_rng_state": torch.arange(5, dtype=torch.uint8)}]
    c.write()

    c = Case("virtual-stages", num_layers=4, tensor_model_parallel_size=2, pipeline_model_parallel_size=2, swiglu=False)
    at = lambda pp: [f"00_{pp:03d}", f"01_{pp:03d}"]
    table = values(8, 4)
    c.add("embedding.word_embeddings.weight", table, at(0), key="model0")
    for n in range(4):
        pp, chunk = n % 2, n // 2
        for name, shape in small():
            c.add(f"decoder.layers.{n}." + name, values(*shape), at(pp), key=f"model{chunk}", stored="decoder.layers.0." + name)
    c.add("output_layer.weight", table, at(1), key="model1", know=False)  # tied: a copy
    c.write()

    c = Case("uneven-stages", num_layers=3, pipeline_model_parallel_size=2, untie_embeddings_and_output_weights=True)
    for n in range(3):
        pp = 0 if n < 2 else 1
        for name, shape in small():
            c.add(f"decoder.layers.{n}." + name, values(*shape), [f"00_{pp:03d}"], stored=f"decoder.layers.{n - 2 * pp}." + name)
    c.add("output_layer.weight", values(8, 4), ["00_001"])
    c.write()

    c = Case("experts-one-rank-each", tensor_model_parallel_size=2, expert_model_parallel_size=2, expert_tensor_parallel_size=1, num_experts=4)
    files = ["00_000", "01_001"]  # no other rank saves: both are data-parallel copies
    c.add("decoder.layers.0.self_attention.linear_qkv.weight", values(16, 8), files)
    c.add("decoder.layers.0.mlp.router.weight", values(4, 8), files)
    for e in range(4):
        for name, shape in (("linear_fc1.weight", (8, 4)), ("linear_fc2.weight", (4, 4))):
            c.add(f"decoder.layers.0.mlp.experts.local_experts.{e}.{name}", values(*shape), [files[e // 2]],
                  stored=f"decoder.layers.0.mlp.experts.local_experts.{e % 2}.{name}")
    c.write()

    c = Case("experts-tp2-pp2-ep2", num_layers=2, tensor_model_parallel_size=2, pipeline_model_parallel_size=2, expert_model_parallel_size=2,
             expert_tensor_parallel_size=2, num_experts=2)
    for n in range(2):
        both = [[f"{t:02d}_{n:03d}_{e:03d}" for e in range(2)] for t in range(2)]
        c.add(f"decoder.layers.{n}.mlp.router.weight", values(2, 4), both, stored="decoder.layers.0.mlp.router.weight")
        for e in range(2):  # grouped: a number after the name
            for name, shape in (("linear_fc1.weight", (8, 4)), ("linear_fc2.weight", (4, 4))):
                c.add(f"decoder.layers.{n}.mlp.experts.{name}{e}", values(*shape), [f"{t:02d}_{n:03d}_{e:03d}" for t in range(2)],
                      stored=f"decoder.layers.0.mlp.experts.{name}0")
    c.write()

    c = Case("latent-attention", tensor_model_parallel_size=2, q_lora_rank=4, kv_lora_rank=4, qk_pos_emb_head_dim=2)
    pre = "decoder.layers.0.self_attention."
    c.add(pre + "linear_q_down_proj.weight", values(4, 4), ["00", "01"])
    c.add(pre + "linear_kv_down_proj.weight", values(6, 4), ["00", "01"])
    c.add(pre + "linear_kv_up_proj.weight", values(8, 4), ["00", "01"])
    c.add(pre + "kv_layernorm.weight", values(4), ["00", "01"])
    c.write()

    c = Case("before-core", tensor_model_parallel_size=2, swiglu=False)
    pre = "language_model.encoder.layers.0."
    for name, shape in (("self_attention.query_key_value.weight", (12, 4)), ("self_attention.dense.weight", (4, 4)),
                        ("mlp.dense_h_to_4h.bias", (8,)), ("mlp.dense_4h_to_h.weight", (4, 8)), ("input_layernorm.bias", (4,))):
        c.add(pre + name, values(*shape), ["00", "01"])
    for state in c.ranks.values():
        nested = {"layers." + k.split("layers.")[1]: v for k, v in state["model"].items()}
        state["model"] = {"language_model": {"encoder": nested}}
    c.write()

    c = Case("distributed-optimizer", tensor_model_parallel_size=2)
    for name, shape in small():
        c.add("decoder.layers.0." + name, values(*shape, dtype=torch.bfloat16), ["00", "01"])
    at = c.write()
    for r in ("00", "01"):
        torch.save({"buckets_coalesced": True, 0: {(torch.bfloat16, torch.float32): {
            "param": values(12), "exp_avg": values(12), "exp_avg_sq": values(12), "numel_unpadded": 12}}}, at / f"mp_rank_{r}" / "distrib_optim.pt")

    c = Case("rules-given", tensor_model_parallel_size=2)
    pre = "decoder.layers.0."
    fused = values(10, 4)  # 6 rows, then 4
    for r, rows in (("00", (0, 1, 2, 6, 7)), ("01", (3, 4, 5, 8, 9))):
        c.put(r, "model", pre + "mixer.in_proj.weight", fused[list(rows)].clone())
    c.whole[pre + "mixer.in_proj.weight"] = fused
    fill(c, pre, small(), ["00", "01"])
    c.opts = "rules=my.rules"
    at = c.write()
    (at / "my.rules").write_text("# one more\n*.mixer.in_proj.weight split 0 parts 6+4\ndefault\n")


def replicas(name, stages, pairs):
    """March 2022 to May 2023: model_rng.pt, and optim.pt in a folder for each replica of the data."""
    folder = lambda tp, pp: f"{tp:02d}" + (f"_{pp:03d}" if stages > 1 else "")
    c = Case(name, num_layers=stages, tensor_model_parallel_size=2, pipeline_model_parallel_size=stages, use_distributed_optimizer=True,
             data_parallel_size=2)
    for pp in range(stages):
        for n, shape in small():
            c.add(f"decoder.layers.{pp}." + n, values(*shape), [folder(0, pp), folder(1, pp)], stored="decoder.layers.0." + n)
    at = c.write(sums=False)
    for rank in c.ranks:
        (at / f"mp_rank_{rank}" / "model_optim_rng.pt").rename(at / f"mp_rank_{rank}" / "model_rng.pt")
    for tp, pp, dp in pairs:
        d = at / f"mp_rank_{folder(tp, pp)}_{dp:03d}"
        d.mkdir()
        part = values(6 + dp)
        c.whole[f"optimizer.{d.name}.optimizer.state.0.exp_avg"] = part
        torch.save({"optimizer": {"optimizer": {"state": {0: {"exp_avg": part}}, "param_groups": [{"lr": 0.5, "params": [0]}]},
                                  "shard_fp32_from_float16_groups": [[values(3)]]},
                    "opt_param_scheduler": {"num_steps": 8}}, d / "optim.pt")
    (at.parent / "sums").write_text("".join(f"{hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()} {n}\n"
                                            for n, t in c.whole.items()))
    return at


def apart():
    every = lambda stages: [(tp, pp, dp) for tp in range(2) for pp in range(stages) for dp in range(2)]
    replicas("optimizer-apart", 1, every(1))
    replicas("optimizer-apart-pp2", 2, every(2))
    replicas("bad-replica-missing", 1, every(1)[:3])
    (HERE / "bad-replica-missing/in/mp_rank_01_001").mkdir()
    at = replicas("bad-replica-copied", 1, every(1))
    shutil.copy(at / "mp_rank_01_000/optim.pt", at / "mp_rank_01_001")
    stray = replicas("bad-replica-stray", 1, every(1))
    shutil.move(stray / "mp_rank_01_001", stray / "mp_rank_03_000")
    for sums in at.parent / "sums", stray.parent / "sums":
        sums.write_text("".join(l for l in sums.read_text().splitlines(True) if "mp_rank_01_001" not in l))
    replicas("bad-replicas-lost", 1, [])


def two(name, **args):
    c = Case(name, **{"tensor_model_parallel_size": 2, **args})
    fill(c, "decoder.layers.0.", small(), ["00", "01"])
    return c


def ranked(name, processes, **kw):
    """args.rank: the process that saved each folder."""
    folders = [f"{i:02d}" for i in range(len(processes))]
    c = Case(name, tensor_model_parallel_size=len(folders))
    c.add("decoder.layers.0.input_layernorm.weight", values(4), folders)
    c.add("decoder.layers.0.mlp.linear_fc2.weight", values(4, 2 * len(folders)), folders)
    for folder, process in zip(folders, processes):
        c.ranks[folder]["args"] = argparse.Namespace(**vars(c.args), rank=process)
    return c.write(**kw)


def damaged():
    c = two("bad-rank-missing")
    c.add("decoder.layers.0.mlp.linear_fc1.weight", values(8, 4), ["00", "01"])
    at = c.write(lambda name: "norm" in name)
    shutil.rmtree(at / "mp_rank_01")

    at = two("bad-rank-cut").write(lambda name: "norm" in name)
    f = at / "mp_rank_01" / "model_optim_rng.pt"
    f.write_bytes(f.read_bytes()[: f.stat().st_size // 2])

    at = two("bad-optim-missing").write()
    torch.save({0: {(torch.bfloat16, torch.float32): {"exp_avg": values(12)}}}, at / "mp_rank_00" / "distrib_optim.pt")

    # mp_rank_01/distrib_optim.pt is a copy of another file
    for name, of in ("bad-optim-replaced", "mp_rank_01/model_optim_rng.pt"), ("bad-optim-copied", "mp_rank_00/distrib_optim.pt"):
        at = HERE / name / "in"
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(HERE / "distributed-optimizer" / "in", at)
        shutil.copyfile(at / of, at / "mp_rank_01" / "distrib_optim.pt")

    # every distrib_optim.pt was taken away
    c = two("bad-optim-lost", use_distributed_optimizer=True)
    for r in ("00", "01"):
        c.ranks[r]["optimizer"] = {"optimizer": {"param_groups": [{"lr": 0.5, "step": 2, "params": [0]}]}}
    c.write()

    c = two("bad-other-iteration")
    c.ranks["01"]["iteration"] = 20
    c.write(sums=False)

    c = two("bad-copies-differ")
    c.ranks["01"]["model"]["decoder.layers.0.input_layernorm.weight"][0] = 7
    c.write(lambda name: "norm" not in name)

    c = two("bad-no-rule")
    c.put("00", "model", "decoder.layers.0.adapter.weight", values(4, 4))
    c.put("01", "model", "decoder.layers.0.adapter.weight", values(4, 4))
    c.write()

    c = two("bad-rules")
    c.opts = "rules=my.rules"
    (c.write(sums=False) / "my.rules").write_text("*.linear_fc2.weight split 1\n*.linear_fc1.weight split twice\n")

    at = two("bad-rank-of-more").write(sums=False)
    shutil.copytree(at / "mp_rank_01", at / "mp_rank_02")

    ranked("by-a-converter", [0, 0])  # one process saves all folders
    ranked("by-processes", [0, 1])
    ranked("bad-ranks-swapped", [1, 0], sums=False)
    ranked("bad-rank-twice", [3, 3, 4], sums=False)
    at = ranked("bad-rank-copied", [0, 0], sums=False)
    shutil.copy(at / "mp_rank_00" / "model_optim_rng.pt", at / "mp_rank_01")

    c = Case("bad-no-args")
    fill(c, "decoder.layers.0.", small(), ["00_000"])
    del c.ranks["00_000"]["args"]
    c.write(sums=False)

    c = Case("bad-stage-missing", num_layers=4, pipeline_model_parallel_size=4)
    for n in (0, 1, 3):
        for name, shape in small():
            c.add(f"decoder.layers.{n}." + name, values(*shape), [f"00_{n:03d}"], stored="decoder.layers.0." + name)
    c.write()

    c = Case("bad-stage-unknown", num_layers=5, pipeline_model_parallel_size=4, pipeline_model_parallel_layout="Et|t|tt|tL")
    for n in (0, 3):
        for name, shape in small():
            c.add(f"decoder.layers.{n}." + name, values(*shape), [f"00_{n:03d}"], stored="decoder.layers.0." + name)
    c.write(sums=False)

    c = Case("bad-expert-missing", expert_model_parallel_size=2, num_experts=2)
    c.add("decoder.layers.0.mlp.router.weight", values(2, 4), [["00_000"]])
    c.add("decoder.layers.0.mlp.experts.local_experts.0.linear_fc2.weight", values(4, 4), ["00_000"])
    c.write()


if __name__ == "__main__":
    whole()
    damaged()
    apart()
