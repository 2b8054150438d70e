"""Captures a PyTorch model as a .pt2 file that vprof can plan.

    python capture.py timm:convnext_tiny -o convnext.pt2
    python capture.py mypkg.model:build --input 'x=float32[batch,3,224,224]' -o mine.pt2
    python capture.py train.py:make_model --inputs-from train.py:example_batch -o mine.pt2

The model is built on the meta device if possible, so that no weights are
allocated, and exported with torch.export. Forward also runs in plain Python to
record when its tensors are freed, which the exported graph does not show. The
record is added to the file as extra/vprof.json. Needs PyTorch 2.6 or newer; no
GPU, no network.
"""

import argparse
import contextlib
import copy
import functools
import importlib
import importlib.abc
import importlib.util
import inspect
import json
import linecache
import os
import re
import sys
import traceback
import warnings
import zipfile

OLDEST_TORCH = (2, 6)


def find_parts(texts):
    """Registers an importer for the modules whose source this script contains as text."""

    class Parts(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        def find_spec(self, name, path=None, target=None):
            return importlib.util.spec_from_loader(name, self) if name in texts else None

        def get_source(self, name):
            return texts[name]

    sys.meta_path.insert(0, Parts())


import vprof_export
import vprof_observe
from vprof_device import described_gpu, marks_of_gpu
from vprof_export import hide_tracing, name_devices, paths_of_the_example, shape_recurrent_layers, sized
from vprof_graph import align, carried, functions, lifetimes, names_in, names_of, nodes_of, rewire
from vprof_model import SCRIPT_DOOR, TASKS, Input, Refusal, first_line, resolve
from vprof_observe import answers_of, compiled, leave_uncompiled, line_of, numbers_of, observe, observe_counts, other_way, scripted, seed, shape_operators, share_copied_modes, watch_checkpoint

# ---------------------------------------------------------------- building


def as_eager(model):
    """Returns the module to train on one GPU: without DataParallel or DDP around it, in training mode."""
    import torch

    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        model = model.module
    for m in model.modules():
        if hasattr(m, "warn_if_padding_and_no_attention_mask"):
            m.warn_if_padding_and_no_attention_mask = lambda *args, **kwargs: None  # it reads token values
        if hasattr(getattr(m, "config", None), "use_cache"):
            m.config.use_cache = False  # training needs no KV cache, and export cannot return one
    return model.train()


def build_on(place, build):
    """Returns the model, built on the "meta" device, with "fake" tensors or on the "cpu", as place says. With "numbers"
    it is on the CPU and forward also computes values.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import vprof_known as known

    failure = None
    for gpu in (contextlib.nullcontext, described_gpu):  # some constructors require a GPU
        seed()
        numbers = known.Numbers()
        try:
            with {"meta": lambda: torch.device("meta"), "fake": FakeTensorMode}.get(place, contextlib.nullcontext)(), known.Building(numbers), known.OneDevice(place), gpu():
                model = as_eager(build())
        except Exception as e:
            failure = failure or e
            continue
        numbers_of[model] = numbers.buffers(model)
        return model
    raise failure


class Example:
    """The inputs of forward, for given values of the symbols (symbolic sizes)."""

    def __init__(self, model, inputs):
        self.inputs = inputs
        takes = inspect.signature(model.forward).parameters
        anything = any(p.kind is p.VAR_KEYWORD for p in takes.values())
        self.by_name = anything or all(n in takes for n in inputs)
        self.symbols = {d[0]: d[1] for i in inputs.values() if isinstance(i, Input) for d in i.dims if isinstance(d, tuple)}

    def tensors(self, place, symbols):
        import torch

        if place == "numbers":
            return self.arguments(lambda i: torch.randn(i.sizes(symbols), dtype=i.dtype) if i.numbers is None and i.dtype.is_floating_point else i.repeated(symbols))
        place = place if place in ("meta", "cuda") else "cpu"
        return self.arguments(lambda i: torch.zeros(i.sizes(symbols), dtype=i.dtype, device=place))

    def repeated(self, symbols):
        """Returns (args, kwargs) on the CPU with the values of the user's example."""
        return self.arguments(lambda i: i.repeated(symbols))

    def arguments(self, make):
        made = {n: make(i) if isinstance(i, Input) else i for n, i in self.inputs.items()}
        return ((), made) if self.by_name else (tuple(made.values()), {})

    def shapes(self, free, derived=()):
        """Returns dynamic_shapes for torch.export: the symbols in free are dynamic, those in derived Dim.AUTO."""
        import torch

        dims = {s: torch.export.Dim(s, min=2, max=max(65536, 1024 * self.symbols[s])) for s in free}
        dims |= dict.fromkeys(derived, torch.export.Dim.AUTO)
        shapes = {n: {k: dims[d[0]] for k, d in enumerate(i.dims) if isinstance(d, tuple) and d[0] in dims} if isinstance(i, Input) else None for n, i in self.inputs.items()}
        return shapes if self.by_name else tuple(shapes.values())


# ---------------------------------------------------------------- what else the file holds


def tied(model):
    """Returns [name, first name] of each parameter and buffer that has a second name."""
    found = []
    for named in (model.named_parameters, model.named_buffers):
        names = {id(p): n for n, p in named()}
        found += [[n, names[id(p)]] for n, p in named(remove_duplicate=False) if names[id(p)] != n]
    return found


def symbols_of(example, program):
    """Returns the user's name and the example size of each symbol in the exported program."""
    graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
    names = [n for s in signature["input_specs"] if "user_input" in s for n in names_in(s["user_input"]["arg"])]
    inputs = [i for i in example.inputs.values() if isinstance(i, Input)]
    found = {}
    for name, i in zip(names, inputs) if len(names) == len(inputs) else ():
        for size, dim in zip(graph["tensor_values"][name]["sizes"], i.dims):
            symbol = re.search(r"Symbol\('(\w+)'", size.get("as_expr", {}).get("expr_str", "")) or re.fullmatch(r"(s\d+)", size.get("as_expr", {}).get("expr_str", ""))
            if symbol and isinstance(dim, tuple):
                found.setdefault(symbol[1], list(dim))
    return found


BUILDING = [  # advice for errors of a constructor, by the error's text
    (r"missing \d+ required|required positional", "vprof builds the model without arguments: write a function that passes them, def build(): return Model(width=64), and capture file.py:build"),
    (r"No such file|not find|offline|connect|resolve|URLError", "capture needs no weights: build the model without loading any (weights=None, pretrained=False, from a configuration), in a function of its own"),
    (r"cuda|nvidia|gpu", f"capture builds the model without a GPU: do not move it to the GPU in the function that builds it, or {SCRIPT_DOOR}"),
]
ADVICE = [
    (r"_forward_unimplemented|missing the required \"forward\"", "the model has no forward: capture a module whose forward calls what training calls, such as self.lit.training_step((x, y), 0) of a LightningModule"),
    (r"differentiated Tensor|autograd\.grad|functorch transform|element 0 of tensors does not require grad", f"torch.export cannot represent gradients that forward computes itself (torch.autograd.grad, torch.func.grad). Capture the model without them, or {SCRIPT_DOOR}"),
    (r"pack_padded_sequence|'lengths' argument should be", f"the length of packed sequences depends on the values of a tensor. Pass the padded tensor to the layers (it needs at least as much memory), or {SCRIPT_DOOR}"),
    (r"nested_tensor|NestedTensor|Unable to cast NotImplemented to Tensor", f"the lengths in a nested tensor depend on data. Pad it to one tensor, or {SCRIPT_DOOR}"),
    (r"data.?dependent|GuardOnDataDependent|item\(\) cannot be called|Could not guard|nonzero|_local_scalar_dense|to numpy|on a meta tensor|Cannot cast .* to number", f"this line depends on the values of a tensor, which an exported graph does not contain. Use a Python value or a shape instead, capture the part of the model without it, or {SCRIPT_DOOR}"),
    (r"missing \d+ required|unexpected keyword|required positional", "forward has other arguments: name them as forward does, --input NAME=dtype[...]"),
    (r"not a supported value|unsupported (input|output) type|pytree|type is unsupported", "forward accepts or returns something that is not a tensor. Use tensors, tuples or dicts (use_cache=False, return_dict=True)"),
    (r"mat1 and mat2|size mismatch|Invalid channel|must match the size|Expected .* channels|expected input|invalid for input of size|shape", "the inputs have sizes that the model does not accept: change --input, --size or --seq"),
    (r"meta.*(not implemented|unsupported)|Could not run|no fake impl|not implemented for", f"this operator has no fake implementation, which computes the shape of its result: register a fake implementation (torch.library.register_fake), or {SCRIPT_DOOR}"),
]


def refusal(e, opts, doing):
    """Returns a Refusal for an exception in the user's model: the failing line, and what the user can do."""
    if isinstance(e, Refusal):
        return e
    where = line_of(traceback.extract_tb(e.__traceback__))
    what = f"{doing} fails: {type(e).__name__}: {first_line(e)}"
    if where:
        path, _, line = where.rpartition(":")
        what = f"{os.path.relpath(path) if path.startswith(os.getcwd()) else path}:{line}: {linecache.getline(path, int(line)).strip()}\n  {what}"
    text = f"{type(e).__name__}: {e}"
    building = doing == "building the model"
    known = next((do for pattern, do in (BUILDING if building else ADVICE) if re.search(pattern, text, re.I)), None)
    otherwise = "run the function that builds the model by itself in Python; --verbose shows the whole error" if building else f"{SCRIPT_DOOR[0].upper()}{SCRIPT_DOOR[1:]}. --verbose shows the whole error"
    return Refusal(what, known or otherwise, known is not None)


# ---------------------------------------------------------------- the capture


def prepare():
    """Patches PyTorch, once, for observing and exporting models. The returned library must be kept alive."""
    import vprof_backward
    import vprof_known as known

    for change in (vprof_backward.watch_functions, watch_checkpoint, leave_uncompiled, hide_tracing, name_devices, shape_recurrent_layers, paths_of_the_example, share_copied_modes):
        change()
    kept = shape_operators()
    known.watch_readers()
    return kept


PLACES = ("meta", "fake", "cpu", "numbers")
MOST_WITH_NUMBERS = 1 << 30  # most parameters of a model whose forward is computed: 4 GiB in fp32


def capture(opts, places=PLACES):
    """Captures the model with the first of the places (see build_on) that works, and writes the file. Returns the
    outcome.
    """
    import torch

    compiled.clear()
    scripted.clear()
    build, inputs_of = resolve(opts)
    failure = failed = None
    parameters = 0
    for place in places:
        if place == "numbers" and parameters > MOST_WITH_NUMBERS:
            break
        for vprof_export.hiding in (True, False):
            doing, vprof_observe.lot = "building the model", 0
            try:
                model = build_on(place, build)
                inputs = inputs_of(model)
                parameters = sum(p.numel() for p in model.parameters() if not torch.nn.parameter.is_lazy(p))
                doing = "forward"
                example, seen = observe_with_loss(model, inputs, place, opts)
                doing = "torch.export"
                return write(opts, build, model, example, place, seen)
            except Refusal:
                raise
            except Exception as e:
                if opts.verbose:
                    traceback.print_exc()
                refused = refusal(e, opts, doing)
                plain = place == "numbers" and doing == "forward"  # ran with values, as in plain PyTorch
                if failed in (None, "building the model") or plain or refused.known and not failure.known and doing != "building the model":
                    failure, failed = refused, doing  # failures in other places may only come from missing values
                if doing != "torch.export":
                    break
    raise failure


def observe_with_loss(model, inputs, place, opts):
    """Observes forward and returns (example, observation). If the loss of a transformers model reads values of labels
    that the user did not give, forward is observed without labels.
    """
    import vprof_backward

    try:
        example = Example(model, inputs)
        return example, vprof_backward.until_known(lambda: observe_counts(model, example, place, dict(example.symbols)))
    except Exception:
        if not opts.spec.startswith("hf:") or "labels" not in inputs or any(i.startswith("labels=") for i in opts.input):
            raise
    example = Example(model, {n: i for n, i in inputs.items() if n != "labels"})
    seen = observe(model, example, place, dict(example.symbols))
    seen.notes.append("captured without the model's own loss, which depends on the values of the labels: choose one with --loss")
    return example, seen


def described(build, model, example, seen, graph, then=None):
    """Returns (facts about the observed forward that the graph lacks, node index by operator, number of operators
    missing in the graph). then is (observation, node indices, nodes) of the next forward; by default it is the same as
    this one.
    """
    nodes = nodes_of(graph["graph_module"]["graph"])
    number = align(seen.ops, nodes)
    then = then or (seen, number, nodes)
    extra = {"host": seen.host.told(number, nodes)}
    extra["autocast"], extra["attention"], half = marks_of_gpu(model, lambda: as_eager(build()), example, seen, number)
    extra["state"] = carried(seen, number, nodes, half, then)
    rewire(seen, number, nodes, graph)
    extra["dies"], extra["replaced"], unseen = lifetimes(seen, number, nodes, graph, then)
    extra["counts"] = [[number[k], *count.formula] for k, count in seen.counts.items() if k in number]
    extra["assigned"] = [number[k] for k in seen.assigned if k in number]
    extra["leaves"] = [name for values in seen.leaves for name in names_of(values, number, nodes)[:1]]
    extra["symbols"] = symbols_of(example, graph)
    extra["functions"] = functions(seen, number, nodes)
    return extra, number, unseen


def first_forward(build, example, place, then):
    """Returns the graph of the first forward, and the facts it lacks. It differs from later ones by what it prepares
    for them, such as a codebook.
    """

    def begun(symbols, runs=1):
        model = build_on(place, build)
        return model, observe(model, example, place, symbols, runs=runs)

    def fresh(symbols):
        model = build_on(place, build)
        answers_of[model] = answers_of[begun(symbols)[0]]
        return model

    _, graph, batch, symbols = sized(fresh, example, place, dict(example.symbols), "first")
    (model, _), (_, second) = begun(symbols), begun(symbols, 2)
    extra, _, _ = described(build, model, example, second.before, graph, (second, align(second.ops, then), then))
    return {"graph": graph, "extra": {"version": 1, **extra, "batch": batch}}


MOST_FIRST = 3  # most graphs of the first forward: it may prepare different things at different batch sizes


def first_forwards(build, example, place, then):
    """Returns graphs of the first forward: at the example's batch, and at larger batches from which it takes another
    path.
    """
    found = []
    while len(found) < MOST_FIRST:
        found.append(first_forward(build, example, place, then))
        batch = [symbol for symbol, (name, *_) in found[-1]["extra"]["symbols"].items() if name == "batch"]
        most = [found[-1]["graph"]["range_constraints"].get(symbol, {}).get("max_val") for symbol in batch]
        if not most or not most[0] or most[0] > MOST_BATCH:
            break
        example = copy.copy(example)
        example.symbols = {**example.symbols, "batch": most[0] + 1}
    return found


MOST_BATCH = 4096  # largest batch at which a first forward is tried


def write(opts, build, model, example, place, seen):
    import torch

    modules = set(model.modules())
    name = os.path.basename(opts.output).removesuffix(".pt2")
    notes, begins = list(seen.notes), seen.begins

    def settled(symbols):
        if symbols != example.symbols and (place == "numbers" or seen.state):
            observe(model, example, place, symbols)
        return model

    entries, graph, batch, symbols = sized(settled, example, place, dict(example.symbols), name)
    if batch:
        seen = observe_counts(model, example, place, symbols)
        notes.append(f"torch.export fixed the batch size; {len(batch['args'])} numbers of the graph were found to follow it")
    nodes = nodes_of(graph["graph_module"]["graph"])
    found, number, unseen = described(build, model, example, seen, graph)
    extra = {"version": 1, "source": opts.spec, "tied": tied(model), **found, "batch": batch}
    entries[name + "/models/model.json"] = json.dumps(graph).encode()
    if unseen > len(seen.ops) // 100:
        notes.append(f"{unseen} of {len(seen.ops)} operators of forward are not in the exported graph; when their tensors are freed is a guess")
    if begins:
        try:
            extra["first"] = first_forwards(build, example, place, nodes)
        except Exception:
            if opts.verbose:
                traceback.print_exc()
            notes.append("forward does more in its first call, which may need more memory: plans describe the later steps; vprof run shows both")
    named = {n: [isinstance(d, tuple) and d[0] == "batch" for d in i.dims] for n, i in example.inputs.items() if isinstance(i, Input)}
    extra["batch_dims"] = {n: dims.index(True) for n, dims in named.items() if True in dims[1:] and not dims[0]}
    extra["cublas_workspace"] = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
    extra["numbers"] = numbers_lines(model) if place == "numbers" else []
    if extra["numbers"]:
        notes.append(f"what forward does depends on numbers in tensors ({some(extra['numbers'])}): the file holds what a forward {'of your example' if opts.inputs_from else 'of random inputs'} did with the weights as they were built; at other batches masks pick the same shares of elements, unless they go with the batch")
    fixed = {s: n for s, n in symbols.items() if s not in [name for name, *_ in extra["symbols"].values()] and (s != "batch" or not extra.get("batch"))}
    if fixed:
        notes.append(f"the model takes no other {' or '.join(fixed)} than in the example ({', '.join(f'{s}={n}' for s, n in fixed.items())}): capture it with others in --input to plan them")
    still = [n for n, i in example.inputs.items() if opts.inputs_from and isinstance(i, Input) and i.dims and not any(isinstance(d, tuple) for d in i.dims)]
    if still and "batch" in symbols:
        notes.append(f"the batch is the first size of the first input ({example.symbols['batch']} in the example); {some(still)} of other sizes stay as they are at every batch: --input 'NAME=TYPE[batch,...]' or [NAME=SIZE,...] opens sizes")
    extra["other_way"] = other_way(model, example, place, symbols, seen)
    if extra["other_way"]:
        batch, line = extra["other_way"]
        notes.append(f"forward does something else at batch {batch} than at {symbols['batch']}, from {line} on: plans of other batches assume that it does the same (--input 'NAME=TYPE[batch=N,...]' captures at N)")
    extra["checkpointed"] = list(dict.fromkeys(m for m, _, _, reentrant in seen.regions if m and not reentrant))
    extra["reentrant"] = list(dict.fromkeys(m for m, _, _, reentrant in seen.regions if m and reentrant))
    within = [any(not isinstance(m, torch.nn.Module) or m in modules for m in called) for called in (compiled, scripted)]
    if within[0]:
        notes.append("torch.compile within the model is left out: plans describe its eager step (capture --compile and plan --torch-compile describe a compiled one)")
    extra["scripted"] = within[1]
    if extra["scripted"]:
        notes.append("torch.jit.script within the model is left out: plans describe its functions as Python runs them, whose backward may need less")
    unknown = dict.fromkeys(seen.functions.unknown)
    extra["custom_functions"] = [{"name": n, "line": line} for n, line in unknown]
    for n, line in unknown:
        notes.append(f"{n} ({line}) has its own backward, which depends on values that the file does not contain; plans assume one kernel that computes all gradients")
    entries[name + "/extra/vprof.json"] = json.dumps(extra).encode()
    temporary = opts.output + ".part"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as z:
        for n, data in entries.items():
            z.writestr(n, data)
    os.replace(temporary, opts.output)
    return {"file": opts.output, "bytes": os.path.getsize(opts.output), "nodes": len(nodes), "symbols": [s for s in symbols if s not in fixed], "batch": "batch" not in fixed, "place": place, "notes": notes}


def numbers_lines(model):
    """Returns the lines at which forward read tensor values, as file:line."""
    known = answers_of[model]
    lines = [*known.counts, *(f"{path}:{line}" for path, line, _ in known.answers)]
    return [os.path.relpath(line) if line.startswith(os.getcwd()) else line for line in dict.fromkeys(lines)]


def some(lines):
    return ", ".join(lines[:3]) + (" and others" if len(lines) > 3 else "")


def told(refused):
    return {"error": str(refused), "do": refused.do}


def capture_apart(opts):
    """Captures in a child process. If it crashes, the next place is tried."""
    import torch
    import vprof_child

    def attempt(places):
        try:
            return capture(opts, places)
        except Refusal as e:
            return told(e)
        except BaseException as e:  # a bug in this script: print the traceback
            traceback.print_exc()
            return told(Refusal(f"{type(e).__name__}: {first_line(e)}", "please report it with --verbose"))

    torch.set_num_threads(1)  # other threads would not exist after a fork
    crashed = None
    for k in range(len(PLACES)):
        try:
            outcome = vprof_child.in_child(functools.partial(attempt, PLACES[k:]))
        except vprof_child.Crash as e:
            crashed = crashed if crashed and crashed.frames else e  # prefer a crash with a known line
            continue
        return outcome
    where, _, number = line_of([traceback.FrameSummary(path, int(n), "") for path, n in reversed(crashed.frames)]).rpartition(":")
    line = f"{where}:{number}: {linecache.getline(where, int(number)).strip()}\n  " if where else ""
    return told(Refusal(f"{line}Python ended by {crashed} while this ran", f"this happens on tensors without values: rewrite the line, or {SCRIPT_DOOR}"))


def arguments(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("spec", help="timm:NAME, torchvision:NAME, hf:[ORG/NAME@]config.json, pkg.module:callable, file.py:callable")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--input", action="append", default=[], metavar="NAME=DTYPE[DIM,...]")
    p.add_argument("--inputs-from", default="", metavar="FILE.py:FUNCTION", help="returns an example of the inputs of forward")
    p.add_argument("--task", default="", choices=["", *TASKS], help="of a model of transformers")
    p.add_argument("--attention", default="", help="attn_implementation of a model of transformers")
    p.add_argument("--size", type=int, default=0, help="of images")
    p.add_argument("--seq", type=int, default=256, help="tokens")
    p.add_argument("--samples", type=int, default=32000, help="of sound")
    p.add_argument("--result", default="", help="file for the outcome, as JSON")
    p.add_argument("--verbose", action="store_true", help="show every attempt that failed")
    return p.parse_args(argv)


def main(argv):
    opts = arguments(argv)
    code = 0
    try:
        try:
            import torch
        except ImportError as e:
            raise Refusal(f"this Python ({sys.executable}) cannot import torch: {e}", "name another with --python, or install PyTorch 2.6 or newer (the CPU build is enough)") from e
        if tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2]) < OLDEST_TORCH:
            raise Refusal(f"this Python ({sys.executable}) has PyTorch {torch.__version__}", "need 2.6 or newer to export graphs for training: name another Python with --python, or upgrade torch")
        if not opts.verbose:
            warnings.filterwarnings("ignore")
            import logging

            logging.disable(logging.ERROR)
        sys.argv = [opts.spec]  # for a script that parses its own arguments
        _kept = prepare()
        outcome = capture_apart(opts)
        code = 2 if "error" in outcome else 0
    except Refusal as e:
        outcome, code = told(e), 2
    if opts.result:
        with open(opts.result, "w", encoding="utf-8") as f:
            json.dump(outcome, f)
    else:
        print("\n".join([outcome["error"], outcome["do"]]) if code else json.dumps(outcome), file=sys.stderr)
    return code


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(sys.argv[1:]))
