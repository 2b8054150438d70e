"""Has a script whose training steps were seen evaluate and save once, where that costs little, before it is ended.

Where batches come from a DataLoader, the epoch ends early: what the script does at an epoch's end follows. transformers'
Trainer is told to evaluate and to save. Both end with the time that is left, or when the next epoch begins.
"""

import ctypes
import functools
import linecache
import os
import re
import sys
import threading
import time

from . import events, memory

# A loader that fetches ahead has its last batches after the cut.
STEPS = 2

# The share of the time that is left for an evaluation; the rest is for what follows it.
EVALUATION = 0.6

# Larger models are not saved: files of this size take longer than the steps.
SAVED = 4 << 30


# Where a line of the script evaluates or saves and has not run, steps go on for so many seconds and steps.
SEEK = float(os.environ.get("VPROF_SEEK", "5"))
MOST = 400

# What evaluates and what saves, in the source of a script; trainers do so by themselves.
LINES = {
    "eval": re.compile(r"^[^#]*\.eval\(\)"),
    "save": re.compile(r"^[^#]*\b(torch\.save|save_pretrained|save_file|save_model|save_checkpoint|save_state)\("),
}
TRAINERS = ("transformers.trainer", "pytorch_lightning", "lightning.pytorch")


class Closing:
    """What follows the last step."""

    def __init__(self, watch):
        self.watch = watch
        self.began = None  # the step after which the epoch was to end
        self.over = 0  # when an evaluation ends
        self.late = False  # whether the time is over
        self.batches = {}  # of evaluations, by loader
        self.ended = False  # whether the loader has ended its epoch
        self.trainer = False  # whether transformers' Trainer runs, which is asked
        self.asked = False
        self.never = set()  # what the Trainer was told not to do
        self.sought = 0  # when what has not been seen is given up
        self.ran = set()  # the lines of the script that called eval()

    def goes_on(self):
        """Reports whether the script runs on after a step that ends training."""
        watch = self.watch
        if self.began is not None:
            return watch.step() < self.began + STEPS or self.seeks()
        longest = watch.longest
        if longest.seconds <= longest.spent or watch.due:
            return False
        if longest.loader is None:
            return self.seeks()
        left = longest.seconds - longest.spent
        self.began, self.over = watch.step(), time.monotonic() + left * EVALUATION
        alarm = threading.Timer(left, interrupt, [self.is_late])
        alarm.daemon = True
        alarm.start()
        hide_failures()
        return True

    def cut(self):
        """Ends the epoch of the training loader; a second call ends training."""
        if self.began is None or self.watch.step() < self.began:
            return
        if self.ended or self.trainer:
            return None if not self.trainer and self.seeks() else self.end()
        self.ended = True
        raise StopIteration

    def seeks(self):
        """Reports whether further steps may reach an evaluation or a save of the script that was not seen yet."""
        watch = self.watch
        self.sought = self.sought or time.monotonic() + SEEK
        if time.monotonic() > self.sought or watch.step() > MOST or watch.growth.found():
            return False
        return any(self.unseen().values())

    def unseen(self):
        """Returns the lines that evaluate and save and did not run yet; empty if only a library's trainer does so."""
        found = {}
        for kind in LINES.keys() - self.watch.seen:
            line = next((line for line in self.lines()[kind] if line not in self.ran), None)
            if line or kind not in self.never and any(name in sys.modules for name in TRAINERS):
                found[kind] = line or ""
        return found

    @functools.lru_cache(maxsize=None)  # noqa: B019, of one object
    def lines(self):
        """Returns the lines of the script's own files that evaluate and save, as file:line."""
        found = {kind: [] for kind in LINES}
        for file in {file for _, file in memory.loaded()}:
            if memory.of_user(file, self.watch.memory.libraries):
                for number, text in enumerate(linecache.getlines(file), 1):
                    for kind, pattern in LINES.items():
                        if pattern.match(text):
                            found[kind].append(f"{file}:{number}")
        return found

    def evaluates(self, frame):
        """Notes the line of the script that called eval()."""
        while frame is not None and not memory.of_user(frame.f_code.co_filename, self.watch.memory.libraries):
            frame = frame.f_back
        if frame is not None:
            self.ran.add(f"{frame.f_code.co_filename}:{frame.f_lineno}")

    def check(self, loader):
        """Ends an evaluation whose time is over as if its loader had no further batch."""
        if self.began is None or self.watch.ended:
            return
        done = self.batches.get(id(loader), 0)
        if time.monotonic() > self.over and done:
            raise StopIteration
        self.batches[id(loader)] = done + 1

    def is_late(self):
        """Notes that the time limit has passed, and reports whether that ends the script."""
        self.late = self.late or not self.watch.ended
        return not self.watch.ended

    def reason(self):
        """Why training ended where the script has come to its end."""
        return "exit" if self.began is None else "steps" if self.late else "shortened"

    def end(self):
        self.watch.settle()
        self.watch.finish("steps")
        if not self.watch.trials.begin():
            self.watch.over = True
            self.watch.stop()


def interrupt(due):
    """Ends the main thread if that is due."""
    from .training import TrainingEnded

    if due():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.main_thread().ident), ctypes.py_object(TrainingEnded))


def hide_failures():
    """Hides the error of a script whose epoch was cut short. Running out of memory is still a result."""
    shown = sys.excepthook

    def hook(kind, error, trace):
        if "OutOfMemory" in kind.__name__:
            shown(kind, error, trace)

    sys.excepthook = hook


def ask_trainer(callbacks):
    """Called when transformers.trainer_callback has been imported: its Trainer evaluates and saves when it is told to."""
    from . import training

    flow = callbacks.DefaultFlowCallback
    own = flow.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        control = own(self, args, state, control, **kwargs) or control
        closing = training.watching and training.watching.closing
        if closing and not events.quiet:
            closing.trainer = True
            strategies = {"eval": args.eval_strategy, "save": args.save_strategy}
            closing.never = {kind for kind, strategy in strategies.items() if not chosen(strategy)}
            if closing.began is not None and not closing.asked:
                closing.asked = True
                control.should_evaluate |= "eval" not in closing.never
                control.should_save |= "save" not in closing.never and training.watching.memory.allocated() < SAVED
        return control

    flow.on_step_end = on_step_end


def chosen(strategy):
    """Reports whether a strategy of the Trainer is other than "no"."""
    return getattr(strategy, "value", strategy) != "no"
