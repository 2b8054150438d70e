"""Tests of vprof_hook/loaders.py:  python -m unittest bench/experiment/script/loaders_test.py"""

import math
import os
import sys
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import growth, loaders


class Absent:
    """A class of PyTorch that no sample has."""


data = types.SimpleNamespace(IterableDataset=Absent, TensorDataset=Absent)
torch = types.SimpleNamespace(Tensor=Absent, utils=types.SimpleNamespace(data=data))


class ScanTest(unittest.TestCase):
    def longest(self, lengths, size):
        """Returns the batches that a scan of samples of these lengths chooses, as lengths."""
        samples = [[1] * n for n in lengths]
        batches = [list(range(at, min(at + size, len(samples)))) for at in range(0, len(samples), size)]
        loader = types.SimpleNamespace(dataset=samples, batch_sampler=batches)
        return [[lengths[i] for i in indices] for indices in loaders.Scan(torch, loader, math.inf).longest()]

    def test_the_batch_with_the_longest_sample_and_the_one_with_most_elements(self):
        self.assertEqual([[9, 1, 1], [6, 6, 6]], self.longest([2, 3, 2, 6, 6, 6, 9, 1, 1], 3))

    def test_the_longest_sample_may_be_in_a_smaller_batch(self):
        self.assertEqual([[6, 6, 6], [8]], self.longest([2, 3, 2, 6, 6, 6, 8], 3))

    def test_one_batch_may_be_first_by_all(self):
        self.assertEqual([[7, 7]], self.longest([2, 3, 7, 7], 2))


class Tensor(Absent):
    is_cuda = False

    def __init__(self, length):
        self.shape = (length,)

    def numel(self):
        return self.shape[0]


class GrowthTest(unittest.TestCase):
    def test_batches_that_are_larger_each_time_are_counted(self):
        longest = loaders.Longest(torch, types.SimpleNamespace(ended=False, phases=["forward"]))
        counts = []
        for length in (3, 5, 6, 7, 7, 8):
            longest.note(Tensor(length))
            counts.append(longest.rises)
        self.assertEqual([1, 2, 3, 4, 0, 1], counts)

    def test_equal_changes_are_growth_unless_they_are_not_judged(self):
        for judge in True, False:
            grown = growth.Growth()
            for step in range(1, 2 + growth.STEADY):
                grown.note(step, (100 * step, 5), judge)
            self.assertEqual(judge, grown.found())


if __name__ == "__main__":
    unittest.main()
