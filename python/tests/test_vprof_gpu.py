"""Tests of the package with the real command: the wheel's, or the one that VPROF_BINARY names."""

import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import warnings
from unittest import mock

import vprof_gpu
from vprof_gpu import command, server, testing, watching
from vprof_gpu.watching import Watch

called = []


def top_level():
    called.append(True)


EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../examples"))
NOTEBOOK = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../docs/python.ipynb"))


class CommandTest(unittest.TestCase):
    def test_options_become_flags(self):
        options = {
            "model": "gpt2", "batch": [4, 8], "seq_len": 512, "amp": None, "checkpointing": True, "liger": False,
            "set": {"images": 2, "packed": 0},
        }
        self.assertEqual(list(command.flags(options)), [
            "--model=gpt2", "--batch=4,8", "--seq-len=512", "--checkpointing", "--liger=false",
            "--set=images=2", "--set=packed=0",
        ])

    def test_a_refusal_is_an_error_in_the_commands_words(self):
        with self.assertRaisesRegex(vprof_gpu.VprofError, "gpt3") as refused:
            vprof_gpu.plan(model="gpt3", gpu="t4")
        self.assertEqual(refused.exception.exit_code, 2)

    def test_kinds_of_errors_are_classes(self):
        with self.assertRaises(vprof_gpu.UsageError):
            vprof_gpu.plan(model="gpt2", gpu="t4", batch=-1)
        self.assertIsInstance(command.failure("no GPU", 4), vprof_gpu.NoGPUError)
        self.assertIs(type(command.failure("broken", 1)), vprof_gpu.VprofError)

    def test_the_module_is_the_command(self):
        done = subprocess.run(
            [sys.executable, "-m", "vprof_gpu", "plan", "--model", "none"], capture_output=True, text=True,
            cwd=os.path.dirname(os.path.dirname(vprof_gpu.__file__)),
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn('unknown model "none"', done.stderr)
        self.assertTrue(vprof_gpu.__version__)

    def test_a_failing_script_raises_its_error(self):
        said = {"script": {"result": "failed", "exit_code": 1, "traceback": "ValueError: no such luck"}, "points": []}
        with mock.patch.object(vprof_gpu, "call", return_value=said):
            with self.assertRaisesRegex(vprof_gpu.VprofError, "no such luck"):
                vprof_gpu.run("python train.py")

    def test_without_a_command_the_error_says_what_to_do(self):
        with mock.patch.dict(os.environ, {"PATH": ""}):
            os.environ.pop("VPROF_BINARY", None)
            with mock.patch.object(command.importlib.metadata, "distributions", return_value=[]):
                with self.assertRaisesRegex(vprof_gpu.VprofError, "pip install vprof-gpu"):
                    command.binary()


class ServerTest(unittest.TestCase):
    QUESTION = {"model": "resnet18", "gpu": "t4", "batch": 8}

    def setUp(self):
        self.addCleanup(server.close)
        clock = mock.patch.dict(os.environ, SOURCE_DATE_EPOCH="0")
        clock.start()
        self.addCleanup(clock.stop)

    def test_one_process_answers_as_the_command_does(self):
        for verb, files, options in (
            ("plan", [], {**self.QUESTION, "batch": [2, 8], "set": {"workers": 2}, "checkpointing": False}),
            ("smoke", [], self.QUESTION),
            ("fit", [], {"model": "resnet18", "gpu": "t4", "stage": "full", "amp": "fp16", "checkpointing": False}),
            ("plan", [os.path.join(EXAMPLES, "axolotl.yaml")], {"gpu": "rtx-4090"}),
        ):
            self.assertEqual(command.ask(verb, files, options), command.call(verb, files, options), verb)
        process = server.current[1].process
        self.assertIsNone(process.poll())
        vprof_gpu.plan(**self.QUESTION)
        self.assertIs(server.current[1].process, process)

    def test_refusals_are_those_of_the_command(self):
        for options in ({"model": "none"}, {"gpu": "none"}, {"batch": "x"}, {"batsh": 3}, {"search": "seq-len"}):
            with self.assertRaises(vprof_gpu.UsageError) as asked:
                command.ask("plan", [], {**self.QUESTION, **options})
            with self.assertRaises(vprof_gpu.UsageError) as called:
                command.call("plan", [], {**self.QUESTION, **options})
            said = str(called.exception).removeprefix("vprof: ")
            self.assertEqual(str(asked.exception).removeprefix("vprof: "), said)

    def test_options_that_write_files_or_use_a_gpu_get_a_process_of_their_own(self):
        with mock.patch.object(command, "call", return_value={}) as called:
            for verb, option in (("fit", "apply"), ("fit", "device"), ("smoke", "device"), ("plan", "auto")):
                command.ask(verb, [], {option: True})
        self.assertEqual(called.call_count, 4)

    def test_a_process_that_ends_is_started_again(self):
        answer = vprof_gpu.plan(**self.QUESTION).document
        first = server.current[1].process
        first.kill()
        self.assertEqual(vprof_gpu.plan(**self.QUESTION).document, answer)
        self.assertIsNot(server.current[1].process, first)

    def test_threads_share_the_process(self):
        alone = {batch: vprof_gpu.plan(**{**self.QUESTION, "batch": batch}).document for batch in range(1, 13)}
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            asked = {b: pool.submit(lambda b=b: vprof_gpu.plan(**{**self.QUESTION, "batch": b})) for b in alone}
        self.assertEqual({batch: each.result().document for batch, each in asked.items()}, alone)
        self.assertEqual(len([t for t in threading.enumerate() if t.name == "vprof-gpu"]), 1)

    def test_another_folder_or_environment_is_another_process(self):
        vprof_gpu.plan(**self.QUESTION)
        first = server.current[1].process
        with mock.patch.dict(os.environ, VPROF_GPU="h100"):
            self.assertEqual(vprof_gpu.plan(model="resnet18", batch=8).points[0].gpu, "h100")
        self.assertEqual(first.wait(10), 0)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            stack.callback(os.chdir, os.getcwd())
            os.chdir(folder)
            with open("vprof.yaml", "w", encoding="utf-8") as f:
                f.write("gpu: a100-40\n")
            self.assertEqual(vprof_gpu.plan(model="resnet18", batch=8).points[0].gpu, "a100-40")

    def test_a_call_ends_at_its_limit(self):
        with mock.patch.object(command, "timeout", 0.001):
            vprof_gpu.command.server.server(command.binary())  # not part of the measured call
            with self.assertRaisesRegex(vprof_gpu.VprofError, "took longer than 0.001 s"):
                vprof_gpu.fit(model="gpt2", gpu="rtx-4090")
        self.assertTrue(vprof_gpu.plan(**self.QUESTION).points[0].fits)

    def test_a_binary_that_is_not_there_or_no_vprof_is_named(self):
        with mock.patch.dict(os.environ, VPROF_BINARY="/nowhere/vprof"):
            for function in (command.ask, command.call):
                with self.assertRaisesRegex(vprof_gpu.VprofError, "/nowhere/vprof does not start: No such file"):
                    function("plan", [], self.QUESTION)
        with mock.patch.dict(os.environ, VPROF_BINARY=sys.executable):
            with self.assertRaisesRegex(vprof_gpu.VprofError, "before it answered.*mcp"):
                vprof_gpu.plan(**self.QUESTION)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_child_has_a_process_of_its_own_and_both_end_with_their_parents(self):
        script = (
            "import os, sys, vprof_gpu\n"
            "from vprof_gpu import server\n"
            "ask = lambda: vprof_gpu.plan(model='resnet18', gpu='t4', batch=8)\n"
            "ask()\n"
            "child = os.fork()\n"
            "ask()\n"
            "print(server.current[1].process.pid, flush=True)\n"
            "child and os.waitpid(child, 0)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
                              cwd=os.path.dirname(os.path.dirname(vprof_gpu.__file__)))
        pids = set(map(int, done.stdout.split()))
        self.assertEqual(len(pids), 2, done.stderr)
        limit = time.monotonic() + 20
        while pids and time.monotonic() < limit:
            pids = {pid for pid in pids if running(pid)}
            time.sleep(0.05)
        self.assertFalse(pids)


def running(pid):
    """Reports whether a process runs and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class ResultsTest(unittest.TestCase):
    def test_plan(self):
        plan = vprof_gpu.plan(model="gpt2", batch=[2, 4], gpu=["t4", "rtx-4090"], amp="fp16")
        self.assertEqual([(p.gpu, p.batch) for p in plan.points], [(g, b) for g in ("t4", "rtx-4090") for b in (2, 4)])
        for p in plan.points:
            self.assertEqual(p.device.bytes, sum(p.components.values()))
            self.assertLessEqual(p.allocated.bytes, p.reserved.bytes)
            self.assertLessEqual(p.device.low_bytes, p.device.bytes)
            self.assertGreater(p.host.high_bytes, p.host.low_bytes)
            self.assertTrue(p.fits)
        self.assertEqual(plan.case["amp"], "fp16")
        self.assertIn("<td>rtx-4090</td>", plan._repr_html_())

    def test_answers_are_short_in_a_console_and_tables_in_print(self):
        plan = vprof_gpu.plan(model="gpt2", batch=[2, 4], gpu="t4")
        self.assertEqual(repr(plan), "<Plan gpt2: 2 rows>")
        title, head, *rows = str(plan).splitlines()[:4]
        self.assertEqual(title, "gpt2")
        self.assertTrue(head.startswith("gpu  batch  allocated GiB"))
        self.assertTrue(all(row.startswith("t4 ") and row.endswith("safe") for row in rows))

    def test_answers_become_data_frames(self):
        frames = types.SimpleNamespace(DataFrame=list)  # replaces pandas, which needs no test here
        with mock.patch.dict(sys.modules, pandas=frames):
            plan = vprof_gpu.plan(model="gpt2", batch=[2, 4], gpu="t4").to_dataframe()
            fit = vprof_gpu.fit(model="gpt2", gpu="t4", stage="full", amp="fp16", checkpointing=False).to_dataframe()
            smoke = vprof_gpu.smoke(model="gpt2", gpu="t4", batch=2).to_dataframe()
        self.assertEqual([r["batch"] for r in plan], [2, 4])
        for r in plan:
            parts = [v for k, v in r.items() if k.endswith("_bytes") and not k.startswith(
                ("allocated_", "reserved_", "device_", "host_", "memory_"))]
            self.assertEqual(sum(parts), r["device_bytes"])
        self.assertTrue(any(r["recommended"] and r["largest_batch"] > 0 for r in fit))
        self.assertTrue(all(r["need_bytes"] <= r["limit_bytes"] for r in smoke))

    def test_what_does_not_fit_is_an_answer(self):
        plan = vprof_gpu.plan(model="gpt2", batch=512, gpu="t4")
        self.assertFalse(plan.points[0].fits)
        smoke = vprof_gpu.smoke(model="gpt2", batch=512, gpu="t4")
        self.assertFalse(smoke.safe)
        self.assertIn("not safe", smoke._repr_html_())

    def test_fit_and_smoke_agree(self):
        fit = vprof_gpu.fit(model="gpt2", gpu="rtx-4090", stage="full", amp="bf16", checkpointing=False)
        self.assertGreater(fit.best.largest_batch, 0)
        self.assertIn("recommended", fit._repr_html_())
        smoke = vprof_gpu.smoke(model="gpt2", gpu="rtx-4090", amp="bf16", batch=fit.best.largest_batch)
        self.assertTrue(smoke.safe)
        self.assertTrue(all(c.need_bytes <= smoke.limit_bytes for c in smoke.checks))

    def test_text_in_a_table_is_escaped(self):
        document = dict(vprof_gpu.plan(model="gpt2", gpu="t4").document)
        document["case"] = {**document["case"], "model": "<script>"}
        self.assertNotIn("<script>", vprof_gpu.Plan.read(document)._repr_html_())


class WatchTest(unittest.TestCase):
    """Tests with a PyTorch that only counts."""

    def torch(self, allocated, reserved, memory):
        cuda = types.SimpleNamespace(
            is_available=lambda: True, current_device=lambda: 0, max_memory_allocated=lambda: allocated,
            max_memory_reserved=lambda: reserved, memory_reserved=lambda: reserved,
            mem_get_info=lambda: (memory - reserved, memory),
            memory_stats=lambda: {"requested_bytes.all.peak": allocated},
            get_device_name=lambda: "NVIDIA GeForce RTX 4090",
            get_device_properties=lambda device: types.SimpleNamespace(total_memory=memory),
        )
        return mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda, __version__="2.15.0"))

    def setUp(self):
        self.plan = vprof_gpu.plan(model="gpt2", batch=4, gpu="rtx-4090")

    def test_the_third_step_is_compared_and_written_once(self):
        p = self.plan.points[0]
        with tempfile.TemporaryDirectory() as folder, self.torch(p.allocated.bytes, p.reserved.bytes, p.memory_bytes):
            path = os.path.join(folder, "peaks.jsonl")
            peaks = Watch(self.plan, record=path)
            logs = [peaks.after(step) for step in (1, 2, 3, 4)]
            self.assertEqual([bool(each) for each in logs], [False, False, True, False])
            self.assertEqual(logs[2]["vprof/allocated_error"], 0)
            with open(path) as f:
                lines = [json.loads(line) for line in f]
            self.assertEqual([line["peak_reserved"] for line in lines], [p.reserved.bytes])
            self.assertEqual([line["peak_device"] for line in lines], [p.reserved.bytes])
            self.assertFalse(lines[0]["simulated"])

    def test_a_margin_that_shrinks_is_warned_of_once(self):
        p = self.plan.points[0]
        for reserved, words in ((p.memory_bytes, "are left"), (p.reserved.high_bytes + 1, "upper end")):
            with self.torch(0, reserved, p.memory_bytes), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                peaks = Watch(self.plan)
                for step in range(1, 6):
                    peaks.after(step)
            self.assertEqual(len(seen), 1)
            self.assertIn(words, str(seen[0].message))


class LoopTest(WatchTest):
    """Plain loops, without a trainer."""

    def test_a_loop_warns_once_above_its_limit(self):
        with self.torch(5 << 30, 6 << 30, 8 << 30), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with vprof_gpu.watch(limit="5.5GiB") as loop:
                for _ in range(3):
                    loop.step()
        self.assertEqual([str(w.message) for w in seen], [
            "step 1: PyTorch has reserved 6.00 GiB, more than the limit of 5.50 GiB"])
        self.assertEqual((loop.steps, loop.allocated_bytes, loop.reserved_bytes), (3, 5 << 30, 6 << 30))

    def test_a_loop_stops_before_the_cliff(self):
        with self.torch(0, (8 << 30) - 1, 8 << 30), self.assertRaises(watching.CliffError):
            with vprof_gpu.watch(stop=True) as loop:
                loop.step()

    def test_running_out_of_memory_is_explained_and_goes_on(self):
        class OutOfMemoryError(RuntimeError):
            pass

        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(OutOfMemoryError), vprof_gpu.watch():
            raise OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which "
                "1.00 GiB is free. Including non-PyTorch memory, this process has 6.70 GiB memory in use. Of the "
                "allocated memory 6.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved but unallocated.")
        self.assertIn("2.00 GiB", said.getvalue())

    def test_sizes(self):
        sizes = {"11GiB": 11 << 30, "512 MiB": 512 << 20, "12GB": 12 * 10**9, "1.5 gib": 3 << 29, "100": 100}
        for text, n in sizes.items():
            self.assertEqual(watching.size(text), n)
        with self.assertRaisesRegex(ValueError, "write a size like"):
            watching.size("much")


class AssertPeakTest(unittest.TestCase):
    """Tests with stubbed runs; examples/test_memory.py has a real one."""

    def needs(self, **values):
        run = vprof_gpu.Run({}, (), "t4", 16 << 30, 1 << 30, 2 << 30, 3 << 30, True, 0)
        return mock.patch.object(testing, "run", return_value=dataclasses.replace(run, **values))

    def test_a_function_within_its_limit_passes(self):
        with self.needs() as run:
            self.assertEqual(testing.assert_peak(top_level, gpu="t4", below="3GiB").device_bytes, 3 << 30)
        self.assertIn(f"{__file__}:top_level", run.call_args.args[0])
        self.assertEqual(run.call_args.kwargs, {"gpu": "t4", "steps": "all"})

    def test_the_reason_of_a_failure_is_named(self):
        for values, below, words in (
            ({}, "2.5GiB", "needs 3.00 GiB on t4, more than 2.5GiB"),
            ({"fits": False}, None, "runs out of memory on t4"),
            ({"exit_code": 7}, None, "ended with 7"),
        ):
            with self.needs(**values), self.assertRaisesRegex(AssertionError, words):
                testing.assert_peak(top_level, gpu="t4", below=below)
        with self.assertRaisesRegex(ValueError, "top level"):
            testing.assert_peak(lambda: None, gpu="t4")

    def test_the_function_of_a_file_is_called(self):
        with mock.patch.object(sys, "path", list(sys.path)), mock.patch.dict(sys.modules):
            called.clear()
            testing.main(f"{__file__}:top_level", *sys.path)
            self.assertTrue(sys.modules["test_vprof_gpu"].called)


class NotebookTest(unittest.TestCase):
    """Runs the cells of docs/python.ipynb like Jupyter. Cells that need PyTorch run if it is installed."""

    def test_every_cell_runs(self):
        with open(NOTEBOOK, encoding="utf-8") as f:
            cells = [c for c in json.load(f)["cells"] if c["cell_type"] == "code"]
        self.assertGreater(len(cells), 3)
        names = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            for cell in cells:
                if "needs-torch" not in cell["metadata"].get("tags", ()) or importlib.util.find_spec("torch"):
                    exec("".join(cell["source"]), names)
            os.chdir(os.path.dirname(NOTEBOOK))
        self.assertTrue(names["smoke"].safe)


@unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no PyTorch")
class CaptureTest(unittest.TestCase):
    def setUp(self):
        import torch

        self.folder = self.enterContext(tempfile.TemporaryDirectory()) if hasattr(self, "enterContext") else "."
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))

    def needs(self, path, batch):
        return vprof_gpu.plan(model=path, batch=batch, gpu="t4", loss="sum").points[0].allocated.bytes

    def test_a_module_of_this_process_is_planned(self):
        import torch

        path = vprof_gpu.capture(self.model, torch.zeros(4, 64), os.path.join(self.folder, "mlp.pt2"))
        self.assertLess(self.needs(path, 8), self.needs(path, 8192))
        self.assertFalse(any(p.is_meta for p in self.model.parameters()))

    def test_another_dimension_is_the_batch(self):
        import torch

        path = vprof_gpu.capture(self.model, torch.zeros(7, 4, 64), os.path.join(self.folder, "rows.pt2"), batch_dim=1)
        self.assertLess(self.needs(path, 8), self.needs(path, 8192))

    def test_what_cannot_be_exported_is_refused_in_vprofs_words(self):
        import torch

        with contextlib.redirect_stderr(None), self.assertRaises(vprof_gpu.VprofError):
            vprof_gpu.capture(self.model, torch.zeros(4, 63), os.path.join(self.folder, "wrong.pt2"))


if __name__ == "__main__":
    unittest.main()
