#!/usr/bin/env python3
"""Trains one rank of a decoder under parallelize_module, then fully_shard, for `vprof run`:

  vprof run --gpu a100-80 --gpus 8 --steps 3 -- python tensor_parallel.py CONFIG.json '{"tp": 2, "sequence": true}'

With sequence, the plan is torchtitan's (apply_non_moe_tp) with transformers' names. Positions are passed to the model,
which would otherwise derive them from the rank's part of the embeddings. With loss, the output layer keeps its part of
the logits, and loss and backward run under loss_parallel. With "by": "transformers", the model is loaded from a folder
in bf16 under transformers' own plan (DistributedConfig), which ties weights after sharding; the optimizer steps each
mesh separately, like the Trainer.
"""
import contextlib
import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module,
)
from transformers import AutoConfig, AutoModelForCausalLM

COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")


def around(o):
    """Returns the plan for the layers outside the blocks."""
    head = dict(output_layouts=Shard(-1), use_local_output=False) if o["loss"] else dict(output_layouts=Replicate())
    if o["sequence"]:
        return {
            "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "model.norm": SequenceParallel(),
            "lm_head": ColwiseParallel(input_layouts=Shard(1), **head),
        }
    return {"lm_head": ColwiseParallel(**head)} if o["loss"] else {}


def within(block, o):
    """Returns the plan for a block."""
    plan, rows = {}, {}
    if o["sequence"]:
        plan = {name: SequenceParallel() for name, _ in block.named_children() if name.endswith("norm")}
        for norm in ("q_norm", "k_norm"):
            if hasattr(block.self_attn, norm):
                plan["self_attn." + norm] = SequenceParallel(sequence_dim=2, use_local_output=True)
        plan["self_attn"] = PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts={"hidden_states": Replicate()})
        plan["mlp"] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        rows = dict(output_layouts=Shard(1))
    for name, layer in block.named_modules():
        last = name.rsplit(".", 1)[-1]
        if isinstance(layer, torch.nn.Linear) and last in COLUMNS:
            plan[name] = ColwiseParallel()
        elif isinstance(layer, torch.nn.Linear) and last in ROWS:
            plan[name] = RowwiseParallel(**rows)
    return plan


def shard(model, mesh, o):
    """Applies fully_shard to the blocks and the model, if there is more than one data-parallel rank."""
    if mesh["dp"].size() * o["replicate"] == 1:
        return
    options = dict(mesh=mesh["rep", "dp"] if o["replicate"] > 1 else mesh["dp"])
    if o["reshard"] != "auto":
        options["reshard_after_forward"] = o["reshard"] == "true"
    if o["mp"]:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        fully_shard(block, **options)
    fully_shard(model, **options)


def loaded(o):
    """Loads a model from a folder under transformers' own plan. Returns it with parameter groups as its Trainer makes
    them.
    """
    from torch.distributed.tensor import DTensor
    from transformers.distributed import DistributedConfig

    ranks = dist.get_world_size() // o["tp"] // o["replicate"]
    model = AutoModelForCausalLM.from_pretrained(
        sys.argv[1], attn_implementation="sdpa", dtype=torch.bfloat16,
        distributed_config=DistributedConfig(tp_size=o["tp"], fsdp_size=ranks, dp_replicate_size=o["replicate"]))
    if o["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": o["checkpointing"] == "reentrant"})
    model.train()
    groups = {}
    for p in model.parameters():
        groups.setdefault(p.device_mesh if isinstance(p, DTensor) else None, []).append(p)
    return model, [{"params": group} for group in groups.values()]


def planned(o):
    """Returns a model and its parameters under torchtitan's plan, or with parallel linear layers only."""
    shape, names = [dist.get_world_size() // o["tp"] // o["replicate"], o["tp"]], ["dp", "tp"]
    if o["replicate"] > 1:
        shape, names = [o["replicate"], *shape], ["rep", *names]
    mesh = init_device_mesh("cuda", tuple(shape), mesh_dim_names=tuple(names))
    with torch.device("meta"):
        config = AutoConfig.for_model(**json.load(open(sys.argv[1])), tie_word_embeddings=False)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    if o["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": o["checkpointing"] == "reentrant"})
    parallelize_module(model, mesh["tp"], around(o))
    for block in model.model.layers:
        parallelize_module(block, mesh["tp"], within(block, o))
    shard(model, mesh, o)
    model.to_empty(device="cuda")
    return model, model.parameters()


def main():
    o = dict(tp=2, sequence=False, loss=False, batch=2, seq=512, mp="", checkpointing="", clip=False, replicate=1,
             reshard="auto", accumulate=1, by="torch")
    o.update(json.loads(sys.argv[2]))
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    model, trained = loaded(o) if o["by"] == "transformers" else planned(o)
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    ids = torch.zeros(o["batch"], o["seq"], dtype=torch.long, device="cuda")
    given = {"position_ids": torch.arange(o["seq"], device="cuda").unsqueeze(0)} if o["sequence"] else {}

    def step():
        for i in range(o["accumulate"]):
            if o["accumulate"] > 1:
                model.set_requires_gradient_sync(i == o["accumulate"] - 1)
            with loss_parallel() if o["loss"] else contextlib.nullcontext():
                out = model(input_ids=ids, labels=ids, use_cache=False, **given)
                loss = out.loss / o["accumulate"] if o["accumulate"] > 1 else out.loss
                loss.backward()
        if o["clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()

    for _ in range(3):
        step()


if __name__ == "__main__":
    main()
