"""Placeholders for absent folders: of images, sounds and arrays that a data set lists, and of packages in the
repository that are not installed.
"""

import functools
import importlib
import importlib.machinery
import io
import os
import re
import shutil
import sys
import tempfile
import threading

from . import files, memory, placeholders, shapes

# File extensions of images and sounds. Placeholder files get the first one that the script's source mentions.
IMAGES, SOUNDS = (".png", ".jpg", ".jpeg"), (".wav", ".flac")

# Names of folders with masks: images with one value for each pixel.
MASKS = re.compile("mask|label|seg|depth|^gt")

# Names of files that repositories put into folders of data.
TELLS = re.compile(r"\.|(readme|placeholder|put|download)[^/]*$|[^.]*\.md$", re.IGNORECASE)

# Standard modules that list files by a pattern.
LISTED = re.compile(r"\b(glob|pathlib)\b(/__init__)?\.py$|pathlib/_\w+\.py$")

# The user's functions that list samples have one of these words in their names. Methods of data sets do so under any
# name.
LISTS = re.compile("data|image")


def start():
    """Called when Python starts, before files are redirected: watches folders that are listed and packages that are
    imported.
    """
    sys.meta_path.append(Finder())
    if "data" in placeholders.ASKED:
        files.absent_folder = image_folder
        io.FileIO = Opened


class Opened(io.FileIO):
    """io.FileIO, which some libraries open instead of calling open()."""

    def __init__(self, file, *args, **kwargs):
        super().__init__(files.path_to_read(file), *args, **kwargs)


own = threading.local()  # own.asks is true while this module itself inspects files


def image_folder(path):
    """Fills the mirror of a folder that a data set lists and that is absent or empty. Reports whether samples are
    there.
    """
    path = os.path.abspath(os.fspath(path))
    if getattr(own, "asks", False) or files.cached(path):
        return False
    folder, end = os.path.dirname(path), os.path.splitext(path)[1]
    if end:
        return end in IMAGES and is_counterpart(path) and not os.path.lexists(folder) and fill(folder, end)
    if not lists_samples():
        return False
    own.asks = True
    try:
        return is_empty(path) and (os.path.isdir(files.mirror(path)) or fill(path))
    finally:
        own.asks = False


def is_counterpart(path):
    """Reports whether a file is named like a placeholder sample in a parallel folder, as a mask is named like its
    image.
    """
    stem = os.path.splitext(os.path.basename(path))[0]
    return any(files.exists(os.path.join(files.mirror(folder), stem + end)) for folder in list(files.placed) for end in IMAGES)


def is_empty(path):
    """Reports whether a folder is absent, or its files tell only what belongs there, like README.md or .gitkeep."""
    if not os.path.lexists(path):
        return True
    return os.path.isdir(path) and all(TELLS.match(name) for name in os.listdir(path))


def fill(path, end=None):
    """Writes sample files into the mirror of a folder. Returns False if the script reads no known kind of file."""
    end = end or kind_of_files()
    if end is None:
        return False
    folder = files.mirror(path)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    work = tempfile.mkdtemp(dir=os.path.dirname(folder))
    first = os.path.join(work, "0" * 5 + end)
    what = sample(first, path, end)
    for row in range(1, shapes.ROWS):
        os.link(first, os.path.join(work, "%05d%s" % (row, end)))
    try:
        os.rename(work, folder)
    except OSError:  # another process of the script has written the same files first
        shutil.rmtree(work)
        return True
    placeholders.replaced("data", path, "%d %s" % (shapes.ROWS, what))
    return True


def sample(file, path, end, row=0):
    """Writes a sample file of a folder, by default the first one. Returns a description of the samples."""
    from . import data, sounds

    if end in IMAGES:
        size = shapes.size_of(path)
        shapes.image(size, "L" if MASKS.search(os.path.basename(path)) else "RGB").save(file)
        data.made.update(() if size else ("image",))
        return "images of %dx%d" % (size or shapes.UNSIZED)
    stated = shapes.entry("files", os.path.join(path, os.path.basename(file))) or end in SOUNDS and sounds.configured()
    if not stated:
        data.stop("the *%s files in %s, which are absent" % (end, path), data.SHAPES_FLAG + ': {"files": {"*%s": "audio 22050"}}' % end)
    content = shapes.value(stated, row)
    if end == ".npy":
        importlib.import_module("numpy").save(file, content)
        return "arrays of %s, as --data-shapes states" % stated
    data.made.add("sound %d" % len(content["array"]))
    with importlib.import_module("wave").open(file, "wb") as sound:
        sound.setparams((1, 2, content["sampling_rate"], 0, "NONE", ""))
        sound.writeframes(bytes(2 * len(content["array"])))
    return "sounds of %d samples at %d Hz" % (len(content["array"]), content["sampling_rate"])


def lists_samples():
    """Reports whether the caller lists samples: it is a method of a data set, a function of the user with "data" or
    "image" in its name, or lists files by a pattern with the extension of an image or sound.
    """
    if pattern_of_files():
        return True
    torch, frame = sys.modules.get("torch"), sys._getframe(1)
    base = getattr(getattr(getattr(torch, "utils", None), "data", None), "Dataset", ())
    while frame is not None:
        if memory.of_user(frame.f_code.co_filename, memory.LIBRARIES) and (
            LISTS.search(frame.f_code.co_name) or base and isinstance(frame.f_locals.get("self"), base)
        ):
            return True
        frame = frame.f_back
    return False


def pattern_of_files():
    """Returns the extension of the pattern that the user's source lists files by, such as .jpg for
    glob("images/*.jpg"); None if it lists no images or sounds.
    """
    frame = sys._getframe(1)
    while frame is not None:
        pattern = frame.f_locals.get("pathname") or frame.f_locals.get("pattern") if LISTED.search(frame.f_code.co_filename) else None
        end = os.path.splitext(str(pattern))[1]
        if end in (*IMAGES, *SOUNDS):
            return end
        frame = frame.f_back
    return None


def kind_of_files():
    """Returns the extension of the samples that the user's source reads: one that the calling file mentions, else one
    that another file mentions, or .png if images are opened but no extension is mentioned; None otherwise.
    """
    from . import data

    if pattern_of_files():
        return pattern_of_files()
    whole = "\n".join(map(data.source, data.sources()))
    for text in (data.source(memory.frame_of_user(sys._getframe(1), memory.LIBRARIES).f_code.co_filename), whole):
        ends = [end for end in (".npy", *SOUNDS, *IMAGES) if re.search(r"\b%s\b" % end[1:], text) and (end != ".npy" or shapes.entry("files", "00000.npy"))]
        if ends:
            return ends[0]
    return IMAGES[0] if re.search(r"\bImage\.open\b|\bimread\b", whole) else None


class Finder:
    """Imports packages of the repository that are not installed, from folders that have a setup.py or pyproject.toml,
    and from src inside them.
    """

    def find_spec(self, name, path=None, target=None):
        asks, own.asks = getattr(own, "asks", False), True
        try:
            return self.found(name) if path is None else None
        finally:
            own.asks = asks

    def found(self, name):
        for folder in installable():
            inner = os.path.join(folder, name)
            if os.path.exists(os.path.join(inner, "__init__.py")) or os.path.basename(folder) == "src" and os.path.isdir(inner):
                placeholders.replaced("package", name, "the folder %s of the repository, which is not installed" % os.path.relpath(folder, files.OWN))
                sys.path.append(folder)
                return importlib.machinery.PathFinder.find_spec(name, [folder])
        return None


@functools.lru_cache(maxsize=None)
def installable():
    """Returns the folders from which pip would install packages: the folder where the command was started, three above
    it, and its subfolders.
    """
    above = [os.path.abspath(os.path.join(files.OWN, *[os.pardir] * n)) for n in range(4)]
    bases = list(dict.fromkeys(above)) + [entry.path for entry in os.scandir(files.OWN) if entry.is_dir() and not entry.name.startswith(".")]
    return [
        os.path.join(base, inner) for base in bases for inner in ("", "src")
        if any(os.path.exists(os.path.join(base, f)) for f in ("setup.py", "setup.cfg", "pyproject.toml"))
    ]
