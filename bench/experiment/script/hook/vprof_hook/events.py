"""Events for vprof: every process of the script appends lines of JSON to one file."""

import json
import os
import time

# True in forked processes such as DataLoader workers. They send only the events of placeholders (TOLD).
quiet = False
TOLD = ("replaced", "wanted")

# Time of the last event, in microseconds since 1970.
last = 0


def folder(*names):
    """Returns the path of a file in the folder that vprof reads."""
    return os.path.join(os.environ["VPROF_HOOK"], *names)


def now():
    """Returns the time in microseconds since 1970, the clock of the allocator's trace."""
    return time.time_ns() // 1000


def send(event, **facts):
    """Appends an event with its values. One write() of a short line is atomic."""
    if quiet and event not in TOLD:
        return
    global last
    last = now()
    line = json.dumps({"event": event, "pid": os.getpid(), "at": last, **facts}, default=str) + "\n"
    try:
        file = os.open(folder("events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return  # vprof has ended and removed its folder
    try:
        os.write(file, line.encode())
    except OSError:
        pass  # the disk is full; vprof reports this
    finally:
        os.close(file)


def silence():
    """Called after a fork, in the child: stops its events."""
    global quiet
    quiet = True


os.register_at_fork(after_in_child=silence)
