"""PyTorch's example of a variational autoencoder, convolutional, with an annealed weight of the divergence."""
import argparse
import os

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F
from torchvision.utils import save_image

parser = argparse.ArgumentParser(description="VAE")
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--log-interval", type=int, default=2)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
torch.manual_seed(1)
device = torch.device("cuda" if args.cuda else "cpu")
kwargs = {"num_workers": 1, "pin_memory": True} if args.cuda else {}
images = torch.utils.data.TensorDataset(torch.rand(1024, 1, 64, 64))
train_loader = torch.utils.data.DataLoader(images, batch_size=args.batch_size, shuffle=True, **kwargs)
test_loader = torch.utils.data.DataLoader(images, batch_size=args.batch_size, shuffle=False, **kwargs)


class VAE(nn.Module):
    def __init__(self, latent=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.Flatten())
        self.mu, self.logvar = nn.Linear(128 * 64, latent), nn.Linear(128 * 64, latent)
        self.project = nn.Linear(latent, 128 * 64)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Sigmoid())

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return self.decode(z), mu, logvar

    def decode(self, z):
        return self.decoder(self.project(z).view(-1, 128, 8, 8))


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def loss_function(recon, x, mu, logvar, beta):
    return F.binary_cross_entropy(recon, x, reduction="sum") - beta * 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def train(epoch):
    model.train()
    total = 0
    for i, (data,) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        loss = loss_function(*model(data)[:1], data, *model(data)[1:], beta=min(1.0, i / 10))
        loss.backward()
        total += loss.item()
        optimizer.step()
        if i % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{i * len(data)}/{len(train_loader.dataset)}]\tLoss: {loss.item() / len(data):.6f}")


def test(epoch):
    model.eval()
    with torch.no_grad():
        for i, (data,) in enumerate(test_loader):
            data = data.to(device)
            recon, mu, logvar = model(data)
            if i == 0:
                save_image(torch.cat([data[:8], recon[:8]]).cpu(), f"results/reconstruction_{epoch}.png", nrow=8)


if __name__ == "__main__":
    os.makedirs("results", exist_ok=True)
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test(epoch)
        with torch.no_grad():
            sample = model.decode(torch.randn(64, 64).to(device)).cpu()
            save_image(sample, f"results/sample_{epoch}.png")
