"""Lists of samples that are absent: files of text with a line for each."""

import inspect
import os
import re
import sys

from . import files, folders, formats, memory, placeholders, shapes
from .placeholders import replaced

# Lists of samples, a line for each, and the characters of the texts that belong to a second of sound: LJSpeech has 1,308,678 in 24 hours.
SAMPLES = re.compile(r"(train|val|test|list|meta)[^/]*\.(txt|lst|list)$")
CHARACTERS = 15

# Objects of an image as YOLO has them: a class, and the middle and the size of a box, in a folder beside the images.
OBJECTS = re.compile(r"/labels/.*\.txt$")

# Fields of such a line by what their names hold, else numbers.
FIELDS = {"path": "path|file|wav|audio|im", "text": "text|trans|phon|caption|sent"}


def file(path):
    """A list of samples in place of one that is absent, as the function that asks for it splits lines; None if it is none."""
    from . import data, sounds

    path = os.path.abspath(os.fspath(path))
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
    fields = names[1].split(",") if names else ["path", "text" if sound else "label"] if mark else ["path"]
    line = (mark and mark[2] or " ").replace("\\t", "\t").join(next((of[kind] for kind, known in FIELDS.items() if re.search(known, name)), "0") for name in fields)
    with files.real_open(target, "w", encoding="utf-8") as opened:
        opened.writelines((line % row if "%" in line else line) + "\n" for row in range(shapes.ROWS))
    replaced("data", path, "%d lines of %s" % (shapes.ROWS, ", ".join(name.strip() for name in fields)))
    return target
