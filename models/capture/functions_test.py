"""Tests of captured checkpointing and custom autograd.Functions. They need PyTorch, no GPU."""

import unittest

from capture_case import CaptureCase


class FunctionsTest(CaptureCase):
    def twice(self, result, gradient="g * 2"):
        """Captures a model whose result calls a custom Function with its own gradient."""
        return self.capture(f"""
            class Twice(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2
                @staticmethod
                def backward(ctx, g):
                    return {gradient}
            class model(nn.Module):
                def forward(self, x):
                    return {result}
            twice = Twice.apply
            """)

    def test_checkpointed_modules_are_named(self):
        made = self.forward(
            """
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return checkpoint(self.lin.forward, x, use_reentrant=True)
            """,
            init="self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])",
        )
        self.assertEqual(made.extra["checkpointed"], ["blocks.0", "blocks.1"])
        self.assertEqual(made.extra["reentrant"], ["lin"])

    def test_reentrant_checkpointing_leaves_nothing_without_gradients(self):
        made = self.forward("return self.lin(checkpoint(self.inner, x, use_reentrant=True)).sin()", init="self.inner = nn.Linear(8, 8)")
        self.assertEqual(made.extra["reentrant"], ["inner"])
        self.assertEqual([t for t in made.targets if "set_grad" in t], [])

    def test_custom_functions_may_be_bound_when_the_code_is_imported(self):
        made = self.twice("twice(torch.sin(x))")
        self.assertEqual(len(made.extra["functions"]), 1)

    def test_custom_functions_are_named_with_their_line(self):
        made = self.twice("Twice.apply(torch.sin(x))")
        (function,) = made.extra["functions"]
        self.assertRegex(function["name"], r"\.Twice$")
        self.assertRegex(function["line"], r"m0\.py:15$")
        self.assertEqual(function["gives"], [True])
        targets = made.targets[function["begin"] : function["end"]]
        self.assertEqual(targets, ["alias.default", "mul.Tensor", "empty_like.default", "mul.Tensor", "alias.default"])
        self.assertEqual(targets[function["backward"] - function["begin"]], "empty_like.default")

    def test_custom_functions_hear_which_gradients_are_needed(self):
        made = self.capture("""
            class Scaled(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x, w):
                    ctx.save_for_backward(x)
                    return x * w
                @staticmethod
                def backward(ctx, g):
                    assert not ctx.needs_input_grad[0], "of the data"
                    return None, (g * ctx.saved_tensors[0]).sum(0)
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.w = nn.Parameter(torch.ones(8))
                def forward(self, x):
                    return Scaled.apply(x, self.w)
            """)
        (function,) = made.extra["functions"]
        self.assertEqual(function["gives"], [False, True])

    def test_custom_functions_that_look_at_numbers_are_named_with_their_line(self):
        made = self.twice("Twice.apply(torch.sin(x))", "g * 2 if g.sum() > 0 else g")
        (function,) = made.extra["custom_functions"]
        self.assertRegex(function["name"], r"\.Twice$")
        self.assertRegex(function["line"], r"m0\.py:15$")
        self.assertEqual(made.extra["functions"], [])
        self.assertIn("backward of its own", " ".join(self.outcome["notes"]))


if __name__ == "__main__":
    unittest.main()
