"""Starts a script again with what its error told about placeholders: widths of arrays, the seconds of sounds, and
assertions about values that placeholders do not have, or about releases.
"""

import json
import multiprocessing
import os
import sys
import traceback

from . import arrays, data, events, files, memory, placeholders, shapes


def read():
    """Returns what errors of earlier starts have told: widths by array, and "-O" if assertions are skipped."""
    try:
        with files.real_open(events.folder("learned.json"), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return {}


known = {}  # at the start of this process


def start():
    """Called when Python starts: of the modules that -O compiles without assertions, only the user's own are."""
    known.update(read())
    shapes.seconds = tuple(known.get("seconds", shapes.seconds))
    if not sys.flags.optimize or "-O" not in known:
        return
    external = sys.modules["_frozen_importlib_external"]
    place = external.cache_from_source

    def cache_from_source(path, *args, **kwargs):
        return place(path, *args, **(kwargs if memory.of_user(path, memory.LIBRARIES) else {**kwargs, "optimization": ""}))

    external.cache_from_source = cache_from_source


def retry(error, trace):
    """Starts the script again if its error, or one of another process, told something new."""
    told = arrays.learned(error)
    if isinstance(error, AssertionError) and not sys.flags.optimize:
        last = traceback.extract_tb(trace)[-1]
        of_release = "__version__" in (last.line or "") and "documented" in placeholders.ASKED
        if (placeholders.told or of_release) and memory.of_user(last.filename, memory.LIBRARIES):
            why = "another release is installed" if of_release else "this one does not hold of placeholders"
            placeholders.replaced("setting", "%s:%d" % (last.filename, last.lineno), "no assertions, as " + why)
            told["-O"] = True
    if isinstance(error, (ZeroDivisionError, IndexError)) and not shapes.lengths() and any(kind.startswith("sound") for kind in data.made):
        told["seconds"] = shapes.SHORTER
    now = {**read(), **json.loads(json.dumps(told))}
    if told:
        with files.real_open(events.folder("learned.json"), "w", encoding="utf-8") as file:
            json.dump(now, file)
    if now == known or multiprocessing.parent_process() is not None:
        return
    if "-O" in now:
        os.environ.update(PYTHONOPTIMIZE="1", PYTHONDONTWRITEBYTECODE="1")
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
