"""torch.compile under vprof: Inductor is the user's own, its kernels are not compiled to machine code.

Triton takes most of the time of compiling, and its code would do nothing here. What Inductor allocates
does not depend on it: buffers, workspaces and what autotuning allocates come from Inductor's own Python,
which runs. VPROF_TRITON has Triton compile all the same.
"""

import functools
import linecache
import os


class Result:
    """A kernel in place of what Triton would have compiled for a configuration."""

    hash = ""
    n_regs = None  # nobody knows: Inductor then tries no further configurations for want of registers
    cubin_raw = None

    def __init__(self, config):
        self.config = config
        self.kernel = self

    def make_launcher(self):
        """The function that launches the kernel, with what Inductor asks of one."""

        def launch(*_args, **_kwargs):
            return None

        launch.config = self.config
        launch.n_regs, launch.n_spills, launch.shared = None, 0, 0  # what spills is compared with a bound
        launch.cache_hash, launch.store_cubin = "", False
        return launch


def spare_triton(heuristics):
    """Called when torch._inductor.runtime.triton_heuristics has been imported."""
    tuner = heuristics.CachingAutotuner
    if os.environ.get("VPROF_TRITON") or not hasattr(heuristics, "TritonCompileResult"):
        return  # PyTorch before 2.7 takes the binary itself, so Triton compiles
    compile_config = tuner._precompile_config

    @functools.wraps(compile_config)
    def spared(self, config, *args, **kwargs):
        props = getattr(self, "device_props", None)
        if getattr(props, "type", "cuda") != "cuda":
            return compile_config(self, config, *args, **kwargs)
        return Result(config)

    tuner._precompile_config = spared


def spare_benchmarks(benchmarking):
    """Called when torch._inductor.runtime.benchmarking has been imported.

    Kernels that do nothing take no time, and what the host needs to launch them is noise by which no decision may go:
    all candidates take the same time. What a benchmark allocates it allocates again in each of its hundreds of
    iterations, of which two are enough: one before the buffer that flushes the cache is there, and one with it.
    """
    few = {
        "InductorBenchmarker": {"estimation_iters": 1, "memory_warmup_iters": 0, "benchmark_iters": 1},
        "TritonBenchmarker": {"warmup": 0, "rep": 0},
    }
    for name, iterations in few.items():
        benchmarker = getattr(benchmarking, name, None)
        if benchmarker is not None and "benchmark_gpu" in vars(benchmarker):
            benchmarker.benchmark_gpu = without_time(benchmarker.benchmark_gpu, iterations)


def without_time(benchmark, iterations):
    """A benchmark of few iterations, after each of which the same time has passed."""

    @functools.wraps(benchmark)
    def spared(self, *args, **kwargs):
        took = benchmark(self, *args, **{**kwargs, **iterations})
        if isinstance(took, (list, tuple)):
            return type(took)(MILLISECOND for _ in took)
        return took if took == float("inf") else MILLISECOND  # infinite: the configuration is invalid

    return spared


# What each benchmark finds.
MILLISECOND = 1.0


def hide_from_dynamo(trace_rules):
    """Called when torch._dynamo.trace_rules has been imported.

    Where code runs eagerly in a function that is compiled, between two graphs, PyTorch calls what values.py has put in
    the place of kernels, and Dynamo would compile that, too.
    """
    trace_rules.add(__package__)


def keep_share(config):
    """Called when torch._functorch.config has been imported: sets what vprof run --activation-memory-budget says."""
    share = os.environ.get("VPROF_ACTIVATION_BUDGET")
    if share:
        config.activation_memory_budget = float(share)


def name_lines(wrapper):
    """Called when torch._inductor.codegen.wrapper has been imported.

    Each line of generated code that makes a buffer gets the user's line in a comment, which memory.py reads.
    """
    generator = wrapper.PythonWrapperCodegen
    make = generator.make_buffer_allocation

    @functools.wraps(make)
    def make_named(self, buffer):
        line = make(self, buffer)
        where = origin(buffer)
        return f"{line}  # {MARK}{where}" if where and "\n" not in line else line

    generator.make_buffer_allocation = make_named


# What comes before the user's line in the comment of a generated line.
MARK = "vprof: "


def origin(buffer):
    """The user's line that a buffer of Inductor comes from, as file:line:function; empty if nobody knows."""
    try:
        nodes = [n for n in (buffer.get_origin_node(), *buffer.get_origins()) if n is not None]
    except (AttributeError, NotImplementedError):
        return ""
    for node in nodes:
        where = line_of_trace(node.meta.get("stack_trace") or "")
        if where:
            return where
    return ""


@functools.lru_cache(maxsize=None)
def line_of_trace(text):
    """The innermost line in a stack trace as text that is not PyTorch's, as file:line:function."""
    lines = []
    for line in text.splitlines():
        words = line.strip().split('"')
        if len(words) == 3 and words[0] == "File " and words[2].startswith(", line "):
            number, _, function = words[2].removeprefix(", line ").partition(", in ")
            lines.append("%s:%s:%s" % (words[1], number, function))
    inner = os.path.join("site-packages", "torch", "")
    return next((line for line in reversed(lines) if inner not in line), lines[-1] if lines else "")


def line_of_code(file, number):
    """The user's line of a line that Inductor has written; empty if it names none, None if Inductor did not write it."""
    if not file.startswith(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "\0")):
        return None
    return linecache.getline(file, number).partition("# " + MARK)[2].strip()
