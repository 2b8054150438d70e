"""Placeholders for absent weights: modules of the right shapes without values, loaded by each library's own loader.

If a library can save a model, it writes the placeholder itself: its class builds the model of a configuration on the
meta device and saves it, and each file contains shapes without values. So the library decides on names, shards, tied
weights, conversions and the temporary peaks of loading. For a file without a known class, a Missing object replaces its
contents: a state dict with the names and shapes of the module that loads it.
"""

import collections
import contextlib
import copy
import functools
import glob
import importlib
import inspect
import os
import sys

from . import events, files, hub, memory, placeholders
from .placeholders import replaced, wanted

# Size of shards, as in most repositories of the hub.
SHARD = "5GB"


def start(torch):
    """Called when torch was imported."""
    request = importlib.import_module("urllib.request")
    request.urlretrieve = retrieving(request.urlretrieve)
    torch.load = loading(torch, torch.load)
    torch.nn.Module.load_state_dict = filling(torch, torch.nn.Module.load_state_dict)
    torch.nn.Module.state_dict = stating(torch, torch.nn.Module.state_dict)
    torch.optim.Optimizer.load_state_dict = resuming(torch, torch.optim.Optimizer.load_state_dict)
    torch.amp.GradScaler.load_state_dict = leaving(torch.amp.GradScaler.load_state_dict)


# Classes that load a folder.


def watch_transformers(module):
    """Called when transformers.modeling_utils was imported."""
    module.PreTrainedModel.from_pretrained = from_pretrained(module.PreTrainedModel.from_pretrained, Transformers())


def watch_diffusers(module):
    """Called when diffusers.models.modeling_utils was imported."""
    module.ModelMixin.from_pretrained = from_pretrained(module.ModelMixin.from_pretrained, Diffusers())


class Transformers:
    """transformers' file names and its way to build a model."""

    names = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")

    def config(self, cls, source, kwargs):
        """Returns the configuration of a model."""
        config = kwargs.get("config")
        if config is not None and not isinstance(config, (str, os.PathLike)):
            return copy.deepcopy(config)
        known = {k: v for k, v in kwargs.items() if k not in ("config", "dtype", "torch_dtype", "quantization_config", "device_map")}
        return cls.config_class.from_pretrained(config or source, return_unused_kwargs=True, **known)[0]

    def dtype(self, torch, config, kwargs):
        """Returns the dtype in which the library would load the weights. The placeholder is saved in it: a conversion
        would take host memory.
        """
        asked = kwargs.get("dtype", kwargs.get("torch_dtype"))
        if isinstance(asked, str) and asked != "auto":
            asked = getattr(torch, asked)
        if isinstance(asked, torch.dtype):
            return asked
        own = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        before5 = sys.modules["transformers"].__version__.startswith("4.")
        if own is None or asked is None and before5:
            return torch.float32  # default of transformers before release 5
        return own if isinstance(own, torch.dtype) else getattr(torch, str(own).replace("torch.", ""))

    def model(self, cls, config):
        return cls(config)

    def module(self):
        return sys.modules["transformers.modeling_utils"]

    def name(self, model, source):
        """Sets a model's name_or_path to the name that the script requested."""
        for part in (model, getattr(model, "config", None)):
            if hasattr(part, "name_or_path"):
                part.name_or_path = source


class Diffusers(Transformers):
    """diffusers' file names and its way to build a model."""

    names = tuple(name.replace(base, "diffusion_pytorch_model") for base in ("model", "pytorch_model") for name in Transformers.names if name.startswith(base))

    def config(self, cls, source, kwargs):
        names = ("cache_dir", "subfolder", "revision", "token", "local_files_only", "force_download")
        return cls.load_config(source, **{k: v for k, v in kwargs.items() if k in names})

    def dtype(self, torch, config, kwargs):
        asked = kwargs.get("torch_dtype")
        return asked if isinstance(asked, torch.dtype) else torch.float32

    def model(self, cls, config):
        return cls.from_config(config)

    def module(self):
        return sys.modules["diffusers.models.modeling_utils"]

    def name(self, model, source):
        model.register_to_config(_name_or_path=source)


def from_pretrained(method, library):
    """Wraps from_pretrained to load placeholders for absent weights."""
    call = method.__func__

    @functools.wraps(call)
    def wrapped(cls, source=None, *args, **kwargs):
        if source is None:
            source = kwargs.pop("pretrained_model_name_or_path", None)
        if source is None or kwargs.get("state_dict") is not None or kwargs.get("gguf_file") or has_weights(library, str(source), kwargs):
            return call(cls, source, *args, **kwargs)
        folder = folder_of(library, cls, str(source), kwargs)
        with quiet():
            found = call(cls, folder, *args, **{k: v for k, v in kwargs.items() if k not in ("subfolder", "variant", "use_safetensors", "revision")})
        library.name(found[0] if isinstance(found, tuple) else found, str(source))
        return found

    return classmethod(wrapped)


def has_weights(library, source, kwargs):
    """Reports whether a model's weights exist: in a folder, or in the hub's cache."""
    inner = kwargs.get("subfolder") or ""
    if os.path.isfile(source):
        return True
    if os.path.isdir(source):
        return bool(weights_in(os.path.join(source, inner)))
    return any(hub.cached(source, os.path.join(inner, name), kwargs.get("revision"), kwargs.get("cache_dir")) for name in library.names)


def weights_in(folder):
    """Returns the names of weight files in a folder, without Git LFS pointers."""
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    return [n for n in names if n.endswith(files.CHECKPOINTS) and not is_pointer(os.path.join(folder, n))]


def is_pointer(path):
    """Reports whether a file is a Git LFS pointer, which replaces a large file that was not downloaded."""
    if os.path.getsize(path) > 1024:
        return False
    with open(path, "rb") as file:
        return file.read(40).startswith(b"version https://git-lfs")


def folder_of(library, cls, source, kwargs):
    """Returns a folder with a model's files and placeholders of its weights."""
    torch = sys.modules["torch"]
    inner = kwargs.get("subfolder") or ""
    repository = None if os.path.isdir(source) else hub.repository(source)
    fetched = repository and repository.fetch_weights(inner)
    if fetched:
        replaced("weights", source, "the shapes that the headers of its files state")
        return fetched
    config = library.config(cls, source, kwargs)
    dtype = library.dtype(torch, config, kwargs)
    folder = os.path.join(placeholders.folder(), "%s-%d" % (cls.__name__, len(os.listdir(placeholders.folder()))))
    os.makedirs(folder)
    with unseen(torch), saving_shapes(library.module()):
        with torch.device("meta"):
            model = library.model(cls, config)
        model.to(dtype).save_pretrained(folder, max_shard_size=SHARD)
    link_others(os.path.join(source, inner), folder)
    replaced("weights", source, "%s of its configuration%s, %s" % (cls.__name__, repository.origin if repository else "", str(dtype).replace("torch.", "")))
    return folder


def link_others(source, folder):
    """Links the other files of a model's folder, such as its code and its tokenizer."""
    for name in os.listdir(source) if os.path.isdir(source) else ():
        if not os.path.lexists(os.path.join(folder, name)) and not name.endswith((*files.CHECKPOINTS, ".index.json")):
            os.symlink(os.path.abspath(files.path_to_read(os.path.join(source, name))), os.path.join(folder, name))


@contextlib.contextmanager
def unseen(torch):
    """Restores the script's random state and default dtype after a placeholder was built."""
    state, dtype = torch.random.get_rng_state(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with quiet():
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.random.set_rng_state(state)


@contextlib.contextmanager
def quiet():
    """Disables log messages up to warnings while placeholders are loaded."""
    logging = importlib.import_module("logging")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def saving_shapes(module):
    """Makes safetensors write shapes without values while a library saves a model."""
    numbers = importlib.import_module("safetensors.torch")

    def save(tensors, filename, metadata=None):
        placeholders.write_shapes(filename, tensors, metadata)

    bars = getattr(getattr(module, "logging", None), "disable_progress_bar", None)
    if bars:
        bars()
    # transformers 4 takes all tensors on the meta device for shared ones, since they have no addresses.
    instead = {"save_file": save, "safe_save_file": save, "id_tensor_storage": lambda tensor: tensor.untyped_storage()._cdata}
    places = [(numbers, "save_file")] + [(module, name) for name in instead if hasattr(module, name)]
    before = [(place, name, getattr(place, name)) for place, name in places]
    try:
        for place, name in places:
            setattr(place, name, instead[name])
        yield
    finally:
        for place, name, function in before:
            setattr(place, name, function)
        if bars:
            module.logging.enable_progress_bar()


# Files of weights without a known class.


class Missing(dict):
    """The contents of an absent file: a state dict of the module that loads it. As a number it is 0."""

    iterated = []  # objects whose entries the script has iterated over, to make another dict
    stated = None, {}  # the function of the user that last asked for a state dict, and that dict's shapes and dtypes by name

    def __init__(self, path, device=None, key=""):
        super().__init__()
        self.path, self.device, self.key, self.kept = str(path), device, key, []

    def __reduce__(self):
        return Missing, (self.path, self.device, self.key)

    def __getitem__(self, key):
        if not dict.__contains__(self, key):
            dict.__setitem__(self, key, Missing(self.path, self.device, "%s[%r]" % (self.key, key)))
        return dict.__getitem__(self, key)

    def get(self, key, default=None):
        return self[key]

    def pop(self, key, default=None):
        return dict.pop(self, key, default)

    def copy(self):
        return self

    def __delitem__(self, key):
        dict.pop(self, key, None)

    def __bool__(self):
        return True

    def __len__(self):
        return len(self.pairs())

    def pairs(self):
        """Returns the entries that iteration yields: tensors of the names of a module whose state dict the same function
        compares with, else a single pair. load_state_dict recognizes either by the values.
        """
        Missing.iterated.append(self)
        code, shapes = Missing.stated
        frame = memory.frame_of_user(sys._getframe(1), memory.LIBRARIES)
        if frame is None or frame.f_code is not code or not shapes:
            return {STAR: self}
        for name in shapes.keys() - dict.keys(self):
            value = placeholders.lazy.empty(*shapes[name])
            value = value if self.device is None else value.to(self.device)
            value.vprof_absent = True
            dict.__setitem__(self, name, value)
        return {name: dict.__getitem__(self, name) for name in shapes}

    def __iter__(self):
        return iter(self.pairs())

    def keys(self):
        return self.pairs().keys()

    def items(self):
        return self.pairs().items()

    def values(self):
        return self.pairs().values()

    def __getattr__(self, name):
        if not name.startswith("__"):
            wanted("%s of %s%s, which is absent" % (name, self.path, self.key), "put the file there")
        raise AttributeError("the file %s is absent: vprof has no %s of it" % (self.path, name))

    # As a number, such as the epoch of an earlier run.

    def __index__(self):
        return 0

    __int__ = __index__

    def __float__(self):
        return 0.0

    def __add__(self, other):
        return other

    __radd__ = __sub__ = __add__

    def __lt__(self, other):
        return other > 0

    def __gt__(self, other):
        return other < 0

    def __mul__(self, _):
        return 0

    __rmul__ = __floordiv__ = __truediv__ = __mod__ = __mul__

    def __str__(self):
        return "0"

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


STAR = "*"


def absent(path):
    """Reports whether a file of weights is absent, a Git LFS pointer, or an empty placeholder."""
    if not files.named(path):
        return False
    path = files.path_to_read(path)
    if not os.path.exists(path):
        return True
    return os.path.isfile(path) and (os.path.getsize(path) == 0 and files.within(os.path.abspath(path), events.folder()) or is_pointer(path))


def missing(path, device):
    replaced("weights", path, "the shapes of the module that loads it")
    return Missing(path, device)


def loading(torch, load):
    """Wraps torch.load to return a Missing object for an absent file."""

    @functools.wraps(load)
    def wrapped(f, map_location=None, *args, **kwargs):
        if absent(f):
            return missing(f, map_location if isinstance(map_location, (str, torch.device, int)) else None)
        return load(f, map_location, *args, **kwargs)

    return wrapped


def filling(torch, load_state_dict):
    """Wraps Module.load_state_dict, whose argument may be a Missing object or contain some."""

    @functools.wraps(load_state_dict)
    def wrapped(self, state_dict, strict=True, assign=False):
        own = self.state_dict() if isinstance(state_dict, Missing) else {}
        Missing.stated = None, {}  # a function that loads has compared what it loads
        if isinstance(state_dict, Missing):
            if assign:
                return load_state_dict(self, {k: without_values(torch, v, state_dict.device) for k, v in own.items()}, strict, assign)
            if state_dict.device is not None and torch.device(state_dict.device).type == "cuda" and not state_dict.kept:
                state_dict.kept = [torch.empty_like(v, device=state_dict.device) for v in own.values() if isinstance(v, torch.Tensor)]
            return torch.nn.modules.module._IncompatibleKeys([], [])
        if any(is_absent(v) for v in state_dict.values()) or not state_dict and Missing.iterated:
            state_dict, strict = {k: v for k, v in state_dict.items() if not is_absent(v)}, False
        return load_state_dict(self, state_dict, strict, assign)

    return wrapped


def is_absent(value):
    """Reports whether a value comes from an absent file."""
    return isinstance(value, Missing) or getattr(value, "vprof_absent", False)


def stating(torch, state_dict):
    """Wraps Module.state_dict, with whose names the user's functions compare what a file holds."""

    @functools.wraps(state_dict)
    def wrapped(self, *args, **kwargs):
        found = state_dict(self, *args, **kwargs)
        frame = memory.frame_of_user(sys._getframe(1), memory.LIBRARIES)
        if frame is not None:
            Missing.stated = frame.f_code, {name: (v.shape, v.dtype) for name, v in found.items() if isinstance(v, torch.Tensor)}
        return found

    return wrapped


def without_values(torch, value, device=None):
    """Returns a tensor of the same shape and dtype without values."""
    if not isinstance(value, torch.Tensor):
        return value
    made = placeholders.lazy.empty(value.shape, value.dtype)
    return made if device is None else made.to(device)


def resuming(torch, load_state_dict):
    """Wraps Optimizer.load_state_dict: for a Missing object, the state gets the shapes that a step on the meta device
    creates.
    """

    @functools.wraps(load_state_dict)
    def wrapped(self, state_dict):
        if not isinstance(state_dict, Missing):
            return load_state_dict(self, state_dict)
        try:
            self.state.update(first_state(torch, self))
        except Exception:  # the optimizer reads values: its state stays empty
            pass
        return None

    return wrapped


def first_state(torch, optimizer):
    """Returns an optimizer's state without values, created by a step on the meta device."""
    twin, parameters = copy.copy(optimizer), []
    twin.state, twin.param_groups = collections.defaultdict(dict), []
    for group in optimizer.param_groups:
        own = [p for p in group["params"] if p.requires_grad]
        on_meta = [torch.empty_like(p, device="meta", requires_grad=True) for p in own]
        for p in on_meta:
            p.grad = torch.empty_like(p)
        parameters += zip(own, on_meta)
        twin.param_groups.append({**group, "params": on_meta, **{k: False for k in ("fused", "foreach", "capturable") if k in group}})
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(twin)
    return {
        p: {k: torch.empty_like(v, device=p.device) if isinstance(v, torch.Tensor) and v.is_meta else v for k, v in twin.state[q].items()}
        for p, q in parameters
    }


def leaving(load_state_dict):
    """Wraps a load_state_dict to ignore Missing objects."""

    @functools.wraps(load_state_dict)
    def wrapped(self, state_dict):
        return None if isinstance(state_dict, Missing) else load_state_dict(self, state_dict)

    return wrapped


def watch_safetensors(module):
    """Called when safetensors was imported."""
    real = module.safe_open

    @functools.wraps(real)
    def wrapped(filename, *args, **kwargs):
        if placeholders.is_placeholder(filename) and os.path.getsize(filename):
            return placeholders.Opened(filename, *args, **kwargs)
        return real(filename, *args, **kwargs)

    module.safe_open = wrapped


def watch_safetensors_torch(module):
    """Called when safetensors.torch was imported."""
    real = module.load_file

    @functools.wraps(real)
    def wrapped(filename, device="cpu", *args, **kwargs):
        return missing(filename, None if device == "cpu" else device) if absent(filename) else real(filename, device, *args, **kwargs)

    module.load_file = wrapped


# Libraries that build the model before they load its weights.


def to_file(url, dst, *_, **__):
    """Replaces torch.hub.download_url_to_file: leaves an empty file as placeholder."""
    with open(files.path_to_write(dst) if files.diverts() else dst, "wb"):
        pass
    replaced("weights", url, "the shapes of the module that loads it")


def retrieving(real):
    """Wraps urllib.request.urlretrieve: leaves a placeholder for a file of weights."""

    @functools.wraps(real)
    def wrapped(url, filename=None, *args, **kwargs):
        if filename is None or not str(filename).endswith(files.CHECKPOINTS):
            return real(url, filename, *args, **kwargs)
        to_file(url, filename)
        return str(filename), {}

    return wrapped


def watch_torch_hub(module):
    """Called when torch.hub was imported: weights that it would download are absent."""
    download = module.load_state_dict_from_url

    @functools.wraps(download)
    def from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False):
        folder = model_dir or os.path.join(module.get_dir(), "checkpoints")
        name = file_name or os.path.basename(url.split("?")[0])
        if os.path.exists(os.path.join(folder, name)):
            return download(url, model_dir, map_location, progress, check_hash, file_name, weights_only)
        return missing(url, map_location if isinstance(map_location, (str, int)) else None)

    module.load_state_dict_from_url, module.download_url_to_file = from_url, to_file
    for name in ("load", "list", "help"):
        setattr(module, name, explained(module, getattr(module, name)))


def explained(module, load):
    """Wraps torch.hub.load to explain its failure if the repository's code is absent."""

    @functools.wraps(load)
    def wrapped(repo_or_dir, *args, **kwargs):
        try:
            return load(repo_or_dir, *args, **kwargs)
        except (RuntimeError, OSError):
            if load.__name__ == "list":  # parsers offer its names as choices
                replaced("weights", repo_or_dir, "no names of models, as the code of the repository is absent")
                return []
            if glob.glob(os.path.join(module.get_dir(), repo_or_dir.partition(":")[0].replace("/", "_") + "_*")) or os.path.isdir(repo_or_dir):
                raise  # an error of the repository's own code
            wanted("the code of %s, which torch.hub would download" % repo_or_dir, "load it once with a network, so that its cache has it")
            raise

    return wrapped


def watch_timm(module):
    """Called when timm.models._builder was imported. timm builds the model before it loads weights, so nothing is
    loaded.
    """
    load = module.load_pretrained

    @functools.wraps(load)
    def wrapped(model, pretrained_cfg=None, *args, **kwargs):
        config = pretrained_cfg or getattr(model, "pretrained_cfg", None) or {}
        get = config.get if isinstance(config, dict) else lambda name: getattr(config, name, None)
        source = get("file") or get("hf_hub_id") or get("url") or type(model).__name__
        if get("file") and os.path.exists(get("file")) or get("hf_hub_id") and any(
            hub.cached(get("hf_hub_id"), name) for name in ("model.safetensors", "pytorch_model.bin", get("hf_hub_filename") or "model.safetensors")
        ):
            return load(model, pretrained_cfg, *args, **kwargs)
        replaced("weights", source, "%s as timm made it" % type(model).__name__)
        return None

    module.load_pretrained = wrapped


def watch_open_clip(module):
    """Called when open_clip.factory was imported."""
    load, download = module.load_checkpoint, module.download_pretrained

    @functools.wraps(load)
    def wrapped(model, checkpoint_path, *args, **kwargs):
        if not absent(checkpoint_path):
            return load(model, checkpoint_path, *args, **kwargs)
        replaced("weights", checkpoint_path, "%s as open_clip made it" % type(model).__name__)
        return sys.modules["torch"].nn.modules.module._IncompatibleKeys([], [])

    @functools.wraps(download)
    def downloaded(cfg, *args, **kwargs):
        name = cfg.get("hf_hub") or cfg.get("url") or "weights"
        return os.path.join(placeholders.folder(), "absent", name.replace("/", "--"))

    module.load_checkpoint, module.download_pretrained = wrapped, downloaded


def watch_peft(module):
    """Called when peft.peft_model was imported: an adapter's absent weights are made on the device where peft loads
    them.
    """
    load, adapter = module.load_peft_weights, module.PeftModel.load_adapter
    loading_into = []

    @functools.wraps(adapter)
    def load_adapter(self, model_id, adapter_name, *args, **kwargs):
        loading_into.append((self, adapter_name))
        try:
            return adapter(self, model_id, adapter_name, *args, **kwargs)
        finally:
            loading_into.pop()

    @functools.wraps(load)
    def wrapped(model_id, device=None, *args, **kwargs):
        names = ("adapter_model.safetensors", "adapter_model.bin")
        there = weights_in(model_id) if os.path.isdir(model_id) else any(hub.cached(model_id, name) for name in names)
        if there or not loading_into:
            return load(model_id, device, *args, **kwargs)
        torch, (model, name) = sys.modules["torch"], loading_into[-1]
        replaced("weights", model_id, "the adapter of its configuration")
        state = module.get_peft_model_state_dict(model, adapter_name=name)
        device = device or importlib.import_module("peft.utils").infer_device()
        return {key: without_values(torch, value, device) for key, value in state.items()}

    module.load_peft_weights, module.PeftModel.load_adapter = wrapped, load_adapter


def watch_accelerate(module):
    """Called when accelerate.utils.modeling was imported: an absent checkpoint gets the names and shapes of the model.
    """
    load = module.load_checkpoint_in_model

    @functools.wraps(load)
    def wrapped(model, checkpoint, *args, **kwargs):
        checkpoint = os.fspath(checkpoint)
        if os.path.isfile(checkpoint) and not absent(checkpoint) or os.path.isdir(checkpoint) and weights_in(checkpoint):
            return load(model, checkpoint, *args, **kwargs)
        path = os.path.join(placeholders.folder(), "checkpoint-%d.safetensors" % len(os.listdir(placeholders.folder())))
        importlib.import_module("safetensors.torch")
        seen, own = set(), {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                own[name] = tensor
        placeholders.write_shapes(path, own, {"format": "pt"})
        replaced("weights", checkpoint, "the shapes of the module that loads it")
        return load(model, path, *args, **kwargs)

    module.load_checkpoint_in_model = wrapped


# Functions to call when modules are imported.
WATCHED = {
    "safetensors": watch_safetensors,
    "safetensors.torch": watch_safetensors_torch,
    "transformers.modeling_utils": watch_transformers,
    "diffusers.models.modeling_utils": watch_diffusers,
    "torch.hub": watch_torch_hub,
    "timm.models._builder": watch_timm,
    "open_clip.factory": watch_open_clip,
    "peft.peft_model": watch_peft,
    "accelerate.utils.modeling": watch_accelerate,
}
