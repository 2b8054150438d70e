"""Has a script whose training steps were seen evaluate and save once, where that costs little, before it is ended.

Where batches come from a DataLoader, the epoch ends early: what the script does at an epoch's end follows, and a step
beside what that has left. transformers' Trainer is told to evaluate and to save. Both end with the time that is left.
"""

import ctypes
import functools
import linecache
import os
import re
import sys
import threading
import time

from . import events, loaders, loops, memory

# A loader that fetches ahead has its last batches after the cut.
STEPS = 2

# The share of the time that is left for an evaluation; the rest is for what follows it.
EVALUATION = 0.6

# The share of the time so far for further epochs of two steps each, and at least so many seconds. The first step may make
# an optimizer's states, which the second one meets.
EPOCHS, LEAST = 0.1, 2.0

# Larger models are not saved: files of this size take longer than the steps.
SAVED = 4 << 30


# Where a line of the script evaluates or saves and has not run, or what grows is freed soon, steps go on for so many
# seconds; where nothing tells the sizes of later batches, for a share of them after the last rise of the peak. All end
# after so many steps and allocations.
SEEK = float(os.environ.get("VPROF_SEEK", "8"))
LOOK, RISE = 0.25, 1.02
MOST, ALLOCATIONS = 400, 150_000

# Whether training ends after its steps and the longest batches.
BRIEF = "VPROF_BRIEF" in os.environ

# What evaluates and what saves, in the source of a script; trainers do so by themselves.
LINES = {
    "eval": re.compile(r"^[^#]*\.(eval\(\)|train\(False\)|generate\()"),
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
        self.looked = self.top = 0  # when later batches are taken for alike, and the peak when it last rose
        self.again = None  # the step that was running when the loader was asked for another epoch
        self.epochs = 0  # when further epochs are over
        self.loops = []  # around a step, the innermost first
        self.total = 0  # steps of a trainer; zero where they are not known
        self.graphs = None  # the variables with graphs of autograd that an evaluation has, by their ids
        self.graded = ""  # the line of a loop that evaluates and records further graphs with each batch
        self.ran = set()  # the lines of the script that called eval()

    def goes_on(self):
        """Reports whether the script runs on after a step that ends training."""
        watch = self.watch
        if self.began is not None:
            return watch.step() < self.began + STEPS or self.seeks() or self.turns()
        longest = watch.longest
        if longest.seconds <= longest.spent or watch.due or BRIEF:
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
        """Ends the epoch of the training loader, and each further one after two steps; training when their time is over."""
        step, self.graphs = self.watch.step(), None
        if self.began is None or step < self.began:
            return
        if self.trainer:
            return self.end()
        if self.ended and self.again is None:
            self.again, self.epochs = step, time.process_time() + max(LEAST, EPOCHS * time.process_time())
        if self.again is not None and step < self.again + STEPS or self.seeks(sys._getframe(1)):
            return
        if self.ended and time.process_time() > self.epochs:
            return self.end()
        self.ended, self.again = True, None if self.again is None else step
        raise StopIteration

    def turns(self):
        """Reports whether there is time for the next epoch, or the next loader of a script that has several."""
        longest = self.watch.longest
        if self.trainer or longest.loader is None or self.watch.growth.found():
            return False
        if longest.other is not None:
            longest.loader, longest.other = longest.other, None
            self.again = self.again and self.watch.step() - 1  # a step of a new loader, which ends with its next batch
        return self.ended and time.process_time() < (self.epochs or float("inf"))

    def seeks(self, frame=None):
        """Reports whether further steps, of the loop that a frame runs, may come to what the script has and that was not seen."""
        watch = self.watch
        now = time.process_time()
        self.sought = self.sought or now + SEEK
        if now >= self.sought or watch.step() > MOST or watch.memory.made() > ALLOCATIONS:
            return False
        if watch.growth.found():  # which ends soon, or not; what steps compute of it may reach a limit
            last = self.steps("steps") + STEPS
            return watch.step() < last if STEPS < last <= MOST else now < self.sought - SEEK * (1 - LOOK)
        if watch.memory.top() > RISE * self.top:
            self.looked, self.top = now + SEEK * LOOK, watch.memory.top()
        if not watch.longest.known and now < self.looked:
            return True
        lines = [line for line in self.unseen().values() if line]
        user = memory.frame_of_user(frame, watch.memory.libraries)
        return any(lines) and (self.ended or user is None or loops.calls(user, lines))

    def measure(self, frame):
        """Notes how often the loops run that a step is in, or the steps of Lightning's trainer."""
        self.loops = loops.nest(frame, self.watch.memory.libraries, loaders.length(self.watch.longest.loader))
        while frame is not None and not self.total:
            trainer = getattr(memory.variables(frame).get("self"), "trainer", None)
            steps = getattr(trainer, "estimated_stepping_batches", 0) if type(trainer).__module__.startswith(TRAINERS[1:]) else 0
            self.total, frame = int(steps) if steps < float("inf") else 0, frame.f_back

    def steps(self, reason):
        """Returns the steps of the whole script, at most; zero where they are not known. It is over with some reason."""
        if reason == "exit" and getattr(sys, "last_value", None) is None:
            return max(self.watch.step(), self.watch.batches)
        longest, rounds = self.watch.longest, loops.rounds(self.loops, self.watch.growth.holder)
        batches = max(longest.given // max(self.watch.step(), 1), 1)  # of a step
        if self.watch.growth.epoch:  # which frees what has grown
            rounds = loaders.length(longest.loader) or self.watch.growth.epoch
        return min(filter(None, (self.total or rounds // batches, self.watch.growth.bound)), default=0)

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
        user = memory.frame_of_user(frame, self.watch.memory.libraries)
        if user is not None:
            self.ran.add(f"{user.f_code.co_filename}:{user.f_lineno}")

    def check(self, loader):
        """Ends an evaluation whose time is over as if its loader had no further batch."""
        self.note_graphs(memory.frame_of_user(sys._getframe(1), self.watch.memory.libraries))
        if self.began is None or self.watch.ended:
            return
        done = self.batches.get(id(loader), 0)
        if time.monotonic() > self.over and done:
            raise StopIteration
        self.batches[id(loader)] = done + 1

    def note_graphs(self, user):
        """Notes whether the loop of an evaluation has come to graphs of autograd since its last batch."""
        torch = self.watch.torch
        if user is not None and "evaluation" in self.watch.phases and torch.is_grad_enabled():
            values = memory.variables(user).values()
            graphs = {id(v) for v in values if isinstance(v, torch.Tensor) and v.grad_fn is not None}
            if self.graphs is not None and graphs - self.graphs:
                self.graded = f"{user.f_code.co_filename}:{user.f_lineno}"
            self.graphs = graphs

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


def note_generation(module):
    """Called when transformers' generation has been imported, which evaluates."""
    from . import training

    own = module.GenerationMixin.generate

    @functools.wraps(own)
    def generate(*args, **kwargs):
        if training.watching:
            training.watching.closing.evaluates(sys._getframe(1))
        return own(*args, **kwargs)

    module.GenerationMixin.generate = generate


def ask_trainer(callbacks):
    """Called when transformers.trainer_callback has been imported: its Trainer evaluates and saves when it is told to."""
    from . import training

    flow = callbacks.DefaultFlowCallback
    own = flow.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        control = own(self, args, state, control, **kwargs) or control
        closing = training.watching and training.watching.closing
        if closing and not events.quiet:
            closing.trainer, closing.total = True, state.max_steps
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
