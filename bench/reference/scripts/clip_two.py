"""Contrastive training of an image and a text tower, each with an optimizer and a schedule of its own."""
import argparse
import math

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Text(nn.Module):
    def __init__(self, vocab=30000, dim=512):
        super().__init__()
        self.token, self.pos = nn.Embedding(vocab, dim), nn.Embedding(77, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 8, 2048, batch_first=True, norm_first=True) for _ in range(4))
        self.register_buffer("mask", torch.full((77, 77), float("-inf")).triu(1), persistent=False)

    def forward(self, ids):
        x = self.token(ids) + self.pos(torch.arange(ids.size(1), device=ids.device))
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return x[torch.arange(len(ids)), ids.argmax(-1)]


def cosine(optimizer, steps, warmup):
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: s / warmup if s < warmup else 0.5 * (1 + math.cos(math.pi * (s - warmup) / (steps - warmup))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    image = torchvision.models.resnet18(num_classes=512).cuda().to(memory_format=torch.channels_last)
    text = Text().cuda()
    temperature = nn.Parameter(torch.tensor(math.log(1 / 0.07), device="cuda"))
    optimizers = [
        torch.optim.SGD([*image.parameters(), temperature], lr=0.1, momentum=0.9, nesterov=True),
        torch.optim.AdamW(text.parameters(), lr=3e-4, fused=True),
    ]
    schedules = [cosine(o, args.steps, 4) for o in optimizers]
    scaler = torch.amp.GradScaler("cuda")
    for step in range(args.steps):
        pixels = torch.randn(args.batch, 3, 224, 224).cuda(non_blocking=True).to(memory_format=torch.channels_last)
        ids = torch.randint(1, 30000, (args.batch, 77), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            a, b = F.normalize(image(pixels), dim=-1), F.normalize(text(ids), dim=-1)
            logits = temperature.exp().clamp(max=100) * a @ b.t()
            labels = torch.arange(args.batch, device="cuda")
            loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        for o in optimizers:
            o.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        for o in optimizers:
            scaler.unscale_(o)
        nn.utils.clip_grad_norm_([p for o in optimizers for g in o.param_groups for p in g["params"]], 1.0)
        for o, s in zip(optimizers, schedules):
            scaler.step(o)
            s.step()
        scaler.update()
        if step % 5 == 0:
            print(step, loss.item(), scaler.get_scale())


if __name__ == "__main__":
    main()
