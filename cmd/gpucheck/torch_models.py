"""Five small models for gpucheck --with-torch, of torch alone."""

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
