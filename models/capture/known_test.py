"""Tests of vprof_known.py: values that are known although nothing is computed. They need PyTorch, no GPU."""

import unittest

from capture_case import CaptureCase


class KnownTest(CaptureCase):
    def test_conditions_may_be_bytes_and_counts_as_many_as_said(self):
        made = self.forward("return torch.where(x.to(torch.uint8), x, -x) + torch.bincount(x[:, 0].long(), minlength=8)")
        self.assertTrue({"where.self", "bincount.default"} <= set(made.targets))

    def test_numbers_that_the_code_has_are_known(self):
        made = self.capture("""
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("ready", torch.tensor(True))
                    self.register_buffer("step", torch.zeros(1, dtype=torch.long))
                def forward(self, x):
                    mask = torch.full((8, 8), float("-inf")).triu(1)
                    causal = torch.full((8, 8), float("-inf"), device=mask.device).triu(1)
                    if not bool((mask == causal).all()) or not self.ready or int(self.step) > 9:
                        return torch.sin(x)
                    self.step += 1
                    assert self.step.item() > 0
                    return torch.cos(x)
            """)
        self.assertIn("cos.default", made.targets)
        self.assertEqual(self.outcome["place"], "meta")

    def test_checks_that_raise_are_passed(self):
        made = self.forward("""
            if torch.isnan(x).any() or (x > 9).any():
                raise ValueError("x")
            assert not (x < 0).any(), "negative"
            p = torch.distributions.Normal(self.lin(x), F.softplus(x) + 1)
            return p.log_prob(p.rsample()).sum()
            """)
        self.assertIn("softplus.default", made.targets)

    def test_what_is_written_over_is_not_known_any_more(self):
        self.capture("""
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("queue", torch.zeros(4, 8))
                def forward(self, x):
                    self.queue[1:3] = x[:2]
                    return torch.cos(x) if self.queue.sum() > 0 else torch.sin(x)
            """)
        self.assertEqual(self.outcome["place"], "numbers")

    def test_what_masks_pick_may_go_with_the_batch(self):
        made = self.capture("""
            class model(nn.Module):
                def forward(self, x):
                    same = torch.eye(x.shape[0], dtype=torch.bool)
                    return (x @ x.T)[~same].view(x.shape[0], -1)
            """)
        index = made.targets.index("index.Tensor")
        self.assertEqual(made.extra["counts"], [[index, 0, -1, 1, 0, 1]])  # batch**2 - batch
        self.assertTrue(self.outcome["batch"])

    def test_what_masks_pick_may_go_with_a_batch_that_is_no_size(self):
        made = self.forward("y = x.sum(1)[: len(x)]\nreturn y[y < 9e9].mean()")
        self.assertEqual(made.extra["counts"], [[made.targets.index("index.Tensor"), 0, 1, 0, 0, 1]])
        self.assertTrue(self.outcome["batch"])

    def test_a_first_forward_that_prepares_is_not_what_steps_do(self):
        made = self.forward(
            """
            if not self.ready:
                self.ready.fill_(True)
                return torch.sin(x)
            return torch.cos(x)
            """,
            init="self.register_buffer('ready', torch.tensor(False))",
        )
        self.assertEqual(made.targets, ["cos.default"])

    def test_attributes_may_be_set_by_the_first_forward(self):
        made = self.forward("if not self.ready:\n    self.ready = True\n    x = x * 2\n    x = x + 1\nreturn torch.cos(x)", init="self.ready = False")
        self.assertEqual(made.targets, ["cos.default"])
        [first] = made.extra["first"]
        self.assertEqual([n["target"].split(".", 3)[3] for n in first["graph"]["graph_module"]["graph"]["nodes"]], ["mul.Tensor", "add.Tensor", "cos.default"])
        self.assertEqual(self.outcome["notes"], [])

    def test_what_the_first_forward_makes_is_what_later_ones_take(self):
        made = self.forward(
            """
            if self.table is None:
                self.table = x.detach().std(0)
            return torch.cos(x + self.table)
            """,
            init="self.table = None",
        )
        [first] = made.extra["first"]
        self.assertEqual((first["extra"]["state"], first["extra"]["replaced"]), ([["c_table", "std", False]], []))

    def test_of_forwards_that_draw_lots_the_one_that_does_most_is_planned(self):
        for draw in ("random.random() < 0.3", "bool(torch.rand(1) < 0.3)"):
            made = self.forward(f"import random\nfor _ in range(2):\n    if {draw}:\n        x = torch.cos(x)\nreturn x.sin()")
            self.assertEqual([t for t in made.targets if t in ("cos.default", "sin.default")], ["cos.default", "cos.default", "sin.default"])
            self.assertIn("depends on random numbers", self.outcome["notes"][0])

    def test_sizes_and_ways_may_hang_on_numbers(self):
        made = self.forward("""
            far = x.abs().sum(1) > 0
            if far.any():
                x[far] += 1
            h = self.lin(x)
            h[torch.where(h.detach() > 9e9)] = 0
            few = torch.unique(x)
            return torch.masked_select(h, h.detach() < 9e9).sum() + far.nonzero().sum() + far.sum().item() + few.sum()
            """)
        self.assertEqual(self.outcome["place"], "numbers")
        counted = [made.targets[n].partition(".")[0] for n, *_ in made.extra["counts"]]
        self.assertEqual(sorted(counted), sorted(["_unique2", "index", "index_put_", "where", "masked_select", "nonzero"]))
        self.assertIn([made.targets.index("masked_select.default"), 0, 8, 0, 0, 1], made.extra["counts"])
        self.assertIn([made.targets.index("_unique2.default"), 0, 8, 0, 0, 1], made.extra["counts"])
        self.assertIn([made.targets.index("where.default"), 2, 0, 0, 0, 32], made.extra["counts"])  # never zero
        self.assertRegex(self.outcome["notes"][-1], r"depends on numbers in tensors \(.*m0\.py:14.*of random inputs")
    def test_lengths_of_ctc_may_be_tensors(self):
        lengths = "full = torch.full((x.shape[0],), 6)\n"
        made = self.forward(lengths + "return F.ctc_loss(self.lin(x).log_softmax(-1).transpose(0, 1), full.new_ones(x.shape[0], 5), full, full - 1)", inputs="x=float32[batch,6,8]")
        self.assertIn("ctc_loss.Tensor", made.targets)

    def test_constructors_that_need_numbers_are_built_elsewhere(self):
        made = self.forward("return x * self.rate", init="self.rate = torch.rand(5).tolist()[2]")
        self.assertNotEqual(self.outcome["place"], "meta")
        self.assertEqual(made.targets, ["mul.Tensor"])

    def test_what_fails_everywhere_is_told_as_it_fails_on_the_cpu(self):
        said = self.refusal("class model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = torch.ones(1).item()\n        raise RuntimeError('no such file')")
        self.assertIn("no such file", str(said))

    def test_checks_of_tokens_that_only_warn_are_left_out(self):
        made = self.capture("""
            class model(nn.Module):
                def forward(self, x):
                    self.warn_if_padding_and_no_attention_mask(x)
                    return torch.cos(x)
                def warn_if_padding_and_no_attention_mask(self, x):
                    assert float(x.sum()) == 0
            """)
        self.assertEqual(made.targets, ["cos.default"])

    def test_weights_are_not_in_the_file(self):
        self.capture("class model(nn.Linear):\n    def __init__(self):\n        super().__init__(1000, 1000)\n        assert float(torch.rand(3).sum()) < 4", inputs="input=float32[batch,1000]")
        self.assertEqual(self.outcome["place"], "cpu")
        self.assertLess(self.outcome["bytes"], 100_000)


if __name__ == "__main__":
    unittest.main()
