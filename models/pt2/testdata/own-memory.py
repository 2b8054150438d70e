"""A network whose modules replace tensors that they keep, and that prepares a scale in its first forward: own-memory.pt2 is
vprof capture own-memory.py:Net --input 'x=float32[batch,64]', deflated. Run under vprof run --gpu rtx-3090 with a batch and a
type, it prints the bytes that PyTorch has asked for at the peaks of its first and third step, and after that."""

import sys

import torch
from torch import nn
from torch.nn import functional as F


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(64, 128)
        self.register_buffer("mean", torch.zeros(128))
        self.register_buffer("memory", torch.zeros(0), persistent=False)
        self.hidden = self.seen = None

    def forward(self, x):
        x = self.f(x)
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        if self.memory.shape != x.shape:
            self.memory = torch.zeros_like(x)
        self.memory = (0.9 * self.memory + x).detach()
        if self.hidden is None or self.hidden.shape != x.shape:
            self.hidden = torch.zeros_like(x)
        y = torch.tanh(x - self.mean + self.hidden + self.memory)
        self.hidden, self.seen = y.detach() * 0.5, y.detach()
        self.spread = torch.std(torch.sin(y), dim=0).detach()
        return y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = Cell(), nn.Linear(128, 10)
        self.scale = None

    def forward(self, x):
        if self.scale is None:
            with torch.no_grad():
                self.scale = torch.cdist(x.repeat(8, 1), x).mean() + 1
        x = x * self.scale
        return F.cross_entropy(self.out(self.cell(x)), torch.zeros(x.shape[0], dtype=torch.long, device=x.device))


def main(batch, amp):
    net, x = Net().cuda(), torch.zeros(batch, 64, device="cuda")
    opt, peaks = torch.optim.AdamW(net.parameters()), []
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp == "bf16"):
            loss = net(x)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        del loss
        stats = torch.cuda.memory_stats()
        peaks.append(stats["requested_bytes.all.peak"])
    print(batch, amp, peaks[0], peaks[2], stats["requested_bytes.all.current"])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
