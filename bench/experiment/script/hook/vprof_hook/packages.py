"""Placeholders of packages that are not installed: many scripts import a package at module level that their training
never calls.

A placeholder can be imported, used in annotations and subclassed. A call, or any other use, ends the script with the
ModuleNotFoundError that the import would have raised. Imports inside a try statement fail as without vprof, because the
script handles the error itself.
"""

import ast
import functools
import glob
import importlib.machinery
import os
import re
import sys
import types

from . import data, kernels, memory, placeholders
from .trackers import TRACKERS


# This file wraps __import__, so that it is on the stack of every import.
MOVED = os.path.join(os.path.dirname(__file__), "moved.py")


class Part:
    """Stands for a class, function or value of a package that is not installed."""

    def __init__(self, path):
        self.vprof_path = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Part("%s.%s" % (self.vprof_path, name))

    def __getitem__(self, _):  # as annotations do
        return self

    def __or__(self, _):
        return self

    __ror__ = __or__

    def __instancecheck__(self, _):
        return False

    __subclasscheck__ = __instancecheck__

    def __mro_entries__(self, _):
        return (type(self.vprof_path.rpartition(".")[2], (), {"__new__": lambda cls, *_, **__: self(), "vprof_path": self.vprof_path}),)

    def __call__(self, *_, **__):
        self.refuse(self.vprof_path.split(".")[0])

    def refuse(self, name):
        placeholders.wanted("the package %s, which is not installed and has the %s that is used here" % (name, self.vprof_path), "install it")
        raise ModuleNotFoundError("No module named %r" % name, name=name)

    __iter__ = __len__ = __enter__ = __exit__ = __float__ = __index__ = __add__ = __radd__ = __mul__ = __rmul__ = __setitem__ = __call__


class Removed(Part):
    """Stands for a name of a library that the installed release lacks."""

    def refuse(self, name):
        placeholders.wanted("another release of %s (%s is used here, which the installed one lacks)" % (name, self.vprof_path), "install the one that the repository requires")
        raise ImportError("cannot import name %r" % self.vprof_path, name=name)


class Finder:
    """Makes placeholders of packages that no other finder resolves, if a module of the user imports them at module
    level.
    """

    def find_spec(self, name, path=None, target=None):
        root = name.split(".")[0]
        own = [folder for folder in path or () if memory.of_user(os.path.join(folder, "x.py"), memory.LIBRARIES)]
        if isinstance(sys.modules.get(name.rpartition(".")[0]), Extension) or any(glob.glob(os.path.join(folder, "*.pyx")) for folder in own):
            return importlib.machinery.ModuleSpec(name, Loader(Extension), is_package=True)
        if own and name.endswith("version"):
            return importlib.machinery.ModuleSpec(name, Loader(version))
        if not isinstance(sys.modules.get(root), Package) and (path is not None or not wanted_by_user(name)):
            return None
        return importlib.machinery.ModuleSpec(name, Loader(), is_package=True)


class Package(types.ModuleType):
    def __bool__(self):
        """Reports whether the user's own source asks: a library that looks into sys.modules does without the package."""
        return memory.of_user(sys._getframe(1).f_code.co_filename, memory.LIBRARIES)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Part("%s.%s" % (self.__name__, name))


class Extension(types.ModuleType):
    """Stands for a module of the repository in Cython that was not compiled. Its functions work on host memory."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        placeholders.replaced("package", "%s.%s" % (self.__name__, name), "a function that does nothing, as it is not compiled")
        return lambda *_, **__: None


def version(name):
    """Returns a module with the version of a package of the repository, which its installation would write."""
    module = types.ModuleType(name)
    module.__dict__.update(__version__="0.0.0", version="0.0.0", __gitsha__="unknown", version_info=(0, 0, 0))
    return module


class Loader:
    def __init__(self, kind=Package):
        self.kind = kind

    def create_module(self, spec):
        return self.kind(spec.name)

    def exec_module(self, module):
        if self.kind is Package and "." not in module.__name__:
            placeholders.replaced("package", module.__name__, "a placeholder of which nothing was called, as it is not installed")


def wanted_by_user(name):
    """Reports whether the package is imported at module level by the user's own modules, outside try and with
    statements, and no other part of the hook makes a placeholder of it.
    """
    if name in TRACKERS or name in kernels.PACKAGES or name == "torch":
        return False
    frame, first = sys._getframe(2), True
    while frame is not None:
        code = frame.f_code
        if code.co_filename == MOVED:
            pass
        elif "importlib" in code.co_filename:
            if first and not code.co_filename.startswith("<frozen importlib._bootstrap"):  # find_spec asks if it exists
                return False
        elif memory.of_user(code.co_filename, memory.LIBRARIES):
            if code.co_name != "<module>":
                return not first
            if frame.f_lineno in spared(code.co_filename):
                return False
            first = False
        elif first:
            return False
        frame = frame.f_back
    return not first


@functools.lru_cache(maxsize=None)
def spared(path):
    """Returns the line numbers of a file where an import may fail as without vprof: the body of a try or with
    statement, or "from x import *".
    """
    try:
        tree = ast.parse(data.source(path))
    except (SyntaxError, ValueError):
        return frozenset()
    handling = [node for node in ast.walk(tree) if isinstance(node, (ast.Try, ast.With)) and not ends(node)]
    blocks = [statement for node in handling for statement in node.body]
    blocks += [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
    return frozenset(line for block in blocks for line in range(block.lineno, block.end_lineno + 1))


def ends(node):
    """Reports whether the handlers of a try statement only raise, or end the script."""
    last = [handler.body[-1] for handler in getattr(node, "handlers", ())]
    return bool(last) and all(isinstance(s, ast.Raise) or re.search(r"\bexit\(", ast.unparse(s)) for s in last)


def start():
    """Called when Python starts. The finder must be the last one."""
    sys.meta_path.append(Finder())
