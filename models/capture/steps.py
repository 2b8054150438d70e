"""Records training steps of a model: in eager mode for vprof capture --step, compiled for vprof capture --compile.

It runs under the hook of vprof run, which simulates a GPU and skips Triton's compilation. Dynamo, AOTAutograd and
Inductor are the user's own. Two steps run, each with forward, loss and backward: the first one, which compiles and
tunes, and a later one. The hook's recorder writes each allocation and free in order, with the user's line.
"""

import argparse
import bisect
import contextlib
import gc
import importlib
import json
import os
import sys
import traceback

import vprof_capture as capture
from vprof_choices import fusions, pieces, splits
from vprof_hook import events, memory, program, training

# At most this many processes record at the same time. Inductor takes one or two GiB of memory in each.
MOST = 2


def blocks(model):
    """Returns the modules of the longest ModuleList or Sequential whose elements have one class."""
    import torch

    best = []
    for m in model.modules():
        if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)) and len({type(c) for c in m}) == 1 and len(m) > len(best):
            best = list(m)
    if not best:
        raise capture.Refusal("the model has no list of equal modules, which --compile=blocks compiles one by one", "use --compile=whole or --compile=loss")
    return best


def loss_or_logits(out):
    """Returns the first scalar in a model's output that requires a gradient (its loss), or else the first tensor."""
    import torch

    values = [v for v in torch.utils._pytree.tree_leaves(dict(out) if isinstance(out, dict) else out) if isinstance(v, torch.Tensor)]
    if not values:
        raise capture.Refusal("forward returns no tensor", "return the loss, or logits, or a dict or tuple of them")
    return next((v for v in values if v.dim() == 0 and v.requires_grad), values[0])


def held(value):
    """Returns all tensors in a value: in lists, dicts and objects such as a KV cache."""
    import torch

    found, left, seen = [], [value], set()
    while left:
        v = left.pop()
        if isinstance(v, torch.Tensor):
            found.append(v)
        elif id(v) not in seen and not isinstance(v, (type, torch.nn.Module)):
            seen.add(id(v))
            left += v.values() if isinstance(v, dict) else v if isinstance(v, (list, tuple)) else getattr(v, "__dict__", {}).values()
    return found


def loss_of(name):
    """Returns the function that computes a loss from a model's output. name is one of vprof's losses. The default is
    the output itself if it is a scalar, else cross-entropy of logits.
    """
    import torch
    import torch.nn.functional as F

    def zeros(shape, out, dtype=torch.float32):
        return torch.zeros(shape, dtype=dtype, device=out.device)

    def classes(out):
        return F.cross_entropy(out, zeros((out.shape[0], *out.shape[2:]), out, torch.long))

    def tokens(out):
        flat = out.flatten(0, -2)
        return F.cross_entropy(flat, zeros((flat.shape[0],), out, torch.long))

    losses = {
        "output": lambda out: out,
        "cross-entropy": classes,
        "token-cross-entropy": tokens,
        "mse": lambda out: F.mse_loss(out, zeros(out.shape, out)),
        "l1": lambda out: F.l1_loss(out, zeros(out.shape, out)),
        "bce": lambda out: F.binary_cross_entropy_with_logits(out, zeros(out.shape, out)),
        "sum": lambda out: out.sum(),
    }
    if name and name not in losses:
        raise capture.Refusal(f"there is no loss {name!r}", f"choose one of {', '.join(losses)}")

    def loss(out):
        out = loss_or_logits(out)
        return losses[name or ("cross-entropy" if out.dim() else "output")](out)

    return loss


class Convolutions:
    """The calls of cuDNN's convolutions: their times, and the questions about their workspaces that ask.py answers.

    The workspace depends on the engine that cuDNN selects at a batch size, so it cannot be computed from other batch
    sizes.
    """

    TYPES = {"torch.float32": 0, "torch.float16": 1, "torch.bfloat16": 2}
    # Operations of a convolution: output, gradient of the input, gradient of the weight.
    FORWARD, INPUT, WEIGHT = range(3)

    def __init__(self, torch):
        self.torch, self.calls, self.libraries = torch, [], []
        for name, asked in ("cudnn_convolution", self.forward), ("cudnn_convolution_transpose", self.transposed), ("convolution_backward", self.backward):
            if hasattr(torch.library, "get_kernel"):  # PyTorch 2.11 and later
                self.override(name, asked)

    def override(self, name, asked):
        """Wraps an operator's kernel to store, for each call, its begin and end and the questions that asked(result,
        *arguments) returns.
        """
        torch = self.torch
        op = getattr(torch.ops.aten, name).default
        kernel = torch.library.get_kernel(op, "CUDA").call_boxed

        def noted(keys, *args):
            begin = events.now()
            out = kernel(keys, *args)
            questions = asked(out, *args)
            if questions:
                self.calls.append((begin, events.now(), questions))
            return out

        self.libraries.append(torch.library.Library("aten", "IMPL"))
        self.libraries[-1].impl(op, noted, "CUDA", with_keyset=True)

    def forward(self, y, x, w, padding, stride, dilation, groups, *_):
        return self.questions([self.FORWARD], x, w, y, stride, padding, dilation, groups)

    def transposed(self, y, x, w, padding, _output_padding, stride, dilation, groups, *_):
        return self.questions([self.INPUT], y, w, x, stride, padding, dilation, groups)

    def backward(self, _gradients, g, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
        backend = self.torch._C._select_conv_backend(x, w, None, stride, padding, dilation, transposed, output_padding, groups, bias_sizes)
        if not backend.name.startswith("Cudnn"):
            return []
        needed = [what for what, needs in zip((self.FORWARD if transposed else self.INPUT, self.WEIGHT), mask) if needs]
        images, features = (g, x) if transposed else (x, g)
        return self.questions(needed, images, w, features, stride, padding, dilation, groups, x)

    def questions(self, operations, images, w, features, stride, padding, dilation, groups, laid=None):
        """Returns one question for each operation of a convolution, as lines for ask.py; none for other dtypes."""
        if str(images.dtype) not in self.TYPES:
            return []
        dims = [list(v) for v in (images.shape[2:], w.shape[2:], features.shape[2:], stride, padding, dilation)]
        if len(dims[0]) == 1:  # cuDNN gets 1-d convolutions as 2-d ones of height 1
            dims = [[one, *v] for one, v in zip((1, 1, 1, 1, 0, 1), dims)]
        suggest = self.torch._prims_common.suggest_memory_format
        last = any(suggest(t) != self.torch.contiguous_format for t in (images if laid is None else laid, w))
        head = [self.TYPES[str(images.dtype)], int(last), len(dims[0]), images.shape[0], images.shape[1], features.shape[1], groups]
        return [" ".join(map(str, [operation, *head, *sum(dims, [])])) for operation in operations]

    def add_to(self, p):
        """Adds the questions to a program as notes, before each workspace or where it would be allocated."""
        places = [i for i, one in enumerate(p.instructions) if one["Kind"] in ("alloc", "free")]
        order = [one["Arg"] if one["Kind"] == "alloc" else ~one["Arg"] for one in (p.instructions[i] for i in places)]
        for place, buffer, question in self.placed(order, [p.times[i] for i in places]):
            p.add_note(places[place] if place < len(places) else len(p.instructions), "convolution", buffer, 0, question)

    def placed(self, order, times):
        """Returns [index, buffer, question] for each convolution: its position in order, and the workspace's buffer (-1
        for no workspace). order lists buffers, and ~buffer for frees; times are their times.
        """
        found = []
        for begin, end, questions in self.calls:
            at, end = bisect.bisect_left(times, begin), bisect.bisect_right(times, end)
            # The result is allocated before the workspace and outlives the call.
            for question in questions:
                while at < end and (order[at] < 0 or ~order[at] in order[at:end]):
                    at += 1
                at += 1
                workspace = next((i for i in range(at, end) if order[i] >= 0 and order[i + 1 : i + 2] == [~order[i]]), None)
                lasting = next((i for i in range(at, end) if order[i] >= 0 and ~order[i] not in order[i:end]), end)
                there = workspace is not None and workspace < lasting
                found.append([workspace if there else min(at, len(order)), order[workspace] if there else -1, question])
        return found


class Recorder:
    """Records steps of a model on the simulated GPU."""

    def __init__(self, opts):
        import torch

        training.watching.ended = True  # disables the hook's own phases
        if opts.budget:
            importlib.import_module("torch._functorch.config").activation_memory_budget = opts.budget
        torch._inductor.config.compile_threads = 1  # compiles in this process, not in workers
        self.torch, self.opts = torch, opts
        build, inputs_of = capture.resolve(opts)
        capture.seed()
        self.model = capture.as_eager(build())
        if not any(p.requires_grad for p in self.model.parameters()):
            raise capture.Refusal("the model has no trained parameter, so there is no step to record", "capture the module that has the weights, with requires_grad as in training")
        self.example = capture.Example(self.model, inputs_of(self.model))
        if "batch" not in self.example.symbols:
            raise capture.Refusal("no input of the model has a batch dimension", "name it batch: --input 'x=float32[batch,3,224,224]'")
        self.loss = loss_of(opts.loss)

    def forward(self):
        """Returns a function (args, kwargs) that computes (output, loss), newly compiled unless the form is eager. Form
        "loss" returns no output.
        """
        torch, model, loss = self.torch, self.model, self.loss
        options = {"dynamic": True} if self.opts.dynamic else {}
        if self.opts.form == "blocks":
            for b in blocks(model):
                b.compile(**options)
        if self.opts.form == "loss":
            return torch.compile(lambda args, kwargs: (None, loss(model(*args, **kwargs))), **options)
        run = torch.compile(model, **options) if self.opts.form == "whole" else model

        def forward(args, kwargs):
            out = run(*args, **kwargs)
            return out, loss(out)

        return forward

    def step(self, number, call, args, kwargs, amp):
        """Runs one step. The model's output is released as soon as the loss is computed."""
        torch = self.torch

        def run():
            kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(amp)
            with torch.autocast("cuda", dtype=kind, enabled=kind is not None):
                out, value = call(args, kwargs)
            self.note("returned", held(out))
            out = None
            self.mark(number, "forward")
            value.backward()
            self.mark(number, "backward")
            gradients = {}
            for name, p in self.model.named_parameters():
                if p.grad is not None:
                    gradients.setdefault(p.grad.untyped_storage().data_ptr(), []).append((name, p.grad))
            for shared in gradients.values():
                for name, g in shared:
                    self.note("gradient", [g], name)

        run()  # its variables are freed on return
        gc.collect()  # compilation leaves reference cycles, which may hold results
        self.mark(number, "step_end")
        self.model.zero_grad(set_to_none=True)
        self.mark(number, "zero_grad")

    def mark(self, step, phase):
        """Ends a phase of the program."""
        self.labels.pause()
        self.labels.add("mark", step, phase)
        self.labels.pause()

    def note(self, kind, tensors, text=""):
        """Adds a note with the addresses of tensors."""
        self.labels.pause()
        for t in tensors:
            self.labels.add("note", kind, t.untyped_storage().data_ptr(), t.storage_offset() * t.element_size(), text)
        self.labels.pause()

    def record(self, point):
        """Records two steps at a point such as bf16-16 (precision and batch size). Nothing may have run on the GPU
        before.
        """
        torch, opts = self.torch, self.opts
        amp, batch = point.split("-")
        batch = int(batch)
        self.labels = program.Labels()
        self.convolutions = Convolutions(torch)
        fuses, sums = (fusions(batch), pieces(batch)) if self.opts.form != "eager" else (set(), set())
        self.model.to("cuda")
        # Some parameters change their address: recurrent layers copy theirs into one buffer.
        self.note("tensor", self.moved())
        self.mark(-1, "model")
        symbols = {**self.example.symbols, "batch": batch}
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("cuda"), self.example.repeated(symbols))
        call = self.forward()
        self.mark(-1, "batch")
        self.step(0, call, args, kwargs, amp)
        breaks = sum(torch._dynamo.utils.counters["graph_break"].values()) if self.opts.form != "eager" else 0
        self.step(1, call, args, kwargs, amp)
        p = program.Program(self.line)
        p.follow(torch.cuda.memory._snapshot()["device_traces"][0], self.labels.all)
        self.convolutions.add_to(p)
        self.record_kernels(p, call, args, kwargs, amp)
        p.write(os.path.join(opts.result, point), amp="" if amp == "none" else amp, batch=batch, breaks=breaks, fuses_from=sorted(fuses), splits_at=splits(sums))
        sizes = {k: v for k, v in self.example.symbols.items() if k != "batch"}
        steps = {"form": opts.form, "loss": opts.loss, "dynamic": opts.dynamic, "budget": opts.budget, "sizes": sizes, **self.described()}
        write(opts, point, {"torch": torch.__version__, "name": opts.spec, "steps": steps})

    def record_kernels(self, p, call, args, kwargs, amp):
        """Adds the kernels of a third compiled step, since recording them may keep tensors alive for longer."""
        from vprof_kernels import Kernels

        if self.opts.form == "eager":
            return
        try:
            with Kernels(self.torch) as kernels:
                self.step(2, call, args, kwargs, amp)
            if kernels.watched:
                kernels.add_to(p)
        except Exception:  # without kernels only times are unknown
            if self.opts.verbose:
                traceback.print_exc()

    def moved(self):
        """Returns the model's parameters, then its buffers, in the order in which .to(device) moves them. Each is
        listed once.
        """
        order = {}

        def move(module):
            for child in module.children():
                move(child)
            order.update((id(t), t) for t in (*module._parameters.values(), *module._buffers.values()) if t is not None)

        move(self.model)
        return sorted(order.values(), key=lambda t: not isinstance(t, self.torch.nn.Parameter))

    def line(self, frames):
        """Returns the user's line of a stack trace and, after a tab, the graph nodes."""
        libraries = (*memory.LIBRARIES, os.path.join(os.path.dirname(self.torch.__file__), ""))
        frames = [f for f in frames if (f["filename"], f["name"]) != (__file__, "noted")]
        where, tab, nodes = memory.line_of_user(frames, libraries).replace(__file__, "loss").partition("\t")
        if nodes and where.startswith("loss:") and where.endswith((":forward", ":run")):
            where = ""  # this script's line that calls the model
        return where + tab + nodes

    def described(self):
        """Returns descriptions of the model's parameters and buffers, in the order in which .to(device) moves them, and
        of its inputs.
        """
        torch = self.torch
        names = {}
        for n, t in (*self.model.named_parameters(), *self.model.named_buffers()):
            names.setdefault(id(t), n)

        def described(t):
            return {"name": names.get(id(t), ""), "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")}

        moved = self.moved()
        return {
            "parameters": [{**described(t), "trained": t.requires_grad} for t in moved if isinstance(t, torch.nn.Parameter)],
            "buffers": [described(t) for t in moved if not isinstance(t, torch.nn.Parameter)],
            "inputs": [
                {"name": n, "dtype": str(i.dtype).removeprefix("torch."), "shape": [-1 if isinstance(d, tuple) and d[0] == "batch" else d[1] if isinstance(d, tuple) else d for d in i.dims]}
                for n, i in self.example.inputs.items() if isinstance(i, capture.Input)
            ],
        }


def apart(r, argv, points):
    """Records each point in a child process, because each recording needs a GPU that was not used before."""
    running = []
    for point in points:
        if len(running) == MOST:
            os.waitpid(running.pop(0), 0)
        # A separate cache per point: a tuning result in the cache would make Inductor skip the tuning of the next
        # point.
        cache = os.path.join(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), point)
        # Importing the model has initialized CUDA, as bitsandbytes does. Forked processes cannot use CUDA then.
        if r.torch.cuda.is_initialized():
            end = argv.index("--")  # the model follows
            command = [sys.executable, __file__, *argv[:end], "--at", point, *argv[end:]]
            running.append(os.posix_spawn(sys.executable, command, {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}))
            continue
        pid = os.fork()
        if pid == 0:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            r.torch.set_num_threads(1)  # the parent's threads do not exist in a forked child
            events.quiet = False  # report from this process, too, which lines depend on unknown values
            with telling(r.opts, point):
                r.record(point)
            os._exit(0)
        running.append(pid)
    for pid in running:
        os.waitpid(pid, 0)


def write(opts, point, outcome):
    """Writes the header of a point's recording, or the reason why there is none."""
    with open(os.path.join(opts.result, point + ".json"), "w", encoding="utf-8") as f:
        json.dump(outcome, f)


@contextlib.contextmanager
def telling(opts, point):
    """Writes an error of the block, with what the user can do about it."""
    try:
        yield
    except Exception as e:
        if opts.verbose:
            traceback.print_exc()
        refused = capture.refusal(e, opts, "compiling and running a step")
        write(opts, point, {"error": str(refused), "do": refused.do})


def main(argv):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--form", required=True, choices=["eager", "whole", "loss", "blocks"])
    p.add_argument("--at", required=True, help="precisions and batch sizes: bf16-16,bf16-128")
    p.add_argument("--loss", default="")
    p.add_argument("--dynamic", action="store_true")
    p.add_argument("--budget", type=float, default=0)
    own, rest = p.parse_known_args(argv)
    opts = capture.arguments(rest)
    vars(opts).update(vars(own))
    points = opts.at.split(",")
    with telling(opts, points[0]):
        r = Recorder(opts)
        if len(points) == 1:
            r.record(points[0])
        else:
            apart(r, argv, points)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main(sys.argv[1:])
