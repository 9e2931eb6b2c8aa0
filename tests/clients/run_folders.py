# SPDX-License-Identifier: Apache-2.0
"""What a stranger does: the folder of a run as its trainer leaves it, config.json beside
the weights, is mounted without an option, and from_pretrained of the latest hf/ has the
logits of the model that was saved.  DeepSpeed's and transformers' files are theirs, as
DeepSpeed's engine saved them; FSDP2's, verl's and torchtitan's are saved by torch as
those do, and Megatron's and torchtitan's names come from others_code.py."""
import pathlib
import shutil
import tempfile

import others_code  # first: what it makes up, the others import
from kit import case, logits, mounted, need

need("numpy", "torch", "safetensors", "transformers", "mbridge", "torchtitan")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
FORMATS = pathlib.Path(__file__).resolve().parent.parent / "formats"
SIZES = dict(vocab_size=67, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=32,
             tie_word_embeddings=False)


def noise(folder):
    """Nothing that was loaded: what a model of the same config has at random."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        return model(torch.arange(1, 15).reshape(2, 7)).logits


def save(state, step, **more):
    """As a trainer does: the model, and an optimizer's state beside it."""
    torch.manual_seed(5)
    state = {**state, **{"optimizer.state." + n + ".exp_avg": torch.randn(t.shape)
                         for n, t in state.items()}, **more}
    dcp.save(state, checkpoint_id=str(step), no_dist=True)


def torchtitan(run, hf, config):
    for step in 10, 20:
        save(others_code.to_titan(hf, config), run / f"outputs/checkpoint/step-{step}")
    (run / "outputs/tb").mkdir()
    return run / "outputs", run / "outputs/checkpoint"


def megatron(run, hf, config):
    for step in 10, 20:
        save(others_code.to_megatron(hf, config, 72), run / f"iter_{step:07}")
        torch.save({"iteration": step}, run / f"iter_{step:07}/common.pt")
        (run / f"iter_{step:07}/metadata.json").write_text(
            '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    (run / "latest_checkpointed_iteration.txt").write_text("20")
    return run, run


def fsdp2(run, hf, config):
    for step in 10, 20:
        save(hf, run / f"checkpoint-{step}/pytorch_model_fsdp_0")
        (run / f"checkpoint-{step}/trainer_state.json").write_text("{}")
    return run, run / "checkpoint-20"


def verl(run, hf, config):
    """Each rank's DTensors, by a process group that only counts."""
    at = run / "project/exp/global_step_20/actor"
    at.mkdir(parents=True)
    for rank in 0, 1:
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
        parts = {}
        for name, t in hf.items():
            part = (*t.chunk(2), t[:0])[rank].clone()
            parts[name] = DTensor.from_local(part, mesh, [Shard(0)], run_check=False,
                                             shape=t.shape, stride=t.stride())
        torch.save(parts, at / f"model_world_size_2_rank_{rank}.pt")
        dist.destroy_process_group()
        for kind in "optim", "extra_state":
            torch.save({"state": {}}, at / f"{kind}_world_size_2_rank_{rank}.pt")
    (run / "project/exp/latest_checkpointed_iteration.txt").write_text("20")
    return run / "project/exp", at / "huggingface"


def latest(at):
    """What README says to open, which is the only hf/ below the latest step."""
    found = {p.resolve() for p in (at / "latest").rglob("hf")
             if (p / "config.json").exists()}
    assert found == {(at / "hf").resolve()} == {(at / "latest/hf").resolve()}, found
    return at / "hf"


def stranger(make):
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).float().eval()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        model.save_pretrained(tmp / "saved")
        run, beside = make(tmp / "run", load_file(tmp / "saved/model.safetensors"),
                           model.config)
        beside.mkdir(exist_ok=True)
        shutil.copy(tmp / "saved/config.json", beside)
        with mounted(run) as at:
            assert torch.equal(logits(latest(at)), logits(tmp / "saved"))
            assert not torch.allclose(noise(latest(at)), logits(tmp / "saved"))


def deepspeed():
    """DeepSpeed's own files; transformers gathered the model from them beside."""
    saved = FORMATS / "safetensors/trainer-deepspeed/in"
    (step,) = saved.glob("global_step*")
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        shutil.copytree(step, tmp / "run" / step.name)
        (tmp / "run/latest").write_text(step.name)
        shutil.copy(saved / "config.json", tmp / "run")
        with mounted(tmp / "run") as at:
            got = latest(at)
            assert torch.equal(logits(got), logits(saved))
            assert not torch.allclose(noise(got), logits(saved))


for make in torchtitan, megatron, fsdp2, verl:
    case(stranger, make.__name__, make)
case(deepspeed)
