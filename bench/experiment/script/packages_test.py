"""Tests of vprof_hook/packages.py, moved.py and options.py. They need no packages."""

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest
import unittest.mock

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")
sys.path.insert(0, HOOK)
from vprof_hook import memory, moved, options

START = """
    import os, sys
    sys.path.insert(0, %r)
    from vprof_hook import moved, packages
    moved.start()
    packages.start()
""" % HOOK


def run(text, others=()):
    """Runs a script with the finders of moved.py and packages.py, and returns its output, or the last line of its
    traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {"main.py": START + "    import script", "script.py": text, **dict(others)}.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as file:
                file.write(textwrap.dedent(content))
        done = subprocess.run([sys.executable, "main.py"], cwd=folder, env={**os.environ, "VPROF_HOOK": folder}, capture_output=True, text=True)
        return (done.stdout or done.stderr.splitlines()[-1]).strip()


class PackagesTest(unittest.TestCase):
    def test_a_package_is_imported_and_ends_the_script_where_it_is_used(self):
        top = """
            import absent_one, absent_two.inner as inner
            from absent_two.inner import Base, solve
            class Child(Base):
                x: "inner.Array" = None
            def of(a: inner.Array[float, 3] | None): return isinstance(a, Base)
        """
        self.assertEqual(run(top + "    print(of(3))"), "False")
        for use in ("solve(1)", "Child()", "list(inner.things)", "absent_one.make.more()"):
            self.assertRegex(run(top + "    " + use), "ModuleNotFoundError: No module named 'absent_(one|two)'", use)

    def test_a_script_that_does_without_goes_on_without(self):
        for text in (
            "try:\n    import absent_one\nexcept ImportError:\n    print('without')",
            "import contextlib\nwith contextlib.suppress(ImportError):\n    import absent_one\nprint('absent_one' in sys.modules or 'without')",
            "import importlib.util\nprint(importlib.util.find_spec('absent_one') or 'without')",
            "import importlib\ntry:\n    importlib.import_module('absent_one')\nexcept ImportError:\n    print('without')",
            "try:\n    import other\nexcept ImportError:\n    print('without')",
        ):
            self.assertEqual(run("import sys\n" + text, {"other.py": "import absent_one"}), "without", text)
        self.assertIn("ModuleNotFoundError", run("from mamba_ssm import Mamba\nMamba(3)"))
        self.assertIn("ModuleNotFoundError", run("from absent_one import *"))
        self.assertEqual(run("try:\n    import absent_one\nexcept ImportError:\n    raise SystemExit(1)\nprint(absent_one.__name__)"), "absent_one")

    def test_libraries_do_without_the_placeholder_of_a_package(self):
        library = {"site-packages/lib.py": "import sys\ndef found(): return bool(sys.modules.get('absent_one'))"}
        self.assertEqual(run("import sys\nsys.path.insert(0, 'site-packages')\nimport absent_one, lib\nprint(bool(absent_one), lib.found())", library), "True False")

    def test_a_package_of_the_repository_has_a_version_before_it_is_installed(self):
        self.assertEqual(run("import tool\nprint(tool.__version__)", {"tool/__init__.py": "from .version import __version__"}), "0.0.0")

    def test_modules_in_cython_do_nothing_before_they_are_compiled(self):
        files = {"align/__init__.py": "from .align.core import path_c", "align/core.pyx": "", "bare/__init__.py": "from .core import f"}
        self.assertEqual(run("from align import path_c\nprint(path_c(1, x=2))", files), "None")
        self.assertIn("ModuleNotFoundError", run("from bare import f", files))

    def test_one_process_has_one_rank(self):
        with unittest.mock.patch.object(sys, "path", [os.path.join(HOOK, "vprof_kernels")]):
            from mpi4py import MPI
        world = MPI.COMM_WORLD
        self.assertEqual((world.Get_rank(), world.size, world.bcast("x", root=0), world.allreduce(3, op=MPI.SUM), world.gather(4)), (0, 1, "x", 3, [4]))
        self.assertFalse(hasattr(MPI, "nothing"))
        summed = [3, 4]
        world.Allreduce(MPI.IN_PLACE, summed)
        self.assertEqual(summed, [3, 4])


LIBRARY = {
    "site-packages/lib/__init__.py": "", "site-packages/lib/old.py": "", "site-packages/lib/parts/__init__.py": "",
    "site-packages/lib/parts/_home.py": "class Thing: pass\ndef twice(): pass\n", "site-packages/lib/more.py": "def twice(): pass\n",
    "site-packages/lib/a/__init__.py": "", "site-packages/lib/a/both.py": "def once(): pass\n", "site-packages/lib/both.py": "",
    "site-packages/lib/user.py": "from other import (\n    foreign,\n)\n", "site-packages/other.py": "foreign = 3\n",
    "site-packages/lib/dummies.py": "class Thing(metaclass=DummyObject): pass\n".replace("DummyObject", "type('DummyObject', (type,), {})"),
}


class MovedTest(unittest.TestCase):
    def test_names_are_found_where_the_installed_release_has_them(self):
        begin = "import sys\nsys.path.insert(0, 'site-packages')\n"
        for text, printed in (
            ("from lib.old import Thing\nprint(Thing.__module__)", "lib.parts._home"),
            ("import lib.home\nfrom lib.home import Thing\nprint(Thing.__module__)", "lib.parts._home"),
            ("from lib.old import foreign\nprint(foreign)", "3"),
            ("import lib.parts\nfrom lib.parts import twice\nprint(twice.__module__)", "lib.parts._home"),
            ("from lib.old import twice\nprint(isinstance(3, twice))", "False"),
            ("from lib.old import twice\ntwice()", "ImportError: cannot import name 'lib.old.twice'"),
            ("from lib.parts.both import once\nprint(once.__module__)", "lib.a.both"),
            ("from lib.parts.both import never\nnever()", "ImportError: cannot import name 'lib.parts.both.never'"),
            ("import lib.nowhere\nlib.nowhere.never", "AttributeError: never"),
            ("from lib.nowhere import Thing\nprint(Thing.__module__)", "lib.parts._home"),
            ("try:\n    import lib.nowhere\nexcept ImportError:\n    print('another way')", "another way"),
            ("try:\n    from lib.old import Thing\nexcept ImportError:\n    print('another way')", "another way"),
            ("from collections import Iterable, OrderedDict\nprint(isinstance((), Iterable))", "True"),
        ):
            self.assertIn(printed, run(begin + text, LIBRARY), text)

    def test_names_that_numpy_had(self):
        module = types.SimpleNamespace(inf=1.0, fromstring=lambda text, *_, sep: text.split(sep), frombuffer=lambda data, dtype, count: bytearray(data))
        with unittest.mock.patch.object(moved.placeholders, "replaced"):
            moved.watch_numpy(module)
            self.assertEqual((module.__getattr__("Inf"), module.__getattr__("int")), (1.0, int))
            with self.assertRaises(AttributeError):
                module.__getattr__("nothing")
            self.assertEqual((module.fromstring(b"ab", "uint8"), module.fromstring("a,b", sep=",")), (bytearray(b"ab"), ["a", "b"]))

    def test_the_canvas_of_matplotlib_had_three_channels(self):
        class FigureCanvasAgg:
            def buffer_rgba(self):
                return "pixels"

        class Array:
            def __getitem__(self, part):
                return types.SimpleNamespace(tobytes=lambda: (self.of, part))

        def asarray(of):
            found = Array()
            found.of = of
            return found

        moved.watch_canvas(types.SimpleNamespace(FigureCanvasAgg=FigureCanvasAgg))
        with unittest.mock.patch.dict(sys.modules, numpy=types.SimpleNamespace(asarray=asarray)):
            self.assertEqual(FigureCanvasAgg().tostring_rgb(), ("pixels", (..., slice(None, 3))))

    def test_functions_take_by_position_what_they_took_before(self):
        mel = moved.by_position(lambda *, sr, n_fft, n_mels=128, fmin=0.0: (sr, n_fft, n_mels, fmin))
        self.assertEqual((mel(22050, 1024, 80), mel(22050, n_fft=512)), ((22050, 1024, 80, 0.0), (22050, 512, 128, 0.0)))
        sampler = types.SimpleNamespace(Sampler=type("Sampler", (), {}))
        moved.watch_sampler(sampler)
        sampler.Sampler("data"), sampler.Sampler()
        ports = []
        module = types.SimpleNamespace(_create_c10d_store=lambda host, port, rank: ports.append(port))
        moved.watch_rendezvous(module)
        for port in (29500, 80000):
            module._create_c10d_store("localhost", port, 0)
        self.assertEqual(ports, [29500, 80000 - 65536])

    def test_stft_returns_real_numbers_where_nothing_is_said(self):
        module = types.SimpleNamespace(stft=lambda x, n, return_complex: return_complex)
        moved.watch_torch(module)
        real = types.SimpleNamespace(is_complex=lambda: False)
        with unittest.mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(view_as_real=lambda x: ("real", x))}):
            self.assertEqual([module.stft(real, 4), module.stft(real, 4, return_complex=True)], [("real", True), True])


class OptionsTest(unittest.TestCase):
    @unittest.mock.patch.object(options.placeholders, "replaced")
    def test_values_that_a_command_leaves_open_are_defaults(self, replaced):
        module = types.SimpleNamespace(**{**vars(argparse), "ArgumentParser": type("Parser", (argparse.ArgumentParser,), {})})
        options.watch_argparse(module)
        parser = module.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=7)
        parser.add_argument("--kind", choices=("a", "b"), default="b")
        parser.add_argument("--size", type=int)
        parser.add_argument("--name")
        found = parser.parse_args("--epochs absent-epochs --kind absent-kind --name absent-name".split())
        self.assertEqual((found.epochs, found.kind, found.name), (7, "b", "absent-name"))
        self.assertEqual([call.args[1] for call in replaced.call_args_list], ["--epochs", "--kind"])
        self.assertEqual(parser.parse_args("--size absent-size".split()).size, 1)
        for text in ("--epochs x", "--kind c"):
            with self.assertRaises(SystemExit), unittest.mock.patch("sys.stderr"):
                parser.parse_args(text.split())

    @unittest.mock.patch.object(options, "send")
    @unittest.mock.patch.object(options.placeholders, "replaced")
    def test_required_options_have_values_of_their_types(self, replaced, _):
        module = types.SimpleNamespace(**{**vars(argparse), "ArgumentParser": type("Parser", (argparse.ArgumentParser,), {})})
        options.watch_argparse(module)
        parser = module.ArgumentParser()
        parser.add_argument("data")
        parser.add_argument("--layers", type=int, required=True)
        parser.add_argument("--kind", choices=("a", "b"), required=True)
        parser.add_argument("--betas", type=float, nargs=2, required=True)
        parser.add_argument("--seed", type=int, required=True)
        parser.add_argument("--local_rank", type=int)
        with unittest.mock.patch.object(sys, "argv", "train.py --seed 0 --local-rank=0".split()):
            found = parser.parse_args()
        self.assertEqual(vars(found), {"data": "absent-data", "layers": 1, "kind": "a", "betas": [1.0, 1.0], "seed": 0, "local_rank": 0})
        self.assertEqual([call.args[1] for call in replaced.call_args_list], ["data", "layers", "kind", "betas"])
        self.assertEqual(options.values["kind"], "a")
        with unittest.mock.patch.object(sys, "argv", "train.py x --layers 3 --kind b --betas 1 2 --seed 4".split()):
            self.assertEqual((parser.parse_args().layers, replaced.call_count), (3, 4))

    def test_an_object_that_has_the_class_of_modules_and_no_variables_is_none(self):
        class Library:
            __slots__ = ()
            __class__ = property(lambda self: types.ModuleType)

        with unittest.mock.patch.dict(sys.modules, {"library": Library()}):
            self.assertIn(sys.modules[__name__], [module for module, _ in memory.modules()])

    @unittest.mock.patch.object(options, "send")
    @unittest.mock.patch.object(options.placeholders, "replaced")
    def test_options_of_documented_commands_that_the_parser_refuses_are_left_out(self, replaced, _):
        module = types.SimpleNamespace(**vars(argparse))
        module.ArgumentParser = type("ArgumentParser", (argparse.ArgumentParser,), {})
        options.watch_argparse(module)
        parser = module.ArgumentParser()
        parser.add_argument("--lr", type=float)
        words = ["train.py", "--lr", "1", "-log", "here", "--size=3"]
        with unittest.mock.patch.object(sys, "argv", words):
            with unittest.mock.patch.object(options.placeholders, "ASKED", {"data", "documented"}):
                self.assertEqual(parser.parse_args().lr, 1)
                self.assertEqual(parser.parse_known_args()[1], ["-log", "here", "--size=3"])  # the script's own choice
            self.assertEqual([call.args[1] for call in replaced.call_args_list], ["-log", "--size"])
            with unittest.mock.patch("sys.stderr"), self.assertRaises(SystemExit):
                parser.parse_args()

    def test_options_of_programs_that_start_a_script_are_not_its_own(self):
        for package, launches in (("torch.distributed", True), ("accelerate.commands", True), ("", False)):
            code = compile("import sys\nframe = sys._getframe()", "launcher.py", "exec")
            names = {"__package__": package, "__name__": "__main__"}
            exec(code, names)
            self.assertEqual(options.launches(names["frame"]), launches)


if __name__ == "__main__":
    unittest.main()
