#!/usr/bin/env python3
"""Trains one rank of a decoder under DeepSpeed's ZeRO, for `vprof run`:

  vprof run --gpu a100-80 --gpus 8 --steps 4 -- python zero.py CONFIG.json '{"zero": {"stage": 3}}'

`zero` is the section zero_optimization of DeepSpeed's JSON. Weights are in bf16. It runs four steps, since from the
third step on DeepSpeed prefetches parameters by the trace of the first.
"""
import json
import sys

import deepspeed
import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    o = dict(batch=2, seq=512, checkpointing="", accumulate=1, clip=0)
    o.update(json.loads(sys.argv[2]))
    deepspeed.init_distributed("nccl")
    torch.cuda.set_device(0)
    settings = dict(
        train_micro_batch_size_per_gpu=o["batch"], gradient_accumulation_steps=o["accumulate"], bf16=dict(enabled=True),
        zero_optimization=o["zero"], zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False)
    if o["clip"]:
        settings["gradient_clipping"] = 1.0
    config = AutoConfig.for_model(**json.load(open(sys.argv[1])))
    torch.set_default_dtype(torch.bfloat16)
    with deepspeed.zero.Init(config_dict_or_path=settings) if o["zero"]["stage"] == 3 else torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    if o["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": o["checkpointing"] == "reentrant"})
        if o["checkpointing"] == "reentrant":
            model.enable_input_require_grads()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, config=settings, optimizer=optimizer)
    ids = torch.zeros(o["batch"], o["seq"], dtype=torch.long, device="cuda")

    def step():
        for _ in range(o["accumulate"]):
            out = engine(input_ids=ids, labels=ids, use_cache=False)
            engine.backward(out.loss)
            engine.step()

    for _ in range(4):
        step()


if __name__ == "__main__":
    main()
