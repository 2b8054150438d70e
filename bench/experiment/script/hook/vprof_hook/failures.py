"""What a failure of a script means whose data, packages or files are absent."""

import os
import sys
import traceback

from . import data, kernels, memory
from .placeholders import wanted


def explaining(hook):
    """sys.excepthook, which notes what data a script has failed for."""

    def wrapped(kind, error, trace):
        first = error
        while isinstance(first.__cause__, Exception):  # such as what a library of configurations met as it made an object
            first = first.__cause__
        if not issubclass(kind, SystemExit):
            explain(first, trace if first is error else first.__traceback__)
        hook(kind, error, trace)

    return wrapped


STATED = 'put it there, or state the samples of the data set\'s class: --data-shapes FILE: {"classes": {"%s": {"item": {"x": "float32 3x64x64"}}}}'


def explain(error, trace):
    lines = [f for f in traceback.extract_tb(trace) if memory.of_user(f.filename, memory.LIBRARIES) and os.path.exists(f.filename)]
    where = "%s:%d" % (lines[-1].filename, lines[-1].lineno) if lines else ""
    name, owner = getattr(error, "filename", None), data_set(trace)
    said = str(error).strip().splitlines() or [type(error).__name__]
    text = said[-1 if said[0].startswith("Caught ") else 0]  # of a worker of a loader the last line
    if isinstance(error, FileNotFoundError):
        wanted("%s, which is absent" % (name or "a file (%s)" % text), STATED % (owner or "NAME"), where)
    elif isinstance(error, ModuleNotFoundError) and error.name:
        refused = error.name.split(".")[0] in kernels.REFUSED
        wanted("the package %s, which is not installed" % error.name, "install it" + " (vprof has placeholders of flash-attn, xformers and causal-conv1d alone)" * refused, where)
    elif isinstance(error, ImportError) and "cannot import name" in text:
        wanted("another release of %s (%s)" % ((error.name or "a package").split(".")[0], text.partition(" (")[0]), "install the one that the repository requires", where)
    elif isinstance(error, AttributeError) and "removed in the NumPy 2" in text:
        wanted("another release of numpy (%s)" % text, "install the one that the repository requires", where)
    elif isinstance(error, SyntaxError) and error.filename and memory.of_user(error.filename, memory.LIBRARIES):
        release = "another release of Python than %d.%d (%s)" % (*sys.version_info[:2], text)
        wanted(release, "use the one that the repository requires", "%s:%s" % (error.filename, error.lineno))
    elif isinstance(error, AssertionError) and lines and "__version__" in (lines[-1].line or ""):
        wanted("another release (%s)" % lines[-1].line, "install the one that the repository requires", where)
    elif isinstance(error, KeyError) and data.made and error.args and isinstance(error.args[0], str):
        wanted("the column %r of a data set that is absent" % error.args[0], data.SHAPES_FLAG + ': {"datasets": {"*": {"columns": {"%s": "string"}}}}' % error.args[0], where)
    elif owner:
        wanted("the samples of %s (%s)" % (owner, text), STATED % owner, where)


def data_set(trace):
    """The name of the class of a data set in whose method, or for whose samples, an exception was raised; None for one elsewhere."""
    base = getattr(getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None), "Dataset", ())
    found = (f.f_locals.get(name) for f, _ in traceback.walk_tb(trace) for name in ("self", "data_source"))
    return next((type(value).__name__ for value in found if base and isinstance(value, base)), None)
