"""A placeholder for xformers.ops: see vprof_hook/kernels.py."""

import torch
from vprof_hook.kernels import efficient_attention as memory_efficient_attention  # noqa: F401
from vprof_hook.kernels import refuse

swiglu = refuse("xformers.ops.swiglu")


class SwiGLU(torch.nn.Module):
    """A layer that scripts subclass or construct. It has xformers' parameters; calling it stops the run."""

    def __init__(self, in_features, hidden_features, out_features=None, bias=True, *, _pack_weights=True):
        super().__init__()
        if _pack_weights:
            self.w12 = torch.nn.Linear(in_features, 2 * hidden_features, bias=bias)
        else:
            self.w1, self.w2 = (torch.nn.Linear(in_features, hidden_features, bias=bias) for _ in range(2))
        self.w3 = torch.nn.Linear(hidden_features, out_features or in_features, bias=bias)

    forward = staticmethod(refuse("xformers.ops.SwiGLU"))


class LowerTriangularMask:
    """The mask of causal attention. It has no tensor, so it takes no memory."""


def unbind(x, dim):
    return x.unbind(dim)
