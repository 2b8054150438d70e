"""Exports a model with torch.export and saves the program."""

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
    """Makes torch.compiler.is_exporting() and the like return False to models. Some models take another path while
    exporting (transformers builds masks that training leaves out). torch's own calls get the true answer.
    """
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
    """Makes torch.autocast treat the meta device as a GPU. Makes Module.to a no-op if all tensors are on the device
    already, as in PyTorch: on the meta device it would replace parameters that torch.export has registered.
    """
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
    """Makes recurrent layers without values return tensors of the right shapes at once. PyTorch decomposes them step by
    step, which takes minutes.
    """
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
    """Makes einsum choose its contraction order by the example's sizes. opt_einsum compares sizes, which would
    specialize the dynamic batch.
    """
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

    torch._export.config.error_on_lifted_constant_tensors = False  # values of lifted constants do not matter
    with known.asking(known.Answers(answers_of[model], symbols.get("batch"))), known.OneDevice(place), vprof_backward.recording(vprof_backward.Calls(lambda: 0, line_of)), spared():
        return torch.export.export(model, args, kwargs, dynamic_shapes=example.shapes(free, derived) if free or derived else None, strict=False)


BATCHES = (2, 3, 5)  # at which a graph is exported whose batch cannot be dynamic


def sized(models, example, place, symbols, name):
    """Returns (archive entries, program, dependence on the batch, sizes of the symbols). The dependence tells how
    integers of the graph follow a fixed batch; it is None if the batch is dynamic or there is none. models(symbols)
    returns the model to export at these sizes.
    """
    program, free, symbols = freest(models, example, place, symbols)
    entries, graph = saved(program, name)
    if "batch" not in symbols or free:
        return entries, graph, None, symbols
    others = [saved(export(models, example, place, {**symbols, "batch": b}, []), name) for b in BATCHES[1:]]
    graphs = [graph, *(g for _, g in others)]
    return entries, graph, {"exported": BATCHES[0], "inputs": affine_inputs(graphs, BATCHES), "args": affine(graphs, BATCHES)}, symbols


def freest(models, example, place, symbols):
    """Exports with as many dynamic symbols as the model allows, and returns (program, whether any is dynamic, sizes).

    Tried in this order: all symbols; the batch, the others as Dim.AUTO (a Dim must hold for all sizes in its range,
    which fails for sizes that are divided or may be too small); the batch alone; the batch as Dim.AUTO; none.
    """
    batch = [s for s in symbols if s == "batch"]
    others = [s for s in symbols if s != "batch"]
    tries = [(list(symbols), [])]
    if others:
        tries += [(batch, others), (batch, [])]
    if batch:
        tries.append(([], batch))
    if tries[-1] != ([], []):
        tries.append(([], []))
    bounded = False  # whether torch.export asks for a bounded or restricted batch
    for free, derived in tries:
        if batch and derived == batch and not bounded:
            continue
        sizes = symbols if free or derived or not batch else {**symbols, "batch": BATCHES[0]}
        try:
            program = export(models, example, place, sizes, free, derived)
            if batch and derived == batch and not program.range_constraints:
                continue  # torch.export has specialized the batch
            return program, free or derived, sizes
        except Exception as e:
            if (free, derived) == tries[-1]:
                raise
            bounded = "satisfy the generated guard" in str(e)


@contextlib.contextmanager
def spared():
    """Disables work that takes half of the export's time and does not change the result: garbage collection, the cache
    of fake tensors, generating Python code for each stage of the graph, and the canonical copy of the program that
    torch.export.save makes and discards.
    """
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
    """Returns the entries of the archive that torch.export.save writes, without weights, and the program as JSON."""
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
    else:  # releases before 2.8 use other names
        entries = {name + "/models/model.json": entries["serialized_exported_program.json"], name + "/archive_format": b"pt2", name + "/archive_version": b"0", name + "/byteorder": sys.byteorder.encode()}
    return entries, json.loads(entries[name + "/models/model.json"])
