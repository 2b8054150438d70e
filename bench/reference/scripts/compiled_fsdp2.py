"""FSDP2 with compiled blocks on two ranks: each block is compiled by itself, then sharded."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.fsdp import fully_shard

WIDTH, BLOCKS = 256, 4


class Block(nn.Module):  # Dynamo leaves the forward of nn.Sequential itself alone where hooks surround it
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
model = nn.Sequential(*(Block() for _ in range(BLOCKS))).cuda()
for block in model:
    block.compile()
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(4096, WIDTH, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
assert counters["stats"]["unique_graphs"] > 0, "nothing was compiled"
dist.destroy_process_group()
