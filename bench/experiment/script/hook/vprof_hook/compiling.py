"""torch.compile under vprof: the user's own Inductor generates the code, but Triton kernels are not compiled.

Compiling them takes most of the time, and on the simulated GPU they do nothing. Inductor's allocations depend on a
compiled kernel in one case only: a reduction is tuned if its code takes too many registers (counting_registers).
Buffers, workspaces and the allocations of autotuning come from Inductor's Python code, which runs. VPROF_TRITON
compiles the kernels all the same.
"""

import functools
import glob
import linecache
import os
import re
import subprocess
import tempfile


# Called with each Triton kernel that generated code launches, and its arguments; None for nothing.
watch = None


class Result:
    """Replaces the compiled Triton kernel of a configuration."""

    hash = ""
    n_regs = None  # unknown, unless counting_registers compiles the kernel
    cubin_raw = None

    def __init__(self, config, tuner=None):
        self.config, self.tuner = config, tuner
        self.kernel = self

    def make_launcher(self):
        """Returns a function that launches nothing, with the attributes that Inductor reads."""

        def launch(*args, **_kwargs):
            if watch is not None:
                watch(self.tuner, args)

        launch.config = self.config
        launch.n_regs, launch.n_spills, launch.shared = None, 0, 0  # Inductor compares the number of spilled registers with a limit
        launch.cache_hash, launch.store_cubin = "", False
        return launch


def spare_triton(heuristics):
    """Called when torch._inductor.runtime.triton_heuristics was imported."""
    tuner = heuristics.CachingAutotuner
    if os.environ.get("VPROF_TRITON") or not hasattr(heuristics, "TritonCompileResult"):
        return  # before 2.7, PyTorch uses Triton's binary itself
    compile_config = tuner._precompile_config

    @functools.wraps(compile_config)
    def spared(self, config, *args, **kwargs):
        props = getattr(self, "device_props", None)
        if getattr(props, "type", "cuda") != "cuda":
            return compile_config(self, config, *args, **kwargs)
        return Result(config, self)

    tuner._precompile_config = spared
    if hasattr(tuner, "_dynamic_scale_rblock"):
        tuner._dynamic_scale_rblock = counting_registers(tuner._dynamic_scale_rblock, compile_config)


def counting_registers(scale, compile_config):
    """Wraps Inductor's check whether a reduction takes too many registers; the reductions that it concerns are compiled
    by Triton.

    If one does, Inductor also tries half the block size and tunes. Tuning allocates a buffer of the size of the L2
    cache and copies of the kernel's mutated arguments.
    """

    @functools.wraps(scale)
    def counted(self):
        loops = not self.inductor_meta.get("persistent_reduction") and getattr(self.heuristic_type, "name", "") == "REDUCTION"
        blocks = (self.size_hints or {}).get("x", 0) if isinstance(self.size_hints, dict) else 0
        # With at most one block per multiprocessor, Inductor does not check registers.
        if loops and blocks > (self.device_props.multi_processor_count or 0):
            if getattr(self.fn, "fn", self) is None:  # another process has compiled the kernel
                self.fn = self._reload_kernel().fn
            for result in self.compile_results:
                if isinstance(result, Result):
                    result.n_regs = registers(compile_config(self, result.config).kernel)
        return scale(self)

    return counted


def registers(kernel):
    """Returns a kernel's registers per thread as Triton's cuobjdump reports them; None if it does not."""
    import triton

    code = getattr(kernel, "cubin_raw", None) or getattr(kernel, "asm", {}).get("cubin")
    tool = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")
    try:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(code or b"")
            file.flush()
            said = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    counts = re.findall(r"\bREG:(\d+)", said)
    return max(map(int, counts), default=None)


def spare_benchmarks(benchmarking):
    """Called when torch._inductor.runtime.benchmarking was imported.

    Times measured on the simulated GPU are noise of the host and must not decide anything: every candidate gets the
    same time. A benchmark repeats the same allocations in hundreds of iterations. Two are enough: one before the buffer
    that flushes the L2 cache exists, and one after.
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
    """Wraps a benchmark function: it runs few iterations and returns the same time for every candidate."""

    @functools.wraps(benchmark)
    def spared(self, *args, **kwargs):
        took = benchmark(self, *args, **{**kwargs, **iterations})
        if isinstance(took, (list, tuple)):
            return type(took)(MILLISECOND for _ in took)
        return took if took == float("inf") else MILLISECOND  # Inductor marks an invalid configuration with an infinite time

    return spared


# The time that every benchmark returns, in milliseconds.
MILLISECOND = 1.0


# Files of autotuning results that existed before this run and were used.
found = set()


def count_found(autotune_cache):
    """Called when torch._inductor.runtime.autotune_cache was imported."""
    cache = getattr(autotune_cache, "AutotuneCache", None)
    if not hasattr(cache, "read_best"):
        return  # an older PyTorch
    read = cache.read_best
    there = set(glob.glob(os.path.join(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), "*", "*.best_config")))

    @functools.wraps(read)
    def counted(self, *args, **kwargs):
        best = read(self, *args, **kwargs)
        if best is not None and self.local_cache and self.local_cache[1] in there:
            found.add(self.local_cache[1])
        return best

    cache.read_best = counted


def hide_from_dynamo(trace_rules):
    """Called when torch._dynamo.trace_rules was imported.

    Keeps Dynamo from tracing this package: its operator overrides (values.py) run between the graphs of a compiled
    function.
    """
    trace_rules.add(__package__)


def keep_share(config):
    """Called when torch._functorch.config was imported: applies vprof run --activation-memory-budget."""
    share = os.environ.get("VPROF_ACTIVATION_BUDGET")
    if share:
        config.activation_memory_budget = float(share)


def name_lines(wrapper):
    """Called when torch._inductor.codegen.wrapper was imported.

    Appends a comment to each generated line that allocates a buffer: the user's line, which memory.py reads, and the
    names of the graph nodes whose results use the buffer one after the other (Inductor reuses buffers).
    """
    generator = wrapper.PythonWrapperCodegen
    make, call, plan = generator.make_buffer_allocation, generator._generate_extern_kernel_alloc_helper, wrapper.AllocateLine.plan

    @functools.wraps(plan)
    def plan_noted(self, state):
        line = plan(self, state)
        if isinstance(line, wrapper.ReuseLine):
            vars(self.wrapper).setdefault("vprof_reused", {})[line.node.get_name()] = line.reused_as
        return line

    @functools.wraps(make)
    def make_named(self, buffer):
        line = make(self, buffer)
        return line if "\n" in line else line + comment(buffer, vars(self).get("vprof_reused", {}))

    @functools.wraps(call)
    def call_named(self, kernel, *args, **kwargs):
        ending = self.ending
        self.ending = ending + comment(kernel, vars(self).get("vprof_reused", {}))
        try:
            return call(self, kernel, *args, **kwargs)
        finally:
            self.ending = ending

    wrapper.AllocateLine.plan = plan_noted
    generator.make_buffer_allocation, generator._generate_extern_kernel_alloc_helper = make_named, call_named


# The site of allocations made during Inductor's tuning. They do not occur if the tuning result is cached.
TUNING = "autotuning"


def tunes(frame):
    """Reports whether a stack frame belongs to Inductor's tuning: of a kernel, of a choice between kernels, or of
    padding for matrix products.
    """
    file = frame["filename"]
    return "_inductor" in file and (
        frame["name"] == "benchmark_all_configs" or file.endswith(("pad_mm.py", "benchmarking.py", "select_algorithm.py"))
    )


# Precedes the user's line in the comment of a generated line.
MARK = "vprof: "


def comment(buffer, reused):
    """Returns the comment for a generated line that allocates a buffer: the user's line, a tab, and node names. reused
    maps the name of a buffer to the buffer that takes over its memory.
    """
    where, names = origin(buffer), []
    while buffer is not None and len(names) < MOST_NAMES:
        names.append(node_name(buffer))
        buffer = reused.get(buffer.get_name())
    return f"  # {MARK}{where}\t{' > '.join(names)}"


# At most this many nodes of a reused buffer are named.
MOST_NAMES = 8


def node_name(buffer):
    """Returns the name of the graph node that computes a buffer ("addmm_3"), or else Inductor's name of the buffer."""
    try:
        node = buffer.get_origin_node() or max(buffer.get_origins())  # the last node in the graph
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        node = None
    return getattr(node, "name", None) or buffer.get_name()


def origin(buffer):
    """Returns the user's line for which Inductor allocates a buffer, as file:line:function; empty if unknown."""
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
    """Returns the innermost line outside PyTorch in the text of a stack trace, as file:line:function."""
    lines = []
    for line in text.splitlines():
        words = line.strip().split('"')
        if len(words) == 3 and words[0] == "File " and words[2].startswith(", line "):
            number, _, function = words[2].removeprefix(", line ").partition(", in ")
            lines.append("%s:%s:%s" % (words[1], number, function))
    inner = os.path.join("site-packages", "torch", "")
    return next((line for line in reversed(lines) if inner not in line), lines[-1] if lines else "")


def line_of_code(file, number):
    """Returns the comment that name_lines has appended to a line of generated code. Returns an empty string if the line
    has none, and None if the file is not generated by Inductor.
    """
    if not file.startswith(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "\0")):
        return None
    return linecache.getline(file, number).partition("# " + MARK)[2].rstrip("\n")
