"""A compiled network of convolutions and attention at a batch size between those at which the check captures its step."""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        batch, tokens, dim = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, dim))
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, dim=192, depth=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dim // 4, 7, 4, 3), nn.BatchNorm2d(dim // 4), nn.SiLU(), nn.Conv2d(dim // 4, dim, 3, 2, 1))
        self.blocks = nn.ModuleList(Block(dim, 6) for _ in range(depth))
        self.head = nn.Linear(dim, 100)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def example():
    return torch.randn(4, 3, 128, 128)


def train(batch=24, steps=3):
    net = Net().cuda()
    step, optimizer = torch.compile(net), torch.optim.AdamW(net.parameters())
    images, classes = torch.randn(batch, 3, 128, 128, device="cuda"), torch.zeros(batch, dtype=torch.long, device="cuda")
    for _ in range(steps):
        with torch.autocast("cuda", torch.bfloat16):
            scores = step(images)
            loss = F.cross_entropy(scores, classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del scores, loss


if __name__ == "__main__":
    train()
