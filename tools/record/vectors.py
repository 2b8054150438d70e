"""Records what one operator allocates and frees in forward and backward, byte for byte.

A vector is the second run in a warm process, in which the workspaces of libraries exist. Each input that requires a
gradient is the result of a clone. The gradient of the output is created by an autograd node above it and referenced by
nothing else, so that gradients are passed as between operators of a network.
"""

import contextlib

import torch

from history import watcher

SHORT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool", torch.float64: "f64"}
# regime: (autocast type, type of float inputs, type of parameters)
REGIMES = {
    "fp32": (None, torch.float32, torch.float32),
    "amp16": (torch.float16, torch.float32, torch.float32),
    "ampbf": (torch.bfloat16, torch.float32, torch.float32),
    "amp16h": (torch.float16, torch.float16, torch.float32),
    "ampbfh": (torch.bfloat16, torch.bfloat16, torch.float32),
    "fp16": (None, torch.float16, torch.float16),
    "bf16": (None, torch.bfloat16, torch.bfloat16),
}


class Incoming(torch.autograd.Function):
    """A scalar computed from the output. Its backward creates the output's gradient."""

    @staticmethod
    def forward(ctx, out):
        ctx.like = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device="meta")
        ctx.device = out.device
        return out.new_ones(())

    @staticmethod
    def backward(ctx, grad):
        return torch.empty_strided(ctx.like.shape, ctx.like.stride(), dtype=ctx.like.dtype, device=ctx.device)


def made(operator, regime, device):
    """Returns the function or module to call, and its leaf inputs."""
    _, dtype, parameters = REGIMES[regime]
    call = operator.make()
    if isinstance(call, torch.nn.Module):
        call.to(device=device, dtype=parameters).train()
    leaves = []
    for shape, kind in operator.inputs:
        kind = kind or dtype
        leaf = torch.ones(shape, dtype=kind, device=device) if kind.is_floating_point else torch.zeros(shape, dtype=kind, device=device)
        leaves.append(leaf.requires_grad_(kind.is_floating_point and operator.grad))
    return call, leaves


def run(call, leaves, autocast, device, watch):
    """Runs forward and backward. Returns their events, facts about the output, and its address. The output stays alive,
    as the input of a next operator would.
    """
    x = [leaf.clone() if leaf.requires_grad else leaf for leaf in leaves]
    with watch.section() as forward:
        with torch.autocast(device.type, dtype=autocast) if autocast else contextlib.nullcontext():
            out = call(*x)
    out = out[0] if isinstance(out, tuple) else out
    what = {
        "grad_fn": type(out.grad_fn).__name__ if out.grad_fn is not None else None,
        "output": [[list(out.shape), SHORT.get(out.dtype, str(out.dtype)), out.untyped_storage().nbytes()]],
    }
    if any(out.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in x):
        what["output"][0].append("alias")
    del x
    if out.grad_fn is None:
        return forward, None, what, out.untyped_storage().data_ptr()
    above, one = Incoming.apply(out), torch.ones((), device=device, dtype=out.dtype)
    with watch.section() as backward:
        above.backward(one)
    return forward, backward, what, out.untyped_storage().data_ptr()


def saved(call, leaves, autocast, device):
    """Returns [bytes, name, dtype, shape] of each storage that autograd saves. The name is an input, a parameter or the
    output.
    """
    names, rows = {}, []

    def pack(t):
        key = t.untyped_storage().data_ptr()
        rows.append((key, t.untyped_storage().nbytes(), SHORT.get(t.dtype, str(t.dtype)), list(t.shape)))
        return t

    x = [leaf.clone() if leaf.requires_grad else leaf for leaf in leaves]
    for i, t in enumerate(x):
        names[t.untyped_storage().data_ptr()] = f"in{i}"
    if isinstance(call, torch.nn.Module):
        names.update((t.untyped_storage().data_ptr(), n) for n, t in (*call.named_parameters(), *call.named_buffers()))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        with torch.autocast(device.type, dtype=autocast) if autocast else contextlib.nullcontext():
            out = call(*x)
    out = out[0] if isinstance(out, tuple) else out
    names.setdefault(out.untyped_storage().data_ptr(), "out0")
    unique = {key: [size, names.get(key, "other"), dtype, shape] for key, size, dtype, shape in reversed(rows)}
    return list(reversed(unique.values()))


def numbered(events, living, count):
    """Returns (events as text, next allocation number). "+BYTES OP NATIVE NODE" is an allocation, -N the free of
    allocation N, -xBYTES the free of earlier memory.
    """
    rows = []
    for e in events:
        if e.kind == "a":
            living[e.address] = count
            op, native, node = ("incoming", "-", "-") if e.node in ("IncomingBackward", "PyNode") else (e.op, e.native, e.node)
            rows.append(f"+{e.bytes} {op} {native} {node}")
            count += 1
        else:
            n = living.pop(e.address, None)
            rows.append(f"-x{e.bytes}" if n is None else f"-{n}")
    return rows, count


def vector(operator, regime, device, gpu):
    """Returns the record of one operator under one regime."""
    autocast = REGIMES[regime][0]
    call, leaves = made(operator, regime, device)
    watch = watcher(device)
    run(call, leaves, autocast, device, watch)  # warm-up of libraries
    for t in (*leaves, *(call.parameters() if isinstance(call, torch.nn.Module) else ())):
        t.grad = None
    kept = saved(call, leaves, autocast, device)
    forward, backward, what, output = run(call, leaves, autocast, device, watch)
    living = {}
    forward_rows, count = numbered(forward, living, 0)
    sizes = {e.address: e.bytes for e in (*forward, *(backward or ())) if e.kind == "a" and e.address != output}
    alive = sum(size for address, size in sizes.items() if address in living)
    backward_rows = numbered(backward, living, count)[0] if backward is not None else None
    record = {"op": operator.name, "args": operator.args, "regime": regime, "gpu": gpu}
    record["in"] = [[list(t.shape), SHORT[t.dtype]] for t in leaves]
    if isinstance(call, torch.nn.Module) and list(call.parameters()):
        record["params"] = {n: [list(p.shape), SHORT[p.dtype]] for n, p in call.named_parameters()}
    record["grad"] = {"in": [int(t.requires_grad) for t in leaves if t.is_floating_point()]}
    if "params" in record:
        record["grad"]["params"] = int(operator.grad)
    record["saved"] = kept
    record.update(what, kept=alive)
    if backward is not None:
        record["after_backward"] = sum(size for address, size in sizes.items() if address in living)
    return {**record, "forward": forward_rows, "backward": backward_rows}
