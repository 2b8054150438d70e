"""Tests of vprof_graph.py: which graph node is which Python call, and when its result dies. They need PyTorch, no GPU.
"""

import itertools
import random
import unittest.mock

from capture_case import CaptureCase, capture
import vprof_graph


class CommonTest(unittest.TestCase):
    def test_the_longest_common_subsequence(self):
        lots = random.Random(1)
        for _ in range(500):
            a, b = ("".join(lots.choices("abc", k=lots.randrange(10))) for _ in range(2))
            pairs = vprof_graph.common(a, b)
            self.assertEqual(sorted(set(pairs)), pairs)
            self.assertTrue(all(a[i] == b[j] for i, j in pairs))
            self.assertTrue(all(i < k and j < n for (i, j), (k, n) in zip(pairs, pairs[1:])))
            longest = max(n for n in range(len(a) + 1) if any(self.within(c, b) for c in itertools.combinations(a, n)))
            self.assertEqual(len(pairs), longest)

    def test_lists_that_have_little_in_common_are_matched_all_the_same(self):
        with unittest.mock.patch.object(vprof_graph, "MOST_DIFFERENCES", 3):
            self.assertEqual(vprof_graph.common("abcdxy", "efghxy"), [(4, 4), (5, 5)])

    def within(self, some, of):
        rest = iter(of)
        return all(c in rest for c in some)


class GraphTest(CaptureCase):
    def test_a_name_bound_again_lets_go(self):
        made = self.forward("""
            x = torch.sin(x)
            y = torch.cos(x)
            x = torch.exp(y)
            return torch.tanh(x)
            """)
        self.assertEqual(made.deaths(), {"exp": ["sin"], "tanh": ["exp", "cos"]})  # locals die in the order in which their names first occur

    def test_temporaries_die_after_their_use(self):
        made = self.forward("return torch.exp(torch.cos(torch.sin(x)))")
        self.assertEqual(made.deaths(), {"cos": ["sin"], "exp": ["cos"]})

    def test_in_place_results_are_one_tensor(self):
        made = self.forward("""
            y = torch.sin(x)
            z = y.relu_()
            del y
            z = torch.cos(z)
            return torch.exp(z)
            """)
        self.assertEqual(made.deaths(), {"cos": ["sin"], "exp": ["cos"]})

    def test_what_only_hands_its_argument_on_is_a_tensor_of_its_own(self):
        made = self.forward("""
            y = torch.sin(x)
            z = y.to(torch.float32)
            del y
            return torch.cos(z)
            """)
        self.assertEqual(made.deaths(), {"to": ["sin"], "cos": ["to"]})

    def test_the_graph_names_the_tensors_that_python_used(self):
        made = self.forward("""
            y = torch.sin(x)
            z = torch.cos(y.float())
            return z.float().sum(), z, F.layer_norm(y, (8,)) + z
            """)
        inputs = {names[0]: [v for i in node["inputs"] for v in capture.names_in(i["arg"])] for node, _, names in made.nodes if names}
        self.assertEqual((inputs["layer_norm"], inputs["add"]), (["sin"], ["layer_norm", "cos"]))  # export itself names to, to_1
        self.assertEqual([v for o in made.program["graph_module"]["graph"]["outputs"] for v in capture.names_in(o)], ["sum_1", "cos", "add"])

    def test_arguments_of_a_module_live_until_it_returns(self):
        made = self.capture("""
            class Inner(nn.Module):
                def forward(self, x):
                    x = torch.cos(x)
                    return torch.exp(x)
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = Inner()
                def forward(self, x):
                    return self.inner(torch.sin(x))
            """)
        self.assertEqual(made.deaths(), {"exp": ["cos", "sin"]})

    def test_results_in_lists_have_lives_of_their_own(self):
        made = self.forward("""
            a, b = torch.sin(x).chunk(2, dim=-1)
            a = torch.cos(a)
            return torch.exp(b) + a
            """)
        self.assertEqual(made.deaths(), {"chunk": ["sin"], "cos": ["chunk"], "add": ["exp", "cos", "chunk"]})

    def test_what_a_module_keeps_does_not_die(self):
        made = self.forward("""
            self.kept = torch.sin(x)
            return torch.cos(self.kept)
            """)
        self.assertEqual(made.deaths(), {})
        self.assertEqual(made.extra["replaced"], [[0, ["sin"], False]])

    def test_views_that_nothing_takes_keep_their_memory(self):
        made = self.forward("""
            y = torch.sin(x)
            self.kept = y.detach()
            return torch.cos(y)
            """)
        self.assertEqual(made.targets, ["sin.default", "cos.default"])
        self.assertEqual(made.deaths(), {"cos": ["sin"]})
        self.assertEqual((made.extra["replaced"], self.outcome["notes"]), ([[0, ["sin"], True]], []))

    def test_what_forward_replaces_is_what_the_next_one_takes(self):
        made = self.forward(
            """
            with torch.no_grad():
                self.mean = 0.9 * self.mean + x.mean(0)
            if self.memory is None or self.memory.shape != x.shape:
                self.memory = torch.zeros_like(x)
            self.memory = (self.memory.float() + x).relu()
            return self.lin(self.memory - self.mean).sum()
            """,
            init="self.register_buffer('mean', torch.zeros(8))\nself.memory = None",
        )
        self.assertNotIn("zeros_like.default", made.targets)
        self.assertEqual(made.extra["state"], [["b_mean", "0/add", False], ["c_memory", "relu", False]])
        self.assertEqual(sorted(made.extra["batch"]["inputs"]), [["c_memory", 0, 0, 1], ["x", 0, 0, 1]])

    def test_leaves_that_forward_makes_are_told(self):
        made = self.forward("""
            y = self.lin(x)
            z = y.detach().requires_grad_()
            buffer = torch.zeros_like(y)
            buffer[:] = y
            return torch.sin(z).sum() + torch.cos(y).sum() + buffer.sum()
            """)
        self.assertEqual(made.extra["leaves"], ["detach"])

    def test_graphs_within_graphs_are_numbered_through(self):
        made = self.forward("""
            with torch.no_grad():
                scale = torch.sin(x).mean()
            return torch.cos(x) * scale
            """)
        self.assertIn("higher_order.wrap_with_set_grad_enabled", " ".join(made.targets))
        self.assertEqual(made.deaths()["mean"], ["sin"])
        names = [v for _, dies in made.extra["dies"] for v in dies]
        self.assertTrue(any("/" in v for v in names), names)


if __name__ == "__main__":
    unittest.main()
