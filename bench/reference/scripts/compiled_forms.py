"""Small steps under torch.compile: a graph break, sizes that change, a Function, checkpointing with and without a policy, CUDA graphs."""
import functools

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

WIDTH, BLOCKS = 256, 4


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < 1)


def keep_products(_ctx, op, *_args, **_kwargs):
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


class Net(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(BLOCKS))

    def forward(self, x):
        x = self.through(x, self.blocks[: BLOCKS // 2])
        if self.form == "break":
            torch._dynamo.graph_break()
        return self.through(x, self.blocks[BLOCKS // 2 :])

    def through(self, x, blocks):
        for block in blocks:
            if self.form == "checkpoint":
                x = x + checkpoint(block, x, use_reentrant=False)
            elif self.form == "policy":
                contexts = functools.partial(create_selective_checkpoint_contexts, keep_products)
                x = x + checkpoint(block, x, use_reentrant=False, context_fn=contexts)
            else:
                x = x + block(x)
            if self.form == "function":
                x = Clipped.apply(x)
        return x


def peak(form, **options):
    """The most that three steps allocate, and how many graphs and graph breaks there were."""
    torch._dynamo.reset()
    counters.clear()
    model = Net(form).cuda()
    step, optimizer = torch.compile(model, **options), torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        torch.cuda.reset_peak_memory_stats()
        rows = 1024 * (i + 2) if form == "sizes" else 4096
        step(torch.randn(rows, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cuda.max_memory_allocated(), counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


usual, graphs, breaks = peak("usual")
assert (graphs, breaks) == (1, 0), (graphs, breaks)
assert peak("break")[1:] == (2, 1)
assert peak("sizes", dynamic=True)[1] == 1, "one graph for all sizes"
assert peak("function")[1:] == (1, 0)
checkpointed, policy = peak("checkpoint")[0], peak("policy")[0]
assert checkpointed < policy < usual, (checkpointed, policy, usual)
before = torch.cuda.memory_reserved()
peak("usual", mode="reduce-overhead")
assert torch.cuda.memory_reserved() > before, "private pools of CUDA graphs stay reserved"
print("usual %d, checkpointed %d, with a policy %d bytes" % (usual, checkpointed, policy))
