#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains small models, with experts too, with DeepSpeed on CPU ranks (gloo) and saves them; OUT/CASE.truth.RANK.pt is
what each rank's parameters, masters and moments are: found by where the parameters lie in the optimizer's vectors, not
by DeepSpeed's own tables.

usage: RANK=R WORLD_SIZE=N ... make_deepspeed_experts.py CASES.json OUT        needs torch, deepspeed

The examples in deepspeed/ that are of it, with their release and case:
  zero1-round-robin  0.14.4 {"world":2,"stage":1,"dtype":"bf16","layers":5,"decay":1,
                            "extra":{"zero_optimization":{"round_robin_gradients":true}}}
  moe-zero2-4ranks   0.14.4 {"world":4,"stage":2,"dtype":"bf16","layers":1,"dims":[6,4],"moe":[[4,2],[4,4]],"buffers":false}
  moe-named          0.19.8 {"world":2,"stage":2,"dtype":"bf16","layers":1,"dims":[6,4],"moe":[[4,2],[2,2]],"buffers":false}
"""
import faulthandler; faulthandler.dump_traceback_later(int(__import__('os').environ.get('LIM','240')))
import json, os, sys, zlib, re, traceback
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
import deepspeed
DT = sys.modules['deepspeed.comm.torch']
DT.build_shm_op = lambda: None
from deepspeed.accelerator import get_accelerator
type(get_accelerator()).is_fp16_supported = lambda self: True
type(get_accelerator()).is_bf16_supported = lambda self: True

try:
    import deepspeed.utils.numa as _n; sys.modules['deepspeed.utils.numa'].get_numa_cores = lambda: [[0, 1]]
except Exception: pass

def values(name, shape, salt=0, scale=0.4):
    rng = np.random.RandomState((zlib.crc32(name.encode()) + 7919 * salt) & 0x7FFFFFFF)
    return torch.from_numpy(np.ascontiguousarray(np.asarray(rng.standard_normal(tuple(shape)) * scale))).float().reshape(tuple(shape))

class Net(nn.Module):
    def __init__(self, c):
        super().__init__()
        a, b = c.get("dims", [7, 5])
        self.emb = nn.Embedding(a, b)
        self.mid = nn.ModuleList([nn.Linear(b, b, bias=i % 2 == 0) for i in range(c.get("layers", 3))])
        self.norm = nn.LayerNorm(b)
        self.alpha = nn.Parameter(torch.tensor([0.5]))
        if c.get("scalar"): self.beta = nn.Parameter(torch.tensor(0.25))
        if c.get("none"): self.zip = nn.Parameter(torch.zeros(0, 3))
        if c.get("moe"):
            from deepspeed.moe.layer import MoE
            self.moes = nn.ModuleList([MoE(hidden_size=b, expert=nn.Sequential(nn.Linear(b, 4), nn.Linear(4, b)), num_experts=n, ep_size=ep, k=1, min_capacity=2, capacity_factor=1.0, use_residual=bool(c.get("residual"))) for n, ep in c["moe"]])
        self.head = nn.Linear(b, a, bias=False)
        if c.get("tie"): self.head.weight = self.emb.weight
        for n in c.get("freeze", []): self.get_parameter(n).requires_grad_(False)
        if c.get("buffers", True):
            self.register_buffer("tick", torch.tensor([7, 9], dtype=torch.int64)); self.register_buffer("off", torch.zeros(b))
    def forward(self, ids):
        h = self.emb(ids)
        for m in self.mid: h = torch.tanh(m(h)) + h
        h = self.norm(h) * self.alpha
        if hasattr(self, "beta"): h = h * self.beta
        if hasattr(self, "zip"): h = h + self.zip.sum()
        aux = 0
        for m in getattr(self, "moes", []):
            o = m(h); h = h + o[0]; aux = aux + o[1]
        if hasattr(self, "off"): h = h + self.off.to(h.dtype)
        return F.cross_entropy(self.head(h).float().reshape(-1, self.head.weight.shape[0]), ids.reshape(-1)) + 0.01 * aux

def gname(n, p, expert):
    """global expert number"""
    if not expert or "deepspeed_experts." not in n: return n
    from deepspeed.utils import groups
    r = groups._get_expert_parallel_rank(p.group_name)
    return re.sub(r"deepspeed_experts\.(\d+)", lambda m: "deepspeed_experts.%d" % (int(m.group(1)) + r * expert[n]), n)

def gather(v, group):
    k = dist.get_world_size(group=group); out = [torch.empty_like(v) for _ in range(k)]
    dist.all_gather(out, v.contiguous(), group=group); return torch.cat(out)

def truth(eng, c):
    live, opt, names = {}, eng.optimizer, {}
    local = {}
    if c.get("moe"):
        from deepspeed.moe.layer import MoE
        for mn, m in eng.module.named_modules():
            if isinstance(m, MoE):
                for n, p in m.named_parameters():
                    if "deepspeed_experts." in n: local[mn + "." + n] = m.num_local_experts
    for n, p in eng.module.named_parameters(): names[p] = n
    st = c["stage"]
    def states(flat):
        base = opt.optimizer.state.get(flat, {})
        return {k: v for k, v in base.items() if torch.is_tensor(v) and v.numel() == flat.numel() and v.dim() == 1}
    if hasattr(opt, "bit16_groups_flat"):
        for i, flat in enumerate(opt.bit16_groups_flat):
            grp = opt.real_dp_process_group[i]
            hp = opt.single_partition_of_fp32_groups[i]
            vec = {"fp32": gather(hp.detach(), grp)}
            for k, v in states(hp).items(): vec[k] = gather(v, grp)
            assert vec["fp32"].numel() == flat.numel()
            for p in opt.bit16_groups[i]:
                off = (p.data_ptr() - flat.data_ptr()) // flat.element_size() if p.numel() else 0
                assert 0 <= off and off + p.numel() <= flat.numel(), (names[p], off)
                for k, v in vec.items(): live[k + "." + gname(names[p], p, local)] = v[off:off + p.numel()].reshape(p.shape).clone()
    elif hasattr(opt, "bf16_groups_flat"):
        for i, flat in enumerate(opt.bf16_groups_flat):
            grp = opt.real_dp_process_group[i]
            hp = opt.fp32_groups_flat_partition[i]
            vec = {"fp32": gather(hp.detach(), grp)}
            for k, v in states(hp).items(): vec[k] = gather(v, grp)
            for p in opt.bf16_groups[i]:
                off = (p.data_ptr() - flat.data_ptr()) // flat.element_size() if p.numel() else 0
                assert 0 <= off and off + p.numel() <= flat.numel(), (names[p], off)
                for k, v in vec.items(): live[k + "." + gname(names[p], p, local)] = v[off:off + p.numel()].reshape(p.shape).clone()
    elif st == 3:
        flats = opt.fp16_partitioned_groups_flat; subs = opt.fp16_groups
        for i, flat in enumerate(flats):
            hp = opt.fp32_partitioned_groups_flat[i]; s = states(hp); s["fp32"] = hp.detach()
            for p in subs[i]:
                t = p.ds_tensor; off = (t.data_ptr() - flat.data_ptr()) // flat.element_size() if p.ds_numel else 0
                assert 0 <= off and off + t.numel() <= flat.numel(), (names[p], off)
                for k, v in s.items(): live[k + "." + names[p]] = gather(v[off:off + t.numel()], None)[:p.ds_numel].reshape(p.ds_shape).clone()
    ps = list(eng.module.parameters())
    ctx = deepspeed.zero.GatheredParameters(ps) if st == 3 else None
    if ctx: ctx.__enter__()
    for n, p in eng.module.named_parameters():
        g = gname(n, p, local)
        live["module." + g] = p.detach().clone()
        if not p.requires_grad and st: live["fp32." + g] = p.detach().clone()
    if ctx: ctx.__exit__(None, None, None)
    for n, b in eng.module.named_buffers():
        live["module." + n] = b.clone()
        if st: live["fp32." + n] = b.clone()
    return live

def run(c, out):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    net = Net(c)
    if c.get("moe"):
        from deepspeed.moe.layer import MoE
    with torch.no_grad():
        own = {}
        for n, p in net.named_parameters(): own[n] = p
        loc = {}
        if c.get("moe"):
            for mn, m in net.named_modules():
                if isinstance(m, MoE):
                    for n, p in m.named_parameters():
                        if "deepspeed_experts." in n: loc[mn + "." + n] = (m.num_local_experts, m.ep_size)
        for n, p in own.items():
            k = n
            if n in loc:
                nl, ep = loc[n]; k = re.sub(r"deepspeed_experts\.(\d+)", lambda m: "deepspeed_experts.%d" % (int(m.group(1)) + nl * (rank % ep)), n)
            p.copy_(values(k, p.shape, c.get("salt", 0)))
        for n, b in net.named_buffers():
            if b.is_floating_point() and n == "off": b.copy_(values(n, b.shape, 1))
    train = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    k = c.get("groups", 1)
    if c.get("decay"): groups = [{"params": [p for n, p in train if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for n, p in train if p.dim() <= 1], "weight_decay": 0.0}]
    else: groups = [{"params": [p for i, (n, p) in enumerate(train) if i % k == g], "weight_decay": 0.01 * g} for g in range(k)]
    if c.get("moe"):
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as SP
        for i, g in enumerate(groups): g["name"] = "p%d" % i
        groups = SP(groups)
    opt = getattr(torch.optim, c.get("opt", "AdamW"))(groups, **{"lr": 2e-2, **c.get("oargs", {})})
    conf = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1000000}
    if c["stage"]:
        conf["zero_optimization"] = {"stage": c["stage"], "overlap_comm": False, "reduce_bucket_size": 300, "allgather_bucket_size": 300}
        if c["stage"] == 3: conf["zero_optimization"].update({"stage3_param_persistence_threshold": c.get("persist", 0), "stage3_prefetch_bucket_size": 0, "sub_group_size": c.get("sub", 1000000000)})
    if c["dtype"] == "bf16": conf["bf16"] = {"enabled": True}
    if c["dtype"] == "fp16": conf["fp16"] = {"enabled": True, "initial_scale_power": 4}
    for key, v in c.get("extra", {}).items():
        conf.setdefault(key, {}).update(v) if isinstance(v, dict) else conf.__setitem__(key, v)
    eng = deepspeed.initialize(model=net, optimizer=opt, config=conf)[0]
    g = torch.Generator().manual_seed(50 + rank)
    for _ in range(c.get("steps", 2)):
        loss = eng(torch.randint(0, c.get("dims", [7, 5])[0], (2, 6), generator=g)); eng.backward(loss); eng.step()
    eng.save_checkpoint(out, **c.get("sargs", {}))
    live = truth(eng, c)
    torch.save(live, "%s.truth.%d.pt" % (out, rank))
    if rank == 0: print("DONE", out, type(eng.optimizer).__name__, len(live), float(loss), flush=True)

def main():
    cases, top = json.load(open(sys.argv[1])), sys.argv[2]
    os.makedirs(top, exist_ok=True)
    deepspeed.init_distributed("gloo")
    for name, c in cases.items():
        if c["world"] != dist.get_world_size(): continue
        try: run(c, os.path.join(top, name))
        except Exception as e:
            if dist.get_rank() == 0: print("FAIL", name, repr(e)[:300], flush=True); traceback.print_exc()
            sys.stdout.flush(); sys.stderr.flush(); os._exit(1)
        dist.barrier()
    sys.stdout.flush(); os._exit(0)
main()
