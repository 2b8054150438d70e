"""Records what a model's step allocates, compiled for vprof capture --compile, or as it is for vprof capture --step.

It runs under the hook of vprof run, which gives PyTorch a board and spares Triton: Dynamo, AOTAutograd and Inductor
are the user's own. Of each batch size two steps run, forward, loss and backward, in a process of their own: the first,
which compiles and tunes, and one of those that follow. Written down is each allocation and free in order, with the
user's line and the parameters that gradients are of.
"""

import argparse
import bisect
import gc
import importlib
import json
import os
import sys
import traceback

import vprof_capture as capture
from vprof_choices import between, fusions, pieces, splits

# At most so many processes record at a time: each has Inductor's memory, a GiB or two.
MOST = 2


def blocks(model):
    """The modules of the longest list of modules of one class."""
    import torch

    best = []
    for m in model.modules():
        if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)) and len({type(c) for c in m}) == 1 and len(m) > len(best):
            best = list(m)
    if not best:
        raise capture.Refusal("the model has no list of equal modules to compile one by one", "use --compile=whole or --compile=loss")
    return best


def loss_or_scores(out):
    """Of what a model returned the first scalar that can be trained, which is a loss, or else the first tensor."""
    import torch

    values = [v for v in torch.utils._pytree.tree_leaves(dict(out) if isinstance(out, dict) else out) if isinstance(v, torch.Tensor)]
    if not values:
        raise capture.Refusal("forward returns no tensor", "return the loss, or scores, or a dict or tuple of them")
    return next((v for v in values if v.dim() == 0 and v.requires_grad), values[0])


def held(value):
    """All tensors that a value holds: in lists and dicts, and in objects such as a cache of keys and values."""
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
    """The loss of an output, as vprof names losses: its default is the output itself, or cross entropy of scores."""
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
        out = loss_or_scores(out)
        return losses[name or ("cross-entropy" if out.dim() else "output")](out)

    return loss


def now():
    """The time as PyTorch's allocator has it."""
    from vprof_hook import events

    return events.now()


class Convolutions:
    """The convolutions that cuDNN runs: when, and in the words in which it is asked about their workspaces.

    A workspace depends on the engine that cuDNN takes for a batch size, and does not follow from other batch sizes.
    """

    TYPES = {"torch.float32": 0, "torch.float16": 1, "torch.bfloat16": 2}
    # What is computed: the result, the gradient of the input, that of the weight.
    FORWARD, INPUT, WEIGHT = range(3)

    def __init__(self, torch):
        self.torch, self.calls, self.libraries = torch, [], []
        for name, asked in ("cudnn_convolution", self.forward), ("cudnn_convolution_transpose", self.transposed), ("convolution_backward", self.backward):
            if hasattr(torch.library, "get_kernel"):  # from PyTorch 2.11 on
                self.override(name, asked)

    def override(self, name, asked):
        """Has the kernel of an operator note when it runs, and what asked says of its arguments and its result."""
        torch = self.torch
        op = getattr(torch.ops.aten, name).default
        kernel = torch.library.get_kernel(op, "CUDA").call_boxed

        def noted(keys, *args):
            begin = now()
            out = kernel(keys, *args)
            questions = asked(out, *args)
            if questions:
                self.calls.append((begin, now(), questions))
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
        """What cuDNN is asked about operations of an ordinary convolution: numbers in a line, as vprof's oracle reads them."""
        if str(images.dtype) not in self.TYPES:
            return []
        dims = [list(v) for v in (images.shape[2:], w.shape[2:], features.shape[2:], stride, padding, dilation)]
        if len(dims[0]) == 1:  # images of one row
            dims = [[one, *v] for one, v in zip((1, 1, 1, 1, 0, 1), dims)]
        suggest = self.torch._prims_common.suggest_memory_format
        last = any(suggest(t) != self.torch.contiguous_format for t in (images if laid is None else laid, w))
        head = [self.TYPES[str(images.dtype)], int(last), len(dims[0]), images.shape[0], images.shape[1], features.shape[1], groups]
        return [" ".join(map(str, [operation, *head, *sum(dims, [])])) for operation in operations]

    def placed(self, order, times):
        """Where in the order of a step each workspace is or would be: [place, the allocation or -1, question]."""
        found = []
        for begin, end, questions in self.calls:
            at, end = bisect.bisect_left(times, begin), bisect.bisect_right(times, end)
            for question in questions:  # of each the result is allocated first, and stays
                while at < end and (order[at] < 0 or ~order[at] in order[at:end]):
                    at += 1
                at += 1
                workspace = next((i for i in range(at, end) if order[i] >= 0 and order[i + 1 : i + 2] == [~order[i]]), None)
                lasting = next((i for i in range(at, end) if order[i] >= 0 and ~order[i] not in order[i:end]), end)
                there = workspace is not None and workspace < lasting
                found.append([workspace if there else min(at, len(order)), order[workspace] if there else -1, question])
        self.calls = []
        return found


def lives(trace, before):
    """The allocations of a trace, the order of them by number and of their frees as complements, with the place of each
    in the trace, and what is left, by address.

    What the step before has left, and goes in this one, goes at the end of that one: before is {address: (number, order)}.
    """
    made, order, places, live = [], [], [], {}
    for i, e in enumerate(trace):
        at = e.get("addr")  # not of failures
        if e["action"] == "alloc":
            live[at] = len(made)
            order.append(len(made))
            made.append(e)
        elif e["action"] == "free_completed" and at in live:
            order.append(~live.pop(at))
        elif e["action"] == "free_completed" and at in before:
            n, ended = before.pop(at)
            ended.append(~n)
        places += [i] * (len(order) - len(places))
    return made, order, places, live


class Recorder:
    """A model on the board and its steps."""

    def __init__(self, opts):
        import torch

        self.torch, self.opts = torch, opts
        build, inputs_of = capture.resolve(opts)
        capture.seed()
        self.model = capture.as_eager(build())
        if not any(p.requires_grad for p in self.model.parameters()):
            raise capture.Refusal("the model has no parameter that is trained, so there is no step", "capture the module that has the weights, with requires_grad as in training")
        self.example = capture.Example(self.model, inputs_of(self.model))
        if "batch" not in self.example.symbols:
            raise capture.Refusal("no input of the model has a dimension that is the batch", "call it batch: --input 'x=float32[batch,3,224,224]'")
        self.loss = loss_of(opts.loss)
        self.sites, self.names = {}, {"": 0}

    def forward(self):
        """The step's forward pass and loss, compiled anew unless the form is eager: a function of the model's arguments."""
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

    def step(self, call, args, kwargs, amp, before):
        """What a step allocates that lets go of what the model returned as soon as it has the loss."""
        torch = self.torch
        self.before = 0
        self.before, ends, returned = len(self.trace()), [], []

        def run():
            kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(amp)
            with torch.autocast("cuda", dtype=kind, enabled=kind is not None):
                out, value = call(args, kwargs)
            returned.extend(t.untyped_storage().data_ptr() for t in held(out))
            out = None
            ends.append(len(self.trace()))
            value.backward()
            ends.append(len(self.trace()))
            return self.gradients()

        gradients = run()  # and lets go of its variables
        gc.collect()  # what compiling has left in cycles, of which one may hold a result
        written = self.written(self.trace(), ends, returned, gradients, before)
        self.model.zero_grad(set_to_none=True)
        return written

    def gradients(self):
        """Addresses of gradients, with their parameters and the bytes that come before them."""
        found = {}
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                storage = p.grad.untyped_storage()
                at = p.grad.storage_offset() * p.grad.element_size()
                found.setdefault(storage.data_ptr(), []).append([name, at])
        return found

    def record(self, amp, batch):
        """The recording of a batch size, where nothing has run on the board yet."""
        torch = self.torch
        self.convolutions = Convolutions(torch)
        fuses, sums = (fusions(batch), pieces(batch)) if self.opts.form != "eager" else (set(), set())
        self.before = 0
        self.model.to("cuda")
        setup = self.setup()
        symbols = {**self.example.symbols, "batch": batch}
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("cuda"), self.example.repeated(symbols))
        call = self.forward()
        first, live = self.step(call, args, kwargs, amp, {})
        breaks = sum(torch._dynamo.utils.counters["graph_break"].values()) if self.opts.form != "eager" else 0
        second, _ = self.step(call, args, kwargs, amp, {address: (n, first["order"]) for address, n in live.items()})
        return {"amp": "" if amp == "none" else amp, "batch": batch, "breaks": breaks, "fuses_from": sorted(fuses), "splits_at": splits(sums), "setup": setup, "steps": [first, second], "sites": list(self.sites), "names": list(self.names)}

    def setup(self):
        """How the model came to the board: allocations and frees, and where its parameters and then its buffers lie.

        Some do not lie where they came: those of recurrent layers are copied into one buffer.
        """
        made, order, _, live = lives(self.trace(), {})
        at = [(live.get(t.untyped_storage().data_ptr(), -1), t.storage_offset() * t.element_size()) for t in self.moved()]
        return {"allocations": [e["size"] for e in made], "order": order, "held": at}

    def moved(self):
        """The model's parameters and then its buffers, in the order in which .to(device) moves them, each once."""
        order = {}

        def move(module):
            for child in module.children():
                move(child)
            order.update((id(t), t) for t in (*module._parameters.values(), *module._buffers.values()) if t is not None)

        move(self.model)
        return sorted(order.values(), key=lambda t: not isinstance(t, self.torch.nn.Parameter))

    def trace(self):
        """What has happened in this step, of all that vprof_hook has PyTorch record."""
        return self.torch.cuda.memory._snapshot()["device_traces"][0][self.before:]

    def written(self, trace, ends, returned, gradients, before):
        """The events of a step, and what is left of it, by address."""
        from vprof_hook import memory

        libraries = (*memory.LIBRARIES, os.path.join(os.path.dirname(self.torch.__file__), ""))
        made, order, places, live = lives(trace, before)
        allocations = []
        for e in made:
            frames = [f for f in e.get("frames", ()) if (f["filename"], f["name"]) != (__file__, "noted")]
            where, _, nodes = memory.line_of_user(frames, libraries).replace(__file__, "loss").partition("\t")
            if nodes and where.startswith("loss:") and where.endswith((":forward", ":run")):
                where = ""  # the line that calls a model of PyTorch's own modules
            allocations.append([e["size"], self.sites.setdefault(where, len(self.sites)), self.names.setdefault(nodes, len(self.names))])
        forward, backward = (bisect.bisect_left(places, end) for end in ends)
        last = {e["addr"]: n for n, e in enumerate(made[: sum(n >= 0 for n in order[:forward])])}
        written = {
            "allocations": allocations, "order": order, "forward": forward, "backward": backward,
            "convolutions": self.convolutions.placed(order, [trace[i]["time_us"] for i in places]),
            "returned": sorted({last[a] for a in returned if a in last}),
            "gradients": [[live[a], name, at] for a, names in gradients.items() if a in live for name, at in names],
        }
        return written, live

    def described(self):
        """The model's parameters, buffers and inputs, in the order in which .to(device) moves them."""
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


def apart(tell, jobs):
    """What tell says of jobs, each in a forked process: a board is used there for the first time."""
    import torch
    import vprof_hook

    def begin(job):
        read, write = os.pipe()
        if torch.cuda.is_initialized():
            return anew(job, write), os.fdopen(read)
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)  # the threads of this process are not there
            # What Inductor tunes for one job it would find in its cache for the next, and not tune again.
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), str(os.getpid()))
            vprof_hook.events.quiet = False  # what lines go by numbers that nobody knows is told from here, too
            with os.fdopen(write, "w") as f:
                json.dump(tell(*job), f)
            os._exit(0)
        os.close(write)
        return pid, os.fdopen(read)

    def end(pid, file):
        with file:
            text = file.read()
        os.waitpid(pid, 0)
        return json.loads(text or '{"error": "the process that compiles died", "do": "--verbose shows what it said"}')

    told, running = [], []
    for job in jobs:
        if len(running) == MOST:
            told.append(end(*running.pop(0)))
        running.append(begin(job))
    return told + [end(*r) for r in running]


def anew(job, write):
    """Begins a job in a process that imports everything again, and returns its number: importing the model has used the
    board here, as bitsandbytes does to see what it is, and CUDA does not work in a fork then.
    """
    amp, batch = job
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), f"{amp}-{batch}")}
    own = ["--alone", "--amp", amp, "--batches", str(batch), "--result", f"/dev/fd/{write}"]
    at = sys.argv.index("--")  # before the model
    os.set_inheritable(write, True)
    pid = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[:at], *own, *sys.argv[at:]], env)
    os.close(write)
    return pid


def merged(recordings):
    """The sites and the names of all recordings, which each numbers by itself."""
    known = {"sites": {}, "names": {"": 0}}
    for r in recordings:
        for place, (kind, all_) in enumerate(known.items(), 1):
            numbers = [all_.setdefault(text, len(all_)) for text in r.pop(kind)]
            for a in (a for s in r["steps"] for a in s["allocations"]):
                a[place] = numbers[a[place]]
    return {kind: list(all_) for kind, all_ in known.items()}


def recorder(opts):
    import torch

    if opts.budget:
        importlib.import_module("torch._functorch.config").activation_memory_budget = opts.budget
    torch._inductor.config.compile_threads = 1  # there is nothing for other processes to compile
    return Recorder(opts)


def record(opts):
    import torch

    r = recorder(opts)
    recordings, jobs = [], [(amp, int(b)) for amp in opts.amp.split(",") for b in opts.batches.split(",")]
    for _ in range(2):
        recordings += apart(lambda *job: attempt(opts, lambda: r.record(*job)), jobs)
        refused = next((one for one in recordings if "error" in one), None)
        if refused:
            return refused
        jobs = [(amp, b) for amp in opts.amp.split(",") for b in between([one for one in recordings if one["amp"] == amp.removeprefix("none")])]
    setups = [one.pop("setup") for one in recordings]
    return {
        "torch": torch.__version__, "model": opts.spec, "form": opts.form, "loss": opts.loss, "dynamic": opts.dynamic, "budget": opts.budget,
        "sizes": {k: v for k, v in r.example.symbols.items() if k != "batch"},
        **r.described(), "setup": setups[0], **merged(recordings), "recordings": recordings,
    }


def attempt(opts, run):
    """What run gives, or what the user can do about its error."""
    try:
        return run()
    except Exception as e:
        if opts.verbose:
            traceback.print_exc()
        refused = capture.refusal(e, opts, "compiling and running a step")
        return {"error": str(refused), "do": refused.do}


def main(argv):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--form", required=True, choices=["eager", "whole", "loss", "blocks"])
    p.add_argument("--amp", default="bf16")
    p.add_argument("--batches", default="16,128")
    p.add_argument("--loss", default="")
    p.add_argument("--dynamic", action="store_true")
    p.add_argument("--budget", type=float, default=0)
    p.add_argument("--alone", action="store_true", help="record one step here, for another process")
    own, rest = p.parse_known_args(argv)
    opts = capture.arguments(rest)
    vars(opts).update(vars(own))
    outcome = attempt(opts, lambda: recorder(opts).record(opts.amp, int(opts.batches)) if opts.alone else record(opts))
    with open(opts.result, "w", encoding="utf-8") as f:
        json.dump(outcome, f)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main(sys.argv[1:])
