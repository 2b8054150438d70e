"""Tells whether what a training script holds at the end of its steps grows without end."""

# After so many equal changes what is held grows, and is no warm-up: states of optimizers, caches.
STEADY = 3

# Training goes on to at most so many steps to tell.
MOST = 12


class Growth:
    """The allocated bytes at the ends of steps."""

    def __init__(self):
        self.ends = []

    def note(self, step, allocated):
        """Takes the bytes at the end of a step, which are counted from 1; later ones of the same step replace them."""
        del self.ends[max(step - 1, 0):]
        self.ends.append(allocated)

    def changes(self):
        return [after - before for before, after in zip(self.ends, self.ends[1:])]

    def each(self):
        """The bytes by which every step grows; zero if the last ones did not all grow by as much."""
        last = self.changes()[-STEADY:]
        return last[0] if len(last) == STEADY and last[0] > 0 and len(set(last)) == 1 else 0

    def open(self):
        """Tells whether further steps would show what the last one leaves open."""
        changes = self.changes()
        return 1 < len(self.ends) < MOST and changes[-1] > 0 and not self.each()
