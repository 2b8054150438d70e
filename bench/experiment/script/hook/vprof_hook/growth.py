"""Tells whether what a training script holds at the end of its steps grows without end."""

from . import events

# After so many equal changes what is held grows, and is no warm-up: states of optimizers, caches.
STEADY = 3

# Where batches differ in size, the number of allocations must have grown in so many steps in a row.
UNEVEN = 6

# Training goes on to at most so many steps to tell.
MOST = 12


class Growth:
    """The allocated bytes and the number of allocations at the ends of steps."""

    def __init__(self):
        self.ends = []
        self.times = []  # when the steps ended
        self.left = False  # whether so many steps have left allocations behind

    def note(self, step, allocated):
        """Records bytes and allocations at the end of a step (numbered from 1). A later call for the step replaces
        them.
        """
        for values, value in (self.ends, allocated), (self.times, events.now()):
            del values[max(step - 1, 0):]
            values.append(value)

    def changes(self, of):
        """Returns the changes from step to step of the bytes (0) or the allocations (1)."""
        return [after[of] - before[of] for before, after in zip(self.ends, self.ends[1:])]

    def each(self):
        """Returns the bytes by which each step grows; zero if the last steps grew by different amounts."""
        return steady(self.changes(0), STEADY)

    def uneven(self):
        """Reports whether every step leaves allocations behind, of different sizes."""
        last = self.changes(1)[-UNEVEN:]
        self.left = self.left or len(last) == UNEVEN and min(last) > 0
        return self.left and not self.each()

    def found(self):
        return self.each() > 0 or self.uneven()

    def open(self):
        """Reports whether further steps are needed to decide."""
        return 1 < len(self.ends) < MOST and max(self.changes(0)[-1], self.changes(1)[-1]) > 0 and not self.each()


def steady(changes, number):
    """Returns the last change if the given number of last changes are equal and positive; else zero."""
    last = changes[-number:]
    return last[0] if len(last) == number and last[0] > 0 and len(set(last)) == 1 else 0
