"""Builds a model by its name or from the user's own script, and runs training steps of it."""

import contextlib
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "capture"))
import capture  # noqa: E402  it resolves SPEC

OPTIMIZERS = {
    "adamw": ("AdamW", {}),
    "adamw-fused": ("AdamW", {"fused": True}),
    "adamw-single": ("AdamW", {"foreach": False}),
    "adam-wd": ("Adam", {"weight_decay": 1e-2}),
    "amsgrad": ("AdamW", {"amsgrad": True}),
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd-momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd-momentum-wd": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
    "nadam": ("NAdam", {}),
}
AMP = {"none": None, "fp16": torch.float16, "bf16": torch.bfloat16}


def first(out):
    """Returns the tensor for the loss: the only or first output, or the entry named logits, out or sample."""
    if isinstance(out, torch.Tensor):
        return out
    if hasattr(out, "keys"):
        return out[next((k for k in ("logits", "out", "sample") if k in out), next(iter(out)))]
    return first(out[0])


def own_loss(out):
    return out["loss"] if hasattr(out, "keys") else first(out)


def class_numbers(y, dim):
    return torch.zeros(y.shape[:dim] + y.shape[dim + 1 :], dtype=torch.long, device=y.device)


# The losses of vprof's --loss.
LOSSES = {
    "output": own_loss,
    "cross-entropy": lambda out: F.cross_entropy(first(out), class_numbers(first(out), 1)),
    "token-cross-entropy": lambda out: F.cross_entropy(first(out).flatten(0, -2), class_numbers(first(out).flatten(0, -2), 1)),
    "mse": lambda out: F.mse_loss(first(out), torch.zeros(first(out).shape, device=first(out).device)),
    "bce": lambda out: F.binary_cross_entropy_with_logits(first(out), torch.zeros(first(out).shape, device=first(out).device)),
    "l1": lambda out: F.l1_loss(first(out), torch.zeros(first(out).shape, device=first(out).device)),
    "sum": lambda out: first(out).sum(),
}


class Job:
    """A model on a device, with its inputs, loss and optimizer."""

    def __init__(self, opts, batch, amp, checkpointing, mark):
        self.device = torch.device(opts.device)
        self.amp, self.loss, self.accumulate, self.mark = amp, opts.loss, opts.accumulate, mark
        build, inputs = capture.resolve(opts)
        torch.manual_seed(0)
        self.model = capture.as_eager(build())
        self.example = capture.Example(self.model, inputs(self.model))
        self.model.to(self.device)
        if checkpointing:
            checkpoint_blocks(self.model)
        mark("model")
        sizes = {**self.example.symbols, "batch": batch}
        self.args, self.kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(self.device), self.example.tensors("cpu", sizes))
        kind, options = OPTIMIZERS[opts.optimizer]
        self.optimizer = getattr(torch.optim, kind)([p for p in self.model.parameters() if p.requires_grad], **options)
        self.scaler = torch.amp.GradScaler(self.device.type) if amp == "fp16" else None
        self.loss = self.chosen_loss(opts.loss)
        mark("batch")

    def chosen_loss(self, name):
        """Returns the named loss. The default is vprof's: the model's own loss if it has labels, else cross-entropy."""
        if name:
            return LOSSES[name]
        return LOSSES["output" if "labels" in self.example.inputs else "cross-entropy"]

    def step(self):
        """Runs forward, loss, backward and the optimizer, and frees the gradients. The output is freed on return."""
        dtype = AMP[self.amp]
        for _ in range(self.accumulate):
            with torch.autocast(self.device.type, dtype=dtype) if dtype else contextlib.nullcontext():
                out = self.model(*self.args, **self.kwargs)
                loss = self.loss(out) / self.accumulate if self.accumulate > 1 else self.loss(out)
            self.mark("forward")
            (self.scaler.scale(loss) if self.scaler else loss).backward()
            self.mark("backward")
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.mark("optimizer")
        self.optimizer.zero_grad(set_to_none=True)

    def counts(self):
        parameters = list(self.model.parameters())
        return {
            "total": sum(p.numel() for p in parameters),
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "criterion": 0,
            "buffers": sum(b.numel() for b in self.model.buffers()),
        }

    def batch_bytes(self):
        return sum(t.nbytes for t in torch.utils._pytree.tree_leaves((self.args, self.kwargs)) if isinstance(t, torch.Tensor))


def checkpoint_blocks(model):
    """Applies torch.utils.checkpoint to the elements of the longest list of equal modules, as vprof does."""
    from torch.utils.checkpoint import checkpoint

    lists = [list(m) for m in model.modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)) and len({type(k) for k in m}) == 1]
    if not lists:
        raise capture.Refusal("--checkpointing: the model has no list of equal modules", "checkpoint in the model's own code, and record that")

    def wrapped(forward):
        return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, **kwargs)

    for block in max(lists, key=len):
        block.forward = wrapped(block.forward)
