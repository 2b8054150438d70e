"""Records the history of an allocator: each allocation and free, with the operator that caused it.

On a CUDA device this is the history of PyTorch's caching allocator (torch.cuda.memory._record_memory_history), with
requested sizes. On the CPU it comes from the profiler: useful for a dry run, but no evidence about a GPU.
"""

import collections
import contextlib
import os
import re

import torch

# kind is "a" (allocation) or "f" (free). op is the operator called from Python or by the autograd node, native the
# function in it that allocates; "-" is unknown.
Event = collections.namedtuple("Event", "kind address bytes op native node where")

HISTORY = 2_000_000  # most events that the allocator keeps


def watcher(device, stacks=True):
    return CudaWatcher(device, stacks) if device.type == "cuda" else CPUWatcher()


class CudaWatcher:
    def __init__(self, device, stacks):
        self.index = device.index or 0
        self.options = {"context": "all" if stacks else None, "stacks": "all" if stacks else "python", "max_entries": HISTORY}

    @contextlib.contextmanager
    def section(self):
        """Yields an empty list, which is filled with the events of the block when the block ends."""
        events = []
        torch.cuda.synchronize(self.index)
        torch.cuda.memory._record_memory_history("all", **self.options)
        yield events
        torch.cuda.synchronize(self.index)
        trace = torch.cuda.memory._snapshot()["device_traces"][self.index]
        torch.cuda.memory._record_memory_history(None)  # stops recording and clears the history
        if len(trace) >= HISTORY:
            raise RuntimeError(f"more than {HISTORY} events: record a smaller model")
        events += read(trace)


def read(trace):
    """Yields the events of a device's trace."""
    for e in trace:
        if e["action"] == "alloc":
            yield Event("a", e["addr"], e["size"], *cause(e.get("frames", [])))
        elif e["action"] == "free_completed":
            yield Event("f", e["addr"], e["size"], "-", "-", "-", "-")


def cause(frames):
    """Returns (op, native, node, where) for a stack whose innermost frame comes first."""
    op = native = node = where = "-"
    for f in frames:
        name, file = f.get("name", ""), f.get("filename", "")
        if file.endswith(".py"):
            if f"{os.sep}torch{os.sep}" not in file and not file.startswith(os.path.dirname(os.path.abspath(__file__))):
                where = f"{os.path.basename(file)}:{f.get('line', 0)}:{name}"
                break
        elif node != "-":
            continue
        elif found := re.search(r"autograd::(?:generated::)?(\w+)::apply\b", name):
            node = found[1]
        elif found := re.search(r"at::_ops::(\w+)::(?:call|redispatch)", name):
            op = found[1]  # the outermost operator remains
        elif native == "-" and (found := re.search(r"at::native::(?:\(anonymous namespace\)::)?([a-z_]\w*)", name)):
            native = "-" if found[1].startswith("empty") else found[1]
    return op, native, node, where


class CPUWatcher:
    @contextlib.contextmanager
    def section(self):
        events = []
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            yield events
        rows = []

        def walk(entry, op, node):
            name = entry.name
            if name.startswith("autograd::engine::evaluate_function: "):
                op, node = "-", name.split(": ", 1)[1]
            elif name.startswith("aten::") and op == "-":
                op = name.removeprefix("aten::")
            what = entry.extra_fields
            if hasattr(what, "alloc_size"):
                row = Event("a", what.ptr, what.alloc_size, op, "-", node, "-") if what.alloc_size > 0 else Event("f", what.ptr, -what.alloc_size, "-", "-", "-", "-")
                rows.append((entry.start_time_ns, row))
            for child in entry.children:
                walk(child, op, node)

        for entry in profile.profiler.kineto_results.experimental_event_tree():
            walk(entry, "-", "-")
        events += [row for _, row in sorted(rows, key=lambda r: r[0])]
