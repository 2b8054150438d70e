"""Tests of which sizes stay dynamic in captured files. They need PyTorch, no GPU."""

import unittest

from capture_case import CaptureCase, capture
import vprof_observe


class SizesTest(CaptureCase):
    def test_lazy_layers_have_the_shapes_of_the_example(self):
        made = self.forward("return self.lazy(self.lin(x))", init="self.lazy = nn.LazyLinear(3)")
        self.assertIn("lazy.weight", made.tensors)
        self.assertEqual(made.targets.count("linear.default"), 2)

    def test_a_batch_that_export_fixes_is_found_again(self):
        made = self.forward("""
            assert int(x.shape[0]) in (2, 3, 4, 5)  # a guard on the batch
            return x.repeat(2, 1).view(2 * int(x.shape[0]) * 8)
            """)
        batch = made.extra["batch"]
        self.assertEqual(batch["exported"], 2)
        self.assertEqual(batch["inputs"], [["x", 0, 0, 1]])
        view = next(n for n, t in enumerate(made.targets) if t.startswith("view"))
        self.assertEqual(batch["args"], [[view, "size", 0, 0, 16]])
        self.assertTrue(self.outcome["batch"])

    def test_a_batch_with_a_bound_stays_open(self):
        made = self.forward("q = self.queue.clone()\nq[: x.shape[0]] = self.lin(x)\nreturn q", init="self.register_buffer('queue', torch.zeros(64, 8))")
        (bounds,) = made.program["range_constraints"].values()
        self.assertEqual((bounds["min_val"], bounds["max_val"]), (2, 64))
        self.assertIsNone(made.extra.get("batch"))

    def test_paths_of_einsum_leave_the_batch_open(self):
        made = self.forward("return torch.einsum('bi,ij,bj->b', x, self.lin.weight, x)")
        self.assertEqual([name for name, _ in made.extra["symbols"].values()], ["batch"])

    def test_one_slice_in_python_may_be_two_in_the_graph(self):
        made = self.forward("return self.lin(x)[:, :4] - x[:, :4]")
        sub = next(node for node, _, _ in made.nodes if "aten.sub" in node["target"])
        sizes = [made.program["graph_module"]["graph"]["tensor_values"][v]["sizes"][1] for i in sub["inputs"] for v in capture.names_in(i["arg"])]
        self.assertEqual(sizes, [{"as_int": 4}] * 2)

    def test_what_hangs_on_the_batch_is_told(self):
        made = self.forward("parts = [self.lin(p) for p in x.chunk(-(-x.shape[0] // 128))]\nreturn torch.cat(parts)")
        self.assertEqual(made.extra["other_way"][0], vprof_observe.OTHER_BATCH)
        self.assertRegex(made.extra["other_way"][1], r"m\d+\.py:\d+$")
        self.assertIsNone(self.forward("return self.lin(x) * x.shape[0]").extra["other_way"])

    def test_other_dimensions_stay_open_too(self):
        self.capture("model = nn.Linear(8, 8)", inputs="input=float32[batch,seq=16,8]")
        self.assertEqual(self.outcome["symbols"], ["batch", "seq"])

    def test_sizes_that_are_divided_stay_open(self):
        source = """
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(8, 8)
                def forward(self, x, y):
                    b, t, d = x.shape
                    return self.lin((x + y).view(b, t // 4, 4, d).mean(2))
            """
        made = self.capture(source, "--input=y=float32[batch,seq=16,8]", inputs="x=float32[batch,seq=16,8]")
        self.assertEqual((self.outcome["symbols"], self.outcome["notes"]), (["batch", "seq"], []))
        self.assertEqual({tuple(s) for s in made.extra["symbols"].values()}, {("batch", 4), ("seq", 16, True)})

    def test_sizes_that_the_model_fixes_are_told(self):
        self.forward("return self.lin(x.view(x.shape[0], 8)) if x.shape[1] == 8 else x")
        self.capture("class model(nn.Module):\n    def forward(self, x):\n        return x * len(range(x.shape[1])) if int(x.shape[1]) in (8, 9) else x", inputs="x=float32[batch,n=8]")
        self.assertEqual(self.outcome["symbols"], ["batch"])
        self.assertIn("no other n than in the example (n=8)", self.outcome["notes"][-1])

    def test_sizes_keep_the_names_that_the_user_gave_them(self):
        made = self.capture("model = nn.Linear(8, 8)", inputs="input=float32[nodes=10,seq=16,8]")
        self.assertEqual(sorted(made.extra["symbols"].values()), [["nodes", 10, True], ["seq", 16, True]])


if __name__ == "__main__":
    unittest.main()
