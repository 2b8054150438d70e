"""torch.compile under vprof: Inductor is the user's own, its kernels are not compiled to machine code.

Triton takes most of the time of compiling, and its code would do nothing here. What Inductor allocates
depends on it in one place: whether a reduction is tuned hangs on the registers that its code takes (count_registers).
Buffers, workspaces and what autotuning allocates come from Inductor's own Python, which runs. VPROF_TRITON has Triton
compile all the same.
"""

import functools
import glob
import linecache
import os
import re
import subprocess
import tempfile


class Result:
    """A kernel in place of what Triton would have compiled for a configuration."""

    hash = ""
    n_regs = None  # nobody knows but where count_registers asks
    cubin_raw = None

    def __init__(self, config):
        self.config = config
        self.kernel = self

    def make_launcher(self):
        """Returns the function that launches the kernel, with what Inductor asks of one."""

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
    if hasattr(tuner, "_dynamic_scale_rblock"):
        tuner._dynamic_scale_rblock = counting_registers(tuner._dynamic_scale_rblock, compile_config)


def counting_registers(scale, compile_config):
    """Replaces Inductor's check whether a reduction takes too many registers, for which Triton compiles the kernels in
    question.

    If it does, Inductor also tries half the block, and tunes: for that it allocates a buffer of the size of the L2 cache,
    and copies of what the kernel changes.
    """

    @functools.wraps(scale)
    def counted(self):
        loops = not self.inductor_meta.get("persistent_reduction") and getattr(self.heuristic_type, "name", "") == "REDUCTION"
        blocks = (self.size_hints or {}).get("x", 0) if isinstance(self.size_hints, dict) else 0
        # Where each processor has one block at most, registers decide nothing.
        if loops and blocks > (self.device_props.multi_processor_count or 0):
            if getattr(self.fn, "fn", self) is None:  # another process has compiled it
                self.fn = self._reload_kernel().fn
            for result in self.compile_results:
                if isinstance(result, Result):
                    result.n_regs = registers(compile_config(self, result.config).kernel)
        return scale(self)

    return counted


def registers(kernel):
    """Returns a kernel's registers per thread, read by Triton's cuobjdump; None if it reports none."""
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
    """Wraps a benchmark: it runs few iterations, and each takes the same time."""

    @functools.wraps(benchmark)
    def spared(self, *args, **kwargs):
        took = benchmark(self, *args, **{**kwargs, **iterations})
        if isinstance(took, (list, tuple)):
            return type(took)(MILLISECOND for _ in took)
        return took if took == float("inf") else MILLISECOND  # infinite: the configuration is invalid

    return spared


# What each benchmark finds.
MILLISECOND = 1.0


# The files of compiled kernels that had been tuned before this run.
found = set()


def count_found(autotune_cache):
    """Called when torch._inductor.runtime.autotune_cache has been imported."""
    cache = getattr(autotune_cache, "AutotuneCache", None)
    if not hasattr(cache, "read_best"):
        return  # PyTorch is older
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

    Each line of generated code that allocates gets the user's line in a comment, which memory.py reads, and the names of
    the graph's nodes whose results lie in the memory one after the other: Inductor reuses buffers.
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


# The name of what Inductor allocates to tune, which it does not do again where its cache has the outcome.
TUNING = "autotuning"


def tunes(frame):
    """Reports whether a frame of a stack is of Inductor's tuning: of kernels, of the choice between them, of padding
    products.
    """
    file = frame["filename"]
    return "_inductor" in file and (
        frame["name"] == "benchmark_all_configs" or file.endswith(("pad_mm.py", "benchmarking.py", "select_algorithm.py"))
    )


# What comes before the user's line in the comment of a generated line.
MARK = "vprof: "


def comment(buffer, reused):
    """Returns the comment for a line that allocates a buffer: the user's line, a tab, and node names; reused maps
    buffers to later users.
    """
    where, names = origin(buffer), []
    while buffer is not None and len(names) < MOST_NAMES:
        names.append(node_name(buffer))
        buffer = reused.get(buffer.get_name())
    return f"  # {MARK}{where}\t{' > '.join(names)}"


# So many results of a buffer that is reused are named.
MOST_NAMES = 8


def node_name(buffer):
    """Returns the name of a buffer's node in the graph ("addmm_3"), or Inductor's name of the buffer."""
    try:
        node = buffer.get_origin_node() or max(buffer.get_origins())  # the last in the graph
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        node = None
    return getattr(node, "name", None) or buffer.get_name()


def origin(buffer):
    """Returns the user's line that an Inductor buffer comes from, as file:line:function; empty if unknown."""
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
    """Returns the innermost line in a stack trace as text that is not PyTorch's, as file:line:function."""
    lines = []
    for line in text.splitlines():
        words = line.strip().split('"')
        if len(words) == 3 and words[0] == "File " and words[2].startswith(", line "):
            number, _, function = words[2].removeprefix(", line ").partition(", in ")
            lines.append("%s:%s:%s" % (words[1], number, function))
    inner = os.path.join("site-packages", "torch", "")
    return next((line for line in reversed(lines) if inner not in line), lines[-1] if lines else "")


def line_of_code(file, number):
    """Returns the comment that name_lines has written beside a line of Inductor's; empty if there is none, None if
    Inductor did not write the line.
    """
    if not file.startswith(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "\0")):
        return None
    return linecache.getline(file, number).partition("# " + MARK)[2].rstrip("\n")
