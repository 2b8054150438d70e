"""Extrapolates the allocations of a training step to a later step. The size of each allocation may grow linearly with
the steps.
"""

# After this many further steps, the fastest-growing allocations decide the peak.
FAR = 1_000_000


class Rising:
    """The allocations and frees of the last step, with the change in size of each allocation since the step before.

    trace holds the allocator's entries. times are the ends of the steps in microseconds, ends the allocated bytes at
    these times, and each the growth of the allocated bytes per step. entries is empty if the last two steps have
    different numbers of allocations.
    """

    def __init__(self, trace, times, ends, each):
        self.start, self.each = ends[-2], each
        before, last = (
            [e for e in trace if begin < e.get("time_us", 0) <= end and e["action"] in ("alloc", "free_completed")]
            for begin, end in zip(times[-3:], times[-2:])
        )
        made = [[e for e in entries if e["action"] == "alloc"] for entries in (before, last)]
        self.entries = []  # (bytes, change per step); negative for frees
        self.alive = {}  # allocations of the last two steps that are not freed, by address: (bytes, change per step)
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
        """Returns sizes in bytes, by address, of live allocations that are larger than in the step before."""
        return {address: size for address, (size, change) in self.alive.items() if change > 0}

    def peak(self, further):
        """Returns the peak of allocated bytes in the step that runs this many steps later; zero if entries is empty."""
        live = most = self.start + further * self.each if self.entries else 0
        for size, change in self.entries:
            live += size + further * change
            most = max(most, live)
        return most

    def each_peak(self):
        """Returns the growth of the peak in bytes per step, after many steps."""
        return (self.peak(2 * FAR) - self.peak(FAR)) // FAR
