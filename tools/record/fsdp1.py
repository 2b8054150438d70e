#!/usr/bin/env python3
"""Records training steps of decoders under FullyShardedDataParallel, for `vprof run`:

  vprof run --gpu a100-40 --gpus 2 --steps all -- python -m torch.distributed.run --nproc_per_node 2 fsdp1.py fsdp1.json

fsdp1.json has the cases; cases for another number of ranks are skipped. A line of the output has a case, the releases
of its libraries, and requested bytes of rank 0 in the third step: before it, after forward, and the peaks of forward
and of the whole step.
"""
import contextlib
import gc
import importlib.metadata
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoConfig, AutoModelForCausalLM

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PREFETCH = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, "none": None}


def build(case, world):
    """Returns the sharded model of a case."""
    config = dict(case["config"])
    kind = config.pop("model_type")
    torch.set_default_dtype(TYPES[case.get("weights", "fp32")])
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config))
    torch.set_default_dtype(torch.float32)
    model.config.use_cache = False
    reentrant = case.get("checkpointing") == "reentrant"
    if "checkpointing" in case:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    layer = type(model.model.layers[0])
    policy = ModuleWrapPolicy({layer})
    if "lora" in case:
        import peft
        from peft.utils.other import fsdp_auto_wrap_policy
        if reentrant:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **case["lora"]))
        os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = layer.__name__
        policy = fsdp_auto_wrap_policy(model)
    o = case.get("options", {})
    strategy, mesh = ShardingStrategy.FULL_SHARD, {}
    if o.get("reshard") == "false":
        strategy = ShardingStrategy.SHARD_GRAD_OP
    if "replicate" in o:
        strategy, n = ShardingStrategy.HYBRID_SHARD, int(o["replicate"])
        mesh = {"device_mesh": init_device_mesh("cuda", (n, world // n))}
    mixed = MixedPrecision(*(TYPES[o[k]] if k in o else None for k in ("mp", "reduce")))
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, sharding_strategy=strategy, mixed_precision=mixed, use_orig_params=True,
        backward_prefetch=PREFETCH[o.get("prefetch", "pre")],
        device_id=torch.cuda.current_device(), **mesh)


def bytes_of(kind):
    return torch.cuda.memory_stats()["requested_bytes.all." + kind]


def steps(case, world):
    """Runs three steps of a training loop in a function, and returns the requested bytes of the third."""
    left = bytes_of("current")  # bytes of the cases before
    model = build(case, world)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(0, case["config"]["vocab_size"], (case["batch"], case["length"])).cuda()
    labels, times = ids.clone(), case.get("accumulate", 1)
    for _ in range(3):
        out = None
        torch.cuda.reset_peak_memory_stats()
        found = {"before": bytes_of("current")}
        for i in range(times):
            with model.no_sync() if i < times - 1 else contextlib.nullcontext():
                out = model(input_ids=ids, labels=labels)
                found["forward"] = bytes_of("current")
                if times == 1:
                    found["forward_peak"] = bytes_of("peak")
                out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        found["peak"] = bytes_of("peak")
    return {key: value - left for key, value in found.items()}


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    stack = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "peft")}
    for case in json.load(open(sys.argv[1])):
        if case.get("ranks", 2) != world:
            continue
        found = steps(case, world)
        if rank == 0:
            print(json.dumps({"stack": stack, **case, **found}), flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
