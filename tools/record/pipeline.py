#!/usr/bin/env python3
"""Trains one rank of a pipeline over a decoder's blocks, whose stages may be parallel over further ranks, for `vprof
run`:

  vprof run --gpu a100-80 --gpus 8 --steps 3 -- python pipeline.py CONFIG.json '{"pp": 2, "ep": 2, "cp": 2, "rank": 4}'

A PipelineStage gets examples of its inputs and outputs. It runs transformers' blocks and sends hidden states and rotary
embeddings to the next one. Other options are as in expert_parallel.py; with "tp", "sequence" and "loss" are as in
tensor_parallel.py. "scores": the last stage passes logits to a loss_fn, and the losses are kept until the optimizer
step, as in torchtitan. "ends": the layers around the blocks are wrapped, too, as in torchtitan. "split": the first
block of each stage after the first.
"""
import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.parallel import loss_parallel, parallelize_module
from transformers import AutoConfig, AutoModelForCausalLM

from expert_parallel import routed, shared_out
from tensor_parallel import around, within

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe, "interleaved": ScheduleInterleaved1F1B}


class Stage(nn.Module):
    """Some blocks of a model, with the embeddings before the first and the head after the last."""

    def __init__(self, model, first, last, blocks, length, scores):
        super().__init__()
        self.scores = scores
        if first:
            self.embed_tokens, self.rotary = model.model.embed_tokens, model.model.rotary_emb
        self.layers = nn.ModuleList(blocks)
        if last:
            self.norm, self.lm_head = model.model.norm, model.lm_head
        self.first, self.last, self.length = first, last, length
        self.loss, self.words = model.loss_function, model.config.vocab_size

    def forward(self, x, cos=None, sin=None, labels=None, shifted=None, pos=None):
        if self.first:
            embedded = x = self.embed_tokens(x)  # noqa: F841 kept alive, like transformers' inputs_embeds
            cos, sin = self.rotary(x, torch.arange(self.length, device=x.device).unsqueeze(0) if pos is None else pos)
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_embeddings=(cos, sin), use_cache=False)
        if self.last:
            scores = self.lm_head(self.norm(x))
            if self.scores:
                return scores
            return self.loss(logits=scores, labels=labels, shift_labels=shifted, vocab_size=self.words)
        return x, cos, sin


def without_masks(model):
    """Makes attention causal without a mask, for sequences that ranks share."""
    def hook(_, args, kwargs):
        return args, {**kwargs, "attention_mask": None, "is_causal": True}
    for module in model.modules():
        if type(module).__name__.endswith("Attention"):
            module.register_forward_pre_hook(hook, with_kwargs=True)


def sharded(stage, mesh, expert, o):
    kw = dict(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)) if o["mp"] else {}
    if o["ep"] > 1:
        for layer in stage.layers:
            fully_shard(layer.mlp.experts, mesh=expert, reshard_after_forward=True, **kw)
            layer.mlp.experts.set_gradient_divide_factor(float(mesh.size() // o["cp"]))  # the number of batches
    if o["reshard"] is not None:
        kw["reshard_after_forward"] = o["reshard"]
    if o["ends"] and stage.first:
        fully_shard(stage.embed_tokens, mesh=mesh, **kw)
    for module in stage.layers:
        fully_shard(module, mesh=mesh, **kw)
    if o["ends"] and stage.last:
        fully_shard([stage.norm, stage.lm_head], mesh=mesh, **{**kw, "reshard_after_forward": False})
    fully_shard(stage, mesh=mesh, **kw)


def stages_of(model, mesh, shard, expert, o):
    """Returns the pipeline stages of this rank."""
    config, each = model.config, 2 if o["schedule"] == "interleaved" else 1
    count, layers = o["pp"] * each, model.model.layers
    cuts = [0, *o["split"], len(layers)] if o["split"] else [len(layers) * i // count for i in range(count + 1)]
    length, dtype = o["seq"] // o["cp"], torch.bfloat16 if o["mp"] else getattr(torch, o["dtype"])
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    out = []
    for k in range(each):
        at = k * o["pp"] + mesh["pp"].get_local_rank()
        first, last = at == 0, at == count - 1
        stage = Stage(model, first, last, layers[cuts[at]:cuts[at + 1]], length, o["scores"])
        stage.train()
        if shard is not None:
            sharded(stage, shard, expert, o)
        stage.to_empty(device="cuda")
        new = lambda *shape: torch.zeros(*shape, dtype=dtype, device="cuda")
        rows = o["batch"] if o["cp"] > 1 else 1
        tokens = length // (o["tp"] if o["sequence"] else 1)
        hidden = (new(o["batch"], tokens, config.hidden_size), new(rows, length, head), new(rows, length, head))
        hidden[0].requires_grad_()
        inputs = (torch.zeros(o["batch"], length, dtype=torch.long, device="cuda"),) if first else hidden
        result = new(o["batch"], length, config.vocab_size) if o["scores"] else torch.zeros((), device="cuda")
        outputs = (result.requires_grad_(),) if last else hidden
        out.append(PipelineStage(stage, at, count, torch.device("cuda"), inputs, outputs,
                                 group=mesh["pp"].get_group()))
    return out


def main():
    config = AutoConfig.for_model(**json.load(open(sys.argv[1])))
    o = dict(pp=2, batch=2, seq=512, micro=2, mp=False, dtype="bfloat16", checkpointing="", schedule="1f1b",
             reshard=None, cp=1, ep=1, tp=1, sequence=False, loss=False, skew=1.0, replicate=1, steps=3, scores=False,
             ends=False, split=None)
    o.update(json.loads(sys.argv[2]))
    if "rank" in o:
        os.environ["RANK"] = str(o["rank"])
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    world, pp, copies, cp, tp, ep = dist.get_world_size(), o["pp"], o["replicate"], o["cp"], o["tp"], o["ep"]
    each = world // pp // copies
    mesh = init_device_mesh("cuda", (pp, copies, each // cp // tp, cp, tp),
                            mesh_dim_names=("pp", "replicate", "shard", "cp", "tp"))
    torch.set_default_dtype(getattr(torch, o["dtype"]))
    with torch.device("meta"):
        grouped = dict(experts_implementation="grouped_mm") if ep > 1 else {}
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", **grouped)
    torch.set_default_dtype(torch.float32)
    if o["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": o["checkpointing"] == "reentrant"})
    expert = None
    if ep > 1:
        experts = init_device_mesh("cuda", (pp, copies, each // ep, ep), mesh_dim_names=("pp", "copy", "rest", "ep"))
        expert = experts["copy", "rest"] if copies > 1 else experts["rest"]
        single = init_device_mesh("cuda", (world, 1), mesh_dim_names=("all", "one"))["one"]
        pairs = o["batch"] * o["seq"] // cp * config.num_experts_per_tok
        most = ep * min(1, config.num_experts / ep / config.num_experts_per_tok)
        routed(ep, pairs, round(pairs * min(o["skew"], most)))
        shared_out(model, experts["ep"], single)
    if cp > 1:
        set_rotate_method("allgather")
        without_masks(model)
    if tp > 1:
        parallelize_module(model, mesh["tp"], around(o))
        for block in model.model.layers:
            parallelize_module(block, mesh["tp"], within(block, o))
    shard = None
    if world // pp > tp:
        shard = mesh["replicate", "shard"] if copies > 1 else mesh["shard"]
        if cp > 1:
            shard = mesh["shard", "cp"]._flatten("rows") if each // cp // tp > 1 else mesh["cp"]
    stages = stages_of(model, mesh, shard, expert, o)
    params = [p for s in stages for p in s.submod.parameters()]
    optimizer = torch.optim.AdamW(params, lr=1e-4)
    loss = (lambda y, target: model.loss_function(logits=y, labels=target, vocab_size=config.vocab_size)
            if o["scores"] else y)
    schedule = SCHEDULES[o["schedule"]](stages if len(stages) > 1 else stages[0], o["micro"], loss_fn=loss)

    def run(ids, labels, **beside):
        first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        if not first:
            beside.pop("pos", None)
        if last and not o["scores"]:
            beside["shifted" if cp > 1 else "labels"] = labels
        with loss_parallel() if o["loss"] else contextlib.nullcontext():
            losses = [] if last and o["scores"] else None
            schedule.step(*((ids,) if first else ()), target=labels if last else None, losses=losses,
                          return_outputs=False, **beside)
        return losses

    batch = lambda: (torch.zeros(o["micro"] * o["batch"], o["seq"], dtype=torch.long, device="cuda") for _ in range(2))
    ids, labels = batch() if cp == 1 else (None, None)
    for _ in range(o["steps"]):
        losses = None
        if cp == 1:
            losses = run(ids, labels)
        else:
            ids, labels = batch()
            labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].contiguous()
            pos = torch.arange(o["seq"], device="cuda").expand(len(ids), -1).contiguous()
            with context_parallel(mesh["cp"], buffers=[ids, labels, pos], buffer_seq_dims=[1, 1, 1],
                                  no_restore_buffers={ids, labels, pos}):
                losses = run(ids, labels, pos=pos)
        optimizer.step()
        del losses
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
