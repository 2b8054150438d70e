"""Tests of vprof_hook/trials.py:  python -m unittest bench/experiment/script/trials_test.py"""

import gc
import os
import sys
import types
import unittest
import weakref
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import trials


class Tensor:
    is_cuda, grad_fn, grad, shape, layout = True, None, None, (4,), "strided"

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: id(self), nbytes=lambda: 16)

    def numel(self):
        return 4


class Module:
    pass


class LookTest(unittest.TestCase):
    def setUp(self):
        torch = types.SimpleNamespace(Tensor=Tensor, strided="strided", nn=types.SimpleNamespace(Module=Module))
        self.trained = [Tensor(), Tensor()]
        optimizer = mock.Mock(param_groups=[{"params": self.trained}], state={})
        self.growth = types.SimpleNamespace(found=lambda: False, holder=("kept", "main"), bound=3)
        memory = types.SimpleNamespace(top=lambda: self.top, allocated=lambda: self.allocated)
        self.trials = trials.Trials(types.SimpleNamespace(torch=torch, counts={optimizer: 3}, growth=self.growth, memory=memory))
        self.top, self.allocated = 100, 64

    def look(self):
        with mock.patch.object(trials.holders, "Path", lambda *_: mock.Mock(text=lambda: "best of main")):
            self.trials.look()
        return self.trials.copies

    def test_a_copy_is_found_when_the_peak_rises_and_not_kept_alive(self):
        self.assertEqual({}, self.look())
        copy = [Tensor(), Tensor()]
        self.assertEqual({}, self.look(), "the peak has not risen")
        self.top, self.allocated = 150, 39
        self.assertEqual({}, self.look(), "no room for a copy")
        self.top, self.allocated = 200, 64
        self.assertEqual([32], list(self.look().values()))
        self.assertIn("best of main", next(iter(self.trials.copies)))
        gone = weakref.ref(copy[0])
        gc.disable()
        try:
            del copy
            self.assertIsNone(gone(), "a search must not change what is allocated")
        finally:
            gc.enable()
        self.assertEqual((("kept", "main"), 3), (self.growth.holder, self.growth.bound))


if __name__ == "__main__":
    unittest.main()
