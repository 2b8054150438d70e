"""Watches a training script from outside: what it allocates, in which step and phase.

`vprof run` starts the user's command with this package on its path. Nothing of the script
is edited: PyTorch is told to report optimizer steps through its own global hooks, and a
few of its functions are wrapped (backward, save, eval).

The environment says what to do:

    VPROF_HOOK       folder for what is seen: events.jsonl, trace-PID.jsonl, saved/
    VPROF_STEPS      calls of each optimizer after which training ends; 0 is all
    VPROF_LONGEST    seconds in which the longest batches are looked for, which training then sees, too; 0 is not
    VPROF_TIMED      set if further steps are to be timed
    VPROF_UNTIL      "eval" or "save": training goes on until one has been seen
    VPROF_KEEP       set if what the script saves is to be kept
    VPROF_WORLD      number of ranks that the script believes in; VPROF_RANK which it is
    VPROF_STUBS   folder with libraries that take the place of NVIDIA's
    VPROF_ACTIVATION_BUDGET  the share of activations that compiled code keeps for backward
    VPROF_TRITON     set if Triton is to compile the kernels of torch.compile
    VPROF_WITHOUT    "weights", "data" or both with a comma: what gets placeholders where it is absent
    VPROF_LENGTHS    lengths of texts in tokens, with commas; VPROF_SHAPES a file of the shapes of data
    VPROF_FETCH      folder for configurations and headers that may be fetched from the hub
"""

import faulthandler
import fcntl
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time

from . import events


def watch():
    """Waits for the import of the modules that are of interest."""
    from . import closing, compiling, files, loaders, ranks, values

    end_with_vprof()
    finder = Finder({
        "torch": watch_torch,
        "torch.utils.data": loaders.watch,
        "transformers.trainer_callback": closing.ask_trainer,
        "transformers.generation.utils": closing.note_generation,
        "safetensors": files.divert_safetensors,
        "safetensors.torch": files.divert_safetensors_torch,
        "torch.distributed.checkpoint.default_planner": ranks.accept_plans,
        "torch.distributed.launcher.api": ranks.start_one_rank,
        "deepspeed.launcher.runner": ranks.start_one_of_deepspeed,
        "torch._inductor.runtime.triton_heuristics": compiling.spare_triton,
        "torch._inductor.runtime.benchmarking": compiling.spare_benchmarks,
        "torch._inductor.runtime.autotune_cache": compiling.count_found,
        "torch._inductor.codegen.wrapper": compiling.name_lines,
        "torch._dynamo.trace_rules": compiling.hide_from_dynamo,
        "torch._functorch.config": compiling.keep_share,
        "torchvision": values.compute_detection,
    })
    sys.meta_path.insert(0, finder)
    if os.environ.get("VPROF_WITHOUT"):
        finder.replace_absent()


def end_with_vprof():
    """Has the system end this process when vprof ends, even by a kill: it signals readers of a pipe that nobody writes to."""
    global running
    try:
        running = os.open(events.folder("running"), os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(running, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(running, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(running, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    except (OSError, AttributeError):
        pass  # no such pipe, or not on this system


def watch_torch(torch):
    """Called when torch has been imported."""
    from . import files, ranks, training, values

    faulthandler.enable(open(events.folder("fault-%d" % os.getpid()), "w"), all_threads=False)
    events.send("torch", version=torch.__version__, cuda=torch.version.cuda or "", python=sys.executable, available=has_gpu(torch))
    if os.environ.get("VPROF_WITHOUT"):
        from . import data, placeholders, weights

        placeholders.start(torch)
        if "weights" in placeholders.ASKED:
            weights.start(torch)
        if "data" in placeholders.ASKED:
            data.start(torch)
    files.divert(torch)
    ranks.answer_for_others(torch)
    values.compute(torch)
    training.watch(torch)


def has_gpu(torch):
    """Reports whether PyTorch finds a GPU, by the management library: CUDA, once asked, works in no child that is
    forked.
    """
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return torch.cuda.is_available()
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules as Python would, and calls a function when one of them has been imported."""

    def __init__(self, imported):
        self.imported = dict(imported)

    def replace_absent(self):
        """Watches for the modules that load what may be absent, too."""
        from . import data, failures, folders, formats, hub, kernels, options, placeholders, sounds, trackers, weights

        for part in (hub, kernels, trackers, folders, failures):
            part.start()
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # which hides what failed
        for part in (hub, trackers, options, failures):
            self.add(part.WATCHED)
        if "data" in placeholders.ASKED:
            data.watch_files()
            self.add(data.WATCHED)
            self.add(formats.WATCHED)
            self.add(sounds.WATCHED)
        if "weights" in placeholders.ASKED:
            self.add(weights.WATCHED)

    def add(self, imported):
        """Calls further functions when modules have been imported."""
        for name, then in imported.items():
            before = self.imported.get(name)
            self.imported[name] = then if before is None else lambda module, first=then, second=before: (first(module), second(module))

    def find_spec(self, name, path, target=None):
        if name not in self.imported:
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader, name, self.imported)  # many ask whether there is a module before it is imported
        return spec


class Loader(importlib.abc.Loader):
    """Loads a module as another loader does, and calls a function then."""

    def __init__(self, loader, name, imported):
        self.loader, self.name, self.imported = loader, name, imported

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        began = time.monotonic()
        then = self.imported.pop(self.name, None)
        if self.name == "torch":
            events.send("importing", module="torch")
            from . import libraries

            libraries.load()
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self.name == "torch":
            events.send("imported", module="torch", seconds=time.monotonic() - began)
        if then is not None:
            then(module)

    def __getattr__(self, name):
        return getattr(self.loader, name)
