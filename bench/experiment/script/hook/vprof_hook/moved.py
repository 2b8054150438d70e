"""Compatibility with code for older releases of libraries: names that a script imports but the installed release has
moved are imported from their new module, and some removed ones are recreated.
"""

import builtins
import collections
import collections.abc
import functools
import importlib
import importlib.machinery
import inspect
import os
import re
import sys
import types

from . import memory, packages, placeholders

# Names that NumPy has removed, each with its replacement according to NumPy's release notes.
NUMPY = {
    "float": float, "int": int, "bool": bool, "object": object, "str": str, "complex": complex, "float_": "float64", "complex_": "complex128", "unicode_": "str_", "string_": "bytes_",
    "Inf": "inf", "infty": "inf", "NaN": "nan", "product": "prod", "cumproduct": "cumprod", "alltrue": "all", "sometrue": "any", "in1d": "isin", "row_stack": "vstack", "trapz": "trapezoid",
}

# Names of other libraries that have another one in the installed release.
RENAMED = {
    ("peft", "prepare_model_for_int8_training"): "prepare_model_for_kbit_training", ("transformers", "AutoModelWithLMHead"): "AutoModelForCausalLM",
    ("transformers", "AutoModelForVision2Seq"): "AutoModelForImageTextToText", ("transformers", "is_torch_tpu_available"): "is_torch_xla_available",
}

# The contents of torch._six, which PyTorch removed after release 1.13.
SIX = {
    "inf": float("inf"), "nan": float("nan"), "string_classes": (str, bytes), "int_classes": int, "container_abcs": collections.abc, "PY3": True, "PY37": True,
    "FileNotFoundError": FileNotFoundError, "StringIO": importlib.import_module("io").StringIO,
}


def start():
    """Called when Python starts. The finder of packages.py must come later: it makes placeholders for imports that no
    other finder resolves.
    """
    sys.meta_path.append(Finder())
    builtins.__import__ = importing(builtins.__import__)
    # Python 3.10 removed them from collections.
    for name in ("Callable", "Iterable", "Iterator", "Mapping", "MutableMapping", "Sequence", "Sized", "Hashable"):
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))


def importing(real):
    """Wraps __import__: if the user's own source imports a name that a library's module lacks, sets the name to the
    definition that another module of the library has, or to a placeholder that must not be called.
    """

    @functools.wraps(real)
    def wrapped(name, globals=None, locals=None, fromlist=(), level=0):
        module = real(name, globals, locals, fromlist, level)
        if fromlist and not level and by_user(sys._getframe(1)):
            for part in fromlist:
                if part != "*" and not hasattr(module, part):
                    found = definition(module, part)
                    if found is None and sources(name.split(".")[0]):
                        found = packages.Removed("%s.%s" % (name, part))
                        note(found.vprof_path, "a placeholder of which nothing was called")
                    if found is not None:
                        setattr(module, part, found)
        return module

    return wrapped


def by_user(frame):
    """Reports whether the import statement that a frame executes is in the user's own source and not spared: the script
    has no fallback for it.
    """
    path = frame.f_code.co_filename
    return memory.of_user(path, memory.LIBRARIES) and frame.f_lineno not in packages.spared(path)


def definition(module, name):
    """Returns the class or function with this name that another module of the library defines: the only one, or the one
    whose dotted path shares the longest prefix with the module's (None on a tie). If no module of the library defines
    it, takes the other package that most of them import it from; None if there is none.
    """
    root = module.__name__.split(".")[0]
    name = RENAMED.get((root, name), name)
    if (root, name) == ("transformers", "AdamW"):  # transformers had it until release 4.48
        note("transformers.AdamW", "torch.optim.AdamW, one parameter at a time")
        return adamw()
    # diffusers and transformers have a DummyObject for each class whose own dependencies may be missing.
    defines = re.compile(r"^(?:class|def) %s\b(?!.*DummyObject)" % re.escape(name), re.MULTILINE)
    homes = [module_of(root, file) for file in sources(root) if defines.search(text(file))]
    if not homes:  # from another package, as pytorch_lightning has rank_zero_only from lightning_utilities
        imports = re.compile(r"^from ([\w.]+) import (?:\([^)]*\b{0}\b[^)]*\)|[^\n(]*\b{0}\b)".format(re.escape(name)), re.MULTILINE)
        homes = [home for home, _ in collections.Counter(home for file in sources(root) for home in imports.findall(text(file)) if not home.startswith(".")).most_common(1)]
    shared = [len(os.path.commonprefix([home.split("."), module.__name__.split(".")])) for home in homes]
    if not homes or shared.count(max(shared)) > 1:
        return None
    home = homes[shared.index(max(shared))]
    note("%s.%s" % (module.__name__, name), home)
    return getattr(importlib.import_module(home), name, None)


def adamw():
    """Returns a replacement of transformers.AdamW, which took the same arguments and updated one parameter at a time.
    """

    class AdamW(importlib.import_module("torch").optim.AdamW):
        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True, no_deprecation_warning=False):
            super().__init__(params, lr, betas, eps, weight_decay, foreach=False)

    return AdamW


def note(name, home):
    placeholders.replaced("package", name, home if " " in home else "what the installed release has in %s" % home)


@functools.lru_cache(maxsize=None)
def sources(root):
    """Returns the paths of all Python files of an imported library; none for the user's own packages and for
    placeholders.
    """
    file = getattr(sys.modules.get(root), "__file__", None)
    if not file or os.path.basename(file) != "__init__.py" or memory.of_user(file, memory.LIBRARIES):
        return ()
    return tuple(sorted(os.path.join(folder, name) for folder, _, names in os.walk(os.path.dirname(file)) for name in names if name.endswith(".py")))


def text(file):
    with open(file, encoding="utf-8", errors="replace") as opened:
        return opened.read()


def module_of(root, file):
    """Returns the dotted module name of a file of a package."""
    folder = os.path.dirname(os.path.dirname(sys.modules[root].__file__))
    return os.path.relpath(file, folder)[: -len(".py")].replace(os.sep, ".").removesuffix(".__init__")


# Packages whose moved modules other libraries import, too.
BASES = ("torch", "torchvision", "numpy", "scipy")


class Finder:
    """Resolves imports of a library's module that the installed release has under another path: takes the
    only module of the library with the same last component, leading underscores aside, or names that others of its modules define.
    """

    def find_spec(self, name, path=None, target=None):
        frame = placeholders.importer(sys._getframe(1))
        if name == "torch._six":  # libraries of that time import it, too
            return importlib.machinery.ModuleSpec(name, Loader(types.SimpleNamespace(**SIX, __name__="Python")))
        if path is None or frame is None:
            return None
        library = name.split(".")[0] in BASES and not memory.of_user(frame.f_code.co_filename, memory.LIBRARIES)
        if not by_user(frame) and (not library or frame.f_lineno in packages.spared(frame.f_code.co_filename)):
            return None
        root, last = name.split(".")[0], name.split(".")[-1]
        homes = [file for file in sources(root) if module_of(root, file).split(".")[-1].lstrip("_") == last]
        if not homes and (not sources(root) or is_name(sys._getframe(1))):
            return None
        return importlib.machinery.ModuleSpec(name, Loader(importlib.import_module(module_of(root, homes[0])) if len(homes) == 1 else Scattered(name)))


def is_name(frame):
    """Reports whether the import asks if a name of "from module import name" is a submodule."""
    while frame is not None and "importlib" in frame.f_code.co_filename:
        if frame.f_code.co_name == "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


class Scattered:
    """Stands for a module that the release has split or removed: each name is where the release defines it."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, name):
        found = None if name.startswith("__") else definition(self, name)
        if found is None:
            raise AttributeError(name)
        return found


class Loader:
    """Loads a module whose attributes are looked up in another module."""

    def __init__(self, home):
        self.home = home

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = functools.partial(getattr, self.home)
        return module

    def exec_module(self, module):
        note(module.__name__, self.home.__name__)


# Removed attributes.


def watch_numpy(module):
    """Called when numpy has been imported."""
    real = getattr(module, "__getattr__", None)

    def attribute(name):
        found = NUMPY.get(name)
        if found is None or not memory.of_user(sys._getframe(1).f_code.co_filename, memory.LIBRARIES):
            if real is None:
                raise AttributeError(name)
            return real(name)
        note("numpy." + name, found if isinstance(found, str) else "Python")
        return getattr(module, found) if isinstance(found, str) else found

    module.__getattr__ = attribute
    parse = module.fromstring

    @functools.wraps(parse)
    def fromstring(string, dtype=float, count=-1, *args, sep="", **kwargs):
        if args or sep:
            return parse(string, dtype, count, *args, **({"sep": sep} if sep else {}), **kwargs)
        return module.frombuffer(string.encode() if isinstance(string, str) else string, dtype, count).copy()

    module.fromstring = fromstring


def watch_canvas(module):
    """Called when matplotlib.backends.backend_agg has been imported: its canvas had tostring_rgb until release 3.10."""
    canvas = module.FigureCanvasAgg
    if not hasattr(canvas, "tostring_rgb"):
        canvas.tostring_rgb = lambda self: sys.modules["numpy"].asarray(self.buffer_rgba())[..., :3].tobytes()


def watch_pil(module):
    """Called when PIL.Image has been imported."""
    for old, new in {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"}.items():
        if not hasattr(module, old):
            setattr(module, old, getattr(module.Resampling, new))


def watch_torch(module):
    """Called when torch.functional has been imported: until release 2.0, stft returned real and imaginary parts apart."""
    real = module.stft

    @functools.wraps(real)
    def stft(input, *args, return_complex=None, **kwargs):
        if return_complex is None and not input.is_complex() and len(args) < 9:
            return sys.modules["torch"].view_as_real(real(input, *args, return_complex=True, **kwargs))
        return real(input, *args, **kwargs) if return_complex is None else real(input, *args, return_complex=return_complex, **kwargs)

    module.stft = stft


def watch_sampler(module):
    """Called when torch.utils.data.sampler has been imported: earlier releases took the data set as an argument."""
    if module.Sampler.__init__ is object.__init__:
        module.Sampler.__init__ = lambda self, data_source=None: None


def watch_rendezvous(module):
    """Called when torch.distributed.rendezvous has been imported: earlier releases used a port's lowest 16 bits."""
    create = module._create_c10d_store
    module._create_c10d_store = functools.wraps(create)(lambda hostname, port, *args: create(hostname, port % (1 << 16), *args))


def watch_librosa(module):
    """Called when librosa.filters or librosa.core.audio has been imported: since release 0.10, their functions take most
    arguments by name alone.
    """
    for name in ("mel", "resample"):
        if hasattr(module, name):
            setattr(module, name, by_position(getattr(module, name)))


def by_position(function):
    """Returns a function that also takes arguments by position which the installed release takes by name alone."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(**dict(zip(names, args)), **kwargs)

    return wrapped


WATCHED = {
    "numpy": watch_numpy, "PIL.Image": watch_pil, "torch.functional": watch_torch, "torch.utils.data.sampler": watch_sampler,
    "torch.distributed.rendezvous": watch_rendezvous, "matplotlib.backends.backend_agg": watch_canvas,
    "librosa.filters": watch_librosa, "librosa.core.audio": watch_librosa,
}
