#!/usr/bin/env python3
"""Trains one rank of a mixture-of-experts model under transformers' expert parallelism and fully_shard, for `vprof
run`:

  vprof run --gpu a100-80 --gpus 4 --steps 3 -- python expert_parallel.py CONFIG.json '{"ep": 2, "skew": 2}'

Experts are distributed over ranks with all-to-all (AllToAllEP). fully_shard shards experts over the ranks that hold the
same ones, and all other parameters over all ranks. The numbers of token-expert pairs are given, since routers compute
nothing on a simulated device. With "cp": N, N ranks share each sequence by PyTorch's context_parallel, inside the same
groups. With "tp": N it uses transformers' own plan for several meshes (DistributedConfig): N ranks process the same
sequences and share the layers. They send their part of the tokens to experts, or without "ep" share every expert. The
optimizer steps each mesh separately, like the Trainer.
"""
import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.distributed.expert_parallel import apply_expert_parallelism


def routed(ranks, pairs, come):
    """Patches Tensor.tolist for the sizes that ranks exchange: returns [2, ranks] token-expert pairs to send and to
    receive, from the given totals.
    """
    read = torch.Tensor.tolist
    share = lambda n: [n // ranks + (i < n % ranks) for i in range(ranks)]
    torch.Tensor.tolist = lambda x: [share(pairs), share(come)] if x.is_cuda and x.shape == (2, ranks) else read(x)


def shared_out(model, mesh, single):
    """Distributes the experts of all layers over a mesh. single is a mesh of one rank, passed as the tensor-parallel
    mesh.
    """
    plan = {}
    for i in range(len(model.model.layers)):
        module = f"model.layers.{i}.mlp.experts"
        plan |= {f"{module}.gate_up_proj": "grouped_gemm", f"{module}.down_proj": "grouped_gemm"}
        plan[module] = "ep_dispatch_experts"
    apply_expert_parallelism(model, mesh, single, plan, ep_implementation="all_to_all")


def by_transformers(model, o, world):
    """Applies transformers' plan for a mesh with tensor parallelism. Returns parameter groups as its Trainer makes
    them.
    """
    from torch.distributed.tensor import DTensor
    from transformers.distributed import DistributedConfig

    config, _, meshes = model.prepare_distribute_model(DistributedConfig(
        tp_size=o["tp"], fsdp_size=world // o["tp"] // o["replicate"], dp_replicate_size=o["replicate"],
        ep_size=o["ep"], fsdp_mixed_precision=o["mp"]))
    model.maybe_distribute_model(model, config, meshes)
    model.to_empty(device="cuda")
    groups = {}
    for p in model.parameters():
        groups.setdefault(p.device_mesh if isinstance(p, DTensor) else None, []).append(p)
    return [{"params": group} for group in groups.values()]


def fully_shard_experts(model, every, experts, o):
    """Applies fully_shard to the experts over the ranks that hold the same ones, and to all other parameters over all
    ranks.
    """
    kw = dict(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)) if o["mp"] else {}
    for block in model.model.layers:
        fully_shard(block.mlp.experts, mesh=experts, reshard_after_forward=True, **kw)
        block.mlp.experts.set_gradient_divide_factor(float(dist.get_world_size() // o["cp"]))  # the number of batches
    if "reshard" in o:
        kw["reshard_after_forward"] = o["reshard"]
    for module in (*model.model.layers, model):
        fully_shard(module, mesh=every, **kw)


def sharing_rows(model, mesh):
    """Returns a function (ids, labels) -> (model arguments, labels, context manager) that shards sequences by context
    parallelism. Without a mesh sequences stay whole.
    """
    if mesh is None:
        return lambda ids, labels: ({}, labels, contextlib.nullcontext())
    from torch.distributed.tensor.experimental import context_parallel

    def causal(_, args, kwargs):  # like accelerate's hooks
        return args, {**kwargs, "attention_mask": None, "is_causal": True}

    for module in model.modules():
        if type(module).__name__.endswith("Attention"):
            module.register_forward_pre_hook(causal, with_kwargs=True)

    def shared(ids, labels):
        labels = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].contiguous()
        positions = torch.arange(ids.size(1), device="cuda").expand(ids.size(0), -1).contiguous()
        buffers = [ids, labels, positions]
        context = context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 1], no_restore_buffers=set(buffers))
        return {"position_ids": positions, "shift_labels": labels}, labels, context

    return shared


def main():
    config = AutoConfig.for_model(**json.load(open(sys.argv[1])))
    o = dict(ep=2, tp=1, batch=2, seq=512, mp=False, dtype="bfloat16", checkpointing="", accumulate=1, skew=1.0,
             replicate=1, cp=1, rank=0, steps=3)
    o.update(json.loads(sys.argv[2]))
    os.environ["RANK"] = str(o["rank"])
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    world, ranks = dist.get_world_size(), o["ep"]
    copies = o["replicate"]
    pairs = o["batch"] * o["seq"] // o["cp"] // o["tp"] * config.num_experts_per_tok
    most = ranks * min(1, config.num_experts / ranks / config.num_experts_per_tok)
    routed(ranks, pairs, round(pairs * min(o["skew"], most)))

    torch.set_default_dtype(getattr(torch, o["dtype"]))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", experts_implementation="grouped_mm")
    torch.set_default_dtype(torch.float32)
    if o["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": o["checkpointing"] == "reentrant"})
    model.train()
    if o["tp"] > 1:
        trained, rows = by_transformers(model, o, world), None
    else:
        names = ("replicate", "shard")
        every = init_device_mesh("cuda", (copies, world // copies), mesh_dim_names=names)
        expert = init_device_mesh("cuda", (copies, world // copies // ranks, ranks), mesh_dim_names=(*names, "ep"))
        if copies == 1:
            names = "shard"
        single = init_device_mesh("cuda", (world, 1), mesh_dim_names=("rest", "tp"))["tp"]
        rows = init_device_mesh("cuda", (world // o["cp"], o["cp"]), mesh_dim_names=("rest", "cp"))["cp"]
        shared_out(model, expert["ep"], single)
        fully_shard_experts(model, every[names], expert[names], o)
        model.to_empty(device="cuda")
        trained = model.parameters()
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    shared = sharing_rows(model, rows if o["cp"] > 1 else None)
    for _ in range(o["steps"]):
        for i in range(o["accumulate"]):
            if o["accumulate"] > 1 and world > o["tp"]:
                model.set_requires_gradient_sync(i == o["accumulate"] - 1)
            ids, labels = (torch.zeros(o["batch"], o["seq"], dtype=torch.long, device="cuda") for _ in range(2))
            extra, labels, context = shared(ids, labels)
            with context:
                loss = model(input_ids=ids, labels=labels, use_cache=False, **extra).loss / o["accumulate"]
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
