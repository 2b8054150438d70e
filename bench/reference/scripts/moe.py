"""A mixture of experts: tokens are sent by nonzero and index_add, with a loss that balances the load."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class MoE(nn.Module):
    def __init__(self, dim, hidden, experts=8, k=2):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim)) for _ in range(experts))
        self.k = k

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = self.gate(x).softmax(-1)
        weights, chosen = probs.topk(self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, (expert(x[token]) * weights[token, slot, None]).to(out.dtype))
        load = F.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        self.balance = len(self.experts) * (load * probs.float().mean(0)).sum()
        return out.view(shape)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.proj, self.heads = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False), heads
        self.moe = MoE(dim, 2 * dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.moe(self.n2(x))


class Model(nn.Module):
    def __init__(self, vocab=16000, dim=512, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, 8) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)), sum(b.moe.balance for b in self.blocks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=512)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    model = Model().cuda()
    decay = [p for p in model.parameters() if p.dim() > 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() <= 1]}], lr=3e-4)
    for step in range(10):
        ids = torch.randint(0, 16000, (args.batch, args.seq + 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits, balance = model(ids[:, :-1])
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), ids[:, 1:].reshape(-1)) + 0.01 * balance
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(step, loss.item(), norm.item())


if __name__ == "__main__":
    main()
