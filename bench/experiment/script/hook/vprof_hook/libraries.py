"""Loads the libraries that take the place of NVIDIA's, before PyTorch loads those."""

import ctypes
import importlib.metadata
import os

from . import events

# Packages with NVIDIA's libraries, and how the library counts its releases: factors of the first
# numbers of the package's version.
PACKAGES = {
    "runtime": ("nvidia-cuda-runtime", (1000, 10)),
    "cudnn": ("nvidia-cudnn", (10000, 100, 1)),
    "nccl": ("nvidia-nccl", (10000, 100, 1)),
}


def load():
    """Loads every library of the folder VPROF_STANDINS, in the order of its file `order`.

    The linker then finds them under their names (their SONAME) when PyTorch asks.
    """
    folder = os.environ.get("VPROF_STANDINS")
    if not folder:
        return
    tell_versions()
    for name in in_order(folder):
        ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)


def in_order(folder):
    """The libraries of a folder: those that others need come first."""
    order = os.path.join(folder, "order")
    if os.path.exists(order):
        with open(order, encoding="utf-8") as file:
            return file.read().split()
    return sorted(name for name in os.listdir(folder) if ".so" in name)


def tell_versions():
    """Adds the releases of NVIDIA's libraries that PyTorch expects to the description of the board."""
    path = os.environ.get("VPROF_BOARD")
    if not path:
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    own = events.folder("board-%d" % os.getpid())
    with open(own, "w", encoding="utf-8") as file:
        file.write(text)
        for key, (package, factors) in PACKAGES.items():
            version = installed(package)
            if version:
                file.write("%s %d\n" % (key, sum(f * n for f, n in zip(factors, version))))
    os.environ["VPROF_BOARD"] = own


def installed(package):
    """The version of a package, for whichever CUDA it is; empty if it is not installed."""
    for name in (package, package + "-cu13", package + "-cu12"):
        try:
            return [int(n) for n in importlib.metadata.version(name).split(".")[:3] if n.isdigit()]
        except importlib.metadata.PackageNotFoundError:
            continue
    return []
