"""Traces the backward of custom autograd.Functions directly after their forward.

torch.export records a Function's forward. Its backward is Python code that only a training step runs, so it is run here
on tensors without values. The graph then contains, in this order,

    alias of each tensor argument | forward | empty_like of each result | backward | alias of each gradient

and the file has the indices at which the parts begin. Tensors that backward takes from the parts before are the saved
ones.
"""

import contextlib
import traceback

import torch

refused = set()  # Functions whose backward needs values


class Again(Exception):
    """A backward has failed: forward must run again without tracing it."""


class Context:
    """The ctx argument of forward and backward."""

    def __init__(self, args):
        self.saved_tensors = ()
        able = tuple(differentiable(a) for a in args)
        needed = tuple(d and a.requires_grad for d, a in zip(able, args))
        # Without an input that requires a gradient PyTorch runs no backward. One is traced for all inputs then.
        self.needs_input_grad = needed if any(needed) else able

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    save_for_forward = mark_dirty = mark_non_differentiable = set_materialize_grads = lambda self, *args: None
    materialize_grads = True

    @property
    def saved_variables(self):
        return self.saved_tensors


def differentiable(v):
    return isinstance(v, torch.Tensor) and (v.is_floating_point() or v.is_complex())


class Calls:
    """The calls of custom Functions during one forward."""

    def __init__(self, count, line_of, apart=contextlib.nullcontext):
        self.count, self.line_of = count, line_of  # functions: number of operators so far; line of a stack
        self.apart = apart  # context manager around Functions that are not traced
        self.known, self.unknown, self.inside = [], [], False

    def apply(self, cls, args, kwargs):
        """Runs cls.apply(*args) and then its backward."""
        ctx, call = Context(args), {"name": name_of(cls), "line": self.line_of(traceback.extract_stack()[:-2]), "begin": self.count()}
        self.inside = True  # Functions applied inside forward get no backward of their own
        try:
            for a in filter(differentiable, args):
                torch.ops.aten.alias.default(a)
            out = forward(cls, ctx, args, kwargs)
            call["backward"] = self.count()
            call["amp"] = getattr(getattr(cls.backward, "__code__", None), "co_name", "") == "decorate_bwd"
            call["gives"] = backward(cls, ctx, args, out)
        finally:
            self.inside = False
        call["end"] = self.count()
        self.known.append(call)
        return out


def name_of(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


def forward(cls, ctx, args, kwargs):
    if cls.setup_context is torch.autograd.Function.setup_context:
        return cls.forward(ctx, *args, **kwargs)
    out = cls.forward(*args, **kwargs)
    cls.setup_context(ctx, args, out)
    return out


def backward(cls, ctx, args, out):
    """Runs the backward on empty gradients. Returns for each differentiable argument whether it gets a gradient."""
    try:
        grads = [torch.ops.aten.empty_like.default(o) if differentiable(o) else None for o in (out if isinstance(out, tuple) else (out,))]
        given = cls.backward(ctx, *grads)
        given = given if isinstance(given, tuple) else (given,)
        pairs = [(a, g) for a, g in zip(args, (*given, *[None] * len(args))) if differentiable(a)]
        for _, g in pairs:
            if differentiable(g):
                torch.ops.aten.alias.default(g)
        return [differentiable(g) for _, g in pairs]
    except Exception as e:
        refused.add(cls)
        raise Again(f"{name_of(cls)}.backward: {type(e).__name__}: {e}") from e


recorder = None  # the Calls to which calls of custom Functions are added; None outside of recording()


def watch_functions():
    """Patches Function.apply to record calls of custom Functions.

    Must run before the model's code is imported, which may store the method: scan = Scan.apply.
    """
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls, *args, **kwargs):
        plain, calls = original.__get__(None, cls), recorder
        if calls is None:
            return plain(*args, **kwargs)
        if cls.__module__.startswith("torch."):
            with calls.apart():
                return plain(*args, **kwargs)
        if calls.inside:
            return forward(cls, Context(args), args, kwargs)
        if cls in refused:
            calls.unknown.append((name_of(cls), calls.line_of(traceback.extract_stack()[:-1])))
            with calls.apart():
                return plain(*args, **kwargs)
        return calls.apply(cls, args, kwargs)

    torch.autograd.Function.apply = classmethod(apply)


@contextlib.contextmanager
def recording(calls):
    """Records calls of custom Functions in calls while the block runs."""
    global recorder
    before, recorder = recorder, calls
    try:
        yield calls
    finally:
        recorder = before


def until_known(run):
    """Runs forward until no traced backward fails."""
    while True:
        with contextlib.suppress(Again):
            return run()
