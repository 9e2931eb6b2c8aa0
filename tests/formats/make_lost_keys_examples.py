#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an example FORMAT/lost-keys for each reader with a walk of its own: tensors under keys that are no names.

usage: make_lost_keys_examples.py        (then UPDATE_WANT=1 make check-unit)

Needs torch; nnScaler's is made of nnscaler/tp2-dp2, OneFlow's by Python's own pickle module.
"""
import argparse, collections, io, json, pathlib, pickle, shutil, sys, types, zipfile

import torch

HERE = pathlib.Path(__file__).resolve().parent
COUNT = [0]


def t(*shape):
    COUNT[0] += 10
    n = torch.Size(shape).numel()
    return torch.arange(COUNT[0], COUNT[0] + n, dtype=torch.float32).reshape(shape)


def case(kind):
    at = HERE / kind / "lost-keys" / "in"
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir(parents=True)
    return at


at = case("deepspeed")
shapes = collections.OrderedDict([("w", torch.Size([2, 3]))])
module = collections.OrderedDict([("w", t(2, 3)), (7, t(2)), (("tuple", 1), t(3))])
torch.save({"module": module, "param_shapes": [shapes], "buffer_names": [], "shared_params": {}, "frozen_param_shapes": None,
            "frozen_param_fragments": None, "global_steps": 1, "ds_version": "0.19.8", 2.5: t(1),
            "checkpoint_parallel_dimensions": {"pp_degree": 1, "tp_degree": 1}}, at / "mp_rank_00_model_states.pt")
torch.save({"optimizer_state_dict": {"single_partition_of_fp32_groups": [module["w"].reshape(-1)], "partition_count": 1, "base_optimizer_state": {
    "state": {0: {"step": 1, "exp_avg": t(6), ("exp", "sq"): t(6)}}, "param_groups": []}}}, at / "zero_pp_rank_0_mp_rank_00_optim_states.pt")

at = case("megatron") / "mp_rank_00"
at.mkdir()
args = argparse.Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, num_layers=1, rank=0, use_distributed_optimizer=True)
torch.save({"args": args, "iteration": 3, "checkpoint_version": 3.0, "optimizer": {"param_groups": [], (1, 2): t(2)},
            "model": {"decoder.final_layernorm.weight": t(4), ("decoder", "odd"): t(2)}}, at / "model_optim_rng.pt")
both = (torch.bfloat16, torch.float32)
torch.save({0: {both: {"param": t(4), "exp_avg": t(4), None: t(1)}}}, at / "distrib_optim.pt")

at = case("colossalai")
torch.save({"w": t(2, 2), ("w", 2): t(5)}, at / "pytorch_model-dist-00000.bin")
(at / "pytorch_model-meta-dist-00000.json").write_text(json.dumps({"checkpoint_version": "1.0", "total_size": None, "metadata": {
    "w": {"offsets": [0, 0], "lengths": [2, 2], "global_shape": [2, 2], "file": "pytorch_model-dist-00000.bin", "rank": 0}}}) + "\n")

at = case("layout")
torch.save({"w": t(2, 2), None: t(5)}, at / "rank_0.pt")
torch.save({"w": t(2, 2)}, at / "rank_1.pt")
(at / "unshard-layout.json").write_text(json.dumps({"unshard_layout": 1, "mesh": {"axes": [{"name": "tp", "size": 2}]}, "files": [
    {"path": "rank_{tp}.pt", "kind": "torch"}], "tensors": [{"regex": "(.*)", "name": "{$1}", "placement": {"tp": {"shard": 0}}}]}) + "\n")

at = case("nnscaler")
for file in sorted((HERE / "nnscaler/tp2-dp2/in").glob("*.ckpt")):
    whole = io.BytesIO(file.read_bytes())
    with zipfile.ZipFile(whole, "a") as z:
        z.writestr(z.namelist()[0].split("/")[0] + "/version", "3\n")
    ck = torch.load(io.BytesIO(whole.getvalue()), weights_only=False)
    if file.name == "0.ckpt":
        ck["model"][9] = t(2)
        ck["model"][("odd", 1)] = t(3)
        ck[(0, 1)] = {"x": t(1)}
    torch.save(ck, at / file.name)


class FlowTensor:
    def __init__(self, path):
        self.__dict__["path"] = path


oneflow = sys.modules["oneflow"] = types.ModuleType("oneflow")
oneflow.Tensor = FlowTensor
FlowTensor.__module__, FlowTensor.__qualname__, FlowTensor.__name__ = "oneflow", "Tensor", "Tensor"
at = case("oneflow")
data = {"w": FlowTensor("tensor_0"), "sub": {("odd", 1): FlowTensor("tensor_1")}, 3.5: FlowTensor("tensor_1")}
(at / "pickled_data").write_bytes(pickle.dumps({"protocol_version": 1, "data": data}))
for i in range(2):
    (at / f"tensor_{i}").mkdir()
    (at / f"tensor_{i}" / "meta").write_text("shape {\n  dim: 3\n}\ndata_type: kFloat\n")
    (at / f"tensor_{i}" / "out").write_bytes(t(3).numpy().tobytes())
