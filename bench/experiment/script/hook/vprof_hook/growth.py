"""Reports whether the memory that a training script holds between steps grows without end."""

from . import events, rising

# The memory grows, and this is no warm-up (optimizer states, caches), after STEADY equal changes in a row. A repeating
# sequence of up to LONGEST changes counts as one change.
STEADY = 3
LONGEST = 50

# Where batches differ in size: this many steps in a row must each leave more allocations than the one before.
UNEVEN = 6

# At most this many training steps run to decide whether memory grows.
MOST = 12


class Growth:
    """The allocated bytes and the number of allocations at the end of each step."""

    def __init__(self):
        self.ends = []
        self.times = []  # time at which each step ended, in microseconds
        self.each = 0  # bytes of growth per step, zero if memory does not grow or not by equal amounts
        self.row = 1  # length in steps of the sequence of changes that repeats
        self.epoch = 0  # the step after which the accumulated memory was freed, zero if it never was
        self.holder = None  # the variable that holds the growing memory: (name, function)
        self.bound = 0  # the step after which the holder grows no more, zero if it has no limit
        self.left = False  # whether UNEVEN steps in a row left more allocations than before

    def note(self, step, allocated, judge=True):
        """Records (bytes, allocations) at the end of a step, numbered from 1. A second call for a step replaces the
        values. judge tells whether equal changes now mean growth.
        """
        for values, value in (self.ends, allocated), (self.times, events.now()):
            del values[max(step - 1, 0):]
            values.append(value)
        changes = self.changes(0)
        if self.each and changes[-1] <= -2 * self.each:
            self.epoch = self.epoch or step - 1
        if judge and not self.each:
            self.each, self.row = steady(changes)

    def conclude(self):
        """Reports, after an out-of-memory error, whether memory grew. Here it suffices that each of the last STEADY
        steps added the same number of allocations; the growth per step is then their average.
        """
        counts = self.changes(1)[-STEADY:]
        if not self.found() and len(counts) == STEADY and counts[0] > 0 and len(set(counts)) == 1:
            self.each = (self.ends[-1][0] - self.ends[-1 - STEADY][0]) // STEADY
        return self.found()

    def rising(self, trace):
        """Returns the allocations of the last step with their change per step. The step must have ended in the trace.
        """
        return rising.Rising(trace, self.times, [allocated for allocated, _ in self.ends], self.each)

    def changes(self, of):
        """Returns the changes between consecutive steps: of the bytes for 0, of the number of allocations for 1."""
        return [after[of] - before[of] for before, after in zip(self.ends, self.ends[1:])]

    def uneven(self):
        """Reports whether every step leaves more allocations behind while their sizes differ."""
        last = self.changes(1)[-UNEVEN:]
        self.left = self.left or len(last) == UNEVEN and min(last) > 0
        return self.left and not self.each

    def found(self):
        return self.each > 0 or self.uneven()

    def open(self):
        """Reports whether the last step grew and more steps are needed to decide whether that continues."""
        return 1 < len(self.ends) < MOST and max(self.changes(0)[-1], self.changes(1)[-1]) > 0 and not self.each


def steady(changes):
    """Returns (bytes per step, length of the repeating sequence) if the last changes are equal or repeat; else (0, 1).
    """
    for length in range(1, min(len(changes) // STEADY, LONGEST) + 1):
        last = changes[-length:]
        if sum(last) > 0 and changes[-STEADY * length:] == STEADY * last:
            return sum(last) // length, length
    return 0, 1
