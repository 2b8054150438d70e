"""A network with autograd.Functions of its own, one of them with recomputation in backward, and in-place updates of codes."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, codes):
        distance = torch.cdist(z.flatten(0, -2), codes)
        index = distance.argmin(-1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        ctx.codes = codes.shape
        return codes[index].view_as(z), index

    @staticmethod
    def backward(ctx, grad, _):
        (index,) = ctx.saved_tensors
        to_codes = torch.zeros(ctx.codes, device=grad.device, dtype=grad.dtype)
        to_codes.index_add_(0, index, grad.flatten(0, -2))
        return grad, to_codes


class Net(nn.Module):
    def __init__(self, dim=512, codes=1024, depth=6):
        super().__init__()
        self.inp = nn.Linear(128, dim)
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.codes = nn.Parameter(torch.randn(codes, dim))
        self.register_buffer("usage", torch.zeros(codes))
        self.out = nn.Linear(dim, 128)

    def forward(self, x):
        z = self.inp(x)
        for layer in self.layers:
            z = z + Swish.apply(layer(z))
        q, index = Quantize.apply(z, self.codes)
        with torch.no_grad():
            self.usage.mul_(0.99).add_(torch.bincount(index, minlength=len(self.codes)).float(), alpha=0.01)
            dead = (self.usage < 1e-4).nonzero().flatten()
            if dead.numel():
                self.codes.data[dead] = z.detach().flatten(0, -2)[torch.randint(0, z[..., 0].numel(), (dead.numel(),), device=z.device)]
        return self.out(q), F.mse_loss(z, q.detach())


def train(batch, steps):
    net = Net().cuda()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4, momentum=0.9, centered=True)
    for step in range(steps):
        x = torch.randn(batch, 64, 128).to("cuda")
        out, commitment = net(x)
        loss = F.mse_loss(out, x) + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(f"{step}: {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    a = parser.parse_args()
    train(a.batch, a.steps)
