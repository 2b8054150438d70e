"""A hand-written training loop: vprof run --gpu rtx-4090 -- python examples/train.py --batch-size 32"""

import argparse

import torch
from torch import nn


class Tagger(nn.Module):
    """A small convolutional network. forward returns the loss."""

    def __init__(self, tags=50):
        super().__init__()
        widths = [3, 64, 128, 256]
        self.body = nn.Sequential(*(
            layer for a, b in zip(widths, widths[1:])
            for layer in (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU())))
        self.head = nn.Linear(widths[-1], tags)

    def forward(self, images, tags):
        logits = self.head(self.body(images).mean((2, 3)))
        return nn.functional.cross_entropy(logits, tags)


def example_batch(batch=8):
    """Returns an example of the model's inputs, for vprof capture."""
    return torch.randn(batch, 3, 224, 224), torch.randint(50, (batch,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    model = Tagger().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(args.steps):
        images, tags = (tensor.cuda() for tensor in example_batch(args.batch_size))
        optimizer.zero_grad()
        loss = model(images, tags)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
