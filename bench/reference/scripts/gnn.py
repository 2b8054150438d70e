"""A graph attention network in plain PyTorch: scatter, sparse products, masks of nodes, sampled negative edges."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F


class GAT(nn.Module):
    def __init__(self, inputs, outputs, heads):
        super().__init__()
        self.lin, self.heads, self.outputs = nn.Linear(inputs, heads * outputs, bias=False), heads, outputs
        self.src, self.dst = nn.Parameter(torch.randn(heads, outputs)), nn.Parameter(torch.randn(heads, outputs))

    def forward(self, x, edges):
        src, dst = edges
        h = self.lin(x).view(-1, self.heads, self.outputs)
        score = F.leaky_relu((h * self.src).sum(-1)[src] + (h * self.dst).sum(-1)[dst], 0.2)
        top = torch.full((len(x), self.heads), float("-inf"), device=x.device).scatter_reduce(0, dst[:, None].expand_as(score), score, "amax")
        weight = (score - top[dst]).exp()
        total = torch.zeros(len(x), self.heads, device=x.device).index_add(0, dst, weight)
        out = torch.zeros_like(h).index_add(0, dst, h[src] * (weight / (total[dst] + 1e-16))[..., None])
        return out.flatten(1)


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.one, self.two = GAT(features, 32, 8), GAT(256, 32, 8)
        self.out = nn.Linear(256, classes)

    def forward(self, x, edges, adjacency):
        x = F.elu(self.one(F.dropout(x, 0.5, self.training), edges))
        x = F.elu(self.two(F.dropout(x, 0.5, self.training), edges))
        return self.out(x), torch.sparse.mm(adjacency, x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=20000)
    parser.add_argument("--degree", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda"
    x = torch.randn(args.nodes, 300, device=device)
    y = torch.randint(0, 40, (args.nodes,), device=device)
    edges = torch.randint(0, args.nodes, (2, args.nodes * args.degree))
    edges = torch.unique(edges, dim=1)
    edges = edges[:, edges[0] != edges[1]].to(device)
    adjacency = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1], device=device), (args.nodes, args.nodes)).coalesce()
    train = torch.zeros(args.nodes, dtype=torch.bool, device=device)
    train[torch.randperm(args.nodes)[: args.nodes // 2].to(device)] = True
    model = Net(300, 40).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for epoch in range(8):
        model.train()
        optimizer.zero_grad()
        logits, smoothed = model(x, edges, adjacency)
        negatives = torch.randint(0, args.nodes, (2, 5000), device=device)
        link = F.binary_cross_entropy_with_logits((smoothed[negatives[0]] * smoothed[negatives[1]]).sum(-1), torch.zeros(5000, device=device))
        loss = F.cross_entropy(logits[train], y[train]) + link
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            predicted = model(x, edges, adjacency)[0].argmax(-1)
            accuracy = [(predicted[m] == y[m]).float().mean().item() for m in (train, ~train)]
        print(epoch, loss.item(), accuracy)


if __name__ == "__main__":
    main()
