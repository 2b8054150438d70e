"""Tests of vprof_hook/rising.py:  python -m unittest bench/experiment/script/rising_test.py"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import rising


def trained(steps, kept, copied):
    """Returns (trace, ends, peaks) of steps that each keep some bytes; with copied, a step also concatenates all kept
    memory.
    """
    trace, ends, times, peaks, live, bank = [], [], [], [], 100, 0

    def note(action, address, size):
        nonlocal live
        live += size if action == "alloc" else -size
        trace.append({"action": action, "addr": address, "size": size, "time_us": len(trace) + len(times)})
        peaks[-1] = max(peaks[-1], live)

    for step in range(1, steps + 1):
        peaks.append(live)
        note("alloc", "activations", 500)
        if copied:
            note("alloc", "bank%d" % step, kept * step)
            if bank:
                note("free_completed", "bank%d" % (step - 1), bank)
            bank = kept * step
        else:
            note("alloc", "row%d" % step, kept)
        note("free_completed", "activations", 500)
        ends.append(live)
        times.append(len(trace) + len(times))
    return trace, times, ends, peaks


class RisingTest(unittest.TestCase):
    def test_the_peak_of_a_later_step_is_that_of_its_allocations(self):
        for copied, each in (False, 7), (True, 14):
            whole, times, ends, peaks = trained(400, 7, copied)
            few = rising.Rising([e for e in whole if e["time_us"] <= times[5]], times[:6], ends[:6], 7)
            self.assertEqual([few.peak(n) for n in (0, 1, 394)], [peaks[5], peaks[6], peaks[399]], copied)
            self.assertEqual(each, few.each_peak())
            self.assertEqual({"bank6": 42} if copied else {}, few.growing())

    def test_steps_that_differ_are_not_extrapolated(self):
        trace = [{"action": "alloc", "addr": i, "size": 1, "time_us": at} for i, at in enumerate((1, 2, 2))]
        other = rising.Rising(trace, [0, 1, 2], [1, 1, 3], 2)
        self.assertEqual((0, 0, {}), (other.peak(9), other.each_peak(), other.growing()))


if __name__ == "__main__":
    unittest.main()
