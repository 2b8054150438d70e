"""Tests of vprof_hook/values.py. They need PyTorch, no GPU:  python -m unittest bench/experiment/script/values_test.py"""

import ctypes
import math
import os
import sys
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
import torch
from vprof_hook import placeholders, values

aten = torch.ops.aten


class Library:
    """Replaces the stub library: stores what it was told."""

    def __init__(self):
        self.told = []
        self.vprof_tell = lambda number: self.told.append(number)
        self.cudaMemset = ctypes.memset


def idle(make):
    """Returns a kernel that allocates a result and computes nothing."""
    return lambda keys, *args, **kwargs: make(*args)


class ValuesTest(unittest.TestCase):
    def setUp(self):
        self.host = values.Host.__new__(values.Host)
        self.host.torch, self.host.library, self.host.generator = torch, Library(), torch.Generator()
        self.host.zeros, self.host.empty, self.host.ones = torch.zeros, torch.empty, torch.ones
        self.host.whole, self.host.telling, self.host.readings = {torch.bool, torch.int64}, False, 0
        self.host.compares = False

    def test_parameters_that_are_initialized_have_no_values(self):
        with unittest.mock.patch.dict(os.environ, {"VPROF_STUBS": ""}), unittest.mock.patch.object(placeholders, "ASKED", {"weights"}):
            lazy = placeholders.Lazy(torch)
        self.addCleanup(lazy.libraries.clear)
        linear = torch.nn.Linear(512, 512)
        torch.nn.init.trunc_normal_(linear.weight.view(512, 512), std=0.02)
        self.assertTrue(lazy.holds(linear.weight) and lazy.holds(linear.weight.clone()))
        self.assertFalse(linear.weight.any())
        self.assertTrue(torch.rand(512, 512).any(), "values that are no parameter's are drawn")
        self.assertTrue(torch.nn.Linear(8, 8).weight.any(), "small ones, too")

    def test_names_are_operators(self):
        for name in " ".join((values.RESULTS, values.ARITHMETIC, values.CHANGES, values.RANDOM, values.CHOICES, values.COUNTED)).split():
            packet, _, overload = name.partition(".")
            self.assertTrue(hasattr(getattr(aten, packet), overload or "default"), name)

    def test_whole_results_are_computed(self):
        mask = torch.tensor([True, False, True])
        run = self.host.result(aten.sum.default, idle(lambda x: torch.zeros((), dtype=torch.int64)))
        self.assertEqual(run(None, mask).item(), 2)

    def test_small_floats_are_computed(self):
        run = self.host.result(aten.add.Tensor, idle(lambda x, y: torch.zeros(2)))
        self.assertEqual(run(None, torch.ones(2), torch.ones(2)).tolist(), [2, 2])

    def test_comparisons_go_by_numbers_and_not_by_what_the_kernel_reads(self):
        run = self.host.compared(aten.equal.default, idle(lambda x, y: True))
        self.assertFalse(run(None, torch.zeros(2), torch.ones(2)))
        self.assertTrue(run(None, torch.ones(2), torch.ones(2)))

    def test_large_floats_stay(self):
        run = self.host.result(aten.neg.default, idle(lambda x: torch.zeros(1).expand(values.FLOATS + 1)))
        self.assertEqual(run(None, torch.ones(1).expand(values.FLOATS + 1)).sum(), 0)

    def test_results_of_unknown_numbers_are_finite(self):
        self.host.level = lambda tensor: values.NOTHING
        run = self.host.finite(aten.log.default, idle(lambda x: torch.ones(2)))
        self.assertEqual(run(None, torch.zeros(2)).tolist(), [0, 0])

    def test_unknown_numbers_are_known_to_be_finite(self):
        for op, level in (aten.isnan.default, values.ALL), (aten.isinf.default, values.ALL), (aten.abs.default, values.NOTHING):
            self.host.level = lambda tensor: values.NOTHING
            self.host.mark = unittest.mock.Mock()
            run = self.host.result(op, idle(lambda x: torch.zeros(2, dtype=torch.bool)))
            self.assertFalse(run(None, torch.zeros(2)).any())
            self.assertEqual(level, self.host.mark.call_args.args[1])

    def test_what_a_script_rules_out_stays_impossible(self):
        self.host.level = lambda tensor: values.SOME
        run = self.host.result(aten._log_softmax.default, idle(lambda x, *_: torch.ones(2)))
        self.assertEqual(run(None, torch.tensor([0.0, -math.inf]), -1, False).tolist(), [0, -math.inf])

    def test_large_results_of_layers_are_computed_if_all_is_known(self):
        out = torch.zeros(values.FLOATS + 1)
        for level, grad, computed in ((values.SOME, False, True), (values.SOME, True, False), (values.ALL, True, True), (values.NOTHING, False, False)):
            scores = torch.ones(values.FLOATS + 1, requires_grad=grad)
            with unittest.mock.patch.object(torch.Tensor, "is_cpu", False):
                self.assertEqual(computed, self.host.is_small(out, (scores,), level))

    def test_what_is_known_follows_from_arguments(self):
        self.host.level = lambda tensor: int(tensor.item())
        known, none, some, all_ = self.host.known, *(torch.tensor(n) for n in (values.NOTHING, values.SOME, values.ALL))
        self.assertEqual([known(all_, 3, [all_]), known(all_, none), known(some), known(none), known()], [2, 1, 1, 0, 2])

    def test_assertions_hold_of_unknown_numbers(self):
        self.host.level = lambda tensor: values.NOTHING
        out = torch.tensor(False)
        with unittest.mock.patch.object(torch.Tensor, "is_cuda", True), unittest.mock.patch.object(self.host, "mark"):
            self.assertTrue(self.host.asserted(lambda tensor: out)(torch.zeros(2)))

    def test_unknown_numbers_that_are_read_are_positive_and_fall(self):
        self.host.level = lambda tensor: values.NOTHING
        run = self.host.read(None, lambda keys, x: x.item())
        first, second, third = (run(None, torch.tensor(x)) for x in (0.0, float("nan"), 3.0))
        self.assertTrue(1 > first > second > 0)
        self.assertEqual(third, 3)

    def test_what_a_script_has_written_is_chosen_last(self):
        self.host.level = lambda tensor: values.SOME
        for scores, along, k in ((torch.zeros(6), -1, 3), (torch.zeros(2, 6), 1, 5)):
            run = self.host.change(aten.fill_.Scalar, idle(lambda x, number: x))
            with unittest.mock.patch.object(torch.Tensor, "is_cuda", True):
                run(None, scores[..., 0], 0)
            self.assertEqual(scores.sum(), scores.numel() - scores[..., 0].numel())
            run = self.host.choice(aten.topk.default, idle(lambda x, k, dim: torch.topk(x, k, dim)))
            self.assertTrue((run(None, scores, k, along)[1] > 0).all())
            self.assertNotIn(0, scores.cpu().argsort(descending=True)[..., :k].flatten().tolist())

    def test_what_is_copied_from_the_host_is_known_whatever_its_size(self):
        table, trained = torch.ones(values.FLOATS + 1), torch.ones(values.FLOATS + 1, requires_grad=True)
        for source, known in ((table, values.ALL), (trained, values.NOTHING)):
            out = torch.empty(values.FLOATS + 1)
            self.assertEqual(self.host.copied(out, (out, source), True), known)
        out = torch.empty(values.FLOATS + 1)
        self.assertEqual(self.host.copied(out[1:], (out, table[1:]), False), values.NOTHING)

    def test_guesses_that_leave_pytorch_are_named(self):
        self.host.lines, place, loss = set(), torch.tensor([1]), torch.tensor([0.5])
        for tensor in (place, loss):
            tensor.untyped_storage().vprof = values.NOTHING
        with unittest.mock.patch.object(self.host, "guessed") as guessed:
            self.host.naming(torch.Tensor.numpy)(loss)
            self.host.naming(torch.Tensor.tolist)(torch.tensor([1]))
            guessed.assert_not_called()
            self.assertEqual(self.host.naming(torch.Tensor.numpy)(place[0]), 1)
            guessed.assert_called_once()

    def test_lbfgs_has_not_come_to_its_end(self):
        self.host.level = lambda tensor: values.NOTHING
        dot, lbfgs, calls = torch.Tensor.dot, sys.modules["torch.optim.lbfgs"], []
        product = self.host.product(None, lambda keys, x, y: dot(x, y))
        for search, evaluations in (None, 20), ("strong_wolfe", 21):
            p = torch.nn.Parameter(torch.zeros(3))
            p.grad = torch.zeros(3)  # gradients at which L-BFGS would stop
            optimizer = torch.optim.LBFGS([p], line_search_fn=search)
            calls.clear()
            with unittest.mock.patch.object(torch.Tensor, "dot", lambda x, y: product(None, x, y)), \
                    unittest.mock.patch.object(lbfgs, "_strong_wolfe", self.host.accepting(lbfgs._strong_wolfe)):
                self.host.descending(torch.optim.LBFGS.step)(optimizer, lambda: calls.append(1) or 0.0)
            self.assertEqual((len(calls), len(optimizer.state[p]["old_dirs"])), (evaluations, 19))
            self.assertEqual(optimizer.param_groups[0]["tolerance_change"], 1e-9)

    def test_products_of_lbfgs_read_as_positive_whatever_is_known(self):
        for size in 3, values.FLOATS + 1:
            self.host.descends = True
            out = self.host.product(None, lambda keys, x, y: torch.empty(()))(None, torch.zeros(size), torch.zeros(size))
            with unittest.mock.patch.object(torch.Tensor, "is_cuda", True):
                self.host.level = lambda tensor: values.NOTHING
                out = self.host.product(None, lambda keys, x, y: torch.empty(()))(None, torch.zeros(size), torch.zeros(size))
                self.assertTrue(self.host.is_written(out))
            self.assertEqual(1, out.item())

    def test_memory_that_nobody_wrote_is_zeros(self):
        stale = torch.ones(2)
        with unittest.mock.patch.object(torch.Tensor, "is_cuda", True):
            self.assertEqual(self.host.seen([stale])[0].tolist(), [0, 0])
            self.host.blank(stale)
            self.assertEqual(self.host.seen(stale).data_ptr(), stale.data_ptr())
        self.assertEqual(stale.tolist(), [0, 0])

    def test_large_ones_stay(self):
        run = self.host.result(aten.eq.Scalar, idle(lambda x, y: torch.zeros(1, dtype=torch.bool).expand(values.MOST + 1)))
        self.assertFalse(run(None, torch.zeros(1).expand(values.MOST + 1), 0).any())

    def test_whole_numbers_that_are_not_computed_are_zeros(self):
        run = self.host.result(aten.argmax.default, idle(lambda x, *_: torch.full((2,), -7)))
        with unittest.mock.patch.object(torch.Tensor, "is_cuda", True), unittest.mock.patch.object(self.host, "known", lambda *_: values.NOTHING):
            out = run(None, torch.zeros(1).expand(values.MOST + 1))
        self.assertEqual(out.tolist(), [0, 0])

    def test_scores_that_nobody_knows_choose_each_column_as_often(self):
        routed = idle(lambda x, k, *_: (torch.zeros(4, k), torch.zeros(4, k, dtype=torch.int64)))
        best = idle(lambda x, *_: torch.zeros(4, dtype=torch.int64))
        alike, told = torch.full((4, 3), 0.5), torch.tensor([[0.0, 2, 1]]).expand(4, 3)
        for level, scores, pairs, firsts in (
            (values.SOME, alike, [[0, 1], [2, 0], [1, 2], [0, 1]], [0, 1, 2, 0]),
            (values.SOME, told, [[1, 2]] * 4, [1] * 4),
            (values.ALL, told, [[1, 2]] * 4, [1] * 4),
        ):
            self.host.level = lambda tensor, level=level: level
            self.assertEqual(self.host.choice(aten.topk.default, routed)(None, scores, 2)[1].tolist(), pairs)
            self.assertEqual(self.host.choice(aten.argmax.default, best)(None, scores, 1).tolist(), firsts)

    def test_numbers_become_tensors_of_the_type_of_the_result(self):
        places = values.tensors_of(aten.sub.Tensor)
        for tensor, number in ((torch.zeros(2, dtype=torch.float16), 2.5), (torch.zeros(()), 1), (torch.zeros(2, dtype=torch.int64), 0.5)):
            for args in ((tensor, number), (number, tensor)):
                lifted = self.host.lifted(args, places)
                self.assertEqual(aten.sub.Tensor(*lifted).dtype, torch.result_type(tensor, number))

    def test_views_follow_strides_and_offsets(self):
        x = torch.arange(12).view(3, 4).t()[1:]
        self.assertEqual(self.host.view(x).tolist(), x.tolist())

    def test_counted_results_tell_their_number_before(self):
        mask = torch.tensor([0, 1, 1, 0, 1])

        def kernel(keys, x):
            return torch.zeros(self.host.library.told[-1], 1, dtype=torch.int64)

        self.assertEqual(self.host.counted(aten.nonzero.default, kernel)(None, mask).tolist(), [[1], [2], [4]])
        self.assertEqual(self.host.library.told, [3, -1])

    def test_results_that_a_kernel_leaves_out_are_not_written(self):
        out = torch.zeros(2)
        self.host.write((out, None), (torch.ones(2), torch.ones(2)))
        self.assertEqual(out.tolist(), [1, 1])

    def test_what_the_host_cannot_do_stays(self):
        run = self.host.random(aten.randperm.generator_out, idle(lambda n, out=None: torch.zeros(1)))
        self.assertEqual(run(None, -1).tolist(), [0])


if __name__ == "__main__":
    unittest.main()
