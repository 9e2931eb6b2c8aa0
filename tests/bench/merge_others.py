# SPDX-License-Identifier: Apache-2.0
"""merge_others.py WORK UNSHARD deepspeed|mindspore: one file of a checkpoint of four ranks
by the framework's own merge and by unshard export, in turns, both ended by a sync;
seconds of whole processes, warm and cold, and the memory of each.

Of DeepSpeed's ZeRO 2, bfloat16 and float32 masters: its zero_to_fp32 writes the masters,
unshard export of tensors/ the module as well.  Of MindSpore each weight is cut along
dimension 0."""
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import measure

WORK, UNSHARD, WHOSE = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SIDE, RANKS = 4096, 4
LAYERS = int(os.environ.get("BENCH_MIB", "128")) // (SIDE * SIDE * 4 >> 20)
CKPT, THEIRS, OURS = WORK / "ckpt", WORK / "theirs", WORK / "ours.ckpt"
NAMES = [f"layers.{k}.weight" for k in range(LAYERS)]


def deepspeed_save():
    import torch

    step = CKPT / "global_step1"
    step.mkdir(parents=True)
    (CKPT / "latest").write_text("global_step1")
    torch.manual_seed(1)
    masters = torch.randn(LAYERS * SIDE * SIDE)
    each = masters.numel() // RANKS
    module = dict(zip(NAMES, masters.bfloat16().view(LAYERS, SIDE, SIDE)))
    shapes = {name: torch.Size([SIDE, SIDE]) for name in NAMES}
    torch.save({"module": {k: v.clone() for k, v in module.items()}, "buffer_names": [],
                "param_shapes": [shapes], "frozen_param_shapes": None,
                "frozen_param_fragments": None, "shared_params": {}, "dp_world_size": RANKS,
                "mp_world_size": 1, "global_steps": 1, "ds_version": "0.19.8"},
               step / "mp_rank_00_model_states.pt")
    for rank in range(RANKS):
        part = masters[rank * each:(rank + 1) * each].clone()
        torch.save({"optimizer_state_dict": {
            "base_optimizer_state": {"state": {}, "param_groups": [{"lr": .1, "params": [0]}]},
            "single_partition_of_fp32_groups": [part], "zero_stage": 2, "group_paddings": [0],
            "partition_count": [RANKS], "ds_version": "0.19.8"}, "ds_version": "0.19.8"},
            step / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def deepspeed_merge():
    from deepspeed.utils import zero_to_fp32

    zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(
        str(CKPT), str(THEIRS), max_shard_size="100GB", safe_serialization=True)


def deepspeed_same():
    from safetensors import safe_open

    with safe_open(THEIRS / "model.safetensors", "np") as f:
        return all((OURS / f"fp32.{name}").read_bytes() == f.get_tensor(name).tobytes()
                   for name in NAMES)


def mindspore_save():
    import mindspore as ms
    import numpy as np
    from mindspore.train import node_strategy_pb2

    plan = node_strategy_pb2.ParallelStrategyMap(current_stage=1)
    for name in NAMES:
        item = plan.parallel_strategy_item.add(node_name=name)
        item.parallel_strategys.stage = 0
        item.parallel_strategys.parallel_strategy.add().dim.extend([RANKS, 1])
        item = plan.parallel_layout_item.add(param_name=name).parallel_layouts
        item.dev_matrix.add().dim.append(RANKS)
        item.tensor_map.add().dim.extend([0, -1])
        item.field = item.opt_weight_shard_step = item.opt_weight_shard_size = 0
        item.param_split_shape.add()
        item.indices_offset.add()
    CKPT.mkdir()
    (CKPT / "strategy.ckpt").write_bytes(plan.SerializeToString())
    random = np.random.default_rng(1)
    for rank in range(RANKS):
        (CKPT / f"rank_{rank}").mkdir()
        ms.save_checkpoint(
            [{"name": name, "data": ms.Tensor(random.random((SIDE // RANKS, SIDE), np.float32))}
             for name in NAMES], str(CKPT / f"rank_{rank}/net.ckpt"))


def mindspore_merge():
    import mindspore as ms

    THEIRS.mkdir()
    ms.transform_checkpoints(str(CKPT), str(THEIRS), "net", str(CKPT / "strategy.ckpt"), None)


def mindspore_same():
    import mindspore as ms

    theirs = ms.load_checkpoint(str(next(THEIRS.rglob("*.ckpt"))))
    ours = ms.load_checkpoint(str(OURS))
    return all((theirs[name].asnumpy() == ours[name].asnumpy()).all() for name in NAMES)


def shards():
    return [p for p in CKPT.rglob("*") if p.is_file()]


def prepare(kind):
    for out in THEIRS, OURS:
        if out.is_file():
            out.unlink()
        shutil.rmtree(out, ignore_errors=True)
    for path in shards():
        path.read_bytes()
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            if kind == "cold":
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.sync()


def measured(*command):
    """Seconds and the peak in MiB of a process of its own."""
    begun = time.monotonic()
    pid = os.spawnvp(os.P_NOWAIT, command[0], command)
    _, status, used = os.wait4(pid, 0)
    os.sync()
    assert not status, (command, status)
    return time.monotonic() - begun, used.ru_maxrss >> 10


def main():
    globals()[f"{WHOSE}_save"]()
    ours = (UNSHARD, "export", *(("--to", "ckpt", str(CKPT)) if WHOSE == "mindspore" else
                                 (str(CKPT / "global_step1/tensors"),)), str(OURS))
    sides = {WHOSE: (sys.executable, __file__, *sys.argv[1:4], "merge"),
             "export": ours}
    for kind in "warm", "cold":
        took = {name: [] for name in sides}
        for turn in range(ROUNDS):
            prepare(kind)
            for name, command in list(sides.items())[::-1 if turn % 2 else 1]:
                if name != list(sides)[turn % 2]:
                    prepare(kind)
                took[name].append(measured(*command))
        for name, all in took.items():
            memory = [m for _, m in all]
            measure.measured(f"{WHOSE}_{kind}_{name}", "s", [s for s, _ in all], digits=2)
            measure.tell(f"{WHOSE}_{kind}_{name}_memory", max(memory), "MiB",
                         spread=measure.spread(memory), digits=0)
        measure.compared(f"{WHOSE}_{kind}_of_export",
                         *([s for s, _ in took[name]] for name in sides), digits=2)
    for name, out in (WHOSE, THEIRS), ("export", OURS):
        if not out.exists():
            measured(*sides[name])
    assert globals()[f"{WHOSE}_same"](), "they differ"


if sys.argv[4:] == ["merge"]:
    globals()[f"{WHOSE}_merge"]()
else:
    main()
