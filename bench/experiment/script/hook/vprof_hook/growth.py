"""Reports whether what a training script holds at the end of its steps grows without end."""

from . import events, rising

# After so many equal changes, or rows of up to LONGEST changes, what is held grows, and is no warm-up: states of
# optimizers, caches.
STEADY = 3
LONGEST = 50

# Where batches differ in size, the number of allocations must have grown in so many steps in a row.
UNEVEN = 6

# Training goes on to at most so many steps to tell.
MOST = 12


class Growth:
    """The allocated bytes and the number of allocations at the ends of steps."""

    def __init__(self):
        self.ends = []
        self.times = []  # when the steps ended
        self.each = 0  # the bytes by which every step grows; zero if steps do not, or not by as much
        self.row = 1  # the number of steps of which each grows by as much as another did before
        self.epoch = 0  # the step after which what has grown was freed
        self.holder = None  # the variable that leads to it: its name and function
        self.bound = 0  # the step after which it holds no more; zero if nothing limits it
        self.left = False  # whether so many steps have left allocations behind

    def note(self, step, allocated):
        """Records bytes and allocations at the end of a step (numbered from 1). A later call for the step replaces
        them.
        """
        for values, value in (self.ends, allocated), (self.times, events.now()):
            del values[max(step - 1, 0):]
            values.append(value)
        changes = self.changes(0)
        if self.each and changes[-1] <= -2 * self.each:
            self.epoch = self.epoch or step - 1
        if not self.each:
            self.each, self.row = steady(changes)

    def conclude(self):
        """Reports whether steps grow, where memory has run out: by about as much, in as many allocations."""
        counts = self.changes(1)[-STEADY:]
        if not self.found() and len(counts) == STEADY and counts[0] > 0 and len(set(counts)) == 1:
            self.each = (self.ends[-1][0] - self.ends[-1 - STEADY][0]) // STEADY
        return self.found()

    def rising(self, trace):
        """Returns the allocations of the last step, which has ended in a trace, with their changes."""
        return rising.Rising(trace, self.times, [allocated for allocated, _ in self.ends], self.each)

    def changes(self, of):
        """Returns the changes from step to step of the bytes (0) or the allocations (1)."""
        return [after[of] - before[of] for before, after in zip(self.ends, self.ends[1:])]

    def uneven(self):
        """Reports whether every step leaves allocations behind, of different sizes."""
        last = self.changes(1)[-UNEVEN:]
        self.left = self.left or len(last) == UNEVEN and min(last) > 0
        return self.left and not self.each

    def found(self):
        return self.each > 0 or self.uneven()

    def open(self):
        """Reports whether further steps would show what the last one leaves open."""
        return 1 < len(self.ends) < MOST and max(self.changes(0)[-1], self.changes(1)[-1]) > 0 and not self.each


def steady(changes):
    """Returns the growth of a step and the length of a row, if the last changes are equal, or rows of them are; else zero and 1."""
    for length in range(1, min(len(changes) // STEADY, LONGEST) + 1):
        last = changes[-length:]
        if sum(last) > 0 and changes[-STEADY * length:] == STEADY * last:
            return sum(last) // length, length
    return 0, 1
