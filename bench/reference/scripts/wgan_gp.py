"""WGAN with a gradient penalty: five steps of the critic for each of the generator."""
import argparse
import os

import torch
import torch.nn as nn
from torchvision.utils import save_image

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--n_critic", type=int, default=5)
parser.add_argument("--sample_interval", type=int, default=10)
opt = parser.parse_args()

os.makedirs("images", exist_ok=True)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        def block(a, b, normalize=True):
            layers = [nn.Linear(a, b)]
            if normalize:
                layers.append(nn.BatchNorm1d(b, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers
        self.model = nn.Sequential(*block(100, 128, False), *block(128, 512), *block(512, 2048), nn.Linear(2048, 3 * 32 * 32), nn.Tanh())

    def forward(self, z):
        return self.model(z).view(len(z), 3, 32, 32)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.InstanceNorm2d(128, affine=True), nn.LeakyReLU(0.2),
            nn.Conv2d(128, 256, 4, 2, 1), nn.InstanceNorm2d(256, affine=True), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256 * 16, 1),
        )

    def forward(self, x):
        return self.model(x)


cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
generator, critic = Generator(), Critic()
if cuda:
    generator.cuda()
    critic.cuda()
optimizer_G = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9))
optimizer_D = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.9))


def gradient_penalty(real, fake):
    alpha = Tensor(real.size(0), 1, 1, 1).uniform_(0, 1)
    between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = critic(between)
    gradients = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True, retain_graph=True, only_inputs=True)[0]
    return ((gradients.view(gradients.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()


done = 0
for epoch in range(3):
    for i in range(20):
        real = torch.randn(opt.batch_size, 3, 32, 32).type(Tensor)
        optimizer_D.zero_grad()
        z = Tensor(opt.batch_size, 100).normal_()
        fake = generator(z)
        d_loss = -critic(real).mean() + critic(fake.detach()).mean() + 10 * gradient_penalty(real.data, fake.data)
        d_loss.backward()
        optimizer_D.step()
        optimizer_G.zero_grad()
        if i % opt.n_critic == 0:
            fake = generator(z)
            g_loss = -critic(fake).mean()
            g_loss.backward()
            optimizer_G.step()
            print("[%d/%d] [D loss: %f] [G loss: %f]" % (epoch, i, d_loss.item(), g_loss.item()))
            if done % opt.sample_interval == 0:
                save_image(fake.data[:25], "images/%d.png" % done, nrow=5, normalize=True)
        done += 1
    torch.save({"generator": generator.state_dict(), "critic": critic.state_dict()}, "wgan.pt")
