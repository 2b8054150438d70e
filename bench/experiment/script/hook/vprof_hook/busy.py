"""Reports the current activity of a script during long times without events, such as the compilation of the first step.
"""

import os
import sys
import threading
import time

from . import events, memory

# A report is sent after this many seconds without an event, and again after each further period.
SILENCE = float(os.environ.get("VPROF_SILENCE", "30"))

# Activities of libraries, by a part of the source file's path.
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
    """Describes the innermost frames of a thread: the library's activity, and the user's line that caused it.

    No frame is stored, since that would keep the tensors of its function alive.
    """
    frame, what = sys._current_frames().get(main), ""
    while frame is not None:
        file = frame.f_code.co_filename
        if memory.of_user(file, libraries):
            return (what or "runs") + f" {os.path.basename(file)}:{frame.f_lineno}"
        if "importlib._bootstrap" in file:  # this library code runs while its module is imported
            what = "runs the imports of"
        what = what or next((text for part, text in WORK if os.sep + part in file), "")
        frame = frame.f_back
    return what or "runs"
