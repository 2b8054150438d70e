"""PyTorch's memory statistics: peaks of each phase, and every allocation with its source line."""

import ast
import bisect
import functools
import gc
import inspect
import linecache
import os
import re
import sys
import sysconfig
import types

from . import compiling, events, program

# Statistics that are read, by name: PyTorch reports their current value and peak.
AMOUNTS = {"allocated": "allocated_bytes", "reserved": "reserved_bytes", "requested": "requested_bytes"}


# The share of its peak that other steps stay below if a step needs more than they do.
APART = 0.9


class Memory:
    """Memory of the GPUs that this process uses."""

    def __init__(self, torch):
        self.torch = torch
        self.libraries = (*LIBRARIES, os.path.join(os.path.dirname(torch.__file__), ""))
        self.used = False  # whether CUDA was initialized
        self.highest = {}  # peaks of the whole run by device
        self.earlier = {}  # peaks by device, in the current phase before the script reset its peaks
        self.since = {}  # peaks since the script's last reset, by (device, statistic, pool)
        self.labels = program.Labels()
        self.stacks = {}  # stacks that start a backward pass, each once: (code, line) of the frames, innermost first
        self.before = 0  # allocated bytes on the reported device when the current phase began
        self.tops = {}  # the peak of allocated bytes by (step, name of the phase)

    # Peaks.

    def record(self):
        """Called when PyTorch initializes CUDA: starts the recording."""
        cuda = self.torch.cuda
        self.used = True
        cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=sys.maxsize)
        # Recording stays on whatever the script requests: its own snapshot also needs a recording.
        self.history = self.torch._C._cuda_record_memory_history
        self.torch._C._cuda_record_memory_history = lambda *_, **__: None
        self.read, self.reset = self.torch._C._cuda_memoryStats, self.torch._C._cuda_resetPeakMemoryStats
        self.torch._C._cuda_memoryStats = self.stats_of_script
        self.torch._C._cuda_resetPeakMemoryStats = self.reset_of_script
        if hasattr(self.torch._C, "_accelerator_getDeviceStats"):  # autotuning of Inductor reads these peaks
            self.torch._C._accelerator_getDeviceStats = self.stats_of_script
            self.torch._C._accelerator_resetPeakStats = self.reset_of_script
        cuda.empty_cache = self.noting_empty_cache(cuda.empty_cache)
        events.send("cuda", device=cuda.get_device_name(), allocator=os.environ.get("PYTORCH_CUDA_ALLOC_CONF", os.environ.get("PYTORCH_ALLOC_CONF", "")))

    def stop(self):
        """Stops the recording. Collecting Python stacks takes more host time than the allocations."""
        ignored, self.torch._C._cuda_record_memory_history = self.torch._C._cuda_record_memory_history, self.history
        self.torch.cuda.memory._record_memory_history(enabled=None)
        self.torch._C._cuda_record_memory_history = ignored

    def devices(self):
        """Returns the indices of the current device and of all others with a CUDA context."""
        c = self.torch._C
        return sorted({c._cuda_getDevice(), *filter(c._cuda_hasPrimaryContext, range(self.torch.cuda.device_count()))})

    def mark(self, step, phase):
        """Ends a phase: sends its peaks to vprof and resets them for the next phase."""
        for device in self.devices() if self.used else ():
            stats = self.read(device)
            earlier, highest = self.earlier.pop(device, {}), self.highest.setdefault(device, {})
            facts = {}
            for name, key in AMOUNTS.items():
                amount = stats[key]["all"]
                peak = max(amount["peak"], earlier.get(name, 0))
                facts[name], facts["peak_" + name] = amount["current"], peak
                highest[name] = max(highest.get(name, 0), peak)
            self.tops[step, phase] = max(self.tops.get((step, phase), 0), facts["peak_allocated"])
            self.keep(device, stats)
            self.reset(device)
            free, total = self.torch.cuda.mem_get_info(device)
            at = events.now()
            self.labels.add("mark", step, phase, device, at=at)
            events.send("mark", at=at, gpu=device, step=step, phase=phase, used=total - free, **facts)
        self.before = self.allocated()

    def keep(self, device, stats):
        """Stores the peaks for the script before the hook resets them."""
        for key, value in stats.items():
            if isinstance(value, dict):
                pools = value if "all" in value else {"": value}
                for pool, amount in pools.items():
                    if isinstance(amount, dict) and "peak" in amount:
                        place = (device, key, pool)
                        self.since[place] = max(self.since.get(place, 0), amount["peak"])

    def stats_of_script(self, device):
        """Returns PyTorch's statistics with the peaks that the script would see without the hook."""
        stats = self.read(device)
        self.keep(device, stats)
        for (index, key, pool), peak in self.since.items():
            if index == device and key in stats:
                amount = stats[key][pool] if pool else stats[key]
                amount["peak"] = peak
        return stats

    def reset_of_script(self, device):
        """Called when the script resets the peaks."""
        stats = self.read(device)
        for name, key in AMOUNTS.items():
            for peaks in (self.earlier.setdefault(device, {}), self.highest.setdefault(device, {})):
                peaks[name] = max(peaks.get(name, 0), stats[key]["all"]["peak"])
        self.reset(device)
        self.since = {place: peak for place, peak in self.since.items() if place[0] != device}

    def noting_empty_cache(self, call):
        @functools.wraps(call)
        def wrapped():
            self.labels.add("empty_cache")
            return call()

        return wrapped

    def judged(self):
        """Returns the index of the reported device: one that ran out of memory, else the one with the most reserved
        bytes.
        """
        reserved = {device: peaks["reserved"] for device, peaks in self.highest.items()} or dict.fromkeys(self.devices(), 0)
        return max(reserved, key=lambda device: (self.read(device)["num_ooms"] > 0, reserved[device]))

    def allocated(self):
        """Returns the allocated bytes on the reported device; zero before CUDA is initialized."""
        return self.in_use()[0]

    def trace(self):
        """Returns the allocator's trace of the reported device."""
        return snapshot_of(self.torch)["device_traces"][self.judged()]

    def top(self):
        """Returns the highest peak of allocated bytes on any device, in the phases that have ended."""
        return max((peaks["allocated"] for peaks in self.highest.values()), default=0)

    def apart(self):
        """Returns (number, from 1, of the step whose forward or backward pass has the highest peak, bytes by which it
        exceeds the usual steps and all other phases); (0, 0) unless at most a quarter of the steps peak that high.
        """
        peaks, rest = {}, [0]
        for (step, phase), peak in self.tops.items():
            if step > 0 and phase in ("forward", "backward"):
                peaks[step] = max(peaks.get(step, 0), peak)
            else:
                rest.append(peak)
        steps = sorted(peaks, key=peaks.get)
        few = max(1, len(steps) // 4)
        if len(steps) <= 2 * few or peaks[steps[-1 - few]] > APART * peaks[steps[-1]]:
            return 0, 0
        return steps[-1] + 1, peaks[steps[-1]] - max(*rest, peaks[steps[-1 - few]])

    def made(self):
        """Returns the number of allocations so far on the reported device."""
        return self.read(self.judged())["allocation"]["all"]["allocated"] if self.used else 0

    def in_use(self):
        """Returns (allocated bytes, number of live allocations) on the reported device."""
        stats = self.read(self.judged()) if self.used else {}
        return tuple(stats[key]["all"]["current"] if key in stats else 0 for key in ("allocated_bytes", "allocation"))

    def peaks(self):
        """Returns the peaks of the whole run as values of an event."""
        if not self.used:
            return {}
        device = self.judged()
        stats = self.read(device)
        elsewhere = [
            {"gpu": i, "allocated_bytes": peaks["allocated"], "reserved_bytes": peaks["reserved"]}
            for i, peaks in self.highest.items() if i != device and peaks["reserved"]
        ]
        facts = {"gpu": device, "retries": stats["num_alloc_retries"], "ooms": stats["num_ooms"], "elsewhere": elsewhere}
        return {**self.highest[device], **facts, **self.private(device)}

    def private(self, device):
        """Returns the number of private pools, such as pools of CUDA graphs, and their reserved bytes."""
        segments = private(snapshot_of(self.torch)["segments"], device)
        pools = {tuple(s["segment_pool_id"]) for s in segments}
        return {"private_pools": len(pools), "private_bytes": sum(s["total_size"] for s in segments)}

    # Labels of tensors by their purpose.

    def label(self, kind, tensor):
        """Labels the memory of a CUDA tensor with a purpose, at the current time."""
        if not isinstance(tensor, self.torch.Tensor) or not tensor.is_cuda:
            return
        local = getattr(tensor, "_local_tensor", tensor)  # a DTensor's local shard
        try:
            address = local.untyped_storage().data_ptr()
        except RuntimeError:  # the tensor has no storage
            return
        if address:
            self.labels.add("label", kind, address)

    def label_optimizer(self, optimizer):
        """Labels an optimizer's parameters, their gradients and its state."""
        if not self.used:
            return
        for group in optimizer.param_groups:
            for p in group["params"]:
                self.label("weights", p)
                self.label("gradients", p.grad)
        for state in optimizer.state.values():
            values = state.values() if isinstance(state, dict) else [state]
            for value in values:
                self.label("optimizer state", value)

    def label_batch(self, frame):
        """Labels the batch: leaf tensors in the script's variables that require no gradient."""
        while self.used and frame is not None:
            if of_user(frame.f_code.co_filename, self.libraries):
                # In module-level code, longer lists and dicts are mostly copies of models.
                most = 64 if frame.f_code.co_flags & inspect.CO_OPTIMIZED else 8
                for value in variables(frame).values():
                    self.label_inputs(value, 2, most)
            frame = frame.f_back

    def note_backward(self, frame):
        """Records the stack that starts a backward pass: autograd's threads allocate without one."""
        stack = []
        while frame is not None:
            stack.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        stack = tuple(stack)
        self.labels.add("stack", self.stacks.setdefault(stack, stack))

    def label_inputs(self, value, depth, most):
        if isinstance(value, self.torch.nn.Parameter):
            return
        if isinstance(value, self.torch.Tensor):
            if value.is_leaf and not value.requires_grad:
                self.label("batch data", value)
        elif depth and type(value) in (list, tuple):
            for part in value if len(value) <= most else ():
                self.label_inputs(part, depth - 1, most)
        elif depth and isinstance(value, dict) and len(value) <= most and value.get("__name__") is None:
            if any(isinstance(key, str) and key.endswith(".weight") for key in list(value)):
                return  # a state dict, or gradients by parameter
            for part in list(value.values()):
                self.label_inputs(part, depth - 1, most)

    def label_modules(self):
        """Labels parameters and buffers of all live modules."""
        for thing in gc.get_objects():
            if not issubclass(type(thing), self.torch.nn.Module) or "_parameters" not in vars(thing):
                continue
            for p in list(thing._parameters.values()):
                self.label("weights", p)
            for b in list(thing._buffers.values()):
                self.label("buffers", b)

    # The recording.

    def write(self):
        """Writes the allocations as a program. Returns its path and the last failed allocation (None for none)."""
        if not self.used:
            return None, None
        self.label_modules()
        snapshot, device = snapshot_of(self.torch), self.judged()
        trace = snapshot["device_traces"][device]
        which = of_code if os.environ.get("VPROF_LINES") == "libraries" else of_user
        below = Below(self.torch, self.libraries)
        p = program.Program(lambda frames: line_of_user(frames, self.libraries, which) + below.line(frames), device)
        p.follow(trace, self.labels.all, pooled(trace, private(snapshot["segments"], device)))
        return p.write(events.folder(f"trace-{os.getpid()}")), p.failure


def variables(frame):
    """Returns a frame's variables by name."""
    values = frame.f_locals
    found = dict(values)
    # Before Python 3.13 the frame keeps this dict, which would keep tensors alive. It is emptied unless the script uses
    # it.
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(values, dict) and sys.getrefcount(values) <= 3:
        values.clear()
    return found


def snapshot_of(torch):
    """Returns PyTorch's snapshot of the GPUs' memory. To name lines of compiled code, PyTorch imports torch._inductor for
    it, which takes a second. Before the script has imported that, no code is compiled: an empty object hides it.
    """
    if "torch._inductor" in sys.modules:
        return torch.cuda.memory._snapshot()
    torch._inductor = types.SimpleNamespace()
    try:
        return torch.cuda.memory._snapshot()
    finally:
        del torch._inductor


def private(segments, device):
    """Returns a device's segments in private pools, which only CUDA graphs and a user's MemPool use."""
    return [s for s in segments if s["device"] == device and tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)]


def pooled(trace, segments):
    """Returns indices of a trace's entries that allocate in the given segments. The segments exist at the end of the
    trace.
    """
    ends = {s["address"]: s["address"] + s["total_size"] for s in segments}
    begins, found = sorted(ends), set()
    # An allocation before the segment was created belongs to an earlier segment at the same address.
    made = {e["addr"]: i for i, e in enumerate(trace) if e["action"] == "segment_alloc"} if begins else {}
    for i, e in enumerate(trace if begins else ()):
        if e["action"] == "alloc":
            at = bisect.bisect(begins, e["addr"])
            begin = begins[at - 1] if at else None
            if at and e["addr"] < ends[begin] and i >= made.get(begin, 0):
                found.add(i)
    return found


LIBRARIES = tuple(
    os.path.join(folder, "")
    for folder in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} if folder
)


@functools.lru_cache(maxsize=None)
def of_user(file, libraries):
    """Reports whether a source file belongs to the user and not to a library."""
    if file.startswith(("<", os.path.dirname(__file__))) or "site-packages" in file or "dist-packages" in file:
        return False
    return not os.path.abspath(file).startswith(libraries)


def frames_of_user(frame, libraries):
    """Yields the frames of the user's own source, from the given frame outwards."""
    while frame is not None:
        if of_user(frame.f_code.co_filename, libraries):
            yield frame
        frame = frame.f_back


def frame_of_user(frame, libraries):
    """Returns the innermost frame of the user's own source, from the given frame outwards; None if there is none."""
    return next(frames_of_user(frame, libraries), None)


def modules():
    """Yields (module, variables) of the imported modules. Reading __dict__ directly does not load lazy modules.

    Libraries of cffi have the class of modules by __class__, but not by their type, and no __dict__.
    """
    for module in list(sys.modules.values()):
        if issubclass(type(module), types.ModuleType):
            yield module, object.__getattribute__(module, "__dict__")


def loaded():
    """Returns (variables, file) of the modules that were loaded from files."""
    return [(variables, variables["__file__"]) for _, variables in modules() if isinstance(variables.get("__file__"), str)]


@functools.lru_cache(maxsize=None)
def of_code(file, libraries):
    """Reports whether a source file belongs to the user or to a library other than PyTorch. PyTorch's folder is the
    last one of libraries.
    """
    if of_user(file, libraries):
        return True
    path = os.path.abspath(file)
    inside = file.startswith(("<", os.path.dirname(__file__))) or path.startswith(libraries[-1])
    return not inside and ("site-packages" in path or "dist-packages" in path)


class Below:
    """Finds the library's line that allocates for a line of the user, and the modules of the class it belongs to."""

    def __init__(self, torch, libraries):
        self.torch, self.libraries = torch, libraries
        self.classes = {}  # (first line, last line, name) of each class, by file
        self.paths = None  # module paths by (file, class)

    def line(self, frames):
        """Returns "\t\tLINE\tMODULES" for the innermost line of a library other than PyTorch. Returns an empty string
        if the user's own code is the innermost.
        """
        for frame in frames:
            file = frame["filename"]
            if of_user(file, self.libraries):
                return ""
            if of_code(file, self.libraries):
                short = file.rpartition("-packages" + os.sep)[2]
                return "\t\t%s:%d:%s\t%s" % (short, frame["line"], frame["name"], self.module(file, frame["line"]))
        return ""

    def module(self, file, line):
        """Returns the paths in the model of modules whose class contains a line, with * in place of indices."""
        if file not in self.classes:
            try:
                tree = ast.parse("".join(linecache.getlines(file)))
            except SyntaxError:
                tree = ast.Module([], [])
            self.classes[file] = [(n.lineno, n.end_lineno, n.name) for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
        if self.paths is None:
            self.paths = self.name_modules()
        name = next((n for first, last, n in self.classes[file] if first <= line <= last), "")
        return self.paths.get((file, name), "")

    def name_modules(self):
        module = self.torch.nn.Module
        every = [m for m in gc.get_objects() if issubclass(type(m), module) and "_modules" in vars(m)]
        inner = {id(c) for m in every for c in m._modules.values() if c is not None}
        found = {}
        for m in every:
            for path, part in m.named_modules() if id(m) not in inner else ():
                file = getattr(sys.modules.get(type(part).__module__), "__file__", None)
                found.setdefault((file, type(part).__name__), set()).add(re.sub(r"\b\d+\b", "*", path) or type(part).__name__)
        return {key: " and ".join(sorted(paths)[:2]) for key, paths in found.items()}


def line_of_user(frames, libraries, of_user=of_user):
    """Returns the innermost line of the user's own source, as file:line:function; empty if there is none.

    For an allocation of compiled code, the names of graph nodes follow after a tab. If their source is PyTorch itself,
    the line is the one that calls the compiled code.
    """
    names = ""
    for frame in frames:
        if compiling.tunes(frame):
            return "\t" + compiling.TUNING
        if of_user(frame["filename"], libraries):
            where = compiling.line_of_code(frame["filename"], frame["line"])
            if where is None:
                return "%s:%d:%s" % (frame["filename"], frame["line"], frame["name"]) + names
            if not where.startswith("\t"):
                return where
            names = where
    return names
