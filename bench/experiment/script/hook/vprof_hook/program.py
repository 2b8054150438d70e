"""Converts a trace of PyTorch's allocator to a program, in the JSON of .vprof files (docs/lab/formats.md)."""

import json
import time

from . import events

# Purposes of memory. If a buffer gets two labels, the first one in this list applies: a parameter may also be an
# optimizer's state. Memory of CUDA graphs is "graph pools" only without another label.
CLASSES = ("weights", "optimizer state", "gradients", "buffers", "batch data", "activations", "graph pools", "temporaries")


class Labels:
    """Facts about a program besides the trace, as (time, method of Program, arguments)."""

    def __init__(self):
        self.all = []

    def add(self, kind, *values, at=None):
        self.all.append((events.now() if at is None else at, kind, values))

    def pause(self):
        """Waits until the clocks of the trace and of the labels have advanced, so that their order is certain."""
        time.sleep(0.001)


# Order of facts with the same time.
ORDER = ("label", "note", "empty_cache", "entry", "stack", "turn", "mark")


class Program:
    """Builds the instructions of a device's program.

    line_of(frames) returns the site of an allocation: the user's line, then after tabs the graph nodes, the library's
    line and its modules.
    """

    def __init__(self, line_of, device=0):
        self.line_of, self.device = line_of, device
        self.sites, self.streams = {}, {0: 0}
        self.buffers, self.phases = [], []
        self.instructions, self.times, self.notes = [], [], []
        self.ops, self.operands, self.products, self.at = [], [], [], 0
        self.live = {}  # indices of buffers by address
        self.phase = {"step": -1, "phase": "set-up"}
        self.failure = None  # the last failed allocation
        self.started = ()  # frames of the call that started the last backward pass

    def follow(self, trace, labels, pooled=()):
        """Adds the entries of a trace and the labels in order of time. pooled holds the indices of entries in private
        pools.
        """
        things = list(labels)
        for i, e in enumerate(trace):
            things.append((e.get("time_us", 0), "entry", (e, i in pooled)))
        things.sort(key=lambda thing: (thing[0], ORDER.index(thing[1])))
        for self.at, kind, values in things:
            getattr(self, kind)(*values)
        return self

    def emit(self, kind, number=0):
        self.instructions.append({"Kind": kind, "Arg": number})
        self.times.append(self.at)

    def entry(self, e, pooled):
        """Adds an entry of the trace."""
        if e["action"] == "alloc" and e["size"]:
            self.live[e["addr"]] = len(self.buffers)
            self.emit("alloc", len(self.buffers))
            stream = self.streams.setdefault(e.get("stream", 0), len(self.streams))
            where = self.sites.setdefault(self.site_of(e), len(self.sites))
            self.buffers.append({"Bytes": e["size"], "Class": "graph pools" if pooled else "temporaries", "Stream": stream, "Site": where})
        elif e["action"] == "free_completed" and e["addr"] in self.live:
            self.emit("free", self.live.pop(e["addr"]))
        elif e["action"] == "oom":
            where = self.site_of(e).partition("\t")[0]
            self.failure = {"want": e["size"], "free": e.get("device_free", 0), "where": where, **self.phase}

    def site_of(self, e):
        """Returns the site of an entry; of one in autograd's threads, the site that started the backward pass."""
        return self.line_of(e.get("frames", ())) or (self.line_of(self.started) if self.phase["phase"] == "backward" else "")

    def stack(self, frames):
        self.started = [{"filename": code.co_filename, "line": line, "name": code.co_name} for code, line in frames]

    def label(self, name, address):
        """Labels the buffer at an address with its purpose."""
        if address in self.live:
            buffer = self.buffers[self.live[address]]
            buffer["Class"] = min(buffer["Class"], name, key=CLASSES.index)

    def empty_cache(self):
        self.emit("empty-cache")

    def note(self, kind, address, offset, text=""):
        """Adds a note about the buffer at an address, offset bytes into it. docs/lab/formats.md lists the kinds."""
        self.add_note(len(self.instructions), kind, self.live.get(address, -1), offset, text)

    def add_note(self, place, kind, buffer, offset=0, text=""):
        """Adds a note about a buffer, before the instruction with index place."""
        self.notes.append({"At": place, "Kind": kind, "Buffer": buffer, "Offset": offset, "Text": text})

    def mark(self, step, phase, device=0):
        """Ends a phase."""
        if device == self.device:
            self.emit("mark", len(self.phases))
            self.phases.append({"Step": step, "Name": phase})

    def turn(self, step, phase):
        """Begins a phase. Unlabeled buffers that are live when backward begins are activations."""
        self.phase = {"step": step, "phase": phase}
        for number in self.live.values() if phase == "backward" else ():
            buffer = self.buffers[number]
            buffer["Class"] = min(buffer["Class"], "activations", key=CLASSES.index)

    def write(self, path, **conditions):
        """Writes a recording with the given conditions to a file; returns its path."""
        sites = [dict(zip(("Where", "Op", "Native", "Module"), where.split("\t"))) for where in self.sites]
        streams = ["stream %d" % n for n in self.streams.values()] if len(self.streams) > 1 else []
        program = {"Instructions": self.instructions, "Buffers": self.buffers, "Phases": self.phases, "Sites": sites, "Streams": streams}
        program.update({"Ops": self.ops, "Operands": self.operands, "Products": self.products} if self.ops else {})
        self.notes.sort(key=lambda note: note["At"])
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**conditions, "program": program, "notes": self.notes}, file)
        return path
