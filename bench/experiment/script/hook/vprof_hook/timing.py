"""Times further steps of the script, after everything else was seen and recording has stopped."""

import os

from . import events

# The steps that are not timed, in which clocks and caches settle, and the steps that are.
WARM_UP, TIMED = 3, 10


class Times:
    """CUDA events at the ends of steps, and around each loading of a batch."""

    def __init__(self, watch):
        self.watch, self.cuda = watch, watch.torch.cuda
        self.wanted = bool(os.environ.get("VPROF_TIMED"))
        self.running = False
        self.stepped = set()  # the optimizers that have stepped in this step
        self.ends = []  # an event for each step
        self.loads = []  # the pairs of events of each step

    def begin(self):
        """Starts timing after the last recorded step. Returns False if no steps are to be timed."""
        if not self.wanted or events.quiet or not self.watch.memory.used or not any(self.watch.counts.values()):
            return False
        self.wanted, self.running = False, True
        self.watch.memory.stop()
        self.mark()
        return True

    def started(self):
        """Reports whether a loader started now may be used in a timed step."""
        return self.wanted or self.running

    def mark(self):
        self.ends.append(self.now())
        self.loads.append([])

    def now(self):
        """Returns an event on the stream that the script uses."""
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def apart(self, load):
        """Loads a batch. Time that the GPU waits for it does not count as part of the step."""
        began = self.now()
        batch = load()
        self.loads[-1].append((began, self.now()))
        return batch

    def after_step(self, optimizer):
        """Ends a step when every active optimizer has stepped."""
        self.stepped.add(optimizer)
        if any(n > 0 and o not in self.stepped for o, n in self.watch.active().items()):
            return
        self.stepped = set()
        self.mark()
        if len(self.ends) > WARM_UP + TIMED:
            self.finish()
            self.watch.close()

    def finish(self):
        """Sends the times of the steps that were timed, in seconds, without and with the loading of their batches."""
        if not self.running:
            return
        self.running = False
        self.cuda.synchronize()
        loading = [sum(a.elapsed_time(b) for a, b in pairs) / 1e3 for pairs in self.loads]
        steps = [a.elapsed_time(b) / 1e3 for a, b in zip(self.ends, self.ends[1:])]
        steps = [max(0, step - load) for step, load in zip(steps, loading)]
        events.send("timed", times=steps[WARM_UP:], loading=loading[WARM_UP : len(steps)])
