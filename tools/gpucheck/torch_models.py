"""Models for gpucheck --with-torch, in plain PyTorch: five small ones and two real ones.

redimnet_b2 is the speaker network of vprof's redimnet-b2, after its mel spectrogram. spoter is the six-layer network of
bdslw-spoter.
"""

import torch
from torch import nn


def block(width):
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3), block(64), nn.MaxPool2d(2), nn.Conv2d(64, 128, 1), block(128), block(128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000),
    )


def depthwise():
    return nn.Sequential(
        nn.Conv2d(3, 96, 4, stride=4), nn.Conv2d(96, 96, 7, padding=3, groups=96), nn.GroupNorm(8, 96), nn.GELU(),
        nn.Conv2d(96, 384, 1), nn.GELU(), nn.Conv2d(384, 96, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 1000),
    )


def mlp():
    return nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.LayerNorm(4096), nn.Linear(4096, 1000))


class Attention(nn.Module):
    def __init__(self, width=512, heads=8):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.into(self.norm(x)).chunk(3, -1)
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(split(q), split(k), split(v))
        return x + self.out(y.transpose(1, 2).flatten(2))


def transformer():
    return nn.Sequential(Attention(), Attention(), nn.Linear(512, 1000))


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.SiLU(), block(32), nn.ConvTranspose2d(32, 3, 4, stride=2, padding=1), nn.Sigmoid()
    )


class ChannelNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        shape = (-1,) + (1,) * (x.dim() - 2)
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight.view(shape) * ((x - mean) / torch.sqrt(variance + 1e-6)) + self.bias.view(shape)


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def convnext(conv, norm, width, kernel, group):
    spatial = conv(width, width, kernel, padding="same", groups=width // group)
    return Residual(spatial, norm(width), nn.GELU(), conv(width, width, 1))


class SelfAttention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.k, self.v, self.q, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1).contiguous()

    def forward(self, x):
        q, k, v = self.split(self.q(x) * self.scale), self.split(self.k(x)), self.split(self.v(x))
        y = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)
        return self.out(y.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2))


class AttentionOverTime(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.norm1, self.norm2 = SelfAttention(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, width), nn.GELU(approximate="tanh"), nn.Linear(width, width))

    def forward(self, x):
        x = x.permute(0, 2, 1)
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x)).permute(0, 2, 1)


class Mix(nn.Module):
    """A learned weighted sum of all previous outputs, which have one shape."""

    def __init__(self, count, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, count, channels, 1))

    def forward(self, outputs):
        stacked = torch.cat([x.unsqueeze(1) for x in outputs], 1)
        return (self.weight.softmax(1) * stacked).sum(1)


class Stage(nn.Module):
    def __init__(self, index, channels, bins, stride, blocks, reduction, group=4):
        super().__init__()
        flat, self.bins, self.channels = channels * bins, bins, channels
        self.mix = Mix(index + 1, flat if index else 1)
        wide = stride * channels
        self.planes = nn.Sequential(
            nn.Conv2d(channels, wide, (stride, 1), (stride, 1)),
            *(convnext(nn.Conv2d, nn.BatchNorm2d, wide, 3, group) for _ in range(blocks)),
        )
        hidden = flat // reduction
        self.over_time = Residual(
            nn.Conv1d(flat, hidden, 1), ChannelNorm(hidden),
            *(convnext(nn.Conv1d, nn.BatchNorm1d, hidden, k, 1) for k in (7, 19, 31, 59)),
            AttentionOverTime(hidden), nn.Conv1d(hidden, flat, 1),
        )

    def forward(self, outputs):
        x = self.mix(outputs).unflatten(1, (self.bins, self.channels)).permute(0, 2, 1, 3)
        return self.over_time(self.planes(x).permute(0, 2, 1, 3).flatten(1, 2))


class ReDimNet(nn.Module):
    """Maps mel spectrograms [batch, 72, time] to embeddings [batch, 256]."""

    def __init__(self):
        super().__init__()
        channels, bins, out = 16, 72, 512
        flat = channels * bins
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding="same"), ChannelNorm(channels))
        self.stages = nn.ModuleList()
        for i, (stride, blocks, reduction) in enumerate(((1, 2, 12), (2, 2, 12), (1, 3, 12), (3, 4, 8), (1, 4, 8), (2, 4, 4))):
            self.stages.append(Stage(i, channels, bins, stride, blocks, reduction))
            channels, bins = channels * stride, bins // stride
        self.mix = Mix(len(self.stages) + 1, flat)
        self.head = nn.Sequential(nn.Conv1d(flat, out, 1), nn.BatchNorm1d(out))
        self.score = nn.Sequential(nn.Conv1d(out, 128, 1), nn.Tanh(), nn.Conv1d(128, out, 1))
        self.embed = nn.Sequential(nn.BatchNorm1d(2 * out), nn.Linear(2 * out, 256))

    def forward(self, x):
        outputs = [self.stem(x.unsqueeze(1)).permute(0, 2, 1, 3).flatten(1, 2)]
        for stage in self.stages:
            outputs.append(stage(outputs))
        x = self.head(self.mix(outputs))
        weight = self.score(x).softmax(2)
        mean = (weight * x).sum(2)
        variance = (weight * x.pow(2)).sum(2) - mean.pow(2)
        return self.embed(torch.cat([mean, variance.clamp(min=1e-7).sqrt()], 1))


def redimnet_b2():
    return ReDimNet()


class PoseLayer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.feed_forward = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Dropout(dropout), nn.Linear(512, width))
        self.norm1, self.norm2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)

    def attend(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weight = self.drop((q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1))
        return self.o((weight @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = self.norm1(x + self.drop(self.attend(x)))
        return self.norm2(x + self.drop(self.feed_forward(x)))


class Spoter(nn.Module):
    """Maps poses [batch, frames, 108] to logits of 60 words."""

    def __init__(self, width=108, heads=9, dropout=0.1, positions=300):
        super().__init__()
        self.first, self.embed = nn.Parameter(torch.zeros(1, 1, width)), nn.Linear(108, width)
        self.register_buffer("positions", torch.zeros(1, positions, width))
        self.layers = nn.Sequential(*(PoseLayer(width, heads, dropout) for _ in range(6)))
        self.head = nn.Sequential(
            nn.LayerNorm(width), nn.Dropout(dropout), nn.Linear(width, width // 2), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width // 2, 60)
        )

    def forward(self, x):
        x = torch.cat([self.first.expand(x.size(0), -1, -1), self.embed(x)], 1)
        return self.head(self.layers(x + self.positions[:, : x.size(1)])[:, 0])


def spoter():
    return Spoter()


def main(name, batch):
    """Trains a real model for three steps; run under vprof run."""
    shape = {"redimnet_b2": (72, 301), "spoter": (100, 108)}[name]
    model = {"redimnet_b2": redimnet_b2, "spoter": spoter}[name]().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(batch, *shape, device="cuda")).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    import sys

    main(sys.argv[1], int(sys.argv[2]))
