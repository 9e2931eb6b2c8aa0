#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with DeepSpeed on CPU ranks (gloo) and saves it; OUT.live.pt is what the engine itself gathers.

usage: torchrun --nproc_per_node N make_deepspeed_saves.py CASE OUT        needs torch, deepspeed

The examples in deepspeed/ that are of it (0.19.8), with their N and CASE:
  zero1-small-group 4  {"stage":1,"dtype":"bf16","dims":[5,3],"salt":11,"freeze":["inp.weight","inp.bias","mid.0.weight",
                       "mid.0.bias","mid.1.weight","norm.weight","norm.bias","out.weight","out.bias"]}
  zero3-five-ranks  5  {"stage":3,"dtype":"fp32","dims":[7,5],"layers":3,"salt":3,"buffers":false}
  zero2-momentum    3  {"stage":2,"dtype":"fp32","dims":[7,5],"salt":5,"opt":"SGD","oargs":{"momentum":0.9},
                       "kinds":["momentum_buffer"]}
"""
import json, os, sys, zlib

import numpy as np
import torch, torch.nn as nn, torch.distributed as dist
import deepspeed
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

def values(name, shape, salt, scale):
    """Random values that depend on the name, the salt and the shape."""
    rng = np.random.RandomState((zlib.crc32(name.encode()) + 7919 * salt) & 0x7FFFFFFF)
    return torch.from_numpy(np.ascontiguousarray(rng.standard_normal(tuple(shape)) * scale)).float().reshape(tuple(shape))


class Net(nn.Module):
    def __init__(self, c):
        super().__init__()
        a, b = c["dims"]
        self.inp = nn.Linear(a, b)
        self.mid = nn.ModuleList([nn.Linear(b, b, bias=i % 2 == 0) for i in range(c.get("layers", 2))])
        self.norm = nn.LayerNorm(b)
        self.alpha = nn.Parameter(torch.tensor([0.5]))
        if c.get("scalar"): self.beta = nn.Parameter(torch.tensor(0.25))
        self.out = nn.Linear(b, a)
        if c.get("tie"):
            self.mid[1].weight = self.mid[0].weight
        if c.get("lora"):
            for p in self.parameters(): p.requires_grad_(False)
            self.la = nn.Parameter(torch.zeros(3, a)); self.lb = nn.Parameter(torch.zeros(b, 3))
        for n in c.get("freeze", []):
            self.get_parameter(n).requires_grad_(False)
        if c.get("buffers", True):
            self.register_buffer("tick", torch.tensor([7, 9], dtype=torch.int64)); self.register_buffer("off", torch.zeros(a))
    def forward(self, x):
        h = self.inp(x)
        if hasattr(self, "la"): h = h + (x @ self.la.t()) @ self.lb.t()
        for m in self.mid: h = torch.tanh(m(h)) + h
        h = self.norm(h) * self.alpha
        if hasattr(self, "beta"): h = h * self.beta
        h = self.out(h)
        if hasattr(self, "off"): h = h + self.off.to(h.dtype)
        return (h.float() ** 2).mean()

def main():
    c, out = json.loads(sys.argv[1]), sys.argv[2]
    from deepspeed.accelerator import get_accelerator
    type(get_accelerator()).is_fp16_supported = lambda self: True
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    net = Net(c)
    with torch.no_grad():
        for n, p in net.named_parameters(): p.copy_(values(n, p.shape, c.get("salt", 0), 0.4))
    train = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    k = c.get("groups", 1)
    groups = [{"params": [p for i, (n, p) in enumerate(train) if i % k == g], "weight_decay": 0.01 * g} for g in range(k)]
    opt = getattr(torch.optim, c.get("opt", "AdamW"))(groups, **{"lr": 2e-2, **c.get("oargs", {})})
    conf = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1000000}
    if c["stage"]:
        conf["zero_optimization"] = {"stage": c["stage"], "overlap_comm": False, "reduce_bucket_size": 300, "allgather_bucket_size": 300}
        if c["stage"] == 3: conf["zero_optimization"].update({"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0, "sub_group_size": 1000000000})
    if c["dtype"] == "bf16": conf["bf16"] = {"enabled": True}
    if c["dtype"] == "fp16": conf["fp16"] = {"enabled": True, "initial_scale_power": 4}
    for key, v in c.get("extra", {}).items():
        conf.setdefault(key, {}).update(v) if isinstance(v, dict) else conf.__setitem__(key, v)
    eng = deepspeed.initialize(model=net, optimizer=opt, config=conf)[0]
    if c.get("load"): eng.load_checkpoint(c["load"], **c.get("largs", {}))
    dt = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(c["dtype"], torch.float32)
    g = torch.Generator().manual_seed(50 + rank)
    for _ in range(c.get("steps", 2)):
        loss = eng(torch.randn(2, c["dims"][0], generator=g).to(dt)); eng.backward(loss); eng.step()
    eng.save_checkpoint(out, **c.get("sargs", {}))
    live = {}
    if c["stage"]:
        for n, p in eng.module.named_parameters():
            if not p.requires_grad: continue
            for kind in ["fp32"] + c.get("kinds", ["exp_avg", "exp_avg_sq"]):
                if kind != "fp32" and c["stage"] < 3:
                    m = p._hp_mapping
                    ok = torch.tensor([int(m is None or kind in (m.optim_fragment or {}))])
                    dist.all_reduce(ok, op=dist.ReduceOp.MIN)
                    if not int(ok): continue
                v = safe_get_full_fp32_param(p) if kind == "fp32" else safe_get_full_optimizer_state(p, kind)
                if v is not None: live[kind + "." + n] = v.clone()
    else:
        live = {"module." + n: p.detach().clone() for n, p in eng.module.state_dict().items()}
    if rank == 0: torch.save(live, out + ".live.pt"); print("ok", len(live), flush=True)
    dist.barrier(); os._exit(0)
main()
