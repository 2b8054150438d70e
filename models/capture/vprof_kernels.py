"""Records the kernels of a training step under torch.compile: what they compute, and the bytes that they move.

Inductor's generated code launches Triton kernels, which read and write each tensor that they are called with once. For
products, convolutions and attention it calls operators of PyTorch, as does the code between graphs.
"""

import math
import os
import re
import sys

from torch.utils._python_dispatch import TorchDispatchMode
from vprof_hook import compiling

# Operators by the names of their kernels' class (program.Work), the first that matches. Others are elementwise.
WORKS = (
    ("attention", "attention"), ("convolution", "convolution"), ("matmul", r"^(add)?(mm|mv|bmm)$|^baddbmm$"), ("softmax", "softmax"),
    ("normalization", "norm"), ("index", "index|gather|scatter|embedding|nll_loss|take|select_backward"),
    ("reduction", "^(sum|mean|amax|amin|var|std|any|all|prod|arg|cum)"), ("copy", "^(_to_copy|copy|clone|cat|fill|zero|ones|full)"),
)
# Operators that launch nothing.
NOTHING = re.compile("^(empty|new_empty|detach|_local_scalar_dense|set_|resize_|record_stream|lift_fresh)")
PRECISIONS = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float64": "fp64"}
# Products of the size of a score matrix that the forward and backward pass of an attention compute.
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5


class UnknownError(Exception):
    """The work of a kernel is unknown: a template, whose operations Inductor does not count."""


def size(t):
    """Returns the bytes of a tensor, for an expanded one the bytes of its storage."""
    return min(t.numel() * t.element_size(), t.untyped_storage().nbytes())


def tensors(value):
    """Returns the tensors on the GPU in the arguments or results of an operator."""
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return [value] if getattr(value, "is_cuda", False) else []


class Kernels(TorchDispatchMode):
    """Collects the kernels that run while it is active. generated are launched by Inductor's code, others are not; both
    list (work, precision, channels last, bytes read, bytes written, FLOPs, product).
    """

    def __init__(self, torch):
        super().__init__()
        self.torch, self.generated, self.others = torch, [], []
        self.watched = False  # whether a Triton kernel was seen: older releases run the step without compiled code, or without the hook's launcher

    @classmethod
    def ignore_compile_internals(cls):
        """Lets compiled code run while the mode is active."""
        return True

    def __enter__(self):
        compiling.watch = self.triton
        return super().__enter__()

    def __exit__(self, *args):
        compiling.watch = None
        return super().__exit__(*args)

    def triton(self, tuner, args):
        """Adds a launch of a Triton kernel."""
        self.watched = True
        names, source = tuner.fn.arg_names, getattr(tuner.fn, "src", "")
        if "_tem_" in tuner.fn.__name__:
            raise UnknownError(tuner.fn.__name__)
        # A kernel that uses a part of a tensor accesses as many elements as it computes, once for each load or store.
        numel = math.prod(v for name, v in zip(names, args) if name.endswith("numel") and isinstance(v, int))
        moved = {"in": 0, "out": 0}
        for name, t in zip(names, args):
            if not isinstance(t, self.torch.Tensor):
                continue
            accesses = max(1, len(re.findall(r"tl\.(?:load|store|atomic_\w+)\(%s\b" % name, source)))
            n = min(size(t), accesses * numel * t.element_size()) if numel > 1 else size(t)
            for way in ("in", "out") if name.startswith("in_out") else ("out",) if name.startswith("out") else ("in",):
                moved[way] += n
        work = "reduction" if re.match("triton_(red|per)_", tuner.fn.__name__) else "elementwise"
        self.generated.append((work, "fp32", False, moved["in"], moved["out"], 0, None))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0].removesuffix("_backward")
        reads = tensors(list(args))
        writes = list({t.data_ptr(): t for t in tensors(out) + tensors(list((kwargs or {}).values()))}.values())  # out= is returned, too
        views = not func._schema.is_mutable and all(t.untyped_storage().data_ptr() in {r.untyped_storage().data_ptr() for r in reads} for t in writes)
        if NOTHING.match(name) or views or not writes and not func._schema.is_mutable:
            return out
        called = self.generated if self.called_by_inductor() else self.others
        work = next((work for work, names in WORKS if re.search(names, name)), "elementwise")
        called += getattr(self, work, self.moving)(work, func, args, reads, writes)
        return out

    @staticmethod
    def called_by_inductor():
        """Reports whether generated code calls the operator."""
        frame, folder = sys._getframe(2), os.environ.get("TORCHINDUCTOR_CACHE_DIR", "\0")
        while frame is not None:
            if frame.f_code.co_filename.startswith(folder):
                return True
            frame = frame.f_back
        return False

    def precision(self, t, tf32=False):
        """Returns the arithmetic of an operator on a tensor; tf32 reports whether PyTorch allows TF32 for it."""
        return PRECISIONS.get(str(t.dtype), "tf32" if tf32 else "fp32")

    def last(self, *ts):
        return any(self.torch._prims_common.suggest_memory_format(t) == self.torch.channels_last for t in ts if t.dim() == 4)

    def moving(self, work, _func, _args, reads, writes):
        """Returns the kernel of an operator that moves its operands once. An index reads no more of a table than it has
        results for.
        """
        sizes = [size(t) for t in reads]
        if work == "index" and sizes:
            i = sizes.index(max(sizes))
            sizes[i] = min(sizes[i], sum(sizes) - sizes[i] + sum(map(size, writes)))
        first = (writes or reads)[0]
        return [(work, self.precision(first), self.last(*writes), sum(sizes), sum(map(size, writes)), 0, None)]

    def matmul(self, work, func, args, reads, writes):
        """Returns the product of the last two matrices: addmm and baddbmm add it to their first argument."""
        a, b = [t for t in args if isinstance(t, self.torch.Tensor)][-2:]
        b = b if b.dim() > 1 else b[:, None]
        m, n, k, batch = a.shape[-2], b.shape[-1], a.shape[-1], math.prod(a.shape[:-2])
        product = {"M": m, "N": n, "K": k, "Batch": batch}
        precision = self.precision(a, self.torch.backends.cuda.matmul.allow_tf32)
        return [(work, precision, False, sum(map(size, reads)), sum(map(size, writes)), 2 * batch * m * n * k, product)]

    def attention(self, work, func, args, reads, writes):
        backward = "backward" in func.__name__
        q, k = reads[1:3] if backward else reads[:2]
        if q.dim() != 4:
            raise UnknownError(func.__name__)
        rows = 1 if func.__name__.startswith(("_efficient", "_flash")) else 2  # [batch, rows, heads, size] or [batch, heads, rows, size]
        m, n, batch = q.shape[rows], k.shape[rows], q.shape[0] * q.shape[3 - rows]
        flops = 2 * (BACKWARD_PRODUCTS if backward else FORWARD_PRODUCTS) * batch * m * n * q.shape[3]
        names = [a.name for a in func._schema.arguments]
        if "is_causal" in names and names.index("is_causal") < len(args) and args[names.index("is_causal")] is True:
            flops //= 2
        product = {"M": m, "N": n, "K": q.shape[3], "Batch": batch}
        return [(work, self.precision(q, True), False, sum(map(size, reads)), sum(map(size, writes)), flops, product)]

    def convolution(self, work, func, args, _reads, writes):
        """Returns an implicit product for each direction of a convolution, as trace.ConvArgs.launch describes it."""
        names = dict(zip((a.name for a in func._schema.arguments), args))
        x, w, groups, transposed = names["input"], names["weight"], names["groups"], names.get("transposed", False)
        y = names.get("grad_output", writes[0])
        features, images = (x, y) if transposed else (y, x)
        filters, taps = w.shape[0] // groups, math.prod(w.shape[1:])
        positions = features.numel() // max(features.shape[1], 1)
        window = {}
        if w.dim() == 4:
            channels = w.shape[0] | w.shape[1] * groups
            window = {"Images": images.shape[0], "Height": images.shape[2], "Width": images.shape[3], "TapsY": w.shape[2], "TapsX": w.shape[3], "Lanes": channels & -channels}
            for key in "Stride", "Pad", "Dilation":
                values = list(names[{"Pad": "padding"}.get(key, key.lower())])
                window[key + "Y"], window[key + "X"] = values[0], values[-1]
        forward, of_input, of_weight = (filters, positions, taps), (taps, positions, filters), (filters, taps, positions)
        kinds = [(forward, x, w, y)]
        if "grad_output" in names:
            mask = names["output_mask"]
            kinds = [(of_input, y, w, x)] * mask[0] + [(of_weight, y, x, w)] * mask[1]
        if transposed:
            kinds = [({forward: of_input, of_input: forward}.get(mnk, mnk), *rest) for mnk, *rest in kinds]
        precision = self.precision(x, self.torch.backends.cudnn.allow_tf32)
        found = [
            (work, precision, self.last(x, w), size(a) + size(b), size(c), 2 * features.numel() * taps, {"M": m, "N": n, "K": k, "Batch": groups, "Window": window})
            for (m, n, k), a, b, c in kinds
        ]
        if names.get("bias") is not None:
            found.append(("elementwise", precision, False, size(y), size(y), 0, None))
        return found

    def add_to(self, p):
        """Adds the kernels to a program: generated ones as its step 2, others as step 3. All operands are parts of one
        buffer, since only their sizes are known.
        """
        both = self.generated + self.others
        buffer = len(p.buffers)
        p.buffers.append({"Bytes": max([1, *(n for k in both for n in k[3:5])]), "Class": "temporaries", "Stream": 0, "Site": 0})
        p.emit("alloc", buffer)
        numbers = {}
        for step, kernels in (2, self.generated), (3, self.others):
            for kernel in kernels:
                p.emit("launch", numbers.setdefault(repr(kernel), len(numbers)))
            p.mark(step, "kernels")
        p.emit("free", buffer)
        for work, precision, last, read, written, flops, product in {repr(k): k for k in both}.values():
            n = len(p.operands)
            p.operands += [{"Buffer": buffer, "Bytes": read}, {"Buffer": buffer, "Bytes": written}]
            if product is not None:
                p.products.append(product)
            p.ops.append({
                "Work": work, "Precision": precision, "ChannelsLast": last, "Reads": {"From": n, "To": n + 1}, "Writes": {"From": n + 1, "To": n + 2},
                "FLOPs": flops, "Product": len(p.products) if product is not None else 0,
            })
