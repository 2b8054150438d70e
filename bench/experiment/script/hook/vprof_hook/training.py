"""Counts optimizer steps, tells the phases of training, and ends it when enough was seen."""

import atexit
import contextlib
import functools
import importlib
import os
import sys
import traceback
import weakref

from . import busy, compiling, events, growth, holders, libraries, loaders
from .closing import Closing
from .memory import Memory
from .timing import Times
from .trials import Trials

# An optimizer that was made and does not step is waited for until another has made so many
# times the steps that are asked for.
PATIENCE = 10


class TrainingEnded(SystemExit):
    """Ends the script when its training has been seen: `finally` runs, no handler of errors does."""


class Watch:
    """What is seen of the training in this process."""

    def __init__(self, torch):
        self.torch = torch
        self.wanted = int(os.environ.get("VPROF_STEPS", "0"))
        self.until = os.environ.get("VPROF_UNTIL", "")
        self.memory = Memory(torch)
        # Calls of step by optimizer. One that replaces another counts on.
        self.counts = weakref.WeakKeyDictionary()
        # The name and the steps of each optimizer that stepped; the list outlives what a function has made.
        self.stepped = weakref.WeakKeyDictionary()
        self.tally = []
        self.alone = 0  # backward passes before there was any optimizer: scripts may change their parameters by themselves
        self.phases = ["set-up"]  # that run, innermost last
        self.seen = set()  # "eval" and "save", once they have ended
        self.evaluated = None  # the module that is being evaluated
        self.copied = False  # whether that is a copy of the one that is trained, such as an average
        self.batches = 0  # of a script that has made no optimizer
        self.due = None  # why training ends when the backward pass that is running has returned
        self.ended = False
        self.over = False  # the script ends when it begins the next step
        self.gathering = False  # a state_dict was made, which may be saved
        self.closing = Closing(self)
        self.trials = Trials(self)
        self.times = Times(self)
        self.longest = loaders.Longest(torch, self)
        self.growth = growth.Growth()
        self.through = None  # what holds that which grows

    # Phases.

    def step(self):
        """Returns the number of the step that is running, from 0; -1 in set-up."""
        if self.phases[0] == "set-up":
            return -1
        done = max((steps for _, steps in self.tally), default=0)  # where the script has deleted its optimizers
        return min(self.active().values(), default=done)

    def active(self):
        """Returns the optimizers that step, or may still, with their step counts."""
        most = max(self.counts.values(), default=0)
        # An optimizer that wraps another, as SAM's does, has the same groups and may never step itself.
        wrapped = {id(group) for o, n in self.counts.items() if n for group in o.param_groups}
        return {
            o: n for o, n in self.counts.items()
            if n > 0 or most < PATIENCE * max(self.wanted, 1) and any(id(group) not in wrapped for group in o.param_groups)
        }

    def turn(self, change):
        """Ends the current phase and begins another by changing the list of phases."""
        if self.ended:
            return
        self.memory.mark(self.step(), self.phases[-1])
        change()
        self.memory.labels.add("turn", self.step(), self.phases[-1])
        events.send("phase", step=self.step(), phase=self.phases[-1])

    def begin(self, phase):
        """Begins a phase within the current one."""
        self.turn(lambda: self.phases.append(phase))

    def leave(self):
        """Ends the innermost phase."""
        if len(self.phases) > 1:
            self.turn(self.phases.pop)

    def within(self, phase, call):
        """Returns a function that runs as a phase of its own."""

        @functools.wraps(call)
        def wrapped(*args, **kwargs):
            self.stop()
            gathered, self.gathering = self.gathering and phase == "saving", self.gathering and phase != "saving"
            if self.ended or self.phases[-1] == phase and not gathered:
                return call(*args, **kwargs)
            self.settle()
            if phase == "backward":
                self.memory.label_batch(sys._getframe(1))
            if not gathered:
                self.begin(phase)
            try:
                result = call(*args, **kwargs)
            finally:
                self.leave()
            if phase == "saving":
                self.saw("save")
            if phase == "backward":
                if self.due:
                    self.end(self.due)
                self.went_back()
            return result

        return wrapped

    # Steps.

    def went_back(self):
        """Counts backward passes without an optimizer, and ends training after many of them."""
        if self.counts or self.tally:
            return
        self.alone += 1
        if not self.until and 0 < PATIENCE * self.wanted <= self.alone:
            self.end("steps")

    def made(self, optimizer):
        """An optimizer has been made: set-up ends with the last one before the first step."""
        self.counts[optimizer] = 0
        if self.batches:
            self.batches, self.growth, self.through = 0, growth.Growth(), None
        if not any(self.counts.values()):
            self.turn(lambda: self.phases.__setitem__(0, "forward"))

    def before_step(self, optimizer, *_):
        """Called by PyTorch before the step of any optimizer."""
        self.stop()
        if not self.ended:
            self.settle()
            self.memory.label_optimizer(optimizer)
            self.begin("optimizer")

    def after_step(self, optimizer, *_):
        """Called by PyTorch after the step of any optimizer."""
        if self.ended:
            for further in (self.times, self.trials):
                if further.running and not events.quiet:
                    further.after_step(optimizer)
                    return
            return
        self.memory.label_optimizer(optimizer)
        self.count(optimizer)

    def count(self, optimizer):
        """Counts a step, one that a GradScaler left out too, and ends training after the last."""
        done = self.step()

        def more():
            if self.phases[-1] == "optimizer":  # ends with the step: no moment after it counts as the same step's forward
                self.phases.pop()
            self.phases[0] = "forward"
            self.counts[optimizer] = max(self.counts.get(optimizer, 0) + 1, 0 if optimizer in self.stepped else done)
            if optimizer not in self.stepped:
                self.stepped[optimizer] = [type(optimizer).__name__, 0]
                self.tally.append(self.stepped[optimizer])
            self.stepped[optimizer][1] += 1

        self.turn(more)
        self.note(self.step())
        events.send("step", done=self.step(), of=self.wanted if self.step() <= self.wanted else 0)
        if not self.until and self.trained() and not self.closing.goes_on():
            self.end("steps")

    def loaded(self):
        """Counts a batch of a script that trains nothing so far: a step of its loop."""
        if not self.counts and not self.tally and not self.alone and not self.ended:
            self.batches += 1
            self.note(self.batches)

    def note(self, step):
        """Notes what is held at the end of a step, and what holds it if that grows."""
        self.growth.note(step, self.memory.in_use())
        if step == self.wanted:
            self.closing.measure(sys._getframe(2))
        if self.through is None and self.growth.found():
            self.through = self.name_holder()

    def name_holder(self):
        try:
            return holders.find(self)
        except Exception:  # objects of the script's own that answer in strange ways
            return ""

    def trained(self):
        """Reports whether all optimizers have made the requested number of steps."""
        counts = [self.stepped.get(o, ("", n))[1] for o, n in self.active().items()]
        return self.wanted > 0 and any(counts) and min(counts) >= self.wanted and not self.goes_on()

    def goes_on(self):
        """Reports whether further steps are needed, for growth, the longest batches, or the capture of a CUDA graph."""
        return self.longest.seconds > 0 and (self.growth.open() or self.longest.open() or self.warms_up())

    def warms_up(self):
        """Reports whether a step ran on a stream of its own, as those before the capture of a CUDA graph do."""
        cuda = self.torch.cuda
        if not self.memory.used or not hasattr(cuda, "current_stream") or self.step() >= growth.MOST:
            return False
        return cuda.current_stream() != cuda.default_stream()

    def scaled(self, step):
        """Wraps GradScaler.step, which calls the optimizer's step only if the gradients are finite."""

        @functools.wraps(step)
        def wrapped(scaler, optimizer, *args, **kwargs):
            before = self.counts.get(optimizer, 0)
            result = step(scaler, optimizer, *args, **kwargs)
            if self.counts.get(optimizer, 0) == before and optimizer in self.counts and not self.ended:
                self.count(optimizer)
            return result

        return wrapped

    # Evaluation.

    def mode(self, module, training):
        """A module was put into training or evaluation mode."""
        if self.ended:
            return
        if not training:
            self.closing.evaluates(sys._getframe(1))
        self.settle(training)
        if self.evaluated is None and not training and self.trains(module):
            self.evaluated = weakref.ref(module)
            self.begin("evaluation")

    def settle(self, trains=True):
        """Ends the evaluation if its module trains again: not all call train() to say so. What was gathered is not saved.

        The evaluation of a copy ends when anything trains.
        """
        if self.gathering:
            self.gathering = False
            self.phases[-1] = self.phases[-2]
            self.leave()
        module = self.evaluated and self.evaluated()
        if self.evaluated is None or module is not None and not module.training and not (self.copied and trains):
            return
        self.evaluated = None
        self.leave()
        self.saw("eval")

    def gathers(self, gather):
        """Wraps Module.state_dict, with which the making of a checkpoint may begin."""

        @functools.wraps(gather)
        def wrapped(module, *args, **kwargs):
            if not self.ended and not self.gathering and self.phases[-1] in ("forward", "evaluation") and any(self.counts.values()):
                self.begin("saving")
                self.gathering = True
            return gather(module, *args, **kwargs)

        return wrapped

    def trains(self, module):
        """Reports whether an optimizer has parameters of a module, or has stepped and has as many of the same shapes."""
        owned = {id(p): p for o in self.counts for group in o.param_groups for p in group["params"]}
        own = list(module.parameters())
        self.copied = not any(id(p) in owned for p in own)
        return not self.copied or any(self.counts.values()) and shapes(own) == shapes(owned.values())

    def saw(self, what):
        """An evaluation or a save has ended, which may be what training goes on for."""
        self.seen.add(what)
        if self.until == what and any(self.counts.values()):
            self.end(what)

    # The end.

    def end(self, reason):
        """Ends the script. If an optimizer steps in a backward hook, it waits for the end of backward: the exception
        must not unwind autograd's threads.
        """
        if self.torch._C._current_graph_task_id() >= 0:
            self.due = reason
            return
        if reason == "steps" and not self.due:  # callbacks that follow the last step run; the next step does not
            self.finish(reason, marked=True)
            if not self.times.begin():
                self.close()
            return
        self.finish(reason)
        raise TrainingEnded(0)

    def close(self):
        """Tries memory-saving options, or leaves the loop."""
        if not self.trials.begin():
            self.leave_loop()

    def leave_loop(self):
        """Makes the script end where its next step begins."""
        self.over = True
        if "torch._dynamo" not in sys.modules:  # which would compile again for a hook
            self.torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: self.stop())

    def stop(self):
        """Ends the script where its next step begins, if it was to end with the last."""
        if self.over and not events.quiet:
            raise TrainingEnded(0)

    def finish(self, reason, marked=False):
        """Writes down what was seen. marked tells that the last phase has just ended, and the next has not begun."""
        if self.ended:
            return
        if not marked:
            self.memory.mark(self.step(), self.phases[-1])
        self.ended = True
        steps = sorted((n for _, n in self.tally), reverse=True) + [0 for n in self.counts.values() if n == 0]
        kinds = sorted({name for name, _ in self.tally})
        if not steps and self.alone:
            steps, kinds = [self.alone], ["no optimizer"]
        trace, failure = self.memory.write()
        backends, total = getattr(self.torch, "backends", None), self.closing.steps(reason)
        rise, later = self.rise(total)
        events.send(
            "end", reason=reason, steps=steps, optimizers=kinds, trace=trace, failure=failure,
            benchmark=bool(backends and backends.cudnn.benchmark), tuned_before=len(compiling.found),
            growth=rise, total=total, later=later, batches=self.batches, uneven=self.growth.uneven(), through=self.through or "",
            untried=self.step() > self.wanted and self.trials.possible(), graded=self.closing.graded, unseen=self.closing.unseen(),
            releases=libraries.releases(), **self.memory.peaks(),
        )

    def rise(self, total):
        """Returns by how many bytes each step grows, at its end or its peak, and the peak of the step with a number."""
        if not self.growth.each:
            return 0, 0
        rising = self.growth.rising(self.memory.trace())
        return max(self.growth.each, rising.each_peak()), rising.peak(max(0, total - len(self.growth.ends)))

    def exit(self):
        """Called when Python ends."""
        if events.quiet:
            return
        if self.ended:
            self.times.finish()
            if self.trials.running:
                events.send("cut")
            return
        error = getattr(sys, "last_value", None)
        failed = error is not None and not isinstance(error, SystemExit)
        if failed and (self.closing.began is None or "OutOfMemory" in type(error).__name__):  # else of a short epoch
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            if "OutOfMemory" in type(error).__name__ and self.growth.conclude():
                self.through = self.through or self.name_holder()
            events.send("error", kind=type(error).__name__, text=str(error)[:2000], traceback="".join(lines)[-8000:])
        self.finish(self.closing.reason())
        if not failed and self.trials.possible():
            with contextlib.suppress(Exception):  # of objects of the script's own
                self.trials.send_copies()


watching = None  # what watches this process


def watch(torch):
    """Begins to watch."""
    global watching
    watching = w = Watch(torch)
    torch.cuda._lazy_call(w.memory.record)
    optimizer = importlib.import_module("torch.optim.optimizer")  # of which torch.optim has no name
    optimizer.register_optimizer_step_pre_hook(w.before_step)
    optimizer.register_optimizer_step_post_hook(w.after_step)
    torch.optim.Optimizer.__init__ = announcing(torch.optim.Optimizer.__init__, w.made)
    torch.amp.GradScaler.step = w.scaled(torch.amp.GradScaler.step)
    torch.autograd.backward = w.within("backward", torch.autograd.backward)
    torch.autograd.grad = w.within("backward", torch.autograd.grad)
    torch.save = w.within("saving", torch.save)
    torch.nn.Module.state_dict = w.gathers(torch.nn.Module.state_dict)
    torch.nn.Module.train = switching(torch.nn.Module.train, w.mode)
    if "torch.utils.data" in sys.modules:  # else when it is imported
        loaders.watch(sys.modules["torch.utils.data"])
    atexit.register(w.exit)
    busy.watch(w.memory.libraries)


def announcing(init, made):
    """Wraps Optimizer.__init__, which then reports the optimizer that it has made."""

    @functools.wraps(init)
    def wrapped(self, *args, **kwargs):
        init(self, *args, **kwargs)
        made(self)

    return wrapped


def shapes(tensors):
    return sorted(tuple(t.shape) for t in tensors)


def switching(train, told):
    """Wraps Module.train, which then reports the switched module, without its children."""
    running = False

    @functools.wraps(train)
    def wrapped(self, mode=True):
        nonlocal running
        if running:
            return train(self, mode)
        running = True
        try:
            result = train(self, mode)
        finally:
            running = False
        told(self, mode)
        return result

    return wrapped
