"""Placeholders for absent files of named arrays: HDF5 and NumPy's .npz.

The name of an array decides whether it holds images. Other arrays have rows of an unknown width. Each starts with a width
of its own, a prime number: if the model then rejects it, the error names both this width and the one that the model has,
and the script starts again with the latter.
"""

import os
import re
import sys

from . import placeholders, retries, shapes

# Names of images and of labels, the size of a camera's images, and the rows of each array.
IMAGES = re.compile(r"image|img|rgb|cam\b|camera|pixel|frame|video", re.IGNORECASE)
LABELS = re.compile(r"label|target|class|^y(_|$)|_ids?$|index|done|terminal|reward", re.IGNORECASE)
SIZE, ROWS = "640x480", 512

# Widths of arrays in the order of their first use. They are prime, so that a sum or product is seldom a usual size.
WIDTHS = (23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89)

# Errors about widths, each with the names of the actual and the required one.
ERRORS = (
    re.compile(r"cannot be multiplied \(\d+x(?P<got>\d+) and (?P<needed>\d+)x"),
    re.compile(r"to have (?P<needed>\d+) channels, but got (?P<got>\d+)"),
    re.compile(r"size of tensor a \((?P<got>\d+)\) must match the size of tensor b \((?P<needed>\d+)\)"),
    re.compile(r"operands could not be broadcast together with shapes \((?:\d+,)*(?P<got>\d+),?\) \((?:\d+,)*(?P<needed>\d+),?\)"),
    re.compile(r"expected input with shape \[\*, (?P<needed>\d+)\], but got input of size\[(?:\d+, )*(?P<got>\d+)\]"),
)


used = {}  # widths in use, by array


def width(name):
    """Returns the width of an array."""
    if name not in used:
        used[name] = retries.known.get(name) or WIDTHS[len(used) % len(WIDTHS)]
    return used[name]


def learned(error):
    """Returns the widths by array that an error tells."""
    texts = [m.groupdict() for pattern in ERRORS for m in [pattern.search(str(error))] if m]
    pairs = [(int(t["got"]), int(t["needed"])) for t in texts] + [(int(t["needed"]), int(t["got"])) for t in texts]
    return {name: needed for got, needed in pairs for name, own in used.items() if own == got and name not in retries.known and needed not in WIDTHS}


class Node:
    """A group or an array of an absent file, whichever the script uses it for."""

    def __init__(self, path, name=""):
        self.path, self.name, self.children, self.made = path, name, {}, None

    def array(self):
        """Returns the array, which takes no memory: its values are the same."""
        if self.made is None:
            numpy = sys.modules["numpy"]
            stated = shapes.entry("files", self.path)
            end = self.name.rpartition("/")[2] or os.path.basename(self.path)
            if isinstance(stated, dict) and end in stated:
                dtype, _, size = shapes.shape_of(stated[end])
            elif IMAGES.search(self.name):
                wide, high = shapes.sizes("images") or map(int, SIZE.split("x"))
                dtype, size = "uint8", (ROWS, high, wide, 3)
            else:
                dtype, size = ("int64", (ROWS,)) if LABELS.search(end) else ("float32", (ROWS, width(end)))
            self.made = numpy.broadcast_to(numpy.asarray(0, dtype), size)
            how = "as --data-shapes states" if isinstance(stated, dict) else "tried at first" if end in used else "by its name"
            if end in retries.known:
                how = "whose width the model requires"
            placeholders.replaced("data", "%s in *%s" % (end, os.path.splitext(self.path)[1]), "%s of %s, %s" % (dtype, "x".join(map(str, size)), how))
        return self.made

    def __getitem__(self, key):
        if isinstance(key, str):
            key = key.strip("/")
            return self.children.setdefault(key, Node(self.path, "%s/%s" % (self.name, key)))
        return self.array()[key].copy()

    def get(self, key, default=None):
        return self[key]

    def __contains__(self, key):
        return True

    def keys(self):
        """Returns the names in a group that the script has used."""
        return self.children.keys()

    def values(self):
        return self.children.values()

    def items(self):
        return self.children.items()

    @property
    def attrs(self):
        return Attributes()

    def __len__(self):
        return len(self.array())

    def __array__(self, dtype=None, copy=None):
        found = self.array().copy()
        return found if dtype is None else found.astype(dtype)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.array(), name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def close(self):
        return None


class Attributes(dict):
    """Attributes of an absent file: 0 for unknown ones."""

    def __missing__(self, name):
        return 0

    def get(self, name, default=None):
        return 0 if default is None else default
