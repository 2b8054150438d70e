"""Placeholders for absent lists of samples: text files with one line for each sample."""

import inspect
import os
import re
import sys

from . import files, folders, formats, memory, placeholders, shapes, sounds
from .placeholders import replaced

# Names of such lists, and the characters of text per second of speech (LJSpeech: 1,308,678 in 24 hours).
SAMPLES = re.compile(r"(train|val|test|list|meta)[^/]*\.(txt|lst|list)$")
CHARACTERS = 15

# Files of YOLO with the objects of an image, in a folder "labels" beside the images: class, center and size of a box.
OBJECTS = re.compile(r"/labels/.*\.txt$")

# Kinds of fields by their names, as regular expressions. A field with another name is a number.
FIELDS = {"path": "path|file|wav|audio|im", "text": "text|trans|phon|caption|sent"}


def file(path):
    """Returns the path of a placeholder for an absent list of samples; None if the path names no such list.

    The user's function that opens the list decides on its fields and separator: they are read from its source.
    """
    from . import data

    path = os.path.abspath(os.fspath(path))
    if path.endswith(folders.SOUNDS):
        return sound_file(path)
    marked = OBJECTS.search(path)
    if not marked and not SAMPLES.search(path) or os.path.lexists(path) or files.exists(files.mirror(path)) or not folders.lists_samples():
        return None
    target = os.path.join(placeholders.folder(), "list-" + ("objects" if marked else path.strip("/").replace("/", "-")))
    if files.exists(target):
        return target
    if marked:
        with files.real_open(target, "w", encoding="utf-8") as opened:
            opened.writelines("0 0.5 0.5 0.5 0.%d\n" % (n + 1) for n in range(formats.OBJECTS))
        replaced("data", os.path.dirname(path), "%d objects in each image" % formats.OBJECTS)
        return target
    code, whole = inspect.getsource(memory.frame_of_user(sys._getframe(1), memory.LIBRARIES).f_code), "\n".join(map(data.source, data.sources()))
    mark = re.search(r"split\s*[=(]\s*([\"'])([|,; ]|\\t)\1|\.split\(()()\)", code)
    names = re.search(r"((?:\w+\s*,\s*)+\w+)\s*(?:=|\bin\b).*split\(", code)
    sound = sounds.configured() if re.search(r"\bwav|torchaudio|librosa|soundfile", whole) else None
    seconds = shapes.value(sound)["array"].size / int(sound.split()[1]) if sound else 0
    of = {"path": "absent/%05d.wav" if sound else "./images/absent/%05d.jpg", "text": shapes.text(int(seconds * CHARACTERS) // 4 or 12)}
    numbered = {}  # names of fields that are taken by their numbers
    for parts in re.findall(r"(\w+)\s*=[^\n=]*\.split\(", code):
        numbered.update((int(n), name) for name, n in re.findall(r"(\w+)\s*=[^\n]*\b%s\[(\d)\]" % parts, code))
    if numbered and not names:
        fields = [numbered.get(n, "number") for n in range(max(numbered) + 1)]
    else:
        fields = names[1].split(",") if names else ["path", "text" if sound else "label"] if mark else ["path"]
    line = (mark and mark[2] or " ").replace("\\t", "\t").join(next((of[kind] for kind, known in FIELDS.items() if re.search(known, name)), "0") for name in fields)
    with files.real_open(target, "w", encoding="utf-8") as opened:
        opened.writelines((line % row if "%" in line else line) + "\n" for row in range(shapes.ROWS))
    replaced("data", path, "%d lines of %s" % (shapes.ROWS, ", ".join(name.strip() for name in fields)))
    return target


def sound_file(path):
    """Returns the path of a placeholder for a sound of a data set, which may ask for its size before it reads it; None for
    other absent sounds.
    """
    if os.path.lexists(path) or files.cached(os.path.dirname(path)) or not folders.lists_samples() or not sounds.configured():
        return None
    row = sounds.row_of(path)
    target = os.path.join(placeholders.folder(), "sound-%d%s" % (shapes.seconds[row % len(shapes.seconds)], os.path.splitext(path)[1]))
    if not files.exists(target):
        folders.sample(target, os.path.dirname(path), folders.SOUNDS[0], row)
    return target
