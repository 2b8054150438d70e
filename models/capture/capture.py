"""Captures a PyTorch model as a .pt2 file that vprof can plan.

    python capture.py timm:convnext_tiny -o convnext.pt2
    python capture.py mypkg.model:build --input 'x=float32[batch,3,224,224]' -o mine.pt2
    python capture.py train.py:make_model --inputs-from train.py:example_batch -o mine.pt2

The model is built on the meta device where it can be, so that no weights are
made, and exported with torch.export. Forward runs once more in plain Python to
see when its tensors die, which the exported graph does not say. What was seen is
added to the file as extra/vprof.json. Needs PyTorch 2.6 or newer; no GPU, no network.
"""

import argparse
import collections
import contextlib
import difflib
import functools
import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import inspect
import io
import itertools
import json
import linecache
import os
import random
import re
import sys
import traceback
import warnings
import weakref
import zipfile

OLDEST_TORCH = (2, 6)
EXAMPLE_BATCH = 4
TASKS = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "image-classification": "AutoModelForImageClassification",
    "segmentation": "AutoModelForSemanticSegmentation",
    "audio-classification": "AutoModelForAudioClassification",
    "base": "AutoModel",
}


class Refusal(Exception):
    """Something that the user can mend: what is wrong, and what to do."""

    def __init__(self, what, do=""):
        super().__init__(what)
        self.do = do


# ---------------------------------------------------------------- what to capture


class Input(collections.namedtuple("Input", "dtype dims")):
    """An input of the model. A dimension is a number, or (symbol, example size)."""

    def sizes(self, symbols):
        return [symbols[d[0]] if isinstance(d, tuple) else d for d in self.dims]


def parse_input(text):
    """name=dtype[dim,...] -> name, Input. A dim is a number, a symbol, or symbol=example."""
    m = re.fullmatch(r"(\w+)=(\w+)\[([^\]]*)\]", text.replace(" ", ""))
    if not m:
        raise Refusal(f"--input {text!r} is not name=dtype[dim,...]", "for example x=float32[batch,3,224,224]")
    import torch

    name, dtype, dims = m.groups()
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise Refusal(f"--input {text!r}: {dtype} is not a type of torch", "for example float32, int64, bool")
    parsed = []
    for d in filter(None, dims.split(",")):
        symbol, _, example = d.partition("=")
        if symbol.isdigit():
            parsed.append(int(symbol))
        elif symbol.isidentifier() and (not example or example.isdigit()):
            parsed.append((symbol, int(example or (EXAMPLE_BATCH if symbol == "batch" else 64))))
        else:
            raise Refusal(f"--input {text!r}: {d!r} is not a dimension", "write a number, a name, or name=example")
    return name, Input(getattr(torch, dtype), parsed)


def timm_model(name, opts):
    import timm

    options = {}
    if opts.size:
        options["img_size"] = opts.size

    def build():
        with contextlib.suppress(TypeError):
            return timm.create_model(name, **options)
        return timm.create_model(name)

    def inputs(model):
        channels, *hw = model.default_cfg.get("input_size", (3, 224, 224))
        return {"x": image(channels, *([opts.size] * 2 if opts.size else hw))}

    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 3)
        raise Refusal(f"timm {timm.__version__} has no model {name!r}", f"the nearest are {', '.join(near)}" if near else "")
    return build, inputs


def torchvision_model(name, opts):
    import torchvision

    rooms = [torchvision.models.segmentation, torchvision.models.video, torchvision.models]
    make = next((getattr(r, name) for r in rooms if name in getattr(r, "__all__", vars(r))), None)
    make = make or getattr(torchvision.models, name, None)
    if not callable(make):
        raise Refusal(f"torchvision {torchvision.__version__} has no model {name!r}")
    options = {"weights": None}
    if "weights_backbone" in inspect.signature(make).parameters:
        options["weights_backbone"] = None
    if name in ("inception_v3", "googlenet"):
        options["aux_logits"] = False  # a second head of its own loss

    def inputs(model):
        size = opts.size or (299 if name == "inception_v3" else 224)
        if hasattr(torchvision.models.video, name):
            size = opts.size or 112
            return {"x": image(3, 16, size, size)}
        return {"x": image(3, size, size)}

    return lambda: make(**options), inputs


def hf_model(name, opts):
    """hf:config.json, or hf:ORG/NAME@config.json where ORG/NAME is only what it is called."""
    import transformers

    path = name.rpartition("@")[2]
    try:
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as e:
        raise Refusal(f"transformers cannot read the configuration {path!r}: {first_line(e)}", "give a config.json: hf:ORG/NAME@path/to/config.json") from e
    if opts.attention:
        config._attn_implementation = opts.attention
    task = opts.task
    if task:
        make = getattr(transformers, TASKS[task]).from_config
    else:
        cls = getattr(transformers, (config.architectures or [""])[0], None)
        if cls is None:
            raise Refusal(f"{path} does not say of which task its model is", f"choose with --task: {', '.join(TASKS)}")
        make = cls
    return (lambda: make(config)), (lambda model: hf_inputs(model, config, opts))


def hf_inputs(model, config, opts):
    """The inputs of a model of transformers with its labels, so that it makes its own loss."""
    import torch

    longest = getattr(getattr(config, "text_config", config), "max_position_embeddings", None) or opts.seq

    def text(symbol="seq"):
        return Input(torch.int64, [("batch", EXAMPLE_BATCH), (symbol, min(opts.seq, longest))])

    takes = inspect.signature(model.forward).parameters
    kind = type(model).__name__
    main = getattr(model, "main_input_name", "input_ids")
    inputs, labels = {}, Input(torch.int64, [("batch", EXAMPLE_BATCH)])
    if main == "input_ids":
        inputs[main] = text()
        if "decoder_input_ids" in takes:
            inputs["decoder_input_ids"] = text("target")
        if not re.search("SequenceClassification|MultipleChoice", kind):
            labels = text("target" if "decoder_input_ids" in takes else "seq")
        if "pixel_values" in takes and hasattr(config, "vision_config"):  # images with their captions
            size = opts.size or config.vision_config.image_size
            inputs["pixel_values"] = image(getattr(config.vision_config, "num_channels", 3), size, size)
        if "return_loss" in takes:
            inputs["return_loss"] = True
    elif main == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = opts.size or getattr(vision, "image_size", 224)
        h, w = size if isinstance(size, (list, tuple)) else (size, size)
        inputs[main] = image(getattr(vision, "num_channels", 3), h, w)
        if "Segmentation" in kind:
            labels = Input(torch.int64, [("batch", EXAMPLE_BATCH), h, w])
    elif main == "input_values" and hasattr(config, "max_length"):  # spectrograms
        inputs[main] = Input(torch.float32, [("batch", EXAMPLE_BATCH), config.max_length, config.num_mel_bins])
    elif main == "input_values":
        inputs[main] = Input(torch.float32, [("batch", EXAMPLE_BATCH), opts.samples])
    elif main == "input_features" and hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):  # Whisper and its kin
        inputs[main] = Input(torch.float32, [("batch", EXAMPLE_BATCH), config.num_mel_bins, 2 * config.max_source_positions])
        if "decoder_input_ids" in takes:
            inputs["decoder_input_ids"] = text("target")
            labels = text("target")
    else:
        raise Refusal(f"what {kind} takes as {main} is not known", f"give it with --input '{main}=float32[batch,...]'")
    if "labels" in takes:
        inputs["labels"] = labels
    return inputs


def image(*dims):
    import torch

    return Input(torch.float32, [("batch", EXAMPLE_BATCH), *dims])


@functools.cache  # a file that has both the model and its inputs runs once
def module_at(where):
    """The module of a dotted name, or of a file.py."""
    if not where.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(where)
    sys.path.insert(0, os.path.dirname(os.path.abspath(where)))
    found = importlib.util.spec_from_file_location(os.path.basename(where)[:-3], where)
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses and pickles look it up
    found.loader.exec_module(module)
    return module


def load(spec):
    """pkg.module:name or file.py:name -> the object."""
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise Refusal(f"{spec!r} is not a model", "write timm:NAME, torchvision:NAME, hf:config.json, pkg.module:callable or file.py:callable")
    try:
        module = module_at(where)
    except FileNotFoundError as e:
        raise Refusal(f"{spec}: there is no file {where}") from e
    except ModuleNotFoundError as e:
        raise Refusal(f"{spec}: {e}", "install it into this Python, or run where it can be imported") from e
    if not hasattr(module, name):
        raise Refusal(f"{spec}: {where} has no {name!r}")
    return getattr(module, name)


def own_model(spec, opts):
    import torch

    found = load(spec)

    def build():
        model = found if isinstance(found, torch.nn.Module) else found()
        if not isinstance(model, torch.nn.Module):
            raise Refusal(f"{spec} gives a {type(model).__name__}, not a torch.nn.Module")
        return model

    if opts.inputs_from:
        batch = load(opts.inputs_from)
        return build, lambda model: of_batch(batch() if callable(batch) else batch, model, opts.inputs_from)
    if not opts.input:
        raise Refusal(f"nothing says what {spec} takes", "give --input 'x=float32[batch,3,224,224]', or --inputs-from file.py:function")
    return build, lambda model: {}


def of_batch(batch, model, where):
    """The inputs in what the user's function returns: a tensor, several, or a dict of them."""
    import torch

    if not isinstance(batch, (dict, tuple, list)):
        batch = (batch,)
    if not isinstance(batch, dict):
        names = [p for p in inspect.signature(vars(model).get("one_by_one", model.forward)).parameters]
        if len(batch) > len(names):
            raise Refusal(f"{where} gives {len(batch)} inputs, forward takes {len(names)}")
        batch = dict(zip(names, batch))
    batch = one_by_one(batch, model)
    first = next((t for t in batch.values() if isinstance(t, torch.Tensor) and t.dim()), None)
    if first is None:
        raise Refusal(f"{where} gives no tensor", "return the inputs of forward: a tensor, a tuple or a dict of them")
    n = first.shape[0]
    return {k: Input(t.dtype, [("batch", max(n, 2)) if i == 0 and s == n else s for i, s in enumerate(t.shape)]) if isinstance(t, torch.Tensor) else t for k, t in batch.items()}


def one_by_one(batch, model):
    """Gives the tensors that arguments hold (a batch as a dict) to forward as arguments of their own, which a file can name."""
    import torch

    flat = {}

    def names(name, v):
        """The argument's value with names in place of what it holds."""
        if isinstance(v, dict):
            return {k: names(f"{name}_{k}", each) for k, each in v.items()}
        if isinstance(v, (list, tuple)):
            return [names(f"{name}_{k}", each) for k, each in enumerate(v)]
        name = re.sub(r"\W", "_", name)
        flat[name] = v
        return name

    def values(v, given):
        if isinstance(v, dict):
            return {k: values(each, given) for k, each in v.items()}
        return [values(each, given) for each in v] if isinstance(v, list) else given[v]

    holds = [k for k, v in batch.items() if isinstance(v, (dict, list, tuple)) and any(isinstance(t, torch.Tensor) for t in torch.utils._pytree.tree_leaves(v))]
    if not holds:
        return batch
    forward = vars(model).get("one_by_one", model.forward)
    arguments = {k: names(k, v) for k, v in batch.items()}

    def named(*args, **given):
        given |= zip(flat, args)
        return forward(**{k: values(v, given) for k, v in arguments.items()})

    named.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in flat])
    vars(model)["one_by_one"], model.forward = forward, named
    return flat


def resolve(opts):
    """The functions that build the model and say what it takes."""
    library, _, name = opts.spec.partition(":")
    known = {"timm": timm_model, "torchvision": torchvision_model, "hf": hf_model}
    try:
        build, inputs = known[library](name, opts) if library in known else own_model(opts.spec, opts)
    except ModuleNotFoundError as e:
        raise Refusal(f"this Python has no {e.name}", f"install it: {sys.executable} -m pip install {e.name}") from e
    given = dict(parse_input(i) for i in opts.input)
    return build, lambda model: {**inputs(model), **given}


# ---------------------------------------------------------------- building


def as_eager(model):
    """The model as it is trained."""
    for m in model.modules():
        if hasattr(m, "warn_if_padding_and_no_attention_mask"):
            m.warn_if_padding_and_no_attention_mask = lambda *args, **kwargs: None  # looks at the tokens
        if hasattr(getattr(m, "config", None), "use_cache"):
            m.config.use_cache = False  # a cache of keys is not a tensor, and of no use in training
    return model.train()


def build_on(place, build):
    """The model, made on "meta", with "fake" tensors, or on the "cpu"."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import vprof_known as known

    seed()
    numbers = known.Numbers()
    with {"meta": lambda: torch.device("meta"), "fake": FakeTensorMode, "cpu": contextlib.nullcontext}[place](), known.Building(numbers):
        model = as_eager(build())
    numbers_of[model] = numbers.buffers(model)
    return model


numbers_of = weakref.WeakKeyDictionary()  # model -> numbers of its buffers
answers_of = weakref.WeakKeyDictionary()  # model -> what it read of numbers when it was observed


def seed():
    """Export and observation must take the same way where models draw lots in Python."""
    import torch

    random.seed(0)
    torch.manual_seed(0)


class Example:
    """Inputs of forward at given sizes of the symbols."""

    def __init__(self, model, inputs):
        self.inputs = inputs
        takes = inspect.signature(model.forward).parameters
        anything = any(p.kind is p.VAR_KEYWORD for p in takes.values())
        self.by_name = anything or all(n in takes for n in inputs)
        self.symbols = {d[0]: d[1] for i in inputs.values() if isinstance(i, Input) for d in i.dims if isinstance(d, tuple)}

    def tensors(self, place, symbols):
        import torch

        def one(i):
            if not isinstance(i, Input):
                return i
            return torch.zeros(i.sizes(symbols), dtype=i.dtype, device=place if place in ("meta", "cuda") else "cpu")

        made = {n: one(i) for n, i in self.inputs.items()}
        return ((), made) if self.by_name else (tuple(made.values()), {})

    def shapes(self, free):
        """dynamic_shapes of torch.export, with the symbols in free kept open."""
        import torch

        dims = {s: torch.export.Dim(s, min=2, max=max(65536, 1024 * self.symbols[s])) for s in free}
        shapes = {n: {k: dims[d[0]] for k, d in enumerate(i.dims) if isinstance(d, tuple) and d[0] in dims} if isinstance(i, Input) else None for n, i in self.inputs.items()}
        return shapes if self.by_name else tuple(shapes.values())


# ---------------------------------------------------------------- Python's lifetimes


class Observation:
    """What one forward in plain Python showed. A tensor is a list of values (operator, result):
    of the operator that made it, and of those that wrote to it in place."""

    def __init__(self):
        self.ops = []  # name of each ATen operator called from Python, and its tensor arguments: {name: [values or None]}
        self.types = []  # of each operator the arguments that are types
        self.results = []  # values of the tensors that forward returned
        self.deaths = []  # (last operator called by then, values of the tensor that died)
        self.regions = []  # checkpointed calls: (module or None, first operator, last, reentrant)
        self.functions = None  # calls of custom autograd.Functions
        self.notes = []  # what the user must know


def observe(model, example, place, symbols, fake=None):
    """Runs forward once with no autograd, and sees each operator and the death of each tensor.

    Operators are seen where torch.export sees them (the PreDispatch key: before
    autograd and before compound operators are taken apart), so that both name the same ones."""
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    import vprof_known as known

    seen = Observation()
    values = {}  # id of a living tensor -> its values
    numbers = known.Numbers(numbers_of.get(model))

    def born(tensor, value):
        if id(tensor) in values:  # an operator in place gives its argument
            values[id(tensor)].append(value)
            return
        values[id(tensor)] = [value]
        weakref.finalize(tensor, died, id(tensor))

    def died(key):
        numbers.gone(key)
        seen.deaths.append((len(seen.ops) - 1, values.pop(key)))

    def below():
        return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView))

    class Mode(SchemaCheckMode):  # the one kind of mode of others that this key admits
        def __init__(self):
            super(SchemaCheckMode, self).__init__(torch._C.DispatchKey.PreDispatch)

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            given = {**dict(zip((a.name for a in op._schema.arguments), args)), **(kwargs or {})}
            arguments = {name: [values.get(id(t), [])[:] for t in tensors_of(v)] for name, v in given.items()}
            with below():  # where views do not hold what they look at
                out = op(*args, **(kwargs or {}))
            # An operator that had nothing to do (contiguous, to) gives its argument. With another precision or
            # memory format it makes a tensor, which dies at its own time; so make another one here, too.
            if isinstance(out, torch.Tensor) and not op._schema.is_mutable and any(out is a for a in args):
                with below():
                    out = torch.ops.aten.alias.default(out)
            numbers.follow(op, args, kwargs or {}, out)
            seen.types.append({name: v for name, v in given.items() if isinstance(v, torch.dtype)})
            seen.ops.append(("torch.ops." + str(op), arguments))
            for i, tensor in enumerate(tensors_of(out)):
                born(tensor, (len(seen.ops) - 1, i))
            return out

    seed()
    fake = contextlib.nullcontext() if place == "meta" else (fake or fake_mode_of(model) or FakeTensorMode(allow_non_fake_inputs=True))
    with fake:
        args, kwargs = example.tensors(place, symbols)
        numbers.adopt(model)
        answers_of[model] = numbers
        with torch.no_grad(), watching(model, seen), known.asking(numbers), enable_python_dispatcher(), torch._C._EnablePreDispatch(), Mode():
            out = model(*args, **kwargs)
        seen.results = [values.get(id(t), []) for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    deaths, seen.deaths = seen.deaths, []  # what dies from here on outlives forward
    del out
    seen.deaths = deaths
    return seen


def types_under_autocast(build, example, seen, nodes):
    """[number of a node, argument, whether it is half precision]: types that are float32 in the graph, as they are
    under autocast. x.to(y.dtype) is a type of its own there, which the graph does not show."""
    import torch
    import vprof_backward
    from torch._subclasses.fake_tensor import FakeTensorMode

    wanted = {(k, a) for k, types in enumerate(seen.types) for a, t in types.items() if t is torch.float32}
    if not wanted:
        return []
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    try:
        with fake:
            seed()
            with torch.device("cuda"):
                model = as_eager(build())
            for module in model.modules():
                for tensors in (module._parameters, module._buffers):
                    tensors.update({n: type(t)(t.to("cuda")) if isinstance(t, torch.nn.Parameter) else t.to("cuda") for n, t in tensors.items() if t is not None and t.device.type != "cuda"})
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        cast = vprof_backward.until_known(lambda: observe(model, example, "cuda", dict(example.symbols), fake))
    except Exception:  # the graph's types are taken as they are
        return []
    finally:
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", dtype)
    number, other = align(seen.ops, nodes), {}
    for i, j, size in difflib.SequenceMatcher(None, [n for n, _ in seen.ops], [n for n, _ in cast.ops], autojunk=False).get_matching_blocks() if [n for n, _ in seen.ops] != [n for n, _ in cast.ops] else [(0, 0, len(seen.ops))]:
        other.update((i + k, j + k) for k in range(size))
    return [[number[k], a, cast.types[other[k]].get(a) is torch.bfloat16] for k, a in sorted(wanted) if k in number and k in other]


def tensors_of(out):
    import torch

    if isinstance(out, torch.Tensor):
        return [out]
    return [t for o in out for t in tensors_of(o)] if isinstance(out, (tuple, list)) else []


def fake_mode_of(model):
    return next((p.fake_mode for p in model.parameters() if hasattr(p, "fake_mode")), None)


watched = None  # the Observation under way, and the model


def watch_checkpoint():
    """Puts a checkpoint() in place of torch's that just runs the function, and notes that it did while
    somebody looks. Before the model's code is imported, which may take the function by its name. The
    reentrant one would leave the rest of an exported graph under no_grad."""
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


def module_of(function):
    """The module whose call is checkpointed, if it is one."""
    while not hasattr(function, "__self__") and hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__self__", function)


@contextlib.contextmanager
def watching(model, seen):
    """Notes checkpointed calls and custom autograd.Functions in seen."""
    import vprof_backward

    global watched
    watched = seen, {m: n for n, m in model.named_modules()}
    seen.functions = vprof_backward.Calls(lambda: len(seen.ops), line_of)
    try:
        with vprof_backward.recording(seen.functions):
            yield
    finally:
        watched = None


# ---------------------------------------------------------------- export


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


def export(model, example, place, symbols, free):
    import torch

    seed()
    args, kwargs = example.tensors(place, symbols)
    if place == "fake":
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, fake_mode_of(model).from_tensor, (args, kwargs))
    import vprof_known as known

    import vprof_backward

    torch._export.config.error_on_lifted_constant_tensors = False  # no number of theirs matters
    with known.asking(known.Answers(answers_of[model])), vprof_backward.recording(vprof_backward.Calls(lambda: 0, line_of)):
        return torch.export.export(model, args, kwargs, dynamic_shapes=example.shapes(free) if free else None, strict=False)


def saved(program, name):
    """The archive that torch.export.save writes, without weights, and its program."""
    import torch

    for values in (program.state_dict, program.constants):
        for key, t in values.items():
            if isinstance(t, torch.Tensor) and t.device.type != "meta":
                values[key] = torch.nn.Parameter(t.to("meta"), t.requires_grad) if isinstance(t, torch.nn.Parameter) else t.to("meta")
    buffer = io.BytesIO()
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


def nodes_of(graph, inside=""):
    """Nodes of the program and of the graphs in it, each right after the node that holds it:
    (node, names of the tensors that it makes). Those of an inner graph have its number before them."""
    count = itertools.count()

    def walk(graph, prefix):
        for node in graph["nodes"]:
            n = next(count)
            names = [prefix + v for o in node["outputs"] for v in names_in(o)]
            yield node, prefix, names
            for i in node["inputs"]:
                if "as_graph" in i["arg"]:
                    yield from walk(i["arg"]["as_graph"]["graph"], f"{n}/")

    return list(walk(graph, inside))


def tensors_in(value):
    """The tensors in a tagged argument or result: objects with a name."""
    tag, v = next(iter(value.items()))
    if tag == "as_tensor":
        return [v]
    if tag == "as_optional_tensor":
        return tensors_in(v)
    if tag in ("as_tensors", "as_optional_tensors", "as_nested_tensors"):
        return [found for t in v for found in ([t] if "name" in t else tensors_in(t))]
    return []


def names_in(value):
    return [t["name"] for t in tensors_in(value)]


# ---------------------------------------------------------------- both together


def align(ops, nodes):
    """Operator of the observation -> number of its node. The same Python has run twice, so
    the names follow each other but for what one side alone shows."""
    quiet = re.compile(r"torch\.ops\.(higher_order|aten\.(sym_|_assert))")
    theirs = [(n, node["target"]) for n, (node, _, _) in enumerate(nodes) if node["target"].startswith("torch.ops.") and not quiet.match(node["target"])]
    ours = [(k, name) for k, (name, _) in enumerate(ops) if not quiet.match(name)]
    a, b = [name for _, name in ours], [name for _, name in theirs]
    if a == b:
        blocks = [(0, 0, len(a))]
    else:
        blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return {ours[i + k][0]: theirs[j + k][0] for i, j, size in blocks for k in range(size)}


def lifetimes(seen, nodes, program):
    """The list "dies" of the file: [number of a node, values that die before the next one]."""
    number = align(seen.ops, nodes)
    last, latest = [], -1  # number of the last node by each operator
    for k in range(len(seen.ops)):
        latest = max(latest, number.get(k, latest))
        last.append(latest)
    dies = collections.defaultdict(list)
    named = set()
    for k, values in seen.deaths:
        names = [nodes[number[op]][2][i] for op, i in values if op in number and i < len(nodes[number[op]][2])]
        if names:
            dies[last[k] if k >= 0 else -1].append(names[0])
            named.update(names)
    for n, names in last_uses(number, nodes, program).items():
        dies[n] += [v for v in names if v not in named]
    return [[n, dies[n]] for n in sorted(dies) if dies[n]], len(seen.ops) - len(number)


def rewire(seen, nodes, program):
    """Lets the graph name the tensors that Python used. Where an operator had nothing to do and gave its
    argument (x.float() of a float32), export takes the two for one from there on, and the graph says the later
    name for both. With another precision they are two."""
    number = align(seen.ops, nodes)

    def names_of(values):
        return [nodes[number[op]][2][i] for op, i in values if op in number and i < len(nodes[number[op]][2])]

    def rename(tensors, observed):
        for tensor, values in zip(tensors, observed):
            names = names_of(values)
            if names and tensor["name"] not in names and "/" not in names[-1]:
                tensor["name"] = names[-1]

    for k, (_, arguments) in enumerate(seen.ops):
        if k in number and not nodes[number[k]][1]:  # in an inner graph, values of the outer ones have other names
            node = nodes[number[k]][0]
            for i in node["inputs"]:
                tensors, observed = tensors_in(i["arg"]), arguments.get(i["name"], [])
                if len(tensors) == len(observed):
                    rename(tensors, observed)
    graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
    results = [spec["user_output"]["arg"] for spec in signature["output_specs"] if "user_output" in spec]
    for side in (results, graph["outputs"][len(graph["outputs"]) - len(results) :]):
        tensors = [t for value in side for t in tensors_in(value)]
        if len(tensors) == len(seen.results):
            rename(tensors, seen.results)


def functions(seen, nodes):
    """The calls of custom Functions whose parts are all in the graph, with the numbers of their first nodes."""
    number, found = align(seen.ops, nodes), []
    for call in seen.functions.known:
        parts = [number.get(k) for k in (call["begin"], call["backward"], call["end"] - 1)]
        if None in parts or any(nodes[n][1] != nodes[parts[0]][1] for n in parts):
            continue
        found.append({**call, "begin": parts[0], "backward": parts[1], "end": parts[2] + 1})
    return found


def last_uses(number, nodes, program):
    """Where values of nodes that no operator of the observation has made are used last."""
    unseen = set(range(len(nodes))) - set(number.values())
    last = {}
    for n, (node, prefix, names) in enumerate(nodes):
        if n in unseen and not any("as_graph" in i["arg"] for i in node["inputs"]):  # what a graph gives has its own names there
            last.update((v, n) for v in names)
        for i in node["inputs"]:
            last.update((v, n) for v in (prefix + name for name in names_in(i["arg"])) if v in last)
    for o in program["graph_module"]["graph"]["outputs"]:
        for name in names_in(o):
            last.pop(name, None)
    uses = collections.defaultdict(list)
    for v, n in last.items():
        uses[n].append(v)
    return uses


def affine(programs, batches):
    """Integers in which programs of two batches differ, as a + b * batch; the third checks them."""
    graphs = [nodes_of(p["graph_module"]["graph"]) for p in programs]
    shape = [[(node["target"], len(node["inputs"])) for node, _, _ in g] for g in graphs]
    if any(s != shape[0] for s in shape):
        raise Refusal("the graph itself changes with the batch", "give the batch that you train with: --input 'x=float32[8,...]'")

    def fit(values):
        b = (values[1] - values[0]) // (batches[1] - batches[0])
        a = values[0] - b * batches[0]
        if any(v != a + b * n for v, n in zip(values, batches)):
            raise Refusal(f"a size of the graph is {values} at the batches {list(batches)}, which no line goes through")
        return a, b

    args = []
    for n, rows in enumerate(zip(*graphs)):
        for each in zip(*(node["inputs"] for node, _, _ in rows)):
            for index, values in enumerate(zip(*(integers(i["arg"]) for i in each))):
                if len(set(values)) > 1:
                    args.append([n, each[0]["name"], index, *fit(values)])
    return args


def integers(arg):
    tag, v = next(iter(arg.items()))
    if tag == "as_int":
        return [v]
    if tag == "as_ints":
        return v
    if tag == "as_sym_int":
        return [v["as_int"]] if "as_int" in v else []
    return [s["as_int"] for s in v if "as_int" in s] if tag == "as_sym_ints" else []


# ---------------------------------------------------------------- what else vprof wants to know


def facts(model, program):
    """Of the model itself: frozen, tied and unused parameters, and the order in which model.to moves them."""
    import torch

    inputs = [next(iter(s.values())) for s in program["graph_module"]["signature"]["input_specs"]]
    in_graph = {i.get("parameter_name") or i.get("buffer_name") for i in inputs}
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    names = {id(t): n for n, t in (*parameters.items(), *buffers.items())}
    return {
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "libraries": libraries(model),
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "frozen": [n for n, p in parameters.items() if not p.requires_grad],
        "tied": [[n, names[id(p)]] for n, p in model.named_parameters(remove_duplicate=False) if names[id(p)] != n],
        "to": [names[id(t)] for t in moved(model)],
        "parameters": {n: list(p.shape) for n, p in parameters.items() if n not in in_graph},
        "buffers": {n: {"shape": list(b.shape), "dtype": str(b.dtype).removeprefix("torch.")} for n, b in buffers.items() if n not in in_graph},
    }


def moved(model):
    """Parameters and buffers in the order in which model.to moves them, each once."""
    order = {}

    def move(module):
        for child in module.children():
            move(child)
        order.update((id(t), t) for t in (*module._parameters.values(), *module._buffers.values()) if t is not None)

    move(model)
    return list(order.values())


def libraries(model):
    """Versions of the packages whose modules the model is made of."""
    of = importlib.metadata.packages_distributions()
    packages = sorted({type(m).__module__.split(".")[0] for m in model.modules()} - {"torch", "__main__"})
    return {p: importlib.metadata.version(of[p][0]) for p in packages if p in of}


def symbols_of(example, program):
    """How the user called the sizes that are open, and what they are in the example."""
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


def line_of(frames):
    """The innermost line that is neither torch's nor ours, as file:line."""
    import torch

    ours = (os.path.dirname(torch.__file__) + os.sep, line_of.__code__.co_filename, "<", os.path.dirname(os.__file__) + os.sep + "contextlib")
    for f in reversed(frames):
        if not f.filename.startswith(ours) and not os.path.basename(f.filename).startswith("vprof_"):
            return f"{f.filename}:{f.lineno}"
    return ""


def first_line(e):
    lines = [s for s in str(e).strip().splitlines() if s.strip()]
    return (lines[0] if lines else type(e).__name__)[:300]


ADVICE = [
    (r"data.?dependent|GuardOnDataDependent|item\(\) cannot be called|Could not guard|nonzero|_local_scalar_dense|Cannot cast .* to number", "what runs here depends on the numbers in a tensor, which a file cannot hold. Decide it by a plain Python value or by shapes, or capture the part of the model without it"),
    (r"missing \d+ required|unexpected keyword|required positional", "forward takes other inputs: name them as forward does, --input NAME=dtype[...]"),
    (r"not a supported value|unsupported (input|output) type|pytree|type is unsupported", "forward takes or gives something that is no tensor. Return tensors, tuples or dicts (use_cache=False, return_dict=True)"),
    (r"mat1 and mat2|size mismatch|Invalid channel|must match the size|Expected .* channels|expected input|invalid for input of size|shape", "the inputs have sizes that the model does not take: change --input, --size or --seq"),
    (r"meta.*(not implemented|unsupported)|Could not run|no fake impl|not implemented for", "this operator does not say what it returns: register a fake implementation (torch.library.register_fake)"),
]


def refusal(e, opts, doing):
    """What the user can do about an exception in their model."""
    if isinstance(e, Refusal):
        return e
    where = line_of(traceback.extract_tb(e.__traceback__))
    what = f"{doing} fails: {type(e).__name__}: {first_line(e)}"
    if where:
        path, _, line = where.rpartition(":")
        what = f"{os.path.relpath(path) if path.startswith(os.getcwd()) else path}:{line}: {linecache.getline(path, int(line)).strip()}\n  {what}"
    text = f"{type(e).__name__}: {e}"
    otherwise = "try the same with torch.export.export(model, inputs, strict=False) in Python to see all of it"
    if doing == "building the model":
        otherwise = "run what builds it by itself in Python; --verbose shows all of the error"
    return Refusal(what, next((do for pattern, do in ADVICE if re.search(pattern, text, re.I)), otherwise))


# ---------------------------------------------------------------- the whole of it


PLACES = ("meta", "fake", "cpu")


def capture(opts, places=PLACES):
    """Writes the file. Returns what to tell the user."""
    global hiding
    build, inputs_of = resolve(opts)
    failure = failed = None
    for place in places:
        for hiding in (True, False):
            doing = "building the model"
            try:
                model = build_on(place, build)
                inputs = inputs_of(model)
                doing = "forward"
                example, seen = observe_with_loss(model, inputs, place, opts)
                symbols = dict(example.symbols)
                doing = "torch.export"
                return write(opts, build, model, example, place, seen, *freest(model, example, place, symbols))
            except Refusal:
                raise
            except Exception as e:
                if opts.verbose:
                    traceback.print_exc()
                if failed in (None, "building the model"):  # elsewhere it fails for another reason, the user's own
                    failure, failed = refusal(e, opts, doing), doing
                if doing != "torch.export":
                    break
    raise failure


def observe_with_loss(model, inputs, place, opts):
    """Observes forward; without labels, should they be ours and the model's own loss not run without numbers."""
    import vprof_backward

    try:
        example = Example(model, inputs)
        return example, vprof_backward.until_known(lambda: observe(model, example, place, dict(example.symbols)))
    except Exception:
        if not opts.spec.startswith("hf:") or "labels" not in inputs or any(i.startswith("labels=") for i in opts.input):
            raise
    example = Example(model, {n: i for n, i in inputs.items() if n != "labels"})
    seen = observe(model, example, place, dict(example.symbols))
    seen.notes.append("captured without its own loss, which looks at the numbers in the labels: choose one with --loss")
    return example, seen


def freest(model, example, place, symbols):
    """Exports with as many symbols open as the model lets be: all, the batch alone, none."""
    tries = [list(symbols)] if symbols else [[]]
    if "batch" in symbols:
        tries += [["batch"]] if len(symbols) > 1 else []
        tries.append([])
    for free in tries:
        sizes = symbols if free else {**symbols, **({"batch": 2} if "batch" in symbols else {})}
        try:
            return export(model, example, place, sizes, free), free, sizes
        except Exception:
            if free == tries[-1]:
                raise


def write(opts, build, model, example, place, seen, program, free, symbols):
    name = os.path.basename(opts.output).removesuffix(".pt2")
    entries, graph = saved(program, name)
    nodes = nodes_of(graph["graph_module"]["graph"])
    extra = {"version": 1, "source": opts.spec, **facts(model, graph)}
    notes = list(seen.notes)
    if "batch" in symbols and not free:
        seen = observe(model, example, place, symbols)
        batches = (2, 3, 5)
        others = [saved(export(model, example, place, {**symbols, "batch": b}, []), name)[1] for b in batches[1:]]
        extra["batch"] = {
            "exported": batches[0],
            "inputs": [[n, k, 0, 1] for n, i in example.inputs.items() if isinstance(i, Input) for k, d in enumerate(i.dims) if isinstance(d, tuple) and d[0] == "batch"],
            "args": affine([graph, *others], batches),
        }
        notes.append(f"export insists on a fixed batch; {len(extra['batch']['args'])} numbers of the graph were found to follow it")
    rewire(seen, nodes, graph)
    entries[name + "/models/model.json"] = json.dumps(graph).encode()
    extra["dies"], unseen = lifetimes(seen, nodes, graph)
    if unseen > len(seen.ops) // 100:
        notes.append(f"{unseen} of {len(seen.ops)} operators of forward are not in the exported graph; lifetimes around them are a guess")
    named = {n: [isinstance(d, tuple) and d[0] == "batch" for d in i.dims] for n, i in example.inputs.items() if isinstance(i, Input)}
    extra["batch_dims"] = {n: dims.index(True) for n, dims in named.items() if True in dims[1:] and not dims[0]}
    extra["autocast"] = types_under_autocast(build, example, seen, nodes)
    extra["symbols"] = symbols_of(example, graph)
    extra["checkpointed"] = list(dict.fromkeys(m for m, _, _, reentrant in seen.regions if m and not reentrant))
    extra["reentrant"] = list(dict.fromkeys(m for m, _, _, reentrant in seen.regions if m and reentrant))
    unknown = dict.fromkeys(seen.functions.unknown)
    extra["custom_functions"] = [{"name": n, "line": line} for n, line in unknown]
    extra["functions"] = functions(seen, nodes)
    for n, line in unknown:
        notes.append(f"{n} ({line}) has a backward of its own that looks at numbers, which the file does not hold; it is planned as one kernel that makes all gradients")
    entries[name + "/extra/vprof.json"] = json.dumps(extra).encode()
    temporary = opts.output + ".part"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as z:
        for n, data in entries.items():
            z.writestr(n, data)
    os.replace(temporary, opts.output)
    return {"file": opts.output, "bytes": os.path.getsize(opts.output), "nodes": len(nodes), "symbols": free, "batch": bool(free) or "batch" in extra, "place": place, "notes": notes}


def told(refused):
    return {"error": str(refused), "do": refused.do}


def capture_apart(opts):
    """Captures in a process of its own. Where it crashes, the next place is tried."""
    import torch
    import vprof_child

    def attempt(places):
        try:
            return capture(opts, places)
        except Refusal as e:
            return told(e)
        except BaseException as e:  # a bug of ours: told as Python does
            traceback.print_exc()
            return told(Refusal(f"{type(e).__name__}: {first_line(e)}", "please report it with --verbose"))

    torch.set_num_threads(1)  # threads do not survive a fork
    crashed = None
    for k in range(len(PLACES)):
        try:
            outcome = vprof_child.in_child(lambda: attempt(PLACES[k:]))
        except vprof_child.Crash as e:
            crashed = crashed or e
            continue
        return outcome
    where, _, number = line_of([traceback.FrameSummary(path, int(n), "") for path, n in reversed(crashed.frames)]).rpartition(":")
    line = f"{where}:{number}: {linecache.getline(where, int(number)).strip()}\n  " if where else ""
    return told(Refusal(f"{line}Python ended by {crashed} while this ran", "it does so on tensors without numbers: write the line another way, or run it as a script: vprof run -- python train.py"))


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
            raise Refusal(f"this Python ({sys.executable}) has PyTorch {torch.__version__}", "2.6 is the oldest that exports graphs for training: name another Python with --python, or upgrade torch")
        if not opts.verbose:
            warnings.filterwarnings("ignore")
            import logging

            logging.disable(logging.ERROR)
        watch_checkpoint()
        hide_tracing()
        import vprof_known as known

        known.watch_readers()
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


def find_parts(texts):
    """Has modules found that are text in this script."""

    class Parts(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        def find_spec(self, name, path=None, target=None):
            return importlib.util.spec_from_loader(name, self) if name in texts else None

        def get_source(self, name):
            return texts[name]

    sys.meta_path.insert(0, Parts())


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(sys.argv[1:]))
