"""Resolves the model to capture, and the inputs of its forward, from the command line."""

import collections
import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys

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


SCRIPT_DOOR = "record a training step as it runs (the same command with --step), or run the training script itself: vprof run --gpu GPU -- python train.py"


class Refusal(Exception):
    """An error that the user can correct: the problem, the remedy, and whether that is known to help."""

    def __init__(self, what, do="", known=True):
        super().__init__(what)
        self.do, self.known = do, known


class Input(collections.namedtuple("Input", "dtype dims numbers", defaults=(None,))):
    """An input of forward. A dimension is a number, or (symbol, example size); a third element True means that the user
    gave the size. numbers is the user's example tensor or None.
    """

    def sizes(self, symbols):
        return [symbols[d[0]] if isinstance(d, tuple) else d for d in self.dims]

    def repeated(self, symbols):
        """Returns a CPU tensor that repeats the user's values up to the sizes; zeros if there are none."""
        import torch

        if self.numbers is None:
            return torch.zeros(self.sizes(symbols), dtype=self.dtype)
        numbers = self.numbers.detach().cpu()
        for k, size in enumerate(self.sizes(symbols)):
            numbers = numbers.index_select(k, torch.arange(size) % numbers.shape[k])
        return numbers


def parse_input(text):
    """Returns (name, Input) of name=dtype[dim,...]. A dim is a number, a symbol, or symbol=example size."""
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
            parsed.append((symbol, int(example), True) if example else (symbol, EXAMPLE_BATCH if symbol == "batch" else 64))
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
        options["aux_logits"] = False  # an auxiliary head with its own loss

    def inputs(model):
        size = opts.size or (299 if name == "inception_v3" else 224)
        if hasattr(torchvision.models.video, name):
            size = opts.size or 112
            return {"x": image(3, 16, size, size)}
        return {"x": image(3, size, size)}

    return lambda: make(**options), inputs


def hf_model(name, opts):
    """Returns functions that build the model and its inputs. name is config.json, or ORG/NAME@config.json, where
    ORG/NAME is a label.
    """
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
            raise Refusal(f"{path} does not name the task of its model", f"choose with --task: {', '.join(TASKS)}")
        make = cls
    return (lambda: make(config)), (lambda model: hf_inputs(model, config, opts))


def hf_inputs(model, config, opts):
    """Returns the inputs of a transformers model, with labels if it computes its own loss."""
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
        if "pixel_values" in takes and hasattr(config, "vision_config"):  # a model of images and captions
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
    elif main == "input_features" and hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):  # Whisper
        inputs[main] = Input(torch.float32, [("batch", EXAMPLE_BATCH), config.num_mel_bins, 2 * config.max_source_positions])
        if "decoder_input_ids" in takes:
            inputs["decoder_input_ids"] = text("target")
            labels = text("target")
    else:
        raise Refusal(f"the shape of the input {main} of {kind} is not known", f"give it with --input '{main}=float32[batch,...]'")
    if "labels" in takes:
        inputs["labels"] = labels
    return inputs


def image(*dims):
    import torch

    return Input(torch.float32, [("batch", EXAMPLE_BATCH), *dims])


@functools.cache  # runs a file once that defines both the model and its inputs
def module_at(where):
    """Returns the module with a dotted name, or of a file.py."""
    if not where.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(where)
    sys.path.insert(0, os.path.dirname(os.path.abspath(where)))
    found = importlib.util.spec_from_file_location(os.path.basename(where)[:-3], where)
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # required by dataclasses and pickle
    found.loader.exec_module(module)
    return module


def load(spec):
    """Returns the object that pkg.module:name or file.py:name names."""
    where, _, name = spec.rpartition(":")
    if not where or not name or name.endswith(".py"):  # a colon after a Windows drive names nothing
        raise Refusal(f"{spec!r} is not a model", "write timm:NAME, torchvision:NAME, hf:config.json, pkg.module:callable or file.py:callable")
    try:
        module = module_at(where)
    except FileNotFoundError as e:
        raise Refusal(f"{spec}: there is no file {where}") from e
    except ModuleNotFoundError as e:
        raise Refusal(f"{spec}: {e}", "install it into this Python, or run where it can be imported") from e
    except SystemExit as e:
        raise Refusal(f"{spec}: {where} exits when it is imported (SystemExit: {e.code})", 'vprof imports it without command-line arguments: give them defaults, or parse them under if __name__ == "__main__"') from e
    if not hasattr(module, name):
        raise Refusal(f"{spec}: {where} has no {name!r}")
    return getattr(module, name)


def own_model(spec, opts):
    import torch

    found = load(spec)

    def build():
        model = found if isinstance(found, torch.nn.Module) else found()
        if not isinstance(model, torch.nn.Module):
            raise Refusal(f"{spec} returns a {type(model).__name__}; need a torch.nn.Module")
        return model

    if opts.inputs_from:
        batch = load(opts.inputs_from)
        return build, lambda model: of_batch(batch() if callable(batch) else batch, model, opts.inputs_from)
    if not opts.input:
        raise Refusal(f"the inputs of {spec} are not known", "give --input 'x=float32[batch,3,224,224]', or --inputs-from file.py:function")
    return build, lambda model: {}


def of_batch(batch, model, where):
    """Returns the inputs (name to Input) of the user's example: a tensor, a tuple or a dict of them."""
    import torch

    if not isinstance(batch, (dict, tuple, list)):
        batch = (batch,)
    if not isinstance(batch, dict):
        names = list(inspect.signature(vars(model).get("one_by_one", model.forward)).parameters)
        if len(batch) > len(names):
            raise Refusal(f"{where} returns {len(batch)} inputs, but forward accepts {len(names)}")
        batch = dict(zip(names, batch))
    batch = one_by_one(batch, model)
    first = next((t for t in batch.values() if isinstance(t, torch.Tensor) and t.dim()), None)
    if first is None:
        raise Refusal(f"{where} returns no tensor", "return the inputs of forward: a tensor, a tuple or a dict of them")
    n = first.shape[0]
    return {k: Input(t.dtype, [("batch", max(n, 2)) if i == 0 and s == n else s for i, s in enumerate(t.shape)], t) if isinstance(t, torch.Tensor) else t for k, t in batch.items()}


def one_by_one(batch, model):
    """Wraps forward so that tensors inside arguments (a batch as a dict) become arguments with names. Returns them by
    name.
    """
    import torch

    flat = {}

    def names(name, v):
        """Returns the argument's structure with a name in place of each element, and adds the elements to flat."""
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
    """Returns functions that build the model, and that return its inputs."""
    library, _, name = opts.spec.partition(":")
    known = {"timm": timm_model, "torchvision": torchvision_model, "hf": hf_model}
    try:
        build, inputs = known[library](name, opts) if library in known else own_model(opts.spec, opts)
    except ModuleNotFoundError as e:
        raise Refusal(f"this Python has no {e.name}", f"install it: {sys.executable} -m pip install {e.name}") from e
    given = dict(parse_input(i) for i in opts.input)
    return build, lambda model: {**inputs(model), **given}


def first_line(e):
    lines = [s for s in str(e).strip().splitlines() if s.strip()]
    return (lines[0] if lines else type(e).__name__)[:300]
