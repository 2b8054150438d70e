"""Loads the libraries that take the place of NVIDIA's, before PyTorch loads those."""

import ctypes
import os


def load():
    """Loads every library of the folder VPROF_STANDINS, in the order of its file `order`.

    The linker then finds them under their names (their SONAME) when PyTorch asks.
    """
    folder = os.environ.get("VPROF_STANDINS")
    if not folder:
        return
    for name in in_order(folder):
        ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)


def in_order(folder):
    """The libraries of a folder: those that others need come first."""
    order = os.path.join(folder, "order")
    if os.path.exists(order):
        with open(order, encoding="utf-8") as file:
            return file.read().split()
    return sorted(name for name in os.listdir(folder) if ".so" in name)
