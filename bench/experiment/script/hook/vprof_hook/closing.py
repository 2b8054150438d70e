"""Ends a script after its training steps were recorded, and before that makes it evaluate and save once if that is
quick.

The training DataLoader ends its epoch early, so the script's own code for the end of an epoch runs. The steps after it
show memory that this code left allocated. transformers' Trainer is told to evaluate and to save. All this stops when
the time limit has passed.
"""

import ctypes
import functools
import itertools
import linecache
import os
import re
import sys
import threading
import time

from . import events, loaders, loops, memory

# Steps that still run after the request to end the epoch: a prefetching loader already holds their batches. Also the
# steps of each further epoch.
STEPS = 2

# The share of the remaining time for an evaluation. The code after it gets the rest.
EVALUATION = 0.6

# Further epochs of two steps each may use this share of the CPU time used so far, and at least LEAST seconds. Two
# steps, since the first may create optimizer states and only the second one shows their effect.
EPOCHS, LEAST = 0.1, 2.0

# On a loaded machine, where the script waits for a processor, all may take this many times as long.
LOADED = 2

# Models that allocate more bytes are not saved: writing the file takes longer than the steps.
SAVED = 4 << 30


# Further steps run for up to SEEK seconds of CPU time if the script has a line that evaluates or saves and did not run
# yet, or if growing memory is freed soon, or if the peak rises (by the factor RISE) in the first LOOK * SEEK of them.
# They end after MOST steps or ALLOCATIONS allocations.
SEEK = float(os.environ.get("VPROF_SEEK", "8"))
LOOK, RISE = 0.25, 1.02
MOST, ALLOCATIONS = 400, 150_000

# The number of last elements of a list in which new tensors are looked for.
RECENT = 8

# Whether the run ends directly after its steps and the longest batches.
BRIEF = "VPROF_BRIEF" in os.environ

# Source lines that evaluate or save. The trainers listed below do both in their own code.
LINES = {
    "eval": re.compile(r"^[^#]*\.(eval\(\)|train\(False\)|generate\()"),
    "save": re.compile(r"^[^#]*\b(torch\.save|save_pretrained|save_file|save_model|save_checkpoint|save_state)\("),
}
PHASES = {"eval": "evaluation", "save": "saving"}
TRAINERS = ("transformers.trainer", "pytorch_lightning", "lightning.pytorch")


class Closing:
    """Decides after each step whether the script runs on, and ends it."""

    def __init__(self, watch):
        self.watch = watch
        self.began = None  # the step after which the epoch was asked to end; None before that
        self.over = self.until = 0  # deadlines of an evaluation and of all, by clock()
        self.latest = 0  # deadline by time.monotonic()
        self.late = False  # whether the time limit has passed
        self.batches = {}  # number of evaluation batches by id of the loader
        self.ended = False  # whether the training loader has ended its epoch
        self.trainer = False  # whether transformers' Trainer runs; asked: whether it was told to evaluate and save
        self.asked = False
        self.never = set()  # "eval" and "save" if the Trainer's arguments turn them off
        self.sought_until = 0  # the step after which nothing was sought any more, zero before that
        self.sought = 0  # deadline for reaching lines that evaluate or save, in CPU seconds
        self.looked = self.top = 0  # deadline for a further rise of the peak, in CPU seconds, and the peak at its last rise
        self.again = None  # the step at which the loader began another epoch; None before that
        self.epochs = 0  # deadline of further epochs, in CPU seconds
        self.loops = []  # the loops around a step, the innermost first (see loops.nest)
        self.total = 0  # number of steps of a trainer, zero if unknown
        self.graphs = None  # ids of tensors with autograd graphs in an evaluation's variables, at its last batch
        self.graded = ""  # file:line of an evaluation loop that adds an autograd graph with each batch
        self.ran = set()  # file:line of the script's calls of eval() and generate()

    def goes_on(self):
        """Reports whether further steps run after the requested ones. The first call sets the time limit."""
        watch = self.watch
        if self.began is not None:
            return watch.step() < self.began + STEPS or self.seeks() or self.waits() or self.turns()
        longest = watch.longest
        if longest.seconds <= longest.spent or watch.due or BRIEF:
            return False
        if longest.loader is None:
            return self.seeks()
        left = longest.seconds - longest.spent
        self.began, self.over, self.until = watch.step(), clock() + left * EVALUATION, clock() + left
        self.latest = time.monotonic() + LOADED * left
        self.wait()
        hide_failures()
        return True

    def wait(self):
        """Starts a timer that ends the script after the deadline."""
        alarm = threading.Timer(max(self.until - clock(), 0.1), self.ring)
        alarm.daemon = True
        alarm.start()

    def ring(self):
        if clock() < self.until and time.monotonic() < self.latest and not self.watch.ended:
            self.wait()
        else:
            interrupt(self.is_late)

    def cut(self):
        """Called before each training batch. Raises StopIteration to end the epoch, and each later epoch after two
        steps. Ends training when the time for epochs is over and nothing is sought after them.
        """
        step, self.graphs = self.watch.step(), None
        if self.began is None or step < self.began:
            return
        if self.trainer:
            return self.end()
        if self.ended and self.again is None:
            self.again, self.epochs = step, time.process_time() + max(LEAST, EPOCHS * time.process_time())
        # What comes after all epochs is reached sooner if each is cut than if the first of them goes on.
        if self.again is not None and step < self.again + STEPS or not self.ended and self.seeks(sys._getframe(1)):
            return
        if self.ended and time.process_time() > self.epochs and not self.seeks():
            return self.end()
        self.ended, self.again = True, None if self.again is None else step
        raise StopIteration

    def waits(self):
        """Reports whether the loader may still end its epoch: it does so where it is asked for the next batch. A script
        that does not ask for one in twice STEPS steps is taken to need none.
        """
        if self.ended or self.trainer or self.watch.longest.loader is None or self.watch.growth.found():
            return False
        self.sought_until = self.sought_until or self.watch.step()
        return self.watch.step() < self.sought_until + 2 * STEPS

    def turns(self):
        """Reports whether the script may still begin another epoch, or train with another loader."""
        longest = self.watch.longest
        if self.trainer or longest.loader is None or self.watch.growth.found():
            return False
        if longest.other is not None:
            longest.loader, longest.other = longest.other, None
            # The last step already used the new loader, which ends its epoch at the next batch.
            self.again = self.again and self.watch.step() - 1
        return self.ended and time.process_time() < (self.epochs or float("inf"))

    def seeks(self, frame=None):
        """Reports whether further steps may show memory that was not seen yet: growing memory may be freed, the peak
        may still rise, or the loop around frame has a line that evaluates or saves and did not run.
        """
        watch = self.watch
        now = time.process_time()
        self.sought = self.sought or now + SEEK
        if now >= self.sought or watch.step() > MOST or watch.memory.made() > ALLOCATIONS:
            return False
        # Growth that ends within MOST steps is followed to its end, other growth for LOOK * SEEK seconds.
        if watch.growth.found():
            last = self.steps("steps") + STEPS
            return watch.step() < last if STEPS < last <= MOST else now < self.sought - SEEK * (1 - LOOK)
        if watch.memory.top() > RISE * self.top:
            # A second rise shows that steps differ: then they are looked at for the whole time.
            self.looked = self.sought if self.top and not self.ended else now + SEEK * LOOK
            self.top = watch.memory.top()
        most = MOST if watch.longest.loader is None else MOST // 2  # the end of a loader's epoch needs steps, too
        if now < self.looked and watch.step() < most:
            return True
        lines = [line for line in self.unseen().values() if line]
        user = memory.frame_of_user(frame, watch.memory.libraries)
        return any(lines) and (self.ended or user is None or loops.calls(user, lines))

    def measure(self, frame):
        """Stores the loops around the current step, and the number of steps planned by Lightning's trainer."""
        self.loops = loops.nest(frame, self.watch.memory.libraries, loaders.length(self.watch.longest.loader))
        while frame is not None and not self.total:
            trainer = getattr(memory.variables(frame).get("self"), "trainer", None)
            steps = getattr(trainer, "estimated_stepping_batches", 0) if type(trainer).__module__.startswith(TRAINERS[1:]) else 0
            self.total, frame = int(steps) if steps < float("inf") else 0, frame.f_back

    def steps(self, reason):
        """Returns the largest number of steps that the whole script can run; zero if unknown. reason tells why it
        ended.
        """
        if reason == "exit" and getattr(sys, "last_value", None) is None:
            return max(self.watch.step(), self.watch.batches)
        longest, rounds = self.watch.longest, loops.rounds(self.loops, self.watch.growth.holder)
        batches = max(longest.given // max(self.watch.step(), 1), 1)  # batches per step (gradient accumulation)
        if self.watch.growth.epoch:  # each epoch frees the memory that has grown
            rounds = loaders.length(longest.loader) or self.watch.growth.epoch
        return min(filter(None, (self.total or rounds // batches, self.watch.growth.bound)), default=0)

    def unseen(self):
        """Returns, by "eval" and "save", the line that did not run yet; empty if only a library's trainer has such
        code. An evaluation that the time limit has ended counts as not run.
        """
        found, ran = {}, {phase for _, phase in self.watch.memory.tops}
        for kind in LINES.keys() - self.watch.seen:
            line = next((line for line in self.lines()[kind] if line not in self.ran), None)
            if kind == "eval" and self.late and "evaluation" in self.watch.phases:
                found[kind] = next(iter(self.ran), "")
            elif PHASES[kind] not in ran and (line or kind not in self.never and any(name in sys.modules for name in TRAINERS)):
                found[kind] = line or ""
        return found

    @functools.lru_cache(maxsize=None)  # noqa: B019, there is one object
    def lines(self):
        """Returns the lines of the script's own files that evaluate or save, by kind, as file:line."""
        found = {kind: [] for kind in LINES}
        for file in {file for _, file in memory.loaded()}:
            if memory.of_user(file, self.watch.memory.libraries):
                for number, text in enumerate(linecache.getlines(file), 1):
                    for kind, pattern in LINES.items():
                        if pattern.match(text):
                            found[kind].append(f"{file}:{number}")
        return found

    def evaluates(self, frame):
        """Records the line of the script that called eval() or generate()."""
        user = memory.frame_of_user(frame, self.watch.memory.libraries)
        if user is not None:
            self.ran.add(f"{user.f_code.co_filename}:{user.f_lineno}")

    def check(self, loader):
        """Called before each batch of a loader that does not train. Ends an evaluation after its deadline by raising
        StopIteration.
        """
        self.note_graphs(memory.frame_of_user(sys._getframe(1), self.watch.memory.libraries))
        if self.began is None or self.watch.ended:
            return
        done = self.batches.get(id(loader), 0)
        if clock() > self.over and done:
            raise StopIteration
        self.batches[id(loader)] = done + 1

    def note_graphs(self, user):
        """Records the line of an evaluation loop if it made autograd graphs since its last batch."""
        torch = self.watch.torch
        if user is not None and "evaluation" in self.watch.phases and torch.is_grad_enabled():
            values = memory.variables(user).values()
            lists = [v for v in values if isinstance(v, list)]
            values = itertools.chain(values, *(v[-RECENT:] for v in lists))
            graphs = {id(v) for v in values if isinstance(v, torch.Tensor) and v.grad_fn is not None}
            if self.graphs is not None and graphs - self.graphs:
                self.graded = f"{user.f_code.co_filename}:{user.f_lineno}"
            self.graphs = graphs

    def is_late(self):
        """Called when the time limit has passed. Returns whether the script must end."""
        self.late = self.late or not self.watch.ended
        return not self.watch.ended

    def reason(self):
        """Returns why training ended, for a script that ran to its own end."""
        return "exit" if self.began is None else "steps" if self.late else "shortened"

    def end(self):
        self.watch.settle()
        self.watch.finish("steps")
        if not self.watch.trials.begin():
            self.watch.over = True
            self.watch.stop()


def clock():
    """Returns a time in seconds that stands still while the main thread waits for a processor."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return time.monotonic() - int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # this kernel does not count it
        return time.monotonic()


def interrupt(due):
    """Raises TrainingEnded in the main thread if due() is true."""
    from .training import TrainingEnded

    if due():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.main_thread().ident), ctypes.py_object(TrainingEnded))


def hide_failures():
    """Hides the traceback of a script whose epoch was cut short. An out-of-memory error is still shown: it is a result.
    """
    shown = sys.excepthook

    def hook(kind, error, trace):
        if "OutOfMemory" in kind.__name__:
            shown(kind, error, trace)

    sys.excepthook = hook


def note_generation(module):
    """Called when transformers.generation.utils was imported: generate() counts as an evaluation."""
    from . import training

    own = module.GenerationMixin.generate

    @functools.wraps(own)
    def generate(*args, **kwargs):
        if training.watching:
            training.watching.closing.evaluates(sys._getframe(1))
        return own(*args, **kwargs)

    module.GenerationMixin.generate = generate


def ask_trainer(callbacks):
    """Called when transformers.trainer_callback was imported: makes the Trainer evaluate and save after the last step.
    """
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
                control.should_epoch_stop = True  # so that callbacks of an epoch's end run
        return control

    flow.on_step_end = on_step_end


def chosen(strategy):
    """Reports whether a strategy in the Trainer's arguments is other than "no"."""
    return getattr(strategy, "value", strategy) != "no"
