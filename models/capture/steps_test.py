"""Tests of steps.py. They need PyTorch, no GPU."""

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "bench", "experiment", "script", "hook")]
os.environ.setdefault("VPROF_HOOK", "/nonexistent")
import capture
import sympy

sys.modules["vprof_capture"] = capture  # its name beside steps.py
import steps
import torch
import vprof_choices
import vprof_kernels
import vprof_hook
import vprof_model
from torch import nn
from vprof_hook import compiling, program


class Imports(unittest.TestCase):
    def test_who_only_asks_for_a_module_does_not_import_it(self):
        seen = []
        finder = vprof_hook.Finder({"this": seen.append})
        with unittest.mock.patch.object(sys, "meta_path", [finder, *sys.meta_path]), contextlib.redirect_stdout(io.StringIO()):
            sys.modules.pop("this", None)
            self.assertIsNotNone(importlib.util.find_spec("this"))
            self.assertEqual([], seen)
            import this
        self.assertEqual([this], seen)


class Lines(unittest.TestCase):
    def test_the_innermost_line_that_is_not_pytorchs(self):
        torchs = os.path.join("/env/site-packages", "torch", "nn", "functional.py")
        trace = '  File "/home/me/train.py", line 7, in forward\n    y = f(x)\n  File "%s", line 2, in f\n' % torchs
        self.assertEqual("/home/me/train.py:7:forward", compiling.line_of_trace(trace))
        self.assertEqual("", compiling.line_of_trace(""))


class Steps(unittest.TestCase):
    def test_the_loss_is_a_scalar_or_of_the_first_tensor(self):
        loss = steps.loss_of("")
        self.assertEqual(3, loss((torch.zeros(2, 5), {"n": torch.tensor(7.0), "loss": torch.tensor(3.0, requires_grad=True)})))
        self.assertEqual(3, loss({"loss": torch.tensor(3.0), "logits": torch.zeros(2, 5)}))
        self.assertEqual((), loss((torch.zeros(2, 5),)).shape)
        self.assertEqual((), loss(torch.zeros(2, 5)).shape)
        with self.assertRaises(capture.Refusal):
            steps.loss_of("hinge")

    def test_results_hold_tensors_in_objects_too(self):
        a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
        cache = types.SimpleNamespace(layers=[types.SimpleNamespace(keys=b)], model=nn.Linear(1, 1))
        cache.self = cache
        self.assertEqual({id(a), id(b), id(c)}, {id(t) for t in steps.held({"logits": a, "cache": cache, "more": (c, None, 3)})})

    def test_numbers_are_those_of_the_users_example(self):
        one = vprof_model.Input(torch.int64, [("batch", 2), 3], torch.tensor([[1, 2, 3], [4, 5, 6]]))
        self.assertEqual([[1, 2, 3], [4, 5, 6], [1, 2, 3]], one.repeated({"batch": 3}).tolist())
        self.assertEqual([[0, 0]], vprof_model.Input(torch.int64, [("batch", 2), 2]).repeated({"batch": 1}).tolist())

    def test_blocks_are_the_longest_list_of_one_class(self):
        model = nn.Sequential(nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]), nn.ReLU())
        self.assertEqual(list(model[0]), steps.blocks(model))
        with self.assertRaises(capture.Refusal):
            steps.blocks(nn.Linear(2, 2))

    def test_events_are_numbered_as_they_come(self):
        happened = [("alloc", 1, 10), ("free_completed", 9, 4), ("alloc", 2, 20), ("free_completed", 1, 10), ("free_requested", 2, 20), ("alloc", 1, 30)]
        trace = [{"action": a, "addr": at, "size": n, "frames": (), "time_us": 10 * i} for i, (a, at, n) in enumerate(happened)]
        labels = program.Labels()
        labels.add("mark", 0, "forward", at=25)
        labels.add("note", "gradient", 1, 4, "w", at=55)
        labels.add("note", "returned", 7, 0, at=55)
        labels.add("turn", 0, "backward", at=45)
        labels.add("label", "weights", 2, at=60)
        labels.add("mark", 0, "other device", 1, at=60)
        p = program.Program(lambda frames: "a.py:1:f\tmul > add").follow(trace, labels.all)
        with tempfile.NamedTemporaryFile("r") as file:
            p.write(file.name, batch=8)
            written = json.load(file)
        program_, notes = written["program"], [(n["At"], n["Kind"], n["Buffer"], n["Offset"], n["Text"]) for n in written["notes"]]
        self.assertEqual([("alloc", 0), ("alloc", 1), ("mark", 0), ("free", 0), ("alloc", 2)], [(i["Kind"], i["Arg"]) for i in program_["Instructions"]])
        self.assertEqual([(10, "temporaries"), (20, "weights"), (30, "temporaries")], [(b["Bytes"], b["Class"]) for b in program_["Buffers"]])
        self.assertEqual([(5, "gradient", 2, 4, "w"), (5, "returned", -1, 0, "")], notes)
        self.assertEqual((8, [{"Where": "a.py:1:f", "Op": "mul > add"}], []), (written["batch"], program_["Sites"], program_["Streams"]))
        self.assertEqual([{"Step": 0, "Name": "forward"}], program_["Phases"])

    def test_workspaces_of_convolutions_come_after_their_results(self):
        c = steps.Convolutions.__new__(steps.Convolutions)
        # An output; a copy of the weight and a workspace. Then backward: a gradient without a workspace, one with, a
        # sum.
        order = [0, 1, 2, ~2, ~1, 3, 4, 5, ~5, 6, ~0]
        c.calls = [(10, 14, ["forward"]), (15, 19, ["input", "weight"])]
        self.assertEqual([[2, 2, "forward"], [6, -1, "input"], [7, 5, "weight"]], c.placed(order, [*range(10, 20), 25]))
        p = program.Program(None)
        p.instructions = [{"Kind": "mark", "Arg": 0}, *({"Kind": "alloc", "Arg": n} if n >= 0 else {"Kind": "free", "Arg": ~n} for n in order)]
        p.times = [0, *range(10, 20), 25]
        c.add_to(p)
        self.assertEqual([(3, 2, "forward"), (7, -1, "input"), (8, 5, "weight")], [(n["At"], n["Buffer"], n["Text"]) for n in p.notes])

    def test_questions_are_about_ordinary_convolutions(self):
        c = steps.Convolutions.__new__(steps.Convolutions)
        c.torch = torch
        x, w, y = torch.empty(8, 3, 32, 30), torch.empty(16, 3, 3, 3), torch.empty(8, 16, 32, 30)
        about = "0 0 2 8 3 16 1 32 30 3 3 32 30 1 1 1 1 1 1"
        self.assertEqual(["0 " + about], c.forward(y, x, w, [1, 1], [1, 1], [1, 1], 1, False, False, True))
        self.assertEqual(["1 " + about], c.transposed(x, y, w, [1, 1], [0, 0], [1, 1], [1, 1], 1, False, False, True))
        row = c.forward(torch.empty(8, 4, 9), torch.empty(8, 4, 9), torch.empty(4, 1, 3), [1], [1], [1], 4)
        self.assertEqual(["0 0 0 2 8 4 4 4 1 9 1 3 1 9 1 1 0 1 1 1"], row)
        last = c.forward(y, x.to(memory_format=torch.channels_last).bfloat16(), w, [1, 1], [1, 1], [1, 1], 1)
        self.assertEqual("0 2 1", last[0][:5])

    def test_setup_says_where_weights_lie(self):
        flat = torch.zeros(10)
        model = torch.nn.Module()
        model.w, model.v = (torch.nn.Parameter(flat[a:b]) for a, b in ((0, 4), (4, 10)))
        model.register_buffer("b", torch.zeros(3))
        r = steps.Recorder.__new__(steps.Recorder)
        r.torch, r.model, r.labels = torch, model, program.Labels()
        r.note("tensor", r.moved())
        at, buffer = flat.data_ptr(), model.b.data_ptr()
        self.assertEqual([("tensor", at, 0, ""), ("tensor", at, 16, ""), ("tensor", buffer, 0, "")], [values for _, _, values in r.labels.all])
        r.mark(0, "forward")
        self.assertLess(r.labels.all[-2][0], r.labels.all[-1][0])

    def test_batches_from_which_reductions_are_fused(self):
        from torch._inductor import config, scheduler

        mix = scheduler.MixOrderReduction
        self.addCleanup(setattr, mix, "can_fuse", mix.__dict__["can_fuse"])
        mix.can_fuse = classmethod(lambda cls, one, other: config.triton.mix_order_reduction_non_strict_mode and other == "rows")
        shape = unittest.mock.patch.multiple(mix, is_contiguous_node=lambda n: n != "rows", get_numel_rnumel=lambda n: (sympy.Integer(n), 1024))
        with shape:
            found = vprof_choices.fusions(8)
            for rows in 8 * 512, 8 * 4096, 8 * 4096 + 1:
                self.assertFalse(mix.can_fuse(rows, "rows"))
            self.assertFalse(mix.can_fuse(8, "columns"))
        self.assertEqual({10, 2}, found)  # 5120 rows of 1024; the last reduction is not over samples
        self.assertFalse(config.triton.mix_order_reduction_non_strict_mode)

    def test_batches_at_which_sums_are_split_into_samples(self):
        from torch._inductor import ir
        from torch._inductor.virtualized import V

        self.addCleanup(setattr, ir.Reduction, "num_splits", staticmethod(ir.Reduction.num_splits))
        hint = ir.ReductionHint.INNER

        def num_splits(device, inner_fn, ranges, reduction_ranges, reduction_numel, input_node=None):
            return hint, 4

        ir.Reduction.num_splits = staticmethod(num_splits)
        found = vprof_choices.pieces(8)
        for ranges, of in (([32], [8, 16, 16]), ([64], [8, 256]), ([32], [4, 256]), ([], [8, 256]), ([32], [8]), ([32], [sympy.Symbol("s"), 256])):
            self.assertEqual((hint, 4), ir.Reduction.num_splits("cuda", None, ranges, reduction_ranges=of, reduction_numel=0))
        self.assertEqual({("cuda", 256, 32), ("cuda", 256, 64)}, found)
        with V.set_graph_handler(types.SimpleNamespace(graph_inputs={"tangents_1": None})):
            for reads in set(), {"tangents_1"}, {"buf1", "tangents_1"}:
                node = types.SimpleNamespace(get_read_names=lambda reads=reads: reads, get_name=lambda: "tangents_1")
                ir.Reduction.num_splits("cuda", None, [19], [8, 16 * len(reads) + 16], 0, input_node=node)
        self.assertIn(("cuda", 48, 19), found)
        self.assertEqual(3, len(found))
        found.remove(("cuda", 48, 19))
        with V.set_choices_handler(types.SimpleNamespace(reduction_split_factor=lambda device, n, results, inner: min(n // 256, 6) if results == 32 else 7)):
            self.assertEqual([(2, 3, 4, 5, 6), (7,)], vprof_choices.splits(found))

    def test_each_point_has_a_process(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ):
            opts = types.SimpleNamespace(result=folder, verbose=False)

            def record(point):
                if point == "bf16-3":
                    raise capture.Refusal("no such luck", "try again")
                steps.write(opts, point, {"pid": os.getpid(), "cache": os.environ["TORCHINDUCTOR_CACHE_DIR"]})

            os.environ["TORCHINDUCTOR_CACHE_DIR"] = "/cache"
            steps.apart(types.SimpleNamespace(torch=torch, opts=opts, record=record), [], ["bf16-1", "bf16-2", "bf16-3"])
            told = []
            for point in "bf16-1", "bf16-2", "bf16-3":
                with open(os.path.join(folder, point + ".json"), encoding="utf-8") as f:
                    told.append(json.load(f))
        self.assertEqual(3, len({os.getpid(), told[0]["pid"], told[1]["pid"]}))
        self.assertEqual(["/cache/bf16-1", "/cache/bf16-2"], [t["cache"] for t in told[:2]])
        self.assertEqual({"error": "no such luck", "do": "try again"}, told[2])

    def test_a_point_begins_anew_where_the_gpu_is_in_use(self):
        began = []
        r = types.SimpleNamespace(torch=torch)
        with unittest.mock.patch("torch.cuda.is_initialized", return_value=True), unittest.mock.patch("os.waitpid"), unittest.mock.patch("os.posix_spawn", lambda _, command, env: began.append((command, env["TORCHINDUCTOR_CACHE_DIR"]))):
            steps.apart(r, ["--form=whole", "--at", "bf16-8,none-16", "--", "model"], ["bf16-8", "none-16"])
        for (command, cache), point in zip(began, ("bf16-8", "none-16")):
            self.assertEqual([steps.__file__, "--form=whole", "--at", "bf16-8,none-16", "--at", point, "--", "model"], command[1:])
            self.assertEqual(point, os.path.basename(cache))


class Kernels(unittest.TestCase):
    def heuristics(self):
        class CachingAutotuner:
            device_props = types.SimpleNamespace(type="cuda")

            def _precompile_config(self, config):
                return "machine code"

        return types.SimpleNamespace(CachingAutotuner=CachingAutotuner, TritonCompileResult=object)

    def test_a_kernel_stands_for_what_triton_would_compile(self):
        module = self.heuristics()
        compiling.spare_triton(module)
        launch = module.CachingAutotuner()._precompile_config("config").make_launcher()
        self.assertIsNone(launch(1, 2, stream=0))
        self.assertEqual(("config", 0), (launch.config, launch.n_spills))

    def test_triton_compiles_where_it_is_wanted(self):
        module = self.heuristics()
        with unittest.mock.patch.dict(os.environ, VPROF_TRITON="1"):
            compiling.spare_triton(module)
        self.assertEqual("machine code", module.CachingAutotuner()._precompile_config("config"))

    def test_triton_compiles_the_reductions_whose_registers_decide(self):
        module, compiled = self.heuristics(), []

        class CachingAutotuner(module.CachingAutotuner):
            inductor_meta, heuristic_type, fn = {}, types.SimpleNamespace(name="REDUCTION"), None

            def __init__(self, rows):
                self.size_hints, self.device_props = {"x": rows}, types.SimpleNamespace(type="cuda", multi_processor_count=108)

            def _precompile_config(self, config):
                compiled.append(config)
                return types.SimpleNamespace(kernel="code")

            def _dynamic_scale_rblock(self):
                return [r.kernel.n_regs for r in self.compile_results]

        module.CachingAutotuner = CachingAutotuner
        compiling.spare_triton(module)
        with unittest.mock.patch.object(compiling, "registers", lambda kernel: 40):
            for rows, registers in (4096, 40), (64, None):
                tuner = CachingAutotuner(rows)
                tuner.compile_results = [tuner._precompile_config("config")]
                self.assertEqual([registers], tuner._dynamic_scale_rblock())
        self.assertEqual(["config"], compiled)

    def test_candidates_take_the_same_time_in_few_iterations(self):
        class InductorBenchmarker:
            def benchmark_gpu(self, run, estimation_iters=5, memory_warmup_iters=100, benchmark_iters=100, **_):
                times = [run() for _ in range(estimation_iters + benchmark_iters)]
                return times if memory_warmup_iters else min(times)

        compiling.spare_benchmarks(types.SimpleNamespace(InductorBenchmarker=InductorBenchmarker))
        calls, benchmark = [], InductorBenchmarker().benchmark_gpu
        self.assertEqual(benchmark(lambda: 3.0), benchmark(lambda: calls.append(1) or 7.0, rep=40))
        self.assertEqual(2, len(calls))
        self.assertEqual(float("inf"), benchmark(lambda: float("inf")))  # an invalid configuration is never selected

    def test_kernels_of_the_host_are_compiled(self):
        module = self.heuristics()
        module.CachingAutotuner.device_props = types.SimpleNamespace(type="cpu")
        compiling.spare_triton(module)
        self.assertEqual("machine code", module.CachingAutotuner()._precompile_config("config"))



class RecordedKernels(unittest.TestCase):
    def setUp(self):
        self.kernels = vprof_kernels.Kernels(torch)

    def launched(self, name, source, **args):
        fn = types.SimpleNamespace(__name__=name, arg_names=[*args, "XBLOCK"], src=source)
        self.kernels.triton(types.SimpleNamespace(fn=fn), tuple(args.values()))
        return self.kernels.generated[-1]

    def test_a_fused_chain_moves_its_operands_once(self):
        x, b = torch.zeros(64, 8), torch.zeros(8)
        source = "tl.load(in_ptr0 + x0) * tl.load(in_ptr1 + x1)\ntl.store(out_ptr0 + x0, y)"
        chain = self.launched("triton_poi_fused_add_mul_tanh_0", source, in_ptr0=x, in_ptr1=b, out_ptr0=x.half(), xnumel=512)
        self.assertEqual(("elementwise", "fp32", False, 2048 + 32, 1024, 0, None), chain)
        self.assertTrue(self.kernels.watched)
        self.assertEqual((2048, 2048), self.launched("triton_poi_fused_relu_1", "", in_out_ptr0=x, xnumel=512)[3:5])
        total = self.launched("triton_red_fused_sum_2", source, in_ptr0=x, out_ptr0=b, xnumel=8, r0_numel=64)
        self.assertEqual(("reduction", 2048, 32), (total[0], *total[3:5]))

    def test_of_a_larger_tensor_a_kernel_moves_what_it_computes(self):
        table, rows = torch.zeros(1000, 8), torch.zeros(4, 8)
        source = "tl.load(in_ptr0 + x0) + tl.load(in_ptr0 + x1)"
        self.assertEqual((2 * 128, 128), self.launched("triton_poi_fused_embedding_0", source, in_ptr0=table, out_ptr0=rows, xnumel=32)[3:5])
        self.assertEqual(128, self.launched("triton_poi_fused_add_1", "", in_ptr0=rows[:1].expand(9, 8), out_ptr0=rows, xnumel=32)[3], "the storage of an expanded tensor")

    def test_templates_are_unknown(self):
        with self.assertRaises(vprof_kernels.UnknownError):
            self.launched("triton_tem_fused_flex_attention_0", "")

    def test_products_and_convolutions_are_as_the_recorder_in_go_describes_them(self):
        aten = torch.ops.aten
        a, b, out = torch.zeros(6, 4).half(), torch.zeros(4, 5).half(), torch.zeros(6, 5).half()
        (product,) = self.kernels.matmul("matmul", aten.addmm.default, (out[0], a, b), [out[0], a, b], [out])
        self.assertEqual(("matmul", "fp16", False, 10 + 48 + 40, 60, 2 * 6 * 4 * 5, {"M": 6, "N": 5, "K": 4, "Batch": 1}), product)
        x, w = torch.zeros(2, 8, 10, 10), torch.zeros(16, 4, 3, 3)
        y = torch.zeros(2, 16, 8, 8)
        (forward,) = self.kernels.convolution("convolution", aten.convolution.default, (x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2), [], [y])
        self.assertEqual((8, 128, 36, 2), tuple(forward[6][k] for k in ("M", "N", "K", "Batch")))
        self.assertEqual((8, 2 * y.numel() * 36), (forward[6]["Window"]["Lanes"], forward[5]))
        args = (y, x, w, [0], [1, 1], [0, 0], [1, 1], False, [0, 0], 2, [True, True, False])
        of_input, of_weight = self.kernels.convolution("convolution", aten.convolution_backward.default, args, [], [x, w])
        self.assertEqual([(36, 128, 8), (8, 36, 128)], [tuple(k[6][n] for n in "MNK") for k in (of_input, of_weight)])
        q = torch.zeros(2, 3, 128, 64).half()
        (attention,) = self.kernels.attention("attention", aten._scaled_dot_product_flash_attention.default, (q, q, q, 0.0, True), [q, q, q], [q])
        self.assertEqual((2 * 2 * 6 * 128 * 128 * 64 // 2, {"M": 128, "N": 128, "K": 64, "Batch": 6}), attention[5:])

    def test_a_program_has_generated_kernels_before_others(self):
        copy = ("copy", "bf16", True, 100, 50, 0, None)
        self.kernels.generated, self.kernels.others = [copy, copy], [("matmul", "bf16", False, 10, 20, 30, {"M": 1}), copy]
        p = program.Program(None)
        self.kernels.add_to(p)
        self.assertEqual(["alloc 0", "launch 0", "launch 0", "mark 0", "launch 1", "launch 0", "mark 1", "free 0"], ["%(Kind)s %(Arg)d" % i for i in p.instructions])
        self.assertEqual(([2, 3], 100), ([m["Step"] for m in p.phases], p.buffers[0]["Bytes"]))
        self.assertEqual([("copy", 0, True), ("matmul", 1, False)], [(o["Work"], o["Product"], o["ChannelsLast"]) for o in p.ops])
        self.assertEqual([100, 50, 10, 20], [o["Bytes"] for o in p.operands])


if __name__ == "__main__":
    unittest.main()
