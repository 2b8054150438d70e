"""Events for vprof: any process appends lines of JSON to a file."""

import json
import os
import time

# Set in processes that a training process forks, such as workers of a DataLoader, which send only what placeholders tell.
quiet = False
TOLD = ("replaced", "wanted")

# When the last event was sent, in microseconds since 1970.
last = 0


def folder(*names):
    """Returns the path of something in the folder that vprof reads."""
    return os.path.join(os.environ["VPROF_HOOK"], *names)


def now():
    """Microseconds since 1970, as PyTorch's allocator counts them."""
    return time.time_ns() // 1000


def send(event, **facts):
    """Appends an event. A short line that is written at once stays in one piece."""
    if quiet and event not in TOLD:
        return
    global last
    last = now()
    line = json.dumps({"event": event, "pid": os.getpid(), "at": last, **facts}, default=str) + "\n"
    try:
        file = os.open(folder("events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return  # vprof has ended and its folder is gone
    try:
        os.write(file, line.encode())
    except OSError:
        pass  # the disk is full, which vprof reports
    finally:
        os.close(file)


def silence():
    """Stops the events of this process."""
    global quiet
    quiet = True


os.register_at_fork(after_in_child=silence)
