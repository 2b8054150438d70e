"""A physics-informed network for Burgers' equation: second derivatives in the loss, L-BFGS with a line search."""
import argparse

import torch
from torch import nn


def residual(net, t, x, nu=0.01 / torch.pi):
    t.requires_grad_(True)
    x.requires_grad_(True)
    u = net(torch.cat([t, x], 1))
    ones = torch.ones_like(u)
    u_t = torch.autograd.grad(u, t, ones, create_graph=True)[0]
    u_x = torch.autograd.grad(u, x, ones, create_graph=True)[0]
    u_xx = torch.autograd.grad(u_x, x, ones, create_graph=True)[0]
    return u_t + u * u_x - nu * u_xx


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=20000)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda:0")
    layers = [2] + [128] * 6 + [1]
    blocks = []
    for a, b in zip(layers[:-2], layers[1:-1]):
        blocks += [nn.Linear(a, b), nn.Tanh()]
    net = nn.Sequential(*blocks, nn.Linear(layers[-2], 1)).to(device)
    t, x = torch.rand(args.points, 1, device=device), 2 * torch.rand(args.points, 1, device=device) - 1
    x0 = 2 * torch.rand(500, 1, device=device) - 1
    u0 = -torch.sin(torch.pi * x0)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=8, history_size=10, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        initial = (net(torch.cat([torch.zeros_like(x0), x0], 1)) - u0).square().mean()
        loss = residual(net, t, x).square().mean() + initial
        loss.backward()
        return loss

    for epoch in range(args.epochs):
        loss = optimizer.step(closure)
        print(epoch, float(loss))


main()
