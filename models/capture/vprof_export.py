"""Exports a model with torch.export, and saves what came of it."""

import contextlib
import gc
import io
import json
import sys
import zipfile

from vprof_graph import affine, affine_inputs
from vprof_observe import answers_of, fake_mode_of, line_of, seed


hiding = True


def hide_tracing():
    """Tells models that they are not being exported: some then take another way than in training
    (transformers builds masks that it leaves out otherwise). torch itself must know."""
    import torch

    def shy(flag):
        def answer():
            inside = sys._getframe(1).f_globals.get("__name__", "").split(".")[0] in ("torch", "functorch")
            return flag() if inside or not hiding else False

        return answer

    for name in ("is_compiling", "is_exporting", "is_dynamo_compiling"):
        if hasattr(torch.compiler, name):
            setattr(torch.compiler, name, shy(getattr(torch.compiler, name)))


def name_devices():
    """Has torch.autocast take the device of tensors without numbers for a GPU, and Module.to change nothing where all is in
    place, as PyTorch does: it would exchange the parameters that torch.export has given names."""
    import torch

    entering, moving = torch.amp.autocast_mode.autocast.__init__, torch.nn.Module.to

    def init(self, device_type, *args, **kwargs):
        entering(self, "cuda" if device_type == "meta" else device_type, *args, **kwargs)

    def to(self, *args, **kwargs):
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        tensors = [*self.parameters(), *self.buffers()]
        if device is not None and dtype is None and layout is None and tensors and all(t.device == device for t in tensors):
            return self
        return moving(self, *args, **kwargs)

    torch.amp.autocast_mode.autocast.__init__, torch.nn.Module.to = init, to


def shape_recurrent_layers():
    """Has recurrent layers give tensors of their shapes at once where tensors have no numbers: torch takes them apart
    step by step there, which takes minutes."""
    import torch

    def layers(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        states = hx if isinstance(hx, (list, tuple)) else [hx]
        half = {"dtype": torch.get_autocast_dtype("cuda")} if x.is_cuda and torch.is_autocast_enabled("cuda") else {}
        y = x.new_empty((*x.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1)), **half)
        return y, *(s.new_empty(s.shape, **half) for s in states)

    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        kernels = getattr(torch.ops.aten, name).input.py_kernels
        kernels.update((key, layers) for key in (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd) if key in kernels)


def paths_of_the_example():
    """Has the order in which einsum contracts more than two tensors chosen by the sizes of the example where sizes are
    open: opt_einsum compares them, which would leave the batch no other size."""
    import torch
    from torch.backends import opt_einsum

    if not opt_einsum.is_available():
        return
    library = opt_einsum.get_opt_einsum()
    choose = library.contract_path

    def chosen(equation, *given, **options):
        if any(isinstance(n, torch.SymInt) for t in given for n in getattr(t, "shape", ())):
            given = [tuple(n.node.hint if isinstance(n, torch.SymInt) else n for n in t.shape) for t in given]
            options["shapes"] = True
        return choose(equation, *given, **options)

    library.contract_path = chosen


def export(models, example, place, symbols, free, derived=()):
    import torch

    model = models(symbols)
    seed()
    args, kwargs = example.tensors(place, symbols)
    if place == "fake":
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, fake_mode_of(model).from_tensor, (args, kwargs))
    import vprof_backward
    import vprof_known as known

    torch._export.config.error_on_lifted_constant_tensors = False  # no number of theirs matters
    with known.asking(known.Answers(answers_of[model], symbols.get("batch"))), known.OneDevice(place), vprof_backward.recording(vprof_backward.Calls(lambda: 0, line_of)), spared():
        return torch.export.export(model, args, kwargs, dynamic_shapes=example.shapes(free, derived) if free or derived else None, strict=False)


BATCHES = (2, 3, 5)  # at which a graph is exported that has no open batch


def sized(models, example, place, symbols, name):
    """Returns the archive of an export and its program, with how a fixed batch is in it (None if the batch is open, or
    there is none), and the sizes of the symbols there. Models gives the one to export at given sizes."""
    program, free, symbols = freest(models, example, place, symbols)
    entries, graph = saved(program, name)
    if "batch" not in symbols or free:
        return entries, graph, None, symbols
    others = [saved(export(models, example, place, {**symbols, "batch": b}, []), name) for b in BATCHES[1:]]
    graphs = [graph, *(g for _, g in others)]
    return entries, graph, {"exported": BATCHES[0], "inputs": affine_inputs(graphs, BATCHES), "args": affine(graphs, BATCHES)}, symbols


def freest(models, example, place, symbols):
    """Exports with as many symbols open as the model lets be: all, the batch and what torch.export finds (a Dim must
    be right for every size in its range, and sizes that are divided, or may be too small, are not), the batch, the batch
    as far as torch.export finds, none."""
    batch = [s for s in symbols if s == "batch"]
    others = [s for s in symbols if s != "batch"]
    tries = [(list(symbols), [])]
    if others:
        tries += [(batch, others), (batch, [])]
    if batch:
        tries.append(([], batch))
    if tries[-1] != ([], []):
        tries.append(([], []))
    bounded = False  # whether the batch may be any up to a bound, or any but some
    for free, derived in tries:
        if batch and derived == batch and not bounded:
            continue
        sizes = symbols if free or derived or not batch else {**symbols, "batch": BATCHES[0]}
        try:
            program = export(models, example, place, sizes, free, derived)
            if batch and derived == batch and not program.range_constraints:
                continue  # the batch is a constant there
            return program, free or derived, sizes
        except Exception as e:
            if (free, derived) == tries[-1]:
                raise
            bounded = "satisfy the generated guard" in str(e)


@contextlib.contextmanager
def spared():
    """Leaves out what takes half of the time of an export and changes nothing of it: collecting garbage, remembering
    what operators gave for such sizes, writing Python for each stage of the graph, and a sorted copy of the program
    that torch.export.save makes and drops."""
    import torch._dynamo
    from torch._export.serde import serialize
    from torch.fx import _lazy_graph_module

    lazy = getattr(_lazy_graph_module, "_use_lazy_graph_module", contextlib.nullcontext)
    sort, collects = serialize.canonicalize, gc.isenabled()
    serialize.canonicalize = lambda *_: None
    gc.disable()
    try:
        with lazy(True), torch._dynamo.config.patch(fake_tensor_cache_enabled=False):
            yield
    finally:
        serialize.canonicalize = sort
        if collects:
            gc.enable()


def saved(program, name):
    """Returns the archive that torch.export.save writes, without weights, and its program."""
    import torch

    for values in (program.state_dict, program.constants):
        for key, t in values.items():
            if isinstance(t, torch.Tensor) and t.device.type != "meta":
                values[key] = torch.nn.Parameter(t.to("meta"), t.requires_grad) if isinstance(t, torch.nn.Parameter) else t.to("meta")
    buffer = io.BytesIO()
    with spared():
        torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as z:
        entries = {n: z.read(n) for n in z.namelist()}
    new = next((n for n in entries if n.endswith("models/model.json")), None)
    if new:
        root = new[: -len("models/model.json")]
        entries = {name + "/" + n[len(root) :]: data for n, data in entries.items()}
    else:  # releases before 2.8 had other names
        entries = {name + "/models/model.json": entries["serialized_exported_program.json"], name + "/archive_format": b"pt2", name + "/archive_version": b"0", name + "/byteorder": sys.byteorder.encode()}
    return entries, json.loads(entries[name + "/models/model.json"])
