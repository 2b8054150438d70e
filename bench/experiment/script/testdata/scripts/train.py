"""Trains with what the arguments say, for as long as it is let."""

import os
import sys

import torch


def model():
    m = torch.nn.Module()
    m._parameters["w"] = torch.nn.Parameter(1000)
    m._buffers["b"] = torch.Tensor(64)
    return m


def train(model, optimizer, scaler):
    x = torch.Tensor(500)
    hidden = torch.Tensor(3000)
    torch.autograd.backward(model.parameters(), 1000)
    del hidden
    scaler.step(optimizer)
    for p in model.parameters():
        p.grad = None
    del x


args = sys.argv[1:]
m = model()
adam = torch.optim.Adam(m.parameters())
scaler = torch.amp.GradScaler(finite="skip" not in args)
never = torch.optim.SGD([torch.nn.Parameter(8)]) if "never" in args else None
if "small" in args:
    torch.counter.limit = 5500
for it in range(40):
    try:
        train(m, adam, scaler)
    except torch.OutOfMemoryError:
        if "catch" not in args:
            raise
        torch.counter.limit = 1 << 40
    if "save" in args:
        torch.save({"it": it}, "m.part")
        os.replace("m.part", "m.pt")
        assert torch.load("m.pt") == {"it": it}
    if "eval" in args and it % 5 == 4:
        m.eval()
        peak = torch.Tensor(9000)
        del peak
        m.train()
    if "fail" in args:
        raise ValueError("no such luck")
    print("iteration", it, "peak", torch.cuda.max_memory_allocated(), flush=True)
print("done")
