"""Tests of the recorder. They need PyTorch, no GPU:  make record-check"""

import contextlib
import bz2
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import history
import record
import torch
import vectors

MODEL = """
import torch
from torch import nn
def model():
    return nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)), nn.Linear(16, 4))
def batch():
    return torch.zeros(3, 8)
"""
LINEAR = 4 * (16 * 8 + 16 + 3 * (16 * 16 + 16) + 4 * 16 + 4)  # bytes of the parameters


class HelpTest(unittest.TestCase):
    def test_help_needs_no_torch(self):
        without = "import sys; sys.modules['torch'] = None; sys.argv[0] = 'record.py'; import runpy; runpy.run_path(%r, run_name='__main__')"
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "record.py")
        for args, code, says in ((["--help"], 0, "Records what PyTorch"), (["peaks", "--help"], 0, "--optimizer"), (["ops", "--out", "x"], 2, "has no PyTorch")):
            done = subprocess.run([sys.executable, "-c", without % path, *args], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stdout + done.stderr)


class RecordTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.path("m.py")
        with open(self.model, "w") as f:
            f.write(MODEL)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_records_of_a_simulated_board_say_so(self):
        for steps, code, says in (("0", 0, "simulated GPU"), ("3", 2, "--steps all")):
            out = self.path(steps + ".jsonl")
            command = [sys.executable, record.__file__, "peaks", self.model + ":model", "--inputs-from", self.model + ":batch", "--device", "cpu", "--batch", "2", "--out", out]
            done = subprocess.run(command, env={**os.environ, "VPROF_HOOK": self.folder, "VPROF_STEPS": steps}, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            said = done.stderr
            with contextlib.suppress(FileNotFoundError), open(out) as f:
                said += f.read()
            self.assertIn(says, said)

    def record(self, *args):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                code = record.main([*args, "--device", "cpu"])
            except SystemExit as e:
                code = e.code
        return code, said.getvalue()

    def test_peaks_are_records_of_the_reference_format(self):
        out = self.path("peaks.jsonl")
        code, said = self.record("peaks", self.model + ":model", "--inputs-from", self.model + ":batch", "--batch", "2,4", "--checkpointing", "both", "--out", out)
        self.assertEqual(code, 0, said)
        with open(out) as f:
            head, *rows = [json.loads(line) for line in f]
        self.assertEqual(head["schema"], "vprof.reference/v1")
        self.assertIn("no evidence", head["source"])
        self.assertEqual([(r["batch"], r["checkpointing"]) for r in rows], [(2, False), (4, False), (2, True), (4, True)])
        for r in rows:
            self.assertEqual((r["status"], r["case"], r["amp"], r["stage"]), ("ok", "model.pt2", None, "full"))
            self.assertEqual(r["params"]["total"] * 4, LINEAR)
            self.assertEqual(r["batch_bytes"], r["batch"] * 8 * 4)
            self.assertEqual({p[0] for p in r["phases"]}, {-1, 0, 2})
            self.assertGreaterEqual(r["steady_peak_allocated"], 4 * LINEAR)  # weights, gradients and two moments
            self.assertTrue(all(p[2] <= p[3] <= r["peak_allocated"] for p in r["phases"]))

    def test_events_balance(self):
        out = self.path("step.txt.gz")
        code, said = self.record("events", self.model + ":model", "--input", "input=float32[batch,8]", "--batch", "4", "--out", out)
        self.assertEqual(code, 0, said)
        with gzip.open(out, "rt") as f:
            lines = [line.split() for line in f]
        self.assertEqual([p[1] for p in lines if p[0] == "m"][:5], ["-1:model", "-1:batch", "0:forward", "0:backward", "0:optimizer"])
        made = [p[1] for p in lines if p[0] == "a"]
        self.assertEqual(made, [str(i + 1) for i in range(len(made))])
        freed = [p[1] for p in lines if p[0] == "f"]
        self.assertEqual(len(freed), len(set(freed)))
        self.assertTrue(all(len(p) == 7 for p in lines if p[0] == "a"))
        self.assertIn("AddmmBackward0", {p[5] for p in lines if p[0] == "a"})

    def test_vectors_are_those_of_the_conformance_test(self):
        out = self.path("ops.jsonl.bz2")
        code, said = self.record("ops", "--only", "relu,linear", "--regimes", "fp32", "--gpu", "rtx-5060-ti", "--out", out)
        self.assertEqual(code, 0, said)
        with bz2.open(out, "rt") as f:
            relu, linear = [json.loads(line) for line in f]
        self.assertEqual(relu["forward"], ["+924 relu - -"])
        self.assertEqual(relu["backward"], ["+924 incoming - -", "+924 threshold_backward - ReluBackward0", "-1"])
        self.assertEqual(relu["saved"], [[924, "out0", "f32", [7, 33]]])
        self.assertEqual((relu["kept"], relu["after_backward"]), (0, 924))
        self.assertEqual(linear["params"], {"weight": [[33, 65], "f32"], "bias": [[33], "f32"]})
        self.assertEqual(linear["grad"], {"in": [1], "params": 1})
        self.assertEqual({name for _, name, _, _ in linear["saved"]}, {"in0", "weight"})

    def test_bad_input_is_refused(self):
        out = self.path("x")
        self.assertEqual(self.record("peaks", "m:f", "--amp", "fp8", "--out", out)[0], 2)
        self.assertEqual(self.record("peaks", "m:f", "--batch", "0", "--out", out)[0], 2)
        self.assertEqual(self.record("ops", "--only", "reluu", "--out", out)[0], 2)
        self.assertEqual(self.record("ops", "--regimes", "fp33", "--out", out)[0], 2)
        code, said = self.record("events", self.model + ":nobody", "--input", "x=float32[batch,8]", "--out", out)
        self.assertEqual(code, 2)
        self.assertIn("has no 'nobody'", said)


class HistoryTest(unittest.TestCase):
    """Reading the CUDA allocator's history needs no GPU."""

    def test_causes_are_found_in_stacks(self):
        def frame(name, filename="a.cpp", line=1):
            return {"name": name, "filename": filename, "line": line}

        forward = [
            frame("at::native::empty_cuda(c10::ArrayRef<long>)"),
            frame("at::native::_to_copy(at::Tensor const&)"),
            frame("at::_ops::_to_copy::redispatch(c10::DispatchKeySet)"),
            frame("at::_ops::to_dtype_layout::call(at::Tensor const&)"),
            frame("to", os.path.join("site-packages", "torch", "nn", "modules", "module.py")),
            frame("forward", "net.py", 7),
            frame("main", "train.py", 9),
        ]
        self.assertEqual(history.cause(forward), ("to_dtype_layout", "_to_copy", "-", "net.py:7:forward"))
        backward = [
            frame("at::_ops::mm::call(at::Tensor const&)"),
            frame("torch::autograd::generated::AddmmBackward0::apply(std::vector)"),
            frame("at::_ops::_backward::call(at::Tensor const&)"),
        ]
        self.assertEqual(history.cause(backward), ("mm", "-", "AddmmBackward0", "-"))
        self.assertEqual(history.cause([]), ("-", "-", "-", "-"))

    def test_a_trace_becomes_allocations_and_frees(self):
        trace = [
            {"action": "segment_alloc", "addr": 1, "size": 2 << 20},
            {"action": "alloc", "addr": 1, "size": 924, "frames": []},
            {"action": "free_requested", "addr": 1, "size": 924},
            {"action": "free_completed", "addr": 1, "size": 924},
        ]
        events = list(history.read(trace))
        self.assertEqual([(e.kind, e.bytes) for e in events], [("a", 924), ("f", 924)])
        self.assertEqual(vectors.numbered(events, {}, 0)[0], ["+924 - - -", "-0"])
        self.assertEqual(vectors.numbered(events[1:], {}, 0)[0], ["-x924"])


class BoardTest(unittest.TestCase):
    def test_names_are_those_of_the_catalog(self):
        import unittest.mock as mock

        opts = record.arguments(["ops", "--device", "cpu", "--out", "x"])
        opts.device = "cuda:0"
        for name, want in (("NVIDIA GeForce RTX 3090", "rtx-3090"), ("NVIDIA H200", "h200"), ("Tesla T4", "t4"), ("NVIDIA A100-SXM4-40GB", "a100-40gb")):
            with mock.patch.object(torch.cuda, "get_device_name", lambda _, name=name: name):
                self.assertEqual(record.gpu_name(opts), want)


if __name__ == "__main__":
    unittest.main()
