"""Counts optimizer steps, records the phases of training, and ends the script after the requested steps."""

import atexit
import contextlib
import functools
import importlib
import os
import sys
import traceback
import weakref

from . import busy, compiling, copies, events, growth, holders, libraries, loaders
from .closing import Closing
from .memory import Memory
from .timing import Times
from .trials import Trials

# An optimizer that has not stepped yet is waited for until another one has made PATIENCE times the requested steps.
PATIENCE = 10


class TrainingEnded(SystemExit):
    """Ends the script after its training was recorded. `finally` blocks run; handlers of Exception do not catch it."""


class Watch:
    """The state of the recorded training in this process."""

    def __init__(self, torch):
        self.torch = torch
        self.wanted = int(os.environ.get("VPROF_STEPS", "0"))
        self.until = os.environ.get("VPROF_UNTIL", "")
        self.memory = Memory(torch)
        # Number of steps by optimizer. An optimizer that replaces another continues its count.
        self.counts = weakref.WeakKeyDictionary()
        # [class name, steps] by optimizer; tally lists the same pairs and outlives optimizers that were deleted.
        self.stepped = weakref.WeakKeyDictionary()
        self.tally = []
        self.alone = 0  # number of backward passes if no optimizer exists: a script may update its parameters itself
        self.phases = ["set-up"]  # phases that are running, the innermost last
        self.seen = set()  # "eval" and "save" after the first evaluation or save has ended
        self.evaluated = None  # weak reference to the module that is being evaluated
        self.copied = False  # whether this module is a copy of the trained one, such as an average of its weights
        self.batches = 0  # number of batches loaded before any optimizer exists
        self.due = None  # reason for the end of training, if it must wait for the running backward pass; else None
        self.ended = False
        self.over = False  # whether the script ends at the beginning of its next step
        self.gathering = False  # whether state_dict() was called and the save that may follow has not begun
        self.closing = Closing(self)
        self.trials = Trials(self)
        self.copies = copies.Copies(self)
        self.times = Times(self)
        self.longest = loaders.Longest(torch, self)
        self.growth = growth.Growth()
        self.through = None  # description of the object that holds growing memory (see holders.find); None before a search

    # Phases.

    def step(self):
        """Returns the index of the running step, from 0; -1 during set-up."""
        if self.phases[0] == "set-up":
            return -1
        done = max((steps for _, steps in self.tally), default=0)  # used if the script has deleted its optimizers
        return min(self.active().values(), default=done)

    def active(self):
        """Returns step counts by optimizer, for the optimizers that have stepped or may still do so."""
        most = max(self.counts.values(), default=0)
        # A wrapping optimizer such as SAM shares the parameter groups of the inner one and may never step itself.
        wrapped = {id(group) for o, n in self.counts.items() if n for group in o.param_groups}
        return {
            o: n for o, n in self.counts.items()
            if n > 0 or most < PATIENCE * max(self.wanted, 1) and any(id(group) not in wrapped for group in o.param_groups)
        }

    def turn(self, change):
        """Ends the current phase; change() updates the list of phases, whose last one begins."""
        if self.ended:
            return
        self.memory.mark(self.step(), self.phases[-1])
        change()
        self.memory.labels.add("turn", self.step(), self.phases[-1])
        events.send("phase", step=self.step(), phase=self.phases[-1])

    def begin(self, phase):
        """Begins a phase inside the current one."""
        self.turn(lambda: self.phases.append(phase))

    def leave(self):
        """Ends the innermost phase."""
        if len(self.phases) > 1:
            self.turn(self.phases.pop)

    def within(self, phase, call):
        """Wraps a function so that each call runs as a phase of the given name."""

        @functools.wraps(call)
        def wrapped(*args, **kwargs):
            self.stop()
            gathered, self.gathering = self.gathering and phase == "saving", self.gathering and phase != "saving"
            if self.ended or self.phases[-1] == phase and not gathered:
                return call(*args, **kwargs)
            self.settle()
            if phase == "backward":
                self.memory.label_batch(sys._getframe(1))
                self.memory.note_backward(sys._getframe(1))
            if phase == "saving" and not gathered:
                self.copies.note(args, sys._getframe(1))
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
        """Counts backward passes if no optimizer exists, and ends training after PATIENCE times the requested steps."""
        if self.counts or self.tally:
            return
        self.alone += 1
        if not self.until and 0 < PATIENCE * self.wanted <= self.alone:
            self.end("steps")

    def made(self, optimizer):
        """Called after an optimizer was constructed. The last one before the first step ends the set-up phase."""
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
        """Counts a step, also one that GradScaler has skipped, and ends training after the last one."""
        done = self.step()

        def more():
            # The optimizer phase ends here: the same call of turn() begins the forward phase of the next step.
            if self.phases[-1] == "optimizer":
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
        """Called for each loaded batch. Before any optimizer exists, each batch counts as a step of the script's loop.
        """
        if not self.counts and not self.tally and not self.alone and not self.ended:
            self.batches += 1
            self.note(self.batches)

    def note(self, step):
        """Records allocated bytes and allocations at the end of a step. If they grow, searches for the object that
        holds them.
        """
        # Batches that are larger each time make memory rise only until the largest one, which is trained on.
        longer = self.longest.known and self.longest.rises > growth.STEADY
        self.growth.note(step, self.memory.in_use(), judge=not longer)
        if step == self.wanted:
            self.closing.measure(sys._getframe(2))
        if step >= self.wanted > 0 and self.counts:
            self.trials.look()
        if self.through is None and self.growth.found():
            self.through = self.name_holder()

    def name_holder(self):
        try:
            return holders.find(self)
        except Exception:  # raised by attribute access of the script's own objects
            return ""

    def trained(self):
        """Reports whether all optimizers have made the requested number of steps and no further steps are needed."""
        counts = [self.stepped.get(o, ("", n))[1] for o, n in self.active().items()]
        return self.wanted > 0 and any(counts) and min(counts) >= self.wanted and not self.goes_on()

    def goes_on(self):
        """Reports whether further steps are needed: to decide whether memory grows, to train on the longest batches, or
        to capture a CUDA graph.
        """
        return self.longest.seconds > 0 and (self.growth.open() or self.longest.open() or self.warms_up())

    def warms_up(self):
        """Reports whether the step ran on a side stream, as the warm-up steps before the capture of a CUDA graph do."""
        cuda = self.torch.cuda
        if not self.memory.used or not hasattr(cuda, "current_stream") or self.step() >= growth.MOST:
            return False
        return cuda.current_stream() != cuda.default_stream()

    def scaled(self, step):
        """Wraps GradScaler.step to count steps that it skips because gradients are not finite."""

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
        """Called after module.train() or module.eval(). eval() on a module with trained parameters begins an
        evaluation.
        """
        if self.ended:
            return
        if not training:
            self.closing.evaluates(sys._getframe(1))
        self.settle(training)
        if self.evaluated is None and not training and self.trains(module):
            self.evaluated = weakref.ref(module)
            self.begin("evaluation")

    def settle(self, trains=True):
        """Ends the evaluation phase if its module is in training mode again, and a saving phase that began with
        state_dict() if no save followed.

        trains tells that training continues: this ends the evaluation of a copy, whose own mode does not change.
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
        """Wraps Module.state_dict: its call may begin the saving of a checkpoint."""

        @functools.wraps(gather)
        def wrapped(module, *args, **kwargs):
            if not self.ended and not self.gathering and self.phases[-1] in ("forward", "evaluation") and any(self.counts.values()):
                self.begin("saving")
                self.gathering = True
            return gather(module, *args, **kwargs)

        return wrapped

    def trains(self, module):
        """Reports whether an optimizer updates parameters of a module, or the module is a copy: its parameters have the
        same shapes.
        """
        owned = {id(p): p for o in self.counts for group in o.param_groups for p in group["params"]}
        own = list(module.parameters())
        self.copied = not any(id(p) in owned for p in own)
        return not self.copied or any(self.counts.values()) and shapes(own) == shapes(owned.values())

    def saw(self, what):
        """Called when an evaluation or a save has ended. Ends training if it was requested to run until then."""
        self.seen.add(what)
        if self.until == what and any(self.counts.values()):
            self.end(what)

    # End of training.

    def end(self, reason):
        """Ends training. During a backward pass (an optimizer that steps in a hook) the end waits for its return, since
        an exception must not unwind autograd's threads.
        """
        if self.torch._C._current_graph_task_id() >= 0:
            self.due = reason
            return
        # The callbacks after the last step still run; the script ends when its next step begins.
        if reason == "steps" and not self.due:
            self.finish(reason, marked=True)
            if not self.times.begin():
                self.close()
            return
        self.finish(reason)
        raise TrainingEnded(0)

    def close(self):
        """Called after recording and timing: starts the trials of memory-saving options, or else ends the script at its
        next step.
        """
        if not self.trials.begin():
            self.leave_loop()

    def leave_loop(self):
        """Makes the script end when its next step begins."""
        self.over = True
        if "torch._dynamo" not in sys.modules:  # a global hook would make torch.compile recompile
            self.torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: self.stop())

    def stop(self):
        """Ends the script if it was to end at the beginning of its next step. Called where a step may begin."""
        if self.over and not events.quiet:
            raise TrainingEnded(0)

    def finish(self, reason, marked=False):
        """Writes the recording and sends the results to vprof. marked tells that no phase is open: the last one has
        just ended.
        """
        if self.ended:
            return
        if not marked:
            self.memory.mark(self.step(), self.phases[-1])
        self.ended = True
        steps = sorted((n for _, n in self.tally), reverse=True) + [0 for n in self.counts.values() if n == 0]
        kinds = sorted({name for name, _ in self.tally})
        if not steps and self.alone:
            steps, kinds = [self.alone], ["no optimizer"]
        self.send_apart()
        self.copies.send()
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

    def send_apart(self):
        """Sends how many more bytes one step needs than all others, as a step with a much longer batch does."""
        step, more = self.memory.apart()
        if self.longest.seconds > 0 and more > 0:
            events.send("estimate", text=f"in step {step}, which needs more than others, a batch no larger than theirs", allocated=more)

    def send_retried(self, first):
        """Sends how much memory the exception of the first attempt holds, if a second one failed in its except block."""
        held, place = holders.held_by(first, self.memory.trace(), self.growth.times[-1] if self.growth.times else 0)
        events.send("retried", text="the except block in which a second attempt ran out of memory keeps the tensors of "
                    "the first one, %.2f GiB, by its exception (%s)" % (held / 2**30, place))

    def rise(self, total):
        """Returns (bytes by which each step grows, peak in bytes of step number total); (0, 0) if steps do not grow."""
        if not self.growth.each:
            return 0, 0
        rising = self.growth.rising(self.memory.trace())
        return max(self.growth.each, rising.each_peak()), rising.peak(max(0, total - len(self.growth.ends)))

    def exit(self):
        """Called when Python exits."""
        if events.quiet:
            return
        if self.ended:
            self.times.finish()
            if self.trials.running:
                events.send("cut")
            return
        error = getattr(sys, "last_value", None)
        failed = error is not None and not isinstance(error, SystemExit)
        # Any other error may come from the epoch that was cut short.
        if failed and (self.closing.began is None or "OutOfMemory" in type(error).__name__):
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            if "OutOfMemory" in type(error).__name__ and self.growth.conclude():
                self.through = self.through or self.name_holder()
            if "OutOfMemory" in type(error).__name__ and "OutOfMemory" in type(error.__context__).__name__:
                with contextlib.suppress(Exception):  # raised by attribute access of the script's own objects
                    self.send_retried(error.__context__)
            events.send("error", kind=type(error).__name__, text=str(error)[:2000], traceback="".join(lines)[-8000:])
        self.finish(self.closing.reason())
        if not failed and self.trials.possible():
            self.trials.send_copies()


watching = None  # the Watch of this process


def watch(torch):
    """Called when torch was imported: registers the hooks and wrappers that record training."""
    global watching
    watching = w = Watch(torch)
    torch.cuda._lazy_call(w.memory.record)
    optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim does not export this function
    optimizer.register_optimizer_step_pre_hook(w.before_step)
    optimizer.register_optimizer_step_post_hook(w.after_step)
    if "VPROF_NO_GRAD" in os.environ:
        torch.set_grad_enabled(False)
    torch.optim.Optimizer.__init__ = announcing(torch.optim.Optimizer.__init__, w.made)
    torch.amp.GradScaler.step = w.scaled(torch.amp.GradScaler.step)
    torch.autograd.backward = w.within("backward", torch.autograd.backward)
    torch.autograd.grad = w.within("backward", torch.autograd.grad)
    torch.save = w.within("saving", torch.save)
    torch.nn.Module.state_dict = w.gathers(torch.nn.Module.state_dict)
    torch.nn.Module.train = switching(torch.nn.Module.train, w.mode)
    if "torch.utils.data" in sys.modules:  # otherwise loaders.watch is called when it is imported
        loaders.watch(sys.modules["torch.utils.data"])
    atexit.register(w.exit)
    busy.watch(w.memory.libraries)


def announcing(init, made):
    """Wraps Optimizer.__init__ to call made(optimizer) afterwards."""

    @functools.wraps(init)
    def wrapped(self, *args, **kwargs):
        init(self, *args, **kwargs)
        made(self)

    return wrapped


def shapes(tensors):
    return sorted(tuple(t.shape) for t in tensors)


def switching(train, told):
    """Wraps Module.train to call told(module, mode) afterwards, once for the outermost module."""
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
