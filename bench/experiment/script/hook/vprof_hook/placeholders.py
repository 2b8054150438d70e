"""What placeholders of weights, data and libraries share: the report, and tensors and files without values.

A tensor without values lies in memory that is mapped and never written, so that it takes none of the host's. The stubs
of NVIDIA's libraries skip copies of it to the GPU; copies on the host are further tensors without values.
"""

import ctypes
import json
import math
import mmap
import os
import struct
import sys
import threading
import weakref

from . import events, memory

# What is to be replaced where it is absent: "weights", "data".
ASKED = frozenset(filter(None, os.environ.get("VPROF_WITHOUT", "").split(",")))

# Bytes from which a tensor without values is mapped: smaller ones are zeros.
MAPPED = 1 << 16

# Operators that draw random values, and others by which the initialization of a parameter changes it.
RANDOM = ("uniform_", "normal_")
CHANGES = ("erfinv_", "mul_.Tensor", "add_.Tensor", "sub_.Tensor", "div_.Tensor", "clamp_", "clamp_min_", "clamp_max_", "bernoulli_.float")

told = set()


def replaced(kind, name, by):
    """Reports something that was absent, and what took its place."""
    if (kind, name, by) not in told:
        told.add((kind, name, by))
        events.send("replaced", kind=kind, path=str(name), by=by)


def wanted(what, answer, where=None):
    """Notes that a line of the script requires something that no placeholder can be, and what would answer it.

    The exception of the library follows. If the script does not catch it, vprof reports this sentence.
    """
    events.send("wanted", path=where or line_of_script(), text=what, by=answer)


def line_of_script():
    """Returns the innermost line that runs in the user's own source, as file:line."""
    frame = memory.frame_of_user(sys._getframe(1), memory.LIBRARIES)
    return "%s:%d" % (frame.f_code.co_filename, frame.f_lineno) if frame else ""


def folder():
    """Returns the folder of placeholder files, which goes with the run."""
    path = events.folder("placeholders")
    os.makedirs(path, exist_ok=True)
    return path


def inside(folder, name):
    """Returns the path of a file that an index or an archive names, in its folder; ValueError if it is elsewhere."""
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(name) or os.path.commonpath([os.path.abspath(folder), os.path.abspath(path)]) != os.path.abspath(folder):
        raise ValueError("%r leaves its folder %s" % (name, folder))
    return path


# Tensors.


class Lazy:
    """Makes tensors without values, and keeps copies of them on the host from taking memory."""

    def __init__(self, torch):
        self.torch = torch
        self.ranges = {}  # bytes by address
        self.lock = threading.Lock()
        self.libraries = []
        path = os.path.join(os.environ.get("TRITON_LIBCUDA_PATH", ""), "libvprof_gpu.so")  # libraries.load has set the folder
        self.stub = ctypes.CDLL(path) if os.environ.get("VPROF_STUBS") and os.path.exists(path) else None
        if self.stub:
            self.stub.vprof_placeholder.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        if hasattr(getattr(torch, "library", None), "get_kernel"):  # from 2.11 on
            for name in ("copy_", "_to_copy", "clone", "cat"):
                self.override(name, getattr(self, name))
            for name in RANDOM if "weights" in ASKED else ():
                self.override(name, self.drawn)
            for name in CHANGES:
                self.override(name, self.unchanged)

    def empty(self, shape, dtype):
        """Returns a tensor of the host without values."""
        torch = self.torch
        elements = math.prod(shape)
        size = elements * dtype.itemsize
        if size < MAPPED:
            return torch.zeros(tuple(shape), dtype=dtype, device="cpu")
        mapped = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000))
        tensor = torch.frombuffer(mapped, dtype=dtype, count=elements).reshape(tuple(shape))
        address = tensor.data_ptr()
        self.register(address, size)
        weakref.finalize(mapped, self.register, address, 0)
        return tensor

    def register(self, address, size):
        with self.lock:
            if size:
                self.ranges[address] = size
            else:
                self.ranges.pop(address, None)
        if self.stub:
            self.stub.vprof_placeholder(address, size)

    def holds(self, tensor):
        """Reports whether a tensor of the host has no values."""
        if not self.ranges or not tensor.is_cpu or tensor.numel() * tensor.element_size() < MAPPED:
            return False
        try:
            return tensor.untyped_storage().data_ptr() in self.ranges
        except (RuntimeError, NotImplementedError):  # a tensor without storage
            return False

    # What the operators of the host give for such tensors.

    def override(self, name, instead):
        torch = self.torch
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        try:
            kernel = torch.library.get_kernel(op, "CPU").call_boxed
        except RuntimeError:
            return

        def run(keys, *args, **kwargs):
            args = tuple(self.number(a) if isinstance(a, (bool, int, float)) and i in tensors else a for i, a in enumerate(args))
            out = instead(*args, **kwargs)
            return kernel(keys, *args, **kwargs) if out is None else out

        tensors = [i for i, argument in enumerate(op._schema.arguments) if str(argument.type) == "Tensor"]
        self.libraries.append(torch.library.Library("aten", "IMPL"))
        self.libraries[-1].impl(op, run, "CPU", with_keyset=True)

    def number(self, value):
        """Returns a tensor of a number, which PyTorch's dispatcher has made of one before it called Python."""
        types = {bool: self.torch.bool, int: self.torch.int64, float: self.torch.float64}
        with self.torch._C.DisableTorchFunction():
            return self.torch.scalar_tensor(value, dtype=types[type(value)], device="cpu")

    def copy_(self, to, source, *_):
        return to if self.holds(source) else None

    def unchanged(self, tensor, *_, **__):
        return tensor if self.holds(tensor) else None

    def drawn(self, tensor, *_, **__):
        """A parameter that is initialized has no values from here on: nobody knows trained ones either."""
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        if isinstance(tensor, self.torch.nn.Parameter) and whole and tensor.is_contiguous() and not self.holds(tensor):
            tensor.set_(self.empty(tensor.shape, tensor.dtype))
        return self.unchanged(tensor)

    def _to_copy(self, tensor, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
        if not self.holds(tensor) or layout not in (None, self.torch.strided) or device is not None and device.type != "cpu" or pin_memory:
            return None
        return self.like(tensor, dtype or tensor.dtype)

    def clone(self, tensor, *, memory_format=None):
        return self.like(tensor, tensor.dtype) if self.holds(tensor) else None

    def like(self, tensor, dtype):
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        return self.empty([tensor.shape[i] for i in order], dtype).permute([order.index(i) for i in range(tensor.dim())])

    def cat(self, tensors, dim=0):
        if not all(self.holds(t) and t.dtype == tensors[0].dtype for t in tensors):
            return None
        shape = list(tensors[0].shape)
        shape[dim] = sum(t.shape[dim] for t in tensors)
        return self.empty(shape, tensors[0].dtype)


lazy = None


def start(torch):
    """Called when torch has been imported."""
    global lazy
    lazy = Lazy(torch)


# Files.


def write_shapes(path, tensors, metadata=None):
    """Writes a safetensors file of some tensors' shapes: its header, and a hole where the values would be."""
    names = {dtype: name for name, dtype in sys.modules["safetensors.torch"]._TYPES.items()}
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    write_header(path, header)


def write_header(path, header):
    """Writes a safetensors file of a header, and a hole of the size that it states."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    size = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)


def read_header(path):
    """Returns the header of a safetensors file."""
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


def is_placeholder(path):
    """Reports whether a file is a placeholder of this run."""
    return isinstance(path, (str, os.PathLike)) and os.path.abspath(os.fspath(path)).startswith(folder() + os.sep)


class Opened:
    """safetensors.safe_open of a placeholder: the same interface over tensors without values."""

    def __init__(self, filename, framework="pt", device="cpu", **_):
        self.header = read_header(filename)
        self.about, self.device = self.header.pop("__metadata__", None), device

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def keys(self):
        return sorted(self.header)

    def offset_keys(self):
        return sorted(self.header, key=lambda name: self.header[name]["data_offsets"])

    def metadata(self):
        return self.about

    def get_tensor(self, name):
        entry = self.header[name]
        tensor = lazy.empty(entry["shape"], sys.modules["safetensors.torch"]._TYPES[entry["dtype"]])
        return tensor if str(self.device) == "cpu" else tensor.to(self.device if isinstance(self.device, str) else "cuda:%s" % self.device)

    def get_tensors(self, names=None):
        return {name: self.get_tensor(name) for name in names or self.keys()}

    def get_slice(self, name):
        return Slice(self, name)


class Slice:
    """What safe_open's get_slice returns."""

    def __init__(self, file, name):
        self.file, self.name = file, name

    def get_shape(self):
        return list(self.file.header[self.name]["shape"])

    def get_dtype(self):
        return self.file.header[self.name]["dtype"]

    def __getitem__(self, place):
        whole = self.file.get_tensor(self.name)
        return whole if place is Ellipsis or place == slice(None) else whole[place]
