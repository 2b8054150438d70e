"""Tests of capture.py. They need PyTorch, no GPU:  python -m unittest discover -s models/capture -p '*_test.py'"""

import json
import os
import unittest.mock

import torch
from capture_case import CaptureCase, capture
from torch import nn


class CaptureTest(CaptureCase):
    def test_types_of_tensors_are_told_from_types_in_the_code(self):
        made = self.forward("y = self.lin(x)\nreturn x.to(y.dtype) + x.to(torch.float32)")
        self.assertEqual([half for _, _, half in made.extra["autocast"]], [True, False])

    def test_types_under_autocast_are_told_where_numbers_are_read(self):
        made = self.forward("assert bool((self.t[1:] > self.t[:-1]).all())\nreturn x.to(self.lin(x).dtype)", init="self.register_buffer('t', torch.tensor([0.0, 1.0]))")
        self.assertEqual([half for _, _, half in made.extra["autocast"]], [True])

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
        self.assertEqual(made.tensors, ["0.weight", "0.bias"])

    def test_copied_layers_share_the_mode_of_their_tensors(self):
        with torch._subclasses.fake_tensor.FakeTensorMode() as fake, torch.device("cuda"):
            layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 2)
        self.assertEqual({p.fake_mode for p in layers.parameters()}, {fake})

    def test_constructors_may_insist_on_a_gpu(self):
        made = self.forward("return self.lin(x)", init="assert torch.cuda.is_available()")
        self.assertIn("linear.default", made.targets)

    def test_autocast_may_be_of_the_device_of_a_tensor(self):
        made = self.forward("with torch.autocast(x.device.type, enabled=False):\n    return self.lin(x)")
        self.assertEqual(self.outcome["place"], "meta")
        self.assertTrue(any("wrap_with_autocast" in t for t in made.targets), made.targets)

    def test_forward_may_move_modules_to_where_they_are(self):
        made = self.forward("self.lin.to(x.device)\nreturn self.lin(x)")
        self.assertIn("linear.default", made.targets)

    def test_what_fails_with_numbers_is_what_is_told(self):
        with self.assertRaisesRegex(capture.Refusal, "has no attribute 'missing'"):
            self.forward("return self.missing(x) if (self.lin(x) < 9).any() else x")

    def test_lists_of_results_may_have_arguments_in_them(self):
        made = self.forward("""
            y, z = torch.broadcast_tensors(x.sum(1, keepdim=True), self.lin(x))
            y = y * z
            del z
            return y.sin()
            """)
        self.assertEqual(made.deaths()["mul"][-1:], ["broadcast_tensors"], made.deaths())

    def test_kernels_of_attention_that_are_turned_off(self):
        made = self.forward("""
            y = F.scaled_dot_product_attention(x, x, x)
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return y + F.scaled_dot_product_attention(x, x, x)
            """)
        (mark,) = made.extra["attention"]
        self.assertEqual(mark[1], ["math"])
        self.assertEqual(mark[0], [n for n, t in enumerate(made.targets) if t.startswith("scaled_dot")][1])

    def test_kernels_of_attention_that_depend_on_the_gpu(self):
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

    def test_tensors_may_have_several_names(self):
        made = self.forward(
            "return self.out(self.lin(x))",
            init="""
            self.scale = nn.Parameter(torch.ones(1), requires_grad=False)
            self.out = nn.Linear(8, 8, bias=False)
            self.out.weight = self.lin.weight
            self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
            self.register_buffer("again", self.seen)
            """,
        )
        self.assertEqual(made.extra["tied"], [["out.weight", "lin.weight"], ["again", "seen"]])

    def test_crashes_are_told_with_the_line_that_was_running(self):
        path = os.path.join(self.folder, "crash.py")
        with open(path, "w") as f:
            f.write("import os, signal, torch\nclass model(torch.nn.Module):\n    def forward(self, x):\n        os.kill(os.getpid(), signal.SIGABRT)\n        return x\n")
        outcome = capture.capture_apart(capture.arguments([path + ":model", "-o", path + ".pt2", "--input=x=float32[batch,8]"]))
        self.assertIn("crash.py:4: os.kill(os.getpid(), signal.SIGABRT)", outcome["error"])
        self.assertIn("SIGABRT", outcome["error"])

    def test_data_of_a_parameter_can_be_replaced(self):
        made = self.forward("self.lin.bias.data = self.lin.bias.data * 0.9\nreturn self.lin(x)")
        self.assertEqual(made.extra["assigned"], [made.targets.index("copy_.default")])

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

    def test_what_nobody_moves_lies_on_the_host(self):
        made = self.forward("""
            steps = torch.arange(8.0)
            moved = (steps * self.rate).to(x.device)
            return x * moved + self.table.to(x.device) + self.bias
            """, init="self.rate, self.table, self.bias = torch.tensor(2.0), torch.ones(8), torch.ones(8)")
        host = made.extra["host"]
        self.assertEqual([made.targets[n] for n in host["nodes"]], ["arange.default", "mul.Tensor"])
        self.assertEqual(host["kept"], ["c_rate", "c_table"])  # bias must be on the GPU, or forward would fail

    def test_models_that_ask_whether_they_are_exported_are_trained(self):
        made = self.forward("return torch.sin(x) if torch.compiler.is_exporting() else torch.cos(x)")
        self.assertEqual(made.targets, ["cos.default"])

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

    def test_inputs_that_do_not_go_with_the_batch_are_named(self):
        path = os.path.join(self.folder, "inputs.py")
        with open(path, "w") as f:
            f.write("import torch\ndef example(): return {'x': torch.ones(6, 8), 'edges': torch.ones(2, 9)}")
        self.capture("class model(nn.Module):\n    def forward(self, x, edges):\n        return x.sum() + edges.sum()", f"--inputs-from={path}:example", inputs="")
        self.assertRegex(self.outcome["notes"][0], r"\(6 in the example\); edges of other sizes stay")

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

    def test_what_is_compiled_within_is_left_out(self):
        for init, body in (("self.lin = torch.compile(self.lin)", "x = self.lin(x)"), ("self.lin.compile()", "x = self.lin(x)"), ("self.f = torch.compile(dynamic=True)(torch.sin)", "x = self.f(x)")):
            made = self.forward(body + "\nreturn torch.cos(x)", init=init)
            self.assertEqual(len(made.targets), 2, init)
            self.assertIn("torch.compile within the model is left out", self.outcome["notes"][-1])
        self.forward("return torch.cos(x)", init="self.f = torch.compile(torch.sin)")
        self.assertEqual(self.outcome["notes"], [])

    def test_scripted_functions_run_as_python_does(self):
        made = self.capture("""
            @torch.jit.script
            def twice(x):
                return x * torch.sigmoid(x)
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = torch.jit.script(nn.Linear(8, 8))
                def forward(self, x):
                    return twice(self.lin(x))
            """)
        self.assertEqual(made.targets, ["linear.default", "sigmoid.default", "mul.Tensor"])
        self.assertIn("torch.jit.script within the model is left out", self.outcome["notes"][-1])

    def test_sparse_tensors_are_refused(self):
        said = self.refusal("""
            class model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("edges", torch.eye(8).to_sparse())
                def forward(self, x):
                    return torch.spmm(self.edges, x.T)
            """)
        self.assertRegex(str(said), r"m0\.py:11: return torch\.spmm\(self\.edges, x\.T\)\n.*a sparse tensor \(sparse_coo\)")
        self.assertIn("vprof run", said.do)

    def test_refusals_name_the_line_and_the_way_out(self):
        with unittest.mock.patch.object(capture, "MOST_WITH_NUMBERS", -1):  # as for a large model
            said = self.refusal("""
                class model(nn.Module):
                    def forward(self, x):
                        if x.sum() > 0:
                            return x
                        return x + 1
                """)
        self.assertRegex(str(said), r"m0\.py:8: if x\.sum\(\) > 0:")
        self.assertIn("depends on the values", said.do)

        said = self.refusal("""
            class model(nn.Module):
                def forward(self, x):
                    return nn.utils.rnn.pack_padded_sequence(x, x.sum(1).long().cpu(), batch_first=True).data
            """)
        self.assertIn("packed sequences", said.do)
        self.assertIn("vprof run", said.do)

        said = self.refusal("class model(nn.Module):\n    def forward(self, x):\n        x.requires_grad_()\n        return torch.autograd.grad(x.sin().sum(), x, create_graph=True)[0].sum()")
        self.assertIn("gradients that forward computes itself", said.do)

        said = self.refusal("class model(nn.Module):\n    def __init__(self, width): super().__init__()")
        self.assertIn("def build(): return Model(width=64)", said.do)

        said = self.refusal("class model(nn.Module): pass")
        self.assertIn("training_step((x, y), 0)", said.do)

        said = self.refusal("import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\nargs = p.parse_args([])")
        self.assertIn("give them defaults", said.do)

        said = self.refusal("class model(nn.Module):\n    def forward(self, x, mask): return x")
        self.assertIn("missing 1 required", str(said))
        self.assertIn("--input NAME", said.do)

        self.assertIn("returns a int; need a torch.nn.Module", str(self.refusal("def model(): return 3")))
        self.assertIn("are not known", str(self.refusal("model = nn.ReLU()", inputs="")))
        self.assertIn("is not name=dtype", str(self.refusal("model = nn.ReLU()", inputs="x")))
        self.assertIn("float77 is not a type", str(self.refusal("model = nn.ReLU()", inputs="x=float77[2]")))


if __name__ == "__main__":
    unittest.main()
