"""Shapes of absent data as --data-shapes states them, and samples of these shapes.

A kind is a string: "string", "messages", "conversations", "image 640x480", "audio 16000", "bool", or a type of numbers
with an exclusive upper bound and the shape of an array: "float32 3x224x224", "int64<1000", "int64<32000 77".
"""

import fnmatch
import functools
import json
import os
import random
import re
import sys

from . import placeholders

NUMBERS = re.compile(r"(bool|u?int(?:8|16|32|64)|float(?:16|32|64))(?:<(\d+))?(?: (\d+(?:x\d+)*))?$")

# Least number of tokens of a placeholder text. A batch with that many shows that the script does not truncate.
UNCUT = 8209

# Seconds of placeholder sounds, in turn, and shorter ones for scripts that keep no sound of a minute: usual lengths of
# speech, all of them, since scripts group sounds by length and may require some in each group.
seconds, SHORTER = (61,), (10, 5, 2)

# Width and height of a placeholder image. A batch with these sizes shows that the script does not resize.
UNSIZED = (509, 503)

# Rows of a placeholder: of the training split, and of the other splits of a data set on the hub.
ROWS, OTHER_ROWS = 256, 32

# Kinds of columns by their usual names, for data sets without declared features.
USUAL = {
    "string": """text sentence sentence1 sentence2 premise hypothesis question answer question1 question2 context prompt completion chosen rejected
        instruction input output response content document summary article highlights dialogue title query positive negative anchor passage
        review caption captions description source target story abstract code transcription normalized_text reply report""",
    "path": "filepath file_path image_path img_path image_file img_file", "messages": "messages", "conversations": "conversations", "image": "image img pixel_values_image jpg png picture photo", "audio": "audio wav speech",
    "int64<2": "label labels_binary is_duplicate", "int64<10": "fine_label coarse_label category", "float32": "score similarity_score rating",
}

# The same for columns of lists: images of a conversation, and its turns.
NESTED = {"images": ["image"], "texts": [{"user": "string", "assistant": "string", "source": "string"}]}


@functools.lru_cache(maxsize=None)
def given():
    """Returns the contents of the file of --data-shapes, which vprof has checked; empty without one."""
    path = os.environ.get("VPROF_SHAPES")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def entry(section, name):
    """Returns the file's entry for a name; None if no key of the section, a shell pattern, matches it."""
    for pattern, value in given().get(section, {}).items():
        if fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(os.path.basename(name.rstrip("/")), pattern):
            return value
    return None


@functools.lru_cache(maxsize=None)
def lengths():
    """Returns the lengths of texts in tokens that --lengths states; empty without it."""
    return [int(n) for n in os.environ.get("VPROF_LENGTHS", "").split(",") if n]


@functools.lru_cache(maxsize=None)
def uncut():
    """Returns the number of tokens of texts without --lengths. It exceeds every number in the command."""
    numbers = [int(n) for word in sys.argv for n in re.findall(r"\d{3,6}", word)]
    return max([UNCUT] + [2 * n + 11 for n in numbers if n <= 1 << 17])


def tokens(row, parts=1):
    """Returns the number of tokens of one text in a row with parts texts, which share the length of --lengths."""
    return max(lengths()[row % len(lengths())] // parts, 1) if lengths() else uncut()


@functools.lru_cache(maxsize=4096)
def text(count):
    """Returns a text of count words, each of which is one token of a placeholder tokenizer."""
    return " ".join(["the"] * count)


def image(size=None, mode="RGB"):
    """Returns a black PIL image; for mode "L" a mask with an object, since scripts divide by its largest value and look for
    its box.
    """
    module = sys.modules.get("PIL.Image") or __import__("PIL.Image").Image
    width, height = size or sizes("images") or UNSIZED
    found = module.new(mode, (width, height))
    if mode == "L":
        found.paste(1, (width // 4, height // 4, 3 * width // 4, 3 * height // 4))
    return found


# A size in the name of a file or folder, such as cifar10-32x32 or imagenet64.
NAMED = re.compile(r"(?<![\dx])(\d{2,4})x(\d{2,4})(?![\dx])|[a-z_-](64|128|256|512|1024)(?!\d)", re.IGNORECASE)


def size_of(path):
    """Returns the (width, height) of the images in a folder: the stated one, or one that its path names; None otherwise."""
    found = list(NAMED.finditer(str(path)))
    return sizes("images") or (found and tuple(int(n) for n in (found[-1][1] or found[-1][3], found[-1][2] or found[-1][3]))) or None


def sizes(section):
    """Returns the (width, height) that the file states in a section; None if it does not."""
    return tuple(int(n) for n in given()[section].split("x")) if section in given() else None


def shape_of(kind):
    """Returns (dtype, exclusive bound or 0, shape of the array) of a kind of numbers; None for other kinds."""
    found = NUMBERS.match(kind)
    return found and (found[1], int(found[2] or 0), [int(n) for n in (found[3] or "").split("x") if n])


def value(kind, row=0, parts=1):
    """Returns the value of a kind in a row; for numbers a NumPy array, or a Python number without a shape."""
    if isinstance(kind, dict):
        return {name: value(inner, row, parts) for name, inner in kind.items()}
    if isinstance(kind, list):
        return [value(inner, row, parts) for inner in kind]
    if kind == "string":
        return text(tokens(row, parts))
    if kind == "path":  # the path of an absent image
        return "absent/%d.jpg" % row
    if kind in ("messages", "conversations"):
        half = text(max(tokens(row, parts) // 2, 1))
        who, what, names = ("role", "content", ("user", "assistant")) if kind == "messages" else ("from", "value", ("human", "gpt"))
        return [{who: name, what: half} for name in names]
    if kind.startswith("image"):
        return image([int(n) for n in kind.split()[1].split("x")] if " " in kind else None)
    if kind.startswith("audio"):
        rate = int(kind.split()[1]) if " " in kind else 16000
        return {"array": numbers("float32", 0, [lengths()[row % len(lengths())] if lengths() else rate * seconds[row % len(seconds)] + 7], row), "sampling_rate": rate, "path": None}
    if not shape_of(kind):
        placeholders.wanted("the kind %r, which is not known" % (kind,), "correct it in the file of --data-shapes: float32 3x64x64, int64<1000, string, image 640x480")
        raise SystemExit(2)
    dtype, bound, array = shape_of(kind)
    found = numbers(dtype, bound, array, row)
    return found if array else found.item()


def numbers(dtype, bound, array, row):
    """Returns an array with one value: the row's index modulo the bound for integers, a random fraction for floats."""
    numpy = __import__("numpy")
    if dtype.startswith(("int", "uint", "bool")):
        found = numpy.zeros(array, dtype) + numpy.asarray(row % max(bound, 2), dtype)
    else:
        found = numpy.full(array, random.Random(row).random(), dtype)
    return numpy.asarray(found)


def strings(columns):
    """Returns how many columns hold texts, at least 1. They share the row's tokens."""
    return max(sum(kind in ("string", "messages", "conversations") for kind in columns.values()), 1)
