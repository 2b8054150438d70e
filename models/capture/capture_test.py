"""Tests of capture.py. They need PyTorch, no GPU:  python -m unittest models/capture/capture_test.py"""

import itertools
import json
import os
import random
import sys
import tempfile
import textwrap
import unittest.mock
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import capture
import vprof_graph
import vprof_observe
import torch
import torch.nn as nn
import vprof_known

capture.watch_checkpoint()
capture.hide_tracing()
capture.shape_recurrent_layers()
capture.paths_of_the_example()
capture.share_copied_modes()
kept = capture.shape_operators()
vprof_known.watch_readers()


class Made:
    """A captured file: its nodes and what was added."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as z:
            names = {n.partition("/")[2]: n for n in z.namelist()}
            self.program = json.loads(z.read(names["models/model.json"]))
            self.extra = json.loads(z.read(names["extra/vprof.json"]))
        self.nodes = capture.nodes_of(self.program["graph_module"]["graph"])
        self.targets = [node["target"].removeprefix("torch.ops.aten.") for node, _, _ in self.nodes]

    def deaths(self):
        """{operator after which: [operators whose results die]}, of a graph in which each operator comes once."""
        makes = {v: self.targets[n].partition(".")[0] for n, (_, _, names) in enumerate(self.nodes) for v in names}
        return {self.targets[n].partition(".")[0] if n >= 0 else "": [makes[v] for v in names] for n, names in self.extra["dies"]}


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


class CaptureTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def capture(self, source, *options, inputs="x=float32[batch,8]"):
        """Captures model() of a file with this source."""
        path = os.path.join(self.folder, f"m{len(os.listdir(self.folder))}.py")
        with open(path, "w") as f:
            f.write("import torch\nfrom torch import nn\nfrom torch.nn import functional as F\nfrom torch.utils.checkpoint import checkpoint\n" + textwrap.dedent(source))
        out = path.removesuffix("py") + "pt2"
        inputs = [f"--input={inputs}"] if inputs else []
        self.outcome = capture.capture(capture.arguments([path + ":model", "-o", out, *inputs, *options]))
        return Made(out)

    def forward(self, body, init="pass", **options):
        source = "class model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(8, 8)\n"
        return self.capture(source + textwrap.indent(textwrap.dedent(init), " " * 8) + "\n    def forward(self, x):\n" + textwrap.indent(textwrap.dedent(body), " " * 8), **options)

    def refusal(self, *args, **kwargs):
        with self.assertRaises(capture.Refusal) as raised:
            self.capture(*args, **kwargs)
        return raised.exception

    def test_a_name_bound_again_lets_go(self):
        made = self.forward("""
            x = torch.sin(x)
            y = torch.cos(x)
            x = torch.exp(y)
            return torch.tanh(x)
            """)
        self.assertEqual(made.deaths(), {"exp": ["sin"], "tanh": ["exp", "cos"]})  # locals die in the order of their first names

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
        self.assertEqual((inputs["layer_norm"], inputs["add"]), (["sin"], ["layer_norm", "cos"]))  # export says to, to_1
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
        self.assertEqual(made.extra["replaced"], [[0, ["sin"]]])

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

    def test_custom_functions_are_named_with_their_line(self):
        made = self.capture("""
            class Twice(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2
                @staticmethod
                def backward(ctx, g):
                    return g * 2
            class model(nn.Module):
                def forward(self, x):
                    return Twice.apply(torch.sin(x))
            """)
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
        made = self.capture("""
            class Twice(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2
                @staticmethod
                def backward(ctx, g):
                    return g * 2 if g.sum() > 0 else g
            class model(nn.Module):
                def forward(self, x):
                    return Twice.apply(torch.sin(x))
            """)
        (function,) = made.extra["custom_functions"]
        self.assertRegex(function["name"], r"\.Twice$")
        self.assertRegex(function["line"], r"m0\.py:15$")
        self.assertEqual(made.extra["functions"], [])
        self.assertIn("backward of its own", " ".join(self.outcome["notes"]))

    def test_types_of_tensors_are_told_from_types_in_the_code(self):
        made = self.forward("y = self.lin(x)\nreturn x.to(y.dtype) + x.to(torch.float32)")
        self.assertEqual([half for _, _, half in made.extra["autocast"]], [True, False])

    def test_types_under_autocast_are_told_where_numbers_are_read(self):
        made = self.forward("assert bool((self.t[1:] > self.t[:-1]).all())\nreturn x.to(self.lin(x).dtype)", init="self.register_buffer('t', torch.tensor([0.0, 1.0]))")
        self.assertEqual([half for _, _, half in made.extra["autocast"]], [True])

    def test_lazy_layers_have_the_shapes_of_the_example(self):
        made = self.forward("return self.lazy(self.lin(x))", init="self.lazy = nn.LazyLinear(3)")
        self.assertIn("lazy.weight", made.extra["to"])
        self.assertEqual(made.targets.count("linear.default"), 2)

    def test_results_may_be_a_dataclass(self):
        made = self.capture("""
            import dataclasses
            @dataclasses.dataclass
            class Out:
                scores: torch.Tensor
                loss: torch.Tensor
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(8, 8)
                def forward(self, x):
                    y = self.lin(x)
                    return Out(y, y.sum())
            """)
        self.assertEqual(len(made.program["graph_module"]["graph"]["outputs"]), 2)

    def test_wrappers_for_several_gpus_are_taken_off(self):
        made = self.capture("def model():\n    return nn.DataParallel(nn.Sequential(nn.Linear(8, 8)))")
        self.assertEqual(made.extra["to"], ["0.weight", "0.bias"])

    def test_copied_layers_share_the_mode_of_their_tensors(self):
        with torch._subclasses.fake_tensor.FakeTensorMode() as fake, torch.device("cuda"):
            layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 2)
        self.assertEqual({p.fake_mode for p in layers.parameters()}, {fake})

    def test_constructors_may_insist_on_a_gpu(self):
        made = self.forward("return self.lin(x)", init="assert torch.cuda.is_available()")
        self.assertIn("linear.default", made.targets)

    def test_kernels_of_attention_that_are_turned_off(self):
        made = self.forward("""
            y = F.scaled_dot_product_attention(x, x, x)
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return y + F.scaled_dot_product_attention(x, x, x)
            """)
        (mark,) = made.extra["attention"]
        self.assertEqual(mark[1], ["math"])
        self.assertEqual(mark[0], [n for n, t in enumerate(made.targets) if t.startswith("scaled_dot")][1])

    def test_kernels_of_attention_that_hang_on_the_board(self):
        made = self.forward(
            """
            with torch.backends.cuda.sdp_kernel(**(self.config if x.is_cuda else {})):
                return F.scaled_dot_product_attention(x, x, x)
            """,
            init="""
            self.config = None
            if torch.cuda.is_available():
                self.config = {"enable_flash": torch.cuda.get_device_properties(0).major == 7}
            """,
        )
        self.assertEqual([kernels for _, kernels in made.extra["attention"]], [["memory-efficient", "cuDNN", "math"]])

    def test_frozen_tied_and_the_order_of_moving(self):
        made = self.forward(
            "return self.out(self.lin(x))",
            init="""
            self.scale = nn.Parameter(torch.ones(1), requires_grad=False)
            self.out = nn.Linear(8, 8, bias=False)
            self.out.weight = self.lin.weight
            self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
            """,
        )
        self.assertEqual(made.extra["frozen"], ["scale"])
        self.assertEqual(made.extra["tied"], [["out.weight", "lin.weight"]])
        self.assertEqual(made.extra["to"], ["lin.weight", "lin.bias", "scale", "seen"])

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

    def test_conditions_may_be_bytes_and_counts_as_many_as_said(self):
        made = self.forward("return torch.where(x.to(torch.uint8), x, -x) + torch.bincount(x[:, 0].long(), minlength=8)")
        self.assertTrue({"where.self", "bincount.default"} <= set(made.targets))

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

    def test_crashes_are_told_with_the_line_that_was_running(self):
        path = os.path.join(self.folder, "crash.py")
        with open(path, "w") as f:
            f.write("import os, signal, torch\nclass model(torch.nn.Module):\n    def forward(self, x):\n        os.kill(os.getpid(), signal.SIGABRT)\n        return x\n")
        outcome = capture.capture_apart(capture.arguments([path + ":model", "-o", path + ".pt2", "--input=x=float32[batch,8]"]))
        self.assertIn("crash.py:4: os.kill(os.getpid(), signal.SIGABRT)", outcome["error"])
        self.assertIn("SIGABRT", outcome["error"])

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
                    if not bool((mask == causal).all()) or not self.ready or int(self.step) != 0:
                        return torch.sin(x)
                    self.step += 1
                    assert self.step.item() == 1
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
        said = self.refusal("""
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("queue", torch.zeros(4, 8))
                def forward(self, x):
                    self.queue[1:3] = x[:2]
                    return torch.cos(x) if self.queue.sum() > 0 else torch.sin(x)
            """)
        self.assertIn("numbers in a tensor", said.do)

    def test_data_of_a_parameter_can_be_replaced(self):
        made = self.forward("self.lin.bias.data = self.lin.bias.data * 0.9\nreturn self.lin(x)")
        self.assertEqual(made.extra["assigned"], [made.targets.index("copy_.default")])

    def test_lengths_of_ctc_may_be_tensors(self):
        lengths = "full = torch.full((x.shape[0],), 6)\n"
        made = self.forward(lengths + "return F.ctc_loss(self.lin(x).log_softmax(-1).transpose(0, 1), full.new_ones(x.shape[0], 5), full, full - 1)", inputs="x=float32[batch,6,8]")
        self.assertIn("ctc_loss.Tensor", made.targets)

    def test_recurrent_layers_are_not_taken_apart(self):
        made = self.capture(
            """
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.a, self.b = nn.LSTM(8, 6, bidirectional=True, proj_size=3), nn.GRU(6, 5, batch_first=True)
                def forward(self, x):
                    return self.b(self.a(x)[0])[0]
            """,
            inputs="x=float32[batch,5000,8]",
        )
        self.assertEqual([t for t in made.targets if t.endswith(".input")], ["lstm.input", "gru.input"])

    def test_forward_may_ask_what_requires_gradients(self):
        made = self.forward("y = self.lin(x)\nreturn y.relu() if y.requires_grad and torch.is_grad_enabled() else y")
        self.assertEqual(made.targets[-1], "relu.default")
        self.assertEqual(made.deaths()["relu"], ["linear"])

    def test_a_model_may_move_itself_to_a_gpu(self):
        made = self.forward("return self.lin(x) + torch.ones(8, device='cuda') + self.b.to('cuda:0')", init="self.cuda(); self.register_buffer('b', torch.ones(8).cuda())")
        self.assertIn("linear.default", made.targets)

    def test_models_that_ask_whether_they_are_exported_are_trained(self):
        made = self.forward("return torch.sin(x) if torch.compiler.is_exporting() else torch.cos(x)")
        self.assertEqual(made.targets, ["cos.default"])

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

    def test_inputs_come_from_a_function(self):
        source = """
            loads = []
            loads.append(1)
            class model(nn.Module):
                def forward(self, image, mask=None):
                    return image * mask[:, None]
            def batch():
                return {"image": torch.zeros(6, 8), "mask": torch.zeros(6)}
            """
        path = os.path.join(self.folder, "m0.py")
        made = self.capture(source, "--inputs-from", path + ":batch", inputs="")
        self.assertEqual(self.outcome["symbols"], ["batch"])
        self.assertEqual(made.targets[-1], "mul.Tensor")

    def test_tensors_within_arguments_become_arguments(self):
        source = """
            class Model(nn.Module):
                def forward(self, batch, scale):
                    return batch["image"] * scale + batch["more"][0][:, None]
            model = Model()
            def batch():
                return {"image": torch.zeros(6, 8), "more": (torch.zeros(6),)}, 2
            """
        path = os.path.join(self.folder, "m0.py")
        made = self.capture(source, "--inputs-from", path + ":batch", inputs="")
        self.assertEqual(self.outcome["symbols"], ["batch"])
        self.assertEqual(made.targets[-1], "add.Tensor")
        said = json.dumps(made.program["graph_module"]["signature"]["input_specs"])
        self.assertRegex(said, "batch_image.*batch_more_0")

    def test_refusals_name_the_line_and_the_way_out(self):
        said = self.refusal("""
            class model(nn.Module):
                def forward(self, x):
                    if x.sum() > 0:
                        return x
                    return x + 1
            """)
        self.assertRegex(str(said), r"m0\.py:8: if x\.sum\(\) > 0:")
        self.assertIn("depends on the numbers", said.do)

        said = self.refusal("""
            class model(nn.Module):
                def forward(self, x):
                    return nn.utils.rnn.pack_padded_sequence(x, x.sum(1).long().cpu(), batch_first=True).data
            """)
        self.assertIn("packed sequences", said.do)
        self.assertIn("vprof run", said.do)

        said = self.refusal("class model(nn.Module):\n    def forward(self, x):\n        x.requires_grad_()\n        return torch.autograd.grad(x.sin().sum(), x, create_graph=True)[0].sum()")
        self.assertIn("gradients that forward takes itself", said.do)

        said = self.refusal("class model(nn.Module):\n    def __init__(self, width): super().__init__()")
        self.assertIn("def build(): return Model(width=64)", said.do)

        said = self.refusal("class model(nn.Module): pass")
        self.assertIn("training_step((x, y), 0)", said.do)

        said = self.refusal("import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\nargs = p.parse_args([])")
        self.assertIn("give those that it needs a default", said.do)

        said = self.refusal("class model(nn.Module):\n    def forward(self, x, mask): return x")
        self.assertIn("missing 1 required", str(said))
        self.assertIn("--input NAME", said.do)

        self.assertIn("gives a int, not a torch.nn.Module", str(self.refusal("def model(): return 3")))
        self.assertIn("nothing says what", str(self.refusal("model = nn.ReLU()", inputs="")))
        self.assertIn("is not name=dtype", str(self.refusal("model = nn.ReLU()", inputs="x")))
        self.assertIn("float77 is not a type", str(self.refusal("model = nn.ReLU()", inputs="x=float77[2]")))


if __name__ == "__main__":
    unittest.main()
