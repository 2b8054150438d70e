"""Tests of vprof_hook/program.py, memory.py and holders.py:  python -m unittest bench/experiment/script/program_test.py"""

import os
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import holders, memory, program


def line_of(frames):
    return next(("%s:%d:%s" % (f["filename"], f["line"], f["name"]) for f in frames if f["filename"] == "train.py"), "")


def entry(action, address, at, frames=()):
    return {"action": action, "addr": address, "size": 512, "time_us": at, "frames": list(frames)}


class SitesTest(unittest.TestCase):
    def test_what_autograd_allocates_has_the_line_that_started_backward(self):
        code = compile("def main(): pass", "train.py", "exec").co_consts[0]
        line = {"filename": "train.py", "line": 3, "name": "forward"}
        labels = [
            (10, "turn", (0, "forward")), (20, "stack", (((code, 9),),)), (20, "turn", (0, "backward")), (40, "turn", (0, "optimizer")),
        ]
        trace = [
            entry("alloc", 1, 15), entry("alloc", 2, 25), entry("alloc", 3, 30, [{"filename": "hook.py", "line": 1, "name": "run"}]),
            entry("alloc", 4, 35, [line]), entry("alloc", 5, 45),
        ]
        p = program.Program(line_of).follow(trace, labels)
        sites = list(p.sites)
        self.assertEqual(["", "train.py:9:main", "train.py:9:main", "train.py:3:forward", ""], [sites[b["Site"]] for b in p.buffers])


class Tensor:
    is_cuda, is_leaf, requires_grad, grad_fn = True, False, True, None

    def __init__(self, address):
        self.address = address

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return self.address


class HeldTest(unittest.TestCase):
    def test_an_exception_holds_the_variables_of_the_functions_that_it_left(self):
        def step():
            acts, other = [Tensor(1), Tensor(2)], Tensor(3)
            raise MemoryError(len(acts), other)

        def handle():
            mine = Tensor(4)
            try:
                step()
            except MemoryError as error:
                return error, mine

        error, _ = handle()
        trace = [entry("alloc", n, n) for n in (1, 2, 3, 4)] + [entry("free_completed", 2, 9), {"action": "oom", "size": 512}]
        held, place = holders.held_by(error, trace)
        self.assertEqual(1024, held)
        self.assertRegex(place, r"program_test\.py:\d+$")


class SnapshotTest(unittest.TestCase):
    def test_a_snapshot_does_not_import_inductor_and_leaves_an_imported_one_alone(self):
        torch = types.ModuleType("torch")
        seen = lambda: [getattr(torch, "_inductor", None), hasattr(getattr(torch, "_inductor", None), "codecache")]
        torch.cuda = types.SimpleNamespace(memory=types.SimpleNamespace(_snapshot=seen))
        hidden, has_codecache = memory.snapshot_of(torch)
        self.assertIsNotNone(hidden)
        self.assertFalse(has_codecache)
        self.assertFalse(hasattr(torch, "_inductor"), "later imports find the real one")
        torch._inductor = types.SimpleNamespace(codecache=None)
        with mock.patch.dict(sys.modules, {"torch._inductor": torch._inductor}):
            self.assertEqual([torch._inductor, True], memory.snapshot_of(torch))
        self.assertTrue(hasattr(torch, "_inductor"))


if __name__ == "__main__":
    unittest.main()
