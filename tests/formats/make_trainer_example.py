#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors/trainer-deepspeed/in: a checkpoint of transformers' Trainer with DeepSpeed, on two CPU ranks.

usage: torchrun --nproc-per-node 2 make_trainer_example.py DIR [STAGE [bf16]]     then DIR/checkpoint-4 without *.py and training_args.bin

Seen with transformers 5.23.0, DeepSpeed 0.19.8, accelerate 1.15.0, torch 2.15.0.  STAGE 0: without DeepSpeed.
"""
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

LLAMA = dict(vocab_size=24, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             max_position_embeddings=16, tie_word_embeddings=False)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        x = torch.arange(6) % 24 + i % 3
        return {"input_ids": x, "labels": x}


def main(out, stage="2", dtype="fp32"):
    more = {}
    if int(stage):
        import deepspeed.comm.torch
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # would be compiled first
        more["deepspeed"] = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
                             "zero_optimization": {"stage": int(stage), "stage3_gather_16bit_weights_on_model_save": True},
                             "bf16": {"enabled": dtype == "bf16"}, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
        more["bf16"] = dtype == "bf16"
    torch.manual_seed(0)
    args = TrainingArguments(output_dir=out, per_device_train_batch_size=2, max_steps=4, save_steps=2, use_cpu=True, report_to=[],
                             optim="adamw_torch", seed=1, **more)
    Trainer(model=LlamaForCausalLM(LlamaConfig(**LLAMA)), args=args, train_dataset=Data()).train()


main(*sys.argv[1:])
