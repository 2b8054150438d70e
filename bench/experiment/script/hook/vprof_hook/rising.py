"""Extrapolates the allocations of a training step, each of which may grow with the steps, to a later step."""

# So many steps ahead the allocations that grow fastest decide the peak.
FAR = 1_000_000


class Rising:
    """The entries of an allocator's trace in the last step, with the change of each allocation since the step before.

    times are the ends of steps, in microseconds, and ends the allocated bytes then, after which steps grow by so many.
    """

    def __init__(self, trace, times, ends, each):
        self.start, self.each = ends[-2], each
        before, last = (
            [e for e in trace if begin < e.get("time_us", 0) <= end and e["action"] in ("alloc", "free_completed")]
            for begin, end in zip(times[-3:], times[-2:])
        )
        made = [[e for e in entries if e["action"] == "alloc"] for entries in (before, last)]
        self.entries = []  # (bytes, change of a step), negative where memory is freed
        self.alive = {}  # allocations of the two steps by address: (bytes, change)
        if len(made[0]) != len(made[1]):
            return
        changes = [b["size"] - a["size"] for a, b in zip(*made)]
        for entries in before, last:
            left = iter(changes)
            self.entries = []
            for e in entries:
                if e["action"] == "alloc":
                    self.alive[e["addr"]] = (e["size"], next(left))
                    self.entries.append(self.alive[e["addr"]])
                else:
                    size, change = self.alive.pop(e["addr"], (e["size"], 0))
                    self.entries.append((-size, -change))

    def growing(self):
        """Returns the bytes, by address, of allocations that are larger in each step and replace those before."""
        return {address: size for address, (size, change) in self.alive.items() if change > 0}

    def peak(self, further):
        """Returns the most allocated bytes of a step after so many further steps; zero where steps do not correspond."""
        live = most = self.start + further * self.each if self.entries else 0
        for size, change in self.entries:
            live += size + further * change
            most = max(most, live)
        return most

    def each_peak(self):
        """Returns the bytes by which peaks grow with each step in the long run."""
        return (self.peak(2 * FAR) - self.peak(FAR)) // FAR
