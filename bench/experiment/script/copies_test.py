"""Tests of vprof_hook/copies.py:  python -m unittest bench/experiment/script/copies_test.py"""

import os
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import copies


class Tensor:
    is_cuda = True

    def __init__(self, address, size):
        self.address, self.size = address, size

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address, nbytes=lambda: self.size)


class CopiesTest(unittest.TestCase):
    def setUp(self):
        """A script that has trained one parameter of 100 bytes, with the peak of 300 bytes in backward."""
        self.parameter = Tensor(1, 100)
        optimizer = mock.Mock(param_groups=[{"params": [self.parameter]}], state={})
        self.memory = types.SimpleNamespace(used=True, before=200, libraries=(), tops={(1, "backward"): 300, (2, "forward"): 450, (3, "saving"): 450})
        self.watch = types.SimpleNamespace(
            torch=types.SimpleNamespace(Tensor=Tensor), memory=self.memory, counts={optimizer: 3}, step=lambda: 2, phases=["forward"],
        )
        self.copies = copies.Copies(self.watch)

    def saves(self, checkpoint, allocated):
        """Returns the bytes that the copies of a checkpoint are said to cost; zero if nothing is sent."""
        self.memory.allocated = lambda: allocated
        with mock.patch.object(copies, "frame_of_user", lambda frame, _: frame), mock.patch.object(copies.events, "send") as send:
            self.copies.note(checkpoint, sys._getframe())
            self.copies.send()
        return send.call_args.kwargs["allocated"] if send.called else 0

    def test_copies_cost_what_exceeds_the_other_phases(self):
        self.assertEqual(150, self.saves({"model": [Tensor(2, 200), Tensor(3, 50)]}, 450))

    def test_two_tensors_of_one_storage_count_once(self):
        self.assertEqual(120, self.saves([Tensor(2, 120), Tensor(2, 120)], 450))

    def test_what_was_allocated_before_is_no_copy(self):
        self.assertEqual(0, self.saves({"average": Tensor(2, 100), "model": self.parameter}, 200))


if __name__ == "__main__":
    unittest.main()
