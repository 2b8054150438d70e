"""A custom module: vprof capture examples/mymodel.py:build --input 'x=float32[batch,3,224,224]' -o mine.pt2"""

from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x):
        return nn.functional.relu(x + self.layers(x))


def build(width=64, blocks=4, classes=100):
    """Returns the model; vprof calls it without arguments."""
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=4, padding=3), *(Block(width) for _ in range(blocks)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
