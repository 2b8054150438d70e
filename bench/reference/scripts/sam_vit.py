"""Sharpness-aware minimization of a small vision transformer: two passes of forward and backward for each step."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **defaults):
        super().__init__(params, dict(rho=rho, **defaults))
        self.base = base(self.param_groups, **defaults)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = self.grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.first_step()
        closure()
        self.second_step()

    def grad_norm(self):
        norms = [p.grad.norm(p=2) for group in self.param_groups for p in group["params"] if p.grad is not None]
        return torch.norm(torch.stack(norms), p=2)


class ViT(nn.Module):
    def __init__(self, dim=384, depth=6, heads=6, classes=100):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.zeros(1, 197, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.blocks(x)[:, 0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--iters", type=int, default=6)
    args = parser.parse_args()
    device = "cuda"
    model = ViT().to(device)
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    for it in range(args.iters):
        x = torch.randn(args.batch, 3, 224, 224, device=device)
        y = torch.randint(0, 100, (args.batch,), device=device)

        def closure():
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            return loss

        loss = closure()
        optimizer.step(closure)
        print(f"iter {it} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
