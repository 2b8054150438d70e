"""Tests of vprof_hook/closing.py:  python -m unittest bench/experiment/script/closing_test.py"""

import os
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import closing


class Ended(Exception):
    """Raised when training ends."""


class Script:
    """A script with three requested steps and loaders of 100 batches."""

    def __init__(self, grows=False):
        self.done = 0
        self.longest = types.SimpleNamespace(loader="first", other=None, seconds=3600, spent=0)
        growth = types.SimpleNamespace(found=lambda: grows)
        watch = types.SimpleNamespace(step=lambda: self.done, growth=growth, longest=self.longest, due=None, ended=False)
        self.closing = closing.Closing(watch)
        self.closing.seeks = lambda *_: False  # no line of the script evaluates or saves
        self.closing.end = mock.Mock(side_effect=Ended)

    def epoch(self, loader):
        """Returns the number of batches in an epoch of a loader."""
        for batch in range(100):
            if loader == self.longest.loader:
                try:
                    self.closing.cut()
                except StopIteration:
                    return batch
            else:
                self.longest.other = loader
            self.done += 1
            if self.done >= 3 and not self.closing.goes_on():
                raise Ended
        return 100


@mock.patch.object(closing, "hide_failures", mock.Mock())
@mock.patch.object(closing.threading, "Timer", mock.Mock())
class EpochsTest(unittest.TestCase):
    def test_further_epochs_and_loaders_have_two_steps_each(self):
        script = Script()
        loaders = ["first", "first", "first", "second", "second", "third"]
        self.assertEqual([3, 2, 2, 2, 2, 2], [script.epoch(loader) for loader in loaders])

    def test_training_ends_with_the_epoch_in_which_the_time_is_over(self):
        script = Script()
        self.assertEqual([3, 2], [script.epoch("first"), script.epoch("first")])
        script.closing.epochs = 0.001
        self.assertRaises(Ended, script.epoch, "first")
        self.assertEqual(6, script.done)

    def test_an_epoch_that_was_looked_at_until_a_step_ended_is_still_cut(self):
        script = Script()
        script.closing.seeks = lambda *_: script.done < 7  # true before the seventh step, false after it
        self.assertEqual([7, 2, 2], [script.epoch("first") for _ in range(3)])
        once = Script()
        once.closing.seeks = lambda *_: True
        once.longest.loader, once.done = "other", 3
        self.assertTrue(once.closing.goes_on())
        once.closing.seeks = lambda *_: False
        for once.done in range(6, 10):
            self.assertTrue(once.closing.goes_on())
        once.done = 10
        self.assertFalse(once.closing.goes_on(), "no batch was asked for")

    def test_waiting_for_a_processor_is_not_time_of_the_script_up_to_a_limit(self):
        now = {"wall": 100.0, "ran": 100.0}
        with mock.patch.object(closing.time, "monotonic", lambda: now["wall"]), \
                mock.patch.object(closing, "clock", lambda: now["ran"]), mock.patch.object(closing, "interrupt") as interrupt:
            script = Script()
            script.longest.seconds = 20
            self.assertTrue(script.closing.goes_on())
            for now["wall"], now["ran"], ends in (121, 110, 0), (135, 119, 0), (136, 121, 1):
                script.closing.ring()
                self.assertEqual(ends, interrupt.call_count)
            now["wall"], now["ran"] = 141, 110
            script.closing.ring()
            self.assertEqual(2, interrupt.call_count)

    def test_what_comes_after_all_epochs_is_reached_by_short_ones(self):
        script = Script()
        script.closing.seeks = lambda *_: script.closing.ended  # a line after the epochs evaluates
        self.assertEqual([3, 2], [script.epoch("first"), script.epoch("first")])
        script.closing.epochs = 0.001
        self.assertEqual([2, 2], [script.epoch("first"), script.epoch("first")])

    def test_what_grows_is_not_followed_through_further_epochs(self):
        script = Script(grows=True)
        self.assertEqual(3, script.epoch("first"))
        self.assertRaises(Ended, script.epoch, "first")
        self.assertEqual(5, script.done)

    def test_a_brief_run_ends_with_its_steps(self):
        with mock.patch.object(closing, "BRIEF", True):
            self.assertFalse(Script().closing.goes_on())


class Tensor:
    """A tensor with an autograd graph, or without."""

    def __init__(self, grad_fn):
        self.grad_fn = grad_fn


class GraphsTest(unittest.TestCase):
    def graded(self, evaluate):
        """Returns the line that is recorded for a function that evaluates in batches."""
        torch = types.SimpleNamespace(Tensor=Tensor, is_grad_enabled=lambda: True)
        watch = types.SimpleNamespace(phases=["evaluation"], torch=torch)
        found = closing.Closing(watch)
        evaluate(lambda: found.note_graphs(sys._getframe(1)))
        return found.graded

    def test_a_loop_that_keeps_graphs_is_recorded_and_another_is_not(self):
        def in_a_variable(next_batch):
            for _ in range(3):
                next_batch()
                loss = Tensor("MeanBackward0")
            del loss

        def in_a_list(next_batch):
            losses = []
            for _ in range(3):
                next_batch()
                losses.append(Tensor("MeanBackward0"))

        def without(next_batch):
            losses = []
            for _ in range(3):
                next_batch()
                losses.append(Tensor(None))

        for keeps in (in_a_variable, in_a_list):
            self.assertRegex(self.graded(keeps), r"closing_test\.py:\d+$")
        self.assertEqual("", self.graded(without))


if __name__ == "__main__":
    unittest.main()
