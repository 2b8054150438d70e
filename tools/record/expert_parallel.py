#!/usr/bin/env python3
"""One rank of a mixture under transformers' expert parallelism and fully_shard, for `vprof run`:

  vprof run --gpu a100-80 --gpus 4 --steps 3 -- python expert_parallel.py CONFIG.json '{"ep": 2, "skew": 2}'

Ranks share out the experts by all-to-all (AllToAllEP); fully_shard shards experts over the ranks that have the same, and
all else over all. How many pairs of tokens and experts come is given: a simulated device does not know its routers. With
"cp": N ranks share each row by PyTorch's context_parallel, which is a part of the same groups. With "tp": N it is
transformers' own plan for several meshes (DistributedConfig): N ranks see the same rows, share layers, and send their
share of the tokens to experts, or without "ep" share every expert; the optimizer steps each mesh by itself, as the
Trainer has it.
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
    """tolist() of the sizes that ranks exchange says what is given: [2, ranks] of pairs that go, and that come."""
    read = torch.Tensor.tolist
    share = lambda n: [n // ranks + (i < n % ranks) for i in range(ranks)]
    torch.Tensor.tolist = lambda x: [share(pairs), share(come)] if x.is_cuda and x.shape == (2, ranks) else read(x)


def shared_out(model, mesh, single):
    """Experts of all layers over a mesh; single is a mesh of one rank, as there is no tensor parallelism."""
    plan = {}
    for i in range(len(model.model.layers)):
        module = f"model.layers.{i}.mlp.experts"
        plan |= {f"{module}.gate_up_proj": "grouped_gemm", f"{module}.down_proj": "grouped_gemm"}
        plan[module] = "ep_dispatch_experts"
    apply_expert_parallelism(model, mesh, single, plan, ep_implementation="all_to_all")


def by_transformers(model, o, world):
    """transformers' plan for a mesh with tensor parallelism, and the groups of parameters that its Trainer makes."""
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
    """fully_shard of the experts over the ranks that have the same, and of all else over all."""
    kw = dict(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)) if o["mp"] else {}
    for block in model.model.layers:
        fully_shard(block.mlp.experts, mesh=experts, reshard_after_forward=True, **kw)
        block.mlp.experts.set_gradient_divide_factor(float(dist.get_world_size() // o["cp"]))  # batches
    if "reshard" in o:
        kw["reshard_after_forward"] = o["reshard"]
    for module in (*model.model.layers, model):
        fully_shard(module, mesh=every, **kw)


def sharing_rows(model, mesh):
    """Returns what makes a step's tensors of a batch, and the context it runs in; mesh is None where rows are whole."""
    if mesh is None:
        return lambda ids, labels: ({}, labels, contextlib.nullcontext())
    from torch.distributed.tensor.experimental import context_parallel

    def causal(_, args, kwargs):  # as accelerate's hooks have it
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
