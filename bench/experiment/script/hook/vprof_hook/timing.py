"""Measures the time of further training steps, after memory was recorded and the recording has stopped."""

import os

from . import events

# The numbers of steps before timing (clocks and caches settle) and of timed steps.
WARM_UP, TIMED = 3, 10


class Times:
    """CUDA events at the end of each step and around the loading of each batch."""

    def __init__(self, watch):
        self.watch, self.cuda = watch, watch.torch.cuda
        self.wanted = bool(os.environ.get("VPROF_TIMED"))
        self.running = False
        self.stepped = set()  # optimizers that have stepped since the current step began
        self.ends = []  # one event at the end of each step
        self.loads = []  # for each step, (begin, end) events of its batch loads

    def begin(self):
        """Called after the last recorded step. Starts timing and returns True; returns False if timing was not
        requested, or CUDA or an optimizer was not used.
        """
        if not self.wanted or events.quiet or not self.watch.memory.used or not any(self.watch.counts.values()):
            return False
        self.wanted, self.running = False, True
        self.watch.memory.stop()
        self.mark()
        return True

    def started(self):
        """Reports whether an iterator of a DataLoader that is made now may serve a timed step."""
        return self.wanted or self.running

    def mark(self):
        self.ends.append(self.now())
        self.loads.append([])

    def now(self):
        """Records and returns a CUDA event on the current stream."""
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def apart(self, load):
        """Returns load(), the next batch. The time of the call is subtracted from the step's time."""
        began = self.now()
        batch = load()
        self.loads[-1].append((began, self.now()))
        return batch

    def after_step(self, optimizer):
        """Called after each optimizer step. Ends the timed step once every active optimizer has stepped."""
        self.stepped.add(optimizer)
        if any(n > 0 and o not in self.stepped for o, n in self.watch.active().items()):
            return
        self.stepped = set()
        self.mark()
        if len(self.ends) > WARM_UP + TIMED:
            self.finish()
            self.watch.close()

    def finish(self):
        """Sends two lists of seconds per timed step: the step without loading batches, and the loading."""
        if not self.running:
            return
        self.running = False
        self.cuda.synchronize()
        loading = [sum(a.elapsed_time(b) for a, b in pairs) / 1e3 for pairs in self.loads]
        steps = [a.elapsed_time(b) / 1e3 for a, b in zip(self.ends, self.ends[1:])]
        steps = [max(0, step - load) for step, load in zip(steps, loading)]
        events.send("timed", times=steps[WARM_UP:], loading=loading[WARM_UP : len(steps)])
