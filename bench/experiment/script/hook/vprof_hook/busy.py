"""Tells what a script does in long parts without events, such as the first step of compiled code."""

import os
import sys
import threading
import time

from . import events, memory

# After so many seconds without an event, and as many after that.
SILENCE = float(os.environ.get("VPROF_SILENCE", "30"))

# What code of libraries does, by a part of its path.
WORK = (("_inductor", "torch.compile compiles"), ("_dynamo", "torch.compile traces"), ("triton", "Triton compiles"), ("datasets", "reads data"))


def watch(libraries):
    threading.Thread(target=tell, args=[libraries, threading.main_thread().ident], daemon=True).start()


def tell(libraries, main):
    while not events.quiet:
        time.sleep(SILENCE / 4)
        silent = (events.now() - events.last) / 1e6
        if silent >= SILENCE:
            events.send("busy", text=describe(main, libraries), seconds=silent)


def describe(main, libraries):
    """Returns what the innermost frames of a thread do: the work of a library, and the line of the user.

    No frame is held longer: it would hold the tensors of its function.
    """
    frame, what = sys._current_frames().get(main), ""
    while frame is not None:
        file = frame.f_code.co_filename
        if memory.of_user(file, libraries):
            return (what or "runs") + f" {os.path.basename(file)}:{frame.f_lineno}"
        if "importlib._bootstrap" in file:  # a library's modules run when they are imported, too
            what = "runs the imports of"
        what = what or next((text for part, text in WORK if os.sep + part in file), "")
        frame = frame.f_back
    return what or "runs"
