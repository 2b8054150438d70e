"""The operators to record. A table of your own is a file with OPERATORS, a list of Operator."""

import functools
from typing import Any, Callable, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Operator(NamedTuple):
    """A call: name and arguments as in the record, the shapes of its inputs (with a dtype if it differs from the
    regime's), and a function that makes the function or module to call.
    """

    name: str
    args: dict[str, Any]
    inputs: list[tuple[list[int], torch.dtype | None]]
    make: Callable[[], Callable]
    grad: bool = True


def of(name, function, *shapes, grad=True, **args):
    call = functools.partial(function, **args)
    return Operator(name, args, [(list(s), None) for s in shapes], lambda: call, grad)


def layer(name, module, *shapes, **args):
    return Operator(name, args, [(list(s), None) for s in shapes], functools.partial(module, **args))


OPERATORS = [
    *(of(name, getattr(F, name), [7, 33]) for name in ("relu", "gelu", "silu", "softplus", "hardswish", "mish", "elu", "leaky_relu", "sigmoid", "tanh")),
    *(of(name, getattr(torch, name), [65, 33]) for name in ("exp", "log", "sqrt", "rsqrt", "abs", "sin")),
    *(of(name, getattr(torch, name), [65, 33], [65, 33]) for name in ("add", "sub", "mul", "div")),
    of("softmax", F.softmax, [16, 129], dim=-1),
    of("log_softmax", F.log_softmax, [16, 129], dim=-1),
    of("sum", torch.sum, [16, 129], dim=-1),
    of("mean", torch.mean, [16, 129], dim=-1),
    of("var", torch.var, [16, 129], dim=-1),
    of("matmul", torch.matmul, [4, 33, 65], [4, 65, 17]),
    of("mse_loss", F.mse_loss, [16, 129], [16, 129]),
    of("scaled_dot_product_attention", F.scaled_dot_product_attention, [2, 4, 64, 32], [2, 4, 64, 32], [2, 4, 64, 32]),
    of("max_pool2d", F.max_pool2d, [2, 5, 18, 18], kernel_size=2),
    of("avg_pool2d", F.avg_pool2d, [2, 5, 18, 18], kernel_size=2),
    of("interpolate", F.interpolate, [2, 5, 9, 9], scale_factor=2, mode="bilinear"),
    layer("linear", nn.Linear, [16, 65], in_features=65, out_features=33),
    layer("conv2d", nn.Conv2d, [2, 16, 18, 18], in_channels=16, out_channels=24, kernel_size=3, padding=1),
    layer("batch_norm2d", nn.BatchNorm2d, [4, 16, 9, 9], num_features=16),
    layer("layer_norm", nn.LayerNorm, [16, 65], normalized_shape=65),
    layer("group_norm", nn.GroupNorm, [4, 16, 9, 9], num_groups=4, num_channels=16),
    layer("dropout", nn.Dropout, [16, 129], p=0.1),
    Operator("embedding", {"num_embeddings": 100, "embedding_dim": 33}, [([4, 17], torch.int64)], lambda: nn.Embedding(100, 33)),
]
