"""Tests of vprof_hook/compiling.py:  python -m unittest bench/experiment/script/compiling_test.py"""

import linecache
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import compiling, memory


def buffer(name, node=None, line=""):
    """Returns an Inductor buffer as the result of a graph node."""
    node = node and types.SimpleNamespace(name=node, meta={"stack_trace": line})
    return types.SimpleNamespace(get_name=lambda: name, get_origin_node=lambda: node, get_origins=lambda: [])


class CompilingTest(unittest.TestCase):
    line = '  File "net.py", line 7, in forward\n    return x * y'

    def test_a_buffer_has_the_names_of_what_is_there(self):
        reused = {"buf1": buffer("buf4", "gelu_2"), "buf4": buffer("buf9")}
        self.assertEqual("  # vprof: net.py:7:forward\tmul > gelu_2 > buf9", compiling.comment(buffer("buf1", "mul", self.line), reused))
        self.assertEqual("  # vprof: \tbuf3", compiling.comment(buffer("buf3"), reused))

    def test_the_comment_is_read_again(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder):
            path = os.path.join(folder, "code.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write("buf1 = empty()" + compiling.comment(buffer("buf1", "mul", self.line), {}) + "\nrun(buf1)\n")
            frames = [{"filename": path, "line": line, "name": "call"} for line in (1, 2)]
            self.assertEqual("net.py:7:forward\tmul", memory.line_of_user(frames[:1], ()))
            self.assertEqual("", memory.line_of_user(frames[1:], ()))
            with open(path, "w", encoding="utf-8") as file:
                file.write("buf1 = empty()" + compiling.comment(buffer("buf1", "mul"), {}) + "\n")
            linecache.checkcache(path)
            self.assertEqual("\tmul", memory.line_of_user(frames[:1], ()), "of a module of PyTorch's")
            mine = {"filename": "/home/me/train.py", "line": 3, "name": "step"}
            self.assertEqual("/home/me/train.py:3:step\tmul", memory.line_of_user([frames[0], mine], ()))

    def test_what_tuning_allocates_has_its_name(self):
        mine = {"filename": "/home/me/train.py", "line": 3, "name": "step"}
        for file, name in (("runtime/triton_heuristics.py", "benchmark_all_configs"), ("runtime/benchmarking.py", "benchmark_gpu"), ("fx_passes/pad_mm.py", "f")):
            inner = {"filename": "/lib/torch/_inductor/" + file, "line": 1, "name": name}
            self.assertEqual("\tautotuning", memory.line_of_user([inner, mine], ()))
        run = {"filename": "/lib/torch/_inductor/runtime/triton_heuristics.py", "line": 1, "name": "run"}
        self.assertEqual("/home/me/train.py:3:step", memory.line_of_user([run, mine], ("/lib/",)))

    def test_launches_of_kernels_are_watched(self):
        launch, seen = compiling.Result("config", "tuner").make_launcher(), []
        launch(1, stream=0)
        with unittest.mock.patch.object(compiling, "watch", lambda *what: seen.append(what)):
            launch(1, 2, stream=0)
        self.assertEqual([("tuner", (1, 2))], seen)

    def test_kernels_that_were_tuned_before_are_counted(self):
        class AutotuneCache:
            def __init__(self, file, best):
                self.local_cache, self.best = (None, file), best

            def read_best(self, _meta, _configs):
                return self.best

        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder):
            before, now = (os.path.join(folder, "k", name + ".best_config") for name in ("before", "now"))
            os.mkdir(os.path.dirname(before))
            open(before, "w").close()
            compiling.count_found(types.SimpleNamespace(AutotuneCache=AutotuneCache))
            for file, best in ((before, "config"), (before, "config"), (now, "config"), (now, None)):
                self.assertEqual(best, AutotuneCache(file, best).read_best({}, []))
        self.assertEqual({before}, compiling.found)
        compiling.found.clear()


if __name__ == "__main__":
    unittest.main()
