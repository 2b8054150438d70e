"""Records a training script from outside: its allocations, by step and phase.

`vprof run` starts the user's command with this package on its path. The script is not changed: PyTorch's global hooks
report optimizer steps, and a few of its functions are wrapped (backward, save, eval).

Environment variables are the settings:

    VPROF_HOOK       folder for results: events.jsonl, trace-PID.jsonl, saved/
    VPROF_STEPS      number of steps of each optimizer after which training ends; 0 runs the whole script
    VPROF_LONGEST    time limit in seconds of the search for the longest batches, which are then trained on; 0 for none
    VPROF_TIMED      set to time further steps
    VPROF_UNTIL      "eval" or "save": training runs until one has ended
    VPROF_NO_GRAD    set to record no graphs of autograd
    VPROF_KEEP       set to write the script's files to their own paths
    VPROF_WORLD      number of ranks; VPROF_RANK the rank to run
    VPROF_STUBS      folder with the stubs of NVIDIA's libraries
    VPROF_ACTIVATION_BUDGET  share of activations that compiled code keeps for backward
    VPROF_TRITON     set to compile the Triton kernels of torch.compile
    VPROF_WITHOUT    "weights", "data", "documented" with commas: absent files of these kinds get placeholders; the command
                     is one that a repository documents
    VPROF_LENGTHS    lengths of texts in tokens, with commas; VPROF_SHAPES a file with the shapes of data
    VPROF_FETCH      folder for configurations and headers downloaded from the hub
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
    """Registers the functions that run when modules such as torch are imported."""
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
    """Makes the kernel kill this process when vprof ends, even if vprof is killed.

    vprof holds the only write end of a pipe. When it closes, the kernel sends SIGKILL to the processes that read from
    it.
    """
    global running
    try:
        running = os.open(events.folder("running"), os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(running, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(running, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(running, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    except (OSError, AttributeError):
        pass  # the pipe does not exist, or the system lacks F_SETSIG


def watch_torch(torch):
    """Called when torch was imported."""
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
    """Reports whether PyTorch finds a GPU. NVML answers this: if CUDA was initialized, forked children could not use
    it.
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
    """Finds modules as Python would. Calls a function after one of the given modules was imported."""

    def __init__(self, imported):
        self.imported = dict(imported)

    def replace_absent(self):
        """Registers also the modules that load files which may be absent."""
        from . import data, failures, folders, formats, hub, kernels, moved, options, packages, placeholders, releases, sounds, trackers, weights

        for part in (hub, kernels, trackers, folders, moved, packages, failures):
            part.start()
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # show the error that Hydra's own message hides
        for part in (hub, trackers, moved, releases, options, failures):
            self.add(part.WATCHED)
        if "data" in placeholders.ASKED:
            data.watch_files()
            self.add(data.WATCHED)
            self.add(formats.WATCHED)
            self.add(sounds.WATCHED)
        if "weights" in placeholders.ASKED:
            self.add(weights.WATCHED)

    def add(self, imported):
        """Adds functions to call when modules are imported."""
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
            # The function runs after the import: scripts often call find_spec without importing the module.
            spec.loader = Loader(spec.loader, name, self.imported)
        return spec


class Loader(importlib.abc.Loader):
    """Loads a module with its own loader, then calls the function registered for it."""

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
