"""Explains why a script failed whose data, packages or files are absent."""

import functools
import importlib.util
import os
import re
import signal
import sys
import threading
import traceback
import types

from . import data, events, kernels, memory, retries, shapes
from .placeholders import wanted


def start():
    """Called when Python starts: wraps the hooks for exceptions of Python and its threads, and the processes of
    multiprocessing, to report explanations.
    """
    retries.start()
    sys.excepthook = explaining(sys.excepthook)
    threading.excepthook = interrupting(threading.excepthook)
    process = importlib.import_module("multiprocessing.process").BaseProcess
    process.run = noting(process.run)


def watch_spawn(module):
    """Called when torch.multiprocessing.spawn was imported: its processes pass only the text of an error to the parent.
    """
    wrap = module._wrap
    module._wrap = functools.wraps(wrap)(lambda fn, *args: wrap(noting(fn), *args))


def watch_workers(module):
    """Called when torch._utils was imported: DataLoader workers, too, pass only the text of an error to the parent."""
    made = module.ExceptionWrapper.__init__

    @functools.wraps(made)
    def init(self, exc_info=None, where="in background"):
        made(self, exc_info or sys.exc_info(), where)
        if events.quiet:
            explain(*(exc_info or sys.exc_info())[1:], "a worker of a loader that ends without an error")

    module.ExceptionWrapper.__init__ = init


def interrupting(hook):
    """Wraps threading.excepthook: if a data set raises in a thread, interrupts the process. It would otherwise wait for
    the thread's samples until vprof's time limit.
    """

    def wrapped(args):
        hook(args)
        if args.exc_value is not None and data_set(args.exc_traceback):
            explain(args.exc_value, args.exc_traceback)
            os.kill(os.getpid(), signal.SIGINT)

    return wrapped


def noting(call):
    """Wraps the function that a child process runs, to explain its exception in that process."""

    @functools.wraps(call)
    def wrapped(*args, **kwargs):
        try:
            return call(*args, **kwargs)
        except Exception as error:
            retries.retry(first_of(error), first_of(error).__traceback__)
            explain(first_of(error), first_of(error).__traceback__, "a process of the script that ends without an error")
            raise

    return wrapped


def explaining(hook):
    """Wraps sys.excepthook to explain the error that ended the script."""

    def wrapped(kind, error, trace):
        first = first_of(error)
        retries.retry(first, trace if first is error else first.__traceback__)
        if not issubclass(kind, SystemExit):
            explain(first, trace if first is error else first.__traceback__)
        hook(kind, error, trace)

    return wrapped


def first_of(error):
    """Returns the exception that others were raised from: Hydra, for example, wraps errors of the objects that it makes."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


CLASSES = 'put it there, or state the samples of the data set\'s class: --data-shapes FILE: {"classes": {"%s": {"item": {"x": "float32 3x64x64"}}}}'


def explain(error, trace, otherwise=None):
    """Reports what would have prevented an exception: an absent file, package or release. otherwise is the text for any
    other exception; None reports nothing.
    """
    lines = [f for f in traceback.extract_tb(trace) if memory.of_user(f.filename, memory.LIBRARIES) and os.path.exists(f.filename)]
    where = "%s:%d" % (lines[-1].filename, lines[-1].lineno) if lines else ""
    name, owner = getattr(error, "filename", None), data_set(trace)
    said = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines() or [type(error).__name__]
    if said[0].startswith(("Caught ", "-- Process ")) or type(error).__name__ == "LocalEntryNotFoundError":
        return  # the process that raised the error, or the look-up of the hub's file, has explained it
    text, library = said[0], library_of(error, trace, said[0])
    obj = getattr(error, "obj", None)
    of = obj if isinstance(obj, type) else type(obj)
    if isinstance(error, FileNotFoundError):
        wanted("%s, which is absent" % (name or "a file (%s)" % text), CLASSES % owner if owner else "put it there", where)
    elif isinstance(error, OSError) and "CUDA_HOME" in text:
        wanted("a CUDA toolkit, to compile kernels of its own", "install the toolkit of PyTorch's CUDA release and set CUDA_HOME", where)
    elif isinstance(error, ModuleNotFoundError) and error.name:
        refused = error.name.split(".")[0] in kernels.REFUSED
        wanted("the package %s, which is not installed" % error.name, "install it" + " (vprof has placeholders of flash-attn, xformers and causal-conv1d alone)" * refused, where)
    elif isinstance(error, AttributeError) and hasattr(of, "vprof_path"):
        wanted("the package %s, which is not installed" % of.vprof_path.split(".")[0], "install it", where)  # a base class
    elif isinstance(error, ImportError) and "cannot import name" in text:
        wanted("another release of %s (%s)" % ((error.name or "a package").split(".")[0], text.partition(" (")[0]), "install the one that the repository requires", where)
    elif type(error).__module__.split(".")[0] == "omegaconf":
        wanted("another configuration (%s)" % text, "name the one to train with in the command, as by --config-name", where)
    elif any(f.filename.endswith("hf_argparser.py") for f in traceback.extract_tb(trace)):
        wanted("another release of transformers (%s)" % text, "install the one that the repository requires", where)
    elif library:
        wanted("another release of %s (%s)" % (library, text), "install the one that the repository requires", where)
    elif isinstance(error, NameError) and lines and optional_package(lines[-1].filename, error.name):
        wanted("the package %s, which is not installed" % optional_package(lines[-1].filename, error.name), "install it", where)
    elif isinstance(error, EOFError) and "reading a line" in text:
        wanted("an answer from the keyboard (%s)" % (lines[-1].line if lines else text), "state it by an option or a file of the repository", where)
    elif isinstance(error, SyntaxError) and error.filename and memory.of_user(error.filename, memory.LIBRARIES):
        release = "another release of Python than %d.%d (%s)" % (*sys.version_info[:2], text)
        wanted(release, "use the one that the repository requires", "%s:%s" % (error.filename, error.lineno))
    elif isinstance(error, AssertionError) and lines and "__version__" in (lines[-1].line or ""):
        wanted("another release (%s)" % lines[-1].line, "install the one that the repository requires", where)
    elif isinstance(error, KeyError) and data.made and error.args and isinstance(error.args[0], str):
        wanted("the column %r of a data set that is absent" % error.args[0], data.SHAPES_FLAG + ': {"datasets": {"*": {"columns": {"%s": "string"}}}}' % error.args[0], where)
    elif isinstance(error, (ZeroDivisionError, IndexError)) and lines and not shapes.lengths() and any(kind.startswith(("sound", "text")) for kind in data.made):
        wanted("the lengths of texts or sounds, of which it keeps none (%s)" % text, "state them with --lengths, such as --lengths 512, for sounds in samples", where)
    elif owner:
        wanted("the samples of %s (%s)" % (owner, text), CLASSES % owner, where)
    elif otherwise:
        wanted("%s (%s)" % (otherwise, text), "correct the command or what it reads", where)


def optional_package(path, name):
    """Returns the package that a file imports under a name if it is there, and that is not installed; None for other names."""
    found = re.search(r"^\s+(?:from (\w+)[\w.]* )?import [^\n]*\b%s\b" % re.escape(name or "."), data.source(path), re.MULTILINE)
    package = found and (found[1] or name)
    return package if package and package not in sys.modules and not importlib.util.find_spec(package) else None


# Error texts of libraries about interfaces of their earlier releases.
REMOVED = re.compile(r"removed in|been removed|no longer supported|future \w+ release")


def library_of(error, trace, text):
    """Returns the package that lacks an attribute or argument which the user's source uses. Returns an empty string for
    other exceptions.
    """
    found, frames = getattr(error, "obj", None), [f for f, _ in traceback.walk_tb(trace) if memory.of_user(f.f_code.co_filename, memory.LIBRARIES)]
    if isinstance(error, TypeError) and frames and re.search(r"\(\) (takes|got|missing) ", text):
        line = traceback.extract_tb(trace)[-1].line or ""
        names = {**frames[-1].f_globals, **frames[-1].f_locals}
        called = [functools.reduce(lambda of, name: getattr(of, name, None), path.split(".")[1:], names.get(path.split(".")[0])) for path in re.findall(r"([\w.]+)\(", line)]
        found = next((of for of in called if getattr(of, "__qualname__", "").endswith(text.split("()")[0].split(".")[-1])), None)
    elif REMOVED.search(text) and trace:
        found = sys.modules.get([f for f, _ in traceback.walk_tb(trace)][-1].f_globals.get("__name__"))
    elif not isinstance(error, AttributeError) or "Token" in type(found).__name__ or type(found).__module__ == "builtins" and not isinstance(found, (type, types.ModuleType)):
        return ""
    name = getattr(found, "__module__", None) or getattr(found, "__name__", None) or type(found).__module__
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    package = name.split(".")[0]
    return "" if not path or package == __package__ or memory.of_user(path, memory.LIBRARIES) else package


def data_set(trace):
    """Returns the class name of the data set whose method raised an exception, or whose samples were being loaded.
    Returns None for other exceptions.
    """
    base = getattr(getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None), "Dataset", ())
    found = (f.f_locals.get(name) for f, _ in traceback.walk_tb(trace) for name in ("self", "data_source"))
    return next((type(value).__name__ for value in found if base and isinstance(value, base)), None)


WATCHED = {"torch.multiprocessing.spawn": watch_spawn, "torch._utils": watch_workers}
