"""Observes a model's forward in plain Python: its operators, and when Python frees each tensor.

An exported graph lacks the frees, which decide how much memory is in use at the same time.
"""

import contextlib
import dataclasses
import functools
import inspect
import linecache
import math
import os
import random
import sys
import traceback
import weakref

from vprof_model import Refusal

numbers_of = weakref.WeakKeyDictionary()  # known buffer values by model
answers_of = weakref.WeakKeyDictionary()  # the Numbers of its last observation by model


lot = 0  # the random seed of observation and export


def seed():
    """Sets all random seeds: export and observation must take the same path if a model branches on random numbers."""
    import torch

    random.seed(lot)
    torch.manual_seed(lot)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(lot)


def line_of(frames):
    """Returns the innermost line outside torch and this package, as file:line; empty if there is none."""
    import torch

    library = os.path.dirname(os.__file__) + os.sep
    ours = (os.path.dirname(torch.__file__) + os.sep, line_of.__code__.co_filename, "<", library + "contextlib", library + "copy.py")
    for f in reversed(frames):
        if not f.filename.startswith(ours) and not os.path.basename(f.filename).startswith("vprof_"):
            return f"{f.filename}:{f.lineno}"
    return ""


ATTENTION = {"flash": "flash_sdp_enabled", "memory-efficient": "mem_efficient_sdp_enabled", "cuDNN": "cudnn_sdp_enabled", "math": "math_sdp_enabled"}


def attention_allowed():
    """Returns the attention kernels that torch.nn.attention.sdpa_kernel and torch.backends.cuda allow."""
    import torch

    return [name for name, enabled in ATTENTION.items() if getattr(torch.backends.cuda, enabled)()]


class Observation:
    """The record of one forward in plain Python. A tensor is a list of values (operator, result index): of the operator
    that created it, and of operators that wrote to it in place.
    """

    def __init__(self):
        # (name, {argument: [values of each tensor]}) of each ATen operator called from Python.
        self.ops = []
        self.counts = {}  # Count of true elements by operator, for operators whose result size depends on it
        self.types = []  # for each operator its dtype arguments, by name
        self.attention = {}  # allowed attention kernels by operator, if not all are allowed
        self.results = []  # values of the tensors that forward returned
        self.deaths = []  # (last operator before the free, values of the freed tensor)
        self.regions = []  # checkpointed calls: (module or None, first operator, last operator, reentrant)
        self.functions = None  # calls of custom autograd.Functions
        self.assigned = []  # operators that are the copies for tensor.data = value
        self.host = None  # the Host that tracks tensors in host memory
        self.lots = False  # whether random numbers were drawn that forward may branch on
        self.elements = 0  # of all results together
        self.replaced = []  # (last operator before the free, values in the previous forward): freed tensors that it had created
        self.state = []  # (operator, argument, position, values in the previous forward, dtype): uses of tensors it had created
        self.views = set()  # operators whose result shares the memory of their first argument
        self.leaves = []  # values of tensors that forward made require gradients (x.detach().requires_grad_())
        self.ended = False  # whether forward returned
        self.keeps = False  # whether the previous forward called the same operators, so that values of both match
        self.differs = None  # the line of the first operator that was not the expected one
        self.before = None  # the Observation of the previous forward
        self.begins = False  # whether the first forward did more than this one
        self.notes = []  # sentences for the user

    def names(self):
        return [name for name, _ in self.ops]


class Earlier(list):
    """Values of a tensor in the previous forward, which created it."""


RUNS = 3  # most runs of forward: state that the first creates exists in the second, and has the batch's sizes in the third


def observe(model, example, place, symbols, fake=None, expected=None, answers=None, runs=RUNS):
    """Runs forward until it calls the same operators as before, or the expected ones, at most runs times. Returns the
    Observation of the last run: each operator, and when each tensor was freed.

    With expected operator names, the first line that calls another operator is recorded. answers() makes the Answers to
    use for reads of values, from another forward.

    Operators are observed at the same level as torch.export (the PreDispatch key: before autograd and before composite
    operators are decomposed), so that both name the same ones. Autograd itself does not run, since it would keep tensors
    alive. Its visible state (x.requires_grad, torch.is_grad_enabled()) is set anyway, since forward may branch on it.
    """
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    import vprof_backward
    import vprof_host
    import vprof_known as known

    seen = None  # the Observation under way, None between forwards
    values = {}  # id of a living tensor -> its values
    derived = set()  # values that require gradients by what they are made of
    found = set()  # ids of tensors that were there before, and were written to
    numbers = known.Numbers(numbers_of.get(model))

    def born(tensor, value, written):
        if id(tensor) in values:  # the result of an in-place operator is its argument
            values[id(tensor)].append(value)
            return
        values[id(tensor)] = [value]
        if written:
            found.add(id(tensor))
        weakref.finalize(tensor, died, id(tensor))

    def died(key):
        numbers.gone(key)
        which = values.pop(key, None)
        if seen is not None and which is not None:
            seen.host.of.pop(key, None)
            (seen.replaced if isinstance(which, Earlier) else seen.deaths).append((len(seen.ops) - 1, which))

    def below():
        return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView))

    def taken(name, position, tensor):
        """Returns the values of an argument of the operator about to run."""
        which = values.get(id(tensor), [])
        if isinstance(which, Earlier):
            seen.state.append((len(seen.ops), name, position, which, tensor.dtype))
            return []
        if tensor.requires_grad and which and derived.isdisjoint(which) and which not in seen.leaves:
            seen.leaves.append(which[:])
        return which[:]

    class Mode(SchemaCheckMode):  # the only existing mode that PreDispatch accepts
        def __init__(self):
            super(SchemaCheckMode, self).__init__(torch._C.DispatchKey.PreDispatch)

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            given = {**dict(zip((a.name for a in op._schema.arguments), args)), **(kwargs or {})}
            refuse_sparse(t for v in given.values() for t in tensors_of(v))
            arguments = {name: [taken(name, i, t) for i, t in enumerate(tensors_of(v))] for name, v in given.items()}
            differentiable = torch.is_grad_enabled() and any(t.requires_grad for v in given.values() for t in tensors_of(v))
            with below(), torch.no_grad():  # so that views hold no reference to their base
                out = op(*args, **(kwargs or {}))
            # ^An operator with nothing to do (contiguous, to, broadcast_tensors) returns its argument. At another
            # precision or memory format it creates a tensor with its own lifetime, so create one here, too.
            if not op._schema.is_mutable and (same := {id(t) for t in tensors_of(out)} & {id(t) for v in given.values() for t in tensors_of(v)}):
                with below(), torch.no_grad():
                    out = torch.utils._pytree.tree_map(lambda t: torch.ops.aten.alias.default(t) if id(t) in same else t, out)
            # Inside functorch transforms (vmap, grad), tensors have no requires_grad of their own.
            if differentiable and torch._C._functorch.peek_interpreter_stack() is None and op not in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default):
                for tensor in filter(vprof_backward.differentiable, tensors_of(out)):
                    tensor.requires_grad_()
                    derived.update((len(seen.ops), i) for i, t in enumerate(tensors_of(out)) if t is tensor)
            if place != "numbers":
                numbers.follow(op, args, kwargs or {}, out)
            if (count := numbers.count(op, given, lambda: line_of(traceback.extract_stack()))) is not None:
                seen.counts[len(seen.ops)] = count
            if expected is not None and seen.differs is None and expected[len(seen.ops) : len(seen.ops) + 1] != ["torch.ops." + str(op)]:
                seen.differs = line_of(traceback.extract_stack())
            if op is torch.ops.aten.scaled_dot_product_attention.default and len(allowed := attention_allowed()) < len(ATTENTION):
                seen.attention[len(seen.ops)] = allowed
            seen.types.append({name: v for name, v in given.items() if isinstance(v, torch.dtype)})
            seen.host.follow(len(seen.ops), op, given, tensors_of(out))
            seen.lots = seen.lots or torch.Tag.nondeterministic_seeded in op.tags and any(id(t) in seen.host.of or place == "numbers" and t.numel() <= FEW for t in tensors_of(out))
            if shares_memory(out, next(iter(given.values()), None)):
                seen.views.add(len(seen.ops))
            seen.elements += sum(t.numel() for t in tensors_of(out))
            seen.ops.append(("torch.ops." + str(op), arguments))
            for i, tensor in enumerate(tensors_of(out)):
                born(tensor, (len(seen.ops) - 1, i), op._schema.is_mutable)
            return out

    fake = contextlib.nullcontext() if place in ("meta", "numbers") else (fake or fake_mode_of(model) or FakeTensorMode(allow_non_fake_inputs=True))
    with fake:
        if any(map(torch.nn.parameter.is_lazy, (*model.parameters(), *model.buffers()))):
            with torch.no_grad(), known.OneDevice(place):
                args, kwargs = example.tensors(place, symbols)
                model(*args, **kwargs)  # initializes lazy layers
        numbers.adopt(model, place == "numbers")
        numbers.assigned = lambda: seen.assigned.append(len(seen.ops))
        numbers.placed = lambda tensor: seen.host.of.pop(id(tensor), None)
        answers_of[model] = numbers

        def run(before):
            nonlocal seen
            seen = Observation()
            seed()
            drawn = random.getstate()
            args, kwargs = example.tensors(place, symbols)
            derived.clear()
            while found:
                values.pop(found.pop(), None)
            values.update((key, Earlier(which)) for key, which in values.items())
            seen.host = vprof_host.Host(place, (*model.parameters(), *model.buffers()), values, before and before.host)
            seen.host.arrive(torch.utils._pytree.tree_leaves((args, kwargs)))
            numbers.begin()
            with torch.enable_grad(), watching(model, seen), known.asking(answers() if answers else numbers), known.OneDevice(place), enable_python_dispatcher(), torch._C._EnablePreDispatch(), Mode():
                out = model(*args, **kwargs)
            if dataclasses.is_dataclass(out) and torch.utils._pytree.tree_is_leaf(out):
                torch.export.register_dataclass(type(out), serialized_type_name=f"{type(out).__module__}.{type(out).__qualname__}")
            seen.lots = seen.lots or random.getstate() != drawn
            seen.results = [values.get(id(t), []) for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
            seen.ended = True
            done, seen = seen, None  # frees after this line are not forward's
            return done

        try:
            last = run(None)
        except vprof_backward.Again:
            raise
        except Exception:
            if place != "cuda":
                raise
            last = seen  # up to the operator that needs a GPU
        first = last.elements
        for _ in range(runs - 1):
            if not last.ended or expected is not None and last.names() == expected:
                break
            before = last
            try:
                last = run(before)
                last.before = before
            except vprof_backward.Again:
                raise
            except Exception:  # nothing is known of state if forward cannot run twice
                seen = None
                break
            if last.names() == before.names():
                last.keeps = True
                break
        last.begins = first > last.elements and last.keeps and not last.lots
    numbers_of[model] = {**numbers_of.get(model, {}), **({} if place == "numbers" else numbers.buffers(model))}
    return last


def shares_memory(x, y):
    """Reports whether two tensors share memory."""
    import torch

    with contextlib.suppress(Exception):  # tensors inside functorch transforms have no storage
        return isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and x.untyped_storage()._cdata == y.untyped_storage()._cdata
    return False


def refuse_sparse(tensors):
    """Raises Refusal for sparse tensors: an exported program describes them as dense."""
    import torch

    for t in tensors:
        if t.layout not in (torch.strided, torch.jagged):
            where, _, number = line_of(traceback.extract_stack()).rpartition(":")
            line = linecache.getline(where, int(number or 0)).strip()
            raise Refusal(f"{where}:{number}: {line}\n  forward takes a sparse tensor ({str(t.layout).removeprefix('torch.')}), which an exported graph stores as a dense one", "run the training script itself: vprof run --gpu GPU -- python train.py")


def observe_counts(model, example, place, symbols):
    """Calls observe(). Counts of mask elements are also observed at three other batches, to fit their dependence on the
    batch. If forward draws random numbers on the host (layer dropout), the draw with the most elements is used.
    """
    global lot
    seen = observe(model, example, place, symbols)
    if seen.lots and lot == 0:
        made = {0: seen.elements}
        with contextlib.suppress(Exception):
            for lot in range(1, DRAWS):
                made[lot] = observe(model, example, place, symbols).elements
        lot = max(made, key=made.get)
        seen = observe(model, example, place, symbols)
        if len(set(made.values())) > 1:
            seen.notes.append(f"forward depends on random numbers: the plan is for the largest of {DRAWS} random runs")
    numbers = answers_of[model]
    if seen.counts and "batch" in symbols:
        with contextlib.suppress(Exception):  # fails if forward accepts the example's batch alone
            others = {b: observe(model, example, place, {**symbols, "batch": b}, expected=seen.names()).counts for b in (2, 3, 5)}
            for k, count in seen.counts.items():
                count.fit(symbols["batch"], {b: counts[k].seen for b, counts in others.items()})
        answers_of[model] = numbers
    return seen


DRAWS = 8  # with 8 draws, a layer skipped half of the time runs at least once, except for one model in 256
FEW = 64  # also random tensors on the GPU with at most this many elements may decide branches


OTHER_BATCH = 1031  # a prime above usual batch sizes


def other_way(model, example, place, symbols, seen):
    """Returns [batch, line] if forward calls other operators at another batch, else None. It does, for example, if it
    splits the batch into parts: the graph has their number as a constant.
    """
    expected = seen.names()
    if "batch" not in symbols or place == "numbers":
        return None
    try:
        found = observe(model, example, place, {**symbols, "batch": OTHER_BATCH}, expected=expected)
        if found.differs is None and len(found.ops) == len(expected):
            return None
        again = observe(model, example, place, symbols, expected=expected)  # unless forward never does the same twice
    except Exception:  # fails if forward accepts the example's batch alone
        return None
    return [OTHER_BATCH, found.differs or ""] if again.differs is None and len(again.ops) == len(expected) else None


def tensors_of(out):
    import torch

    if isinstance(out, torch.Tensor):
        return [out]
    return [t for o in out for t in tensors_of(o)] if isinstance(out, (tuple, list)) else []


def fake_mode_of(model):
    return next((p.fake_mode for p in model.parameters() if hasattr(p, "fake_mode")), None)


watched = None  # (Observation, module names by module) during an observation


def shape_operators():
    """Registers result shapes of operators on tensors without values that PyTorch lacks. The returned library keeps
    them registered.

    ctc_loss returns losses and forward probabilities, with target lengths taken from the targets' shape. bincount
    returns minlength counts. where accepts uint8 conditions, as it does with values.
    """
    import torch
    import vprof_known as known
    from torch._subclasses import fake_impls

    def ctc_loss(log_probs, targets, *_, **__):
        steps, batch, _ = log_probs.shape
        return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 2 * targets.shape[-1] + 1)

    def bincount(x, weights=None, minlength=0):
        if not minlength:
            raise NotImplementedError("bincount without minlength: how many counts there are depends on the numbers (nonzero)")
        return x.new_empty(minlength, dtype=torch.int64 if weights is None else weights.dtype)

    def where(condition, x, y):
        return torch._refs.where(condition.view(torch.bool) if condition.dtype is torch.uint8 else condition, x, y)

    def says(shapes):
        def fake(mode, _, *args, **kwargs):
            with mode:
                return shapes(*args, **kwargs)

        return fake

    def counted(operator, dims):
        """Registers an operator that returns one row for each true element of a mask, as many as in the observed
        forward.
        """
        unknown = fake_impls.op_implementations_dict[operator]

        def fake(mode, function, *args):
            mask, elements = args[-1], args[-1].numel()
            count = known.count(lambda: line_of(traceback.extract_stack()), elements)
            if count is None:
                return unknown(mode, function, *args)
            if len(args) > 1:  # the mask may be broadcast
                count = count * (math.prod(torch.broadcast_shapes(args[0].shape, mask.shape)) // elements)
            return mask.new_empty((count, *dims(mask)), dtype=args[0].dtype if len(args) > 1 else torch.int64)

        fake_impls.op_implementations_dict.pop(operator)
        fake_impls.register_op_impl(operator)(fake)

    def unique(mode, function, x, sorted=True, return_inverse=False, return_counts=False):
        """Returns as many unique elements as in the observed forward."""
        count = known.count(lambda: line_of(traceback.extract_stack()), x.numel())
        if count is None:
            return any_number(mode, function, x, sorted, return_inverse, return_counts)
        return x.new_empty(count), x.new_empty(x.shape if return_inverse else 0, dtype=torch.int64), x.new_empty(count if return_counts else 0, dtype=torch.int64)

    aten, library = torch.ops.aten, torch.library.Library("aten", "IMPL")
    any_number = fake_impls.op_implementations_dict.pop(aten._unique2.default)
    fake_impls.register_op_impl(aten._unique2.default)(unique)
    counted(aten.nonzero.default, lambda x: [x.dim()])
    counted(aten.masked_select.default, lambda x: [])
    # PyTorch 2.11 has a Python implementation of where and requires a flag to override it.
    override = {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}
    # Both operators ask the GPU.
    questions = [getattr(aten, name) for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss") if hasattr(aten, name)]
    for operator in (getattr(q, overload) for q in questions for overload in q.overloads()):
        fake_impls.op_implementations_dict.pop(operator, None)
        fake_impls.register_op_impl(operator)(lambda *_, **__: False)
    for operator, shapes in ((aten._ctc_loss.default, ctc_loss), (aten._ctc_loss.Tensor, ctc_loss), (aten.bincount.default, bincount), (aten.where.self, where)):
        library.impl(operator, shapes, "Meta", **override)
        fake_impls.op_implementations_dict.pop(operator, None)
        fake_impls.register_op_impl(operator)(says(shapes))
    return library


def share_copied_modes():
    """Makes copies of a module's tensors keep their fake mode.

    copy.deepcopy (nn.Transformer copies its layers) would copy the mode with its weak references to storages; the copy
    frees them a second time and corrupts the heap.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    FakeTensorMode.__deepcopy__ = lambda self, memo: self


def watch_checkpoint():
    """Replaces torch's checkpoint() by a call of the function, which is recorded during an observation.

    Must run before the model's code is imported, which may import the function by name. The reentrant variant would
    leave the rest of an exported graph under no_grad.
    """
    import torch.utils.checkpoint as module

    def checkpoint(function, *args, use_reentrant=None, **kwargs):
        for option in ("preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"):
            kwargs.pop(option, None)
        if watched is None:
            return function(*args, **kwargs)
        seen, names = watched
        first = len(seen.ops)
        out = function(*args, **kwargs)
        seen.regions.append((names.get(module_of(function)), first, len(seen.ops) - 1, bool(use_reentrant)))
        return out

    module.checkpoint = checkpoint


compiled = weakref.WeakSet()  # compiled modules, and functions that have run
scripted = weakref.WeakSet()  # the same for torch.jit.script


def leave_uncompiled():
    """Makes torch.compile and torch.jit.script return their argument. A graph does not show compilation, and scripted
    code detaches its inputs. Must run before the model's code is imported.
    """
    import torch

    def plain(model, noted):
        if not inspect.isroutine(model):
            if isinstance(model, torch.nn.Module):
                noted.add(model)
            return model

        @functools.wraps(model)
        def called(*args, **kwargs):
            noted.add(called)
            return model(*args, **kwargs)

        return called

    def compile(model=None, **_):
        return compile if model is None else plain(model, compiled)  # used as @torch.compile(...)

    torch.compile, torch.jit.script = compile, lambda model, *_, **__: plain(model, scripted)
    torch.nn.Module.compile = lambda self, *_, **__: compiled.add(self)


def module_of(function):
    """Returns the module that a checkpointed function belongs to, else the function itself."""
    while not hasattr(function, "__self__") and hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__self__", function)


@contextlib.contextmanager
def watching(model, seen):
    """Records checkpointed calls and custom autograd.Functions in seen while the block runs."""
    import torch
    import vprof_backward

    global watched
    watched = seen, {m: n for n, m in model.named_modules()}
    seen.functions = vprof_backward.Calls(lambda: len(seen.ops), line_of, torch.no_grad)
    try:
        with vprof_backward.recording(seen.functions):
            yield
    finally:
        watched = None
