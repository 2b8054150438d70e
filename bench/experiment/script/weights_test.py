"""Tests of vprof_hook/weights.py. They need no PyTorch."""

import os
import sys
import types
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import memory, placeholders, weights


class Tensor:
    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype

    def to(self, device):
        self.device = device
        return self


class MissingTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, weights.Missing, "stated", (None, {}))
        for patched in (unittest.mock.patch.object(memory, "LIBRARIES", (os.path.dirname(os.__file__),)),
                        unittest.mock.patch.object(placeholders, "lazy", types.SimpleNamespace(empty=Tensor))):
            patched.start()
            self.addCleanup(patched.stop)
        self.torch = types.SimpleNamespace(Tensor=Tensor)
        self.state_dict = weights.stating(self.torch, lambda _: {"a": Tensor((2,), "half"), "b": Tensor((3, 4), "float"), "steps": 3})

    def test_a_function_that_compares_names_finds_all(self):
        missing, own = weights.Missing("absent.pth", "cuda"), self.state_dict(None)
        kept = {k: v for k, v in missing.items() if k in own and v.shape == own[k].shape}
        self.assertEqual({k: (v.shape, v.dtype, v.device) for k, v in kept.items()}, {"a": ((2,), "half", "cuda"), "b": ((3, 4), "float", "cuda")})
        self.assertIs(missing["a"], kept["a"])

        def load(_, state, strict, assign):
            return state, strict

        loaded, strict = weights.filling(self.torch, load)(None, {**own, **kept})
        self.assertEqual((list(loaded), strict), (["steps"], False), "nothing of the absent file is copied")
        self.assertEqual(list(weights.Missing("other.pth")), [weights.STAR], "names of a module that is loaded are not another's")

    def test_another_function_finds_one_pair(self):
        def other():
            return list(weights.Missing("absent.pth"))

        self.state_dict(None)
        self.assertEqual(other(), [weights.STAR])


if __name__ == "__main__":
    unittest.main()
