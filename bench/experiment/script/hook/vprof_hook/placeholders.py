"""Common code of the placeholders for absent weights, data and libraries: reports of them, and tensors and files
without values.

A tensor without values lies in mapped memory that is never written, so it takes no host memory. The stub libraries skip
copies of it to the GPU. A copy of it on the host is another tensor without values.
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

from . import events, files, memory

# The kinds of absent files that get placeholders: "weights", "data"; and "documented", if the command is one that a
# repository documents: options that its parser refuses are left out, and absent folders of results are made.
ASKED = frozenset(filter(None, os.environ.get("VPROF_WITHOUT", "").split(",")))

# A tensor without values is mapped from this size in bytes; a smaller one holds zeros.
MAPPED = 1 << 16

# Operators that fill a tensor with random values, and in-place operators with which parameters are initialized.
RANDOM = ("uniform_", "normal_")
CHANGES = ("erfinv_", "mul_.Tensor", "add_.Tensor", "sub_.Tensor", "div_.Tensor", "clamp_", "clamp_min_", "clamp_max_", "bernoulli_.float")

told = set()


def replaced(kind, name, by):
    """Reports to vprof what was absent (kind, name) and the placeholder that replaced it (by). Each report is sent
    once.
    """
    if (kind, name, by) not in told:
        told.add((kind, name, by))
        events.send("replaced", kind=kind, path=str(name), by=by)


def wanted(what, answer, where=None):
    """Reports that a line of the script requires something for which no placeholder exists (what), and how the user
    provides it (answer).

    The library's own exception follows. If the script does not catch it, vprof prints this report.
    """
    events.send("wanted", path=where or line_of_script(), text=what, by=answer)


def line_of_script():
    """Returns the innermost line of the user's own source on the stack, as file:line; empty if there is none."""
    frame = memory.frame_of_user(sys._getframe(1), memory.LIBRARIES)
    return "%s:%d" % (frame.f_code.co_filename, frame.f_lineno) if frame else ""


def importer(frame):
    """Returns the frame of the import statement that called a finder: the next outer frame that belongs neither to
    importlib nor to the hook; None if there is none.
    """
    own = os.path.dirname(__file__)
    while frame is not None and ("importlib" in frame.f_code.co_filename or frame.f_code.co_filename.startswith(own)):
        frame = frame.f_back
    return frame


def folder():
    """Returns the folder of placeholder files, which is removed after the run."""
    path = events.folder("placeholders")
    os.makedirs(path, exist_ok=True)
    return path


def inside(folder, name):
    """Returns the path of a file that an index or an archive names, inside its folder. Raises ValueError for a path
    outside it.
    """
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(name) or os.path.commonpath([os.path.abspath(folder), os.path.abspath(path)]) != os.path.abspath(folder):
        raise ValueError("%r leaves its folder %s" % (name, folder))
    return path


# Tensors.


class Lazy:
    """Makes host tensors without values, and overrides PyTorch's CPU operators so that copies of them take no memory.
    """

    def __init__(self, torch):
        self.torch = torch
        self.ranges = {}  # size in bytes by address
        self.lock = threading.Lock()
        self.libraries = []
        path = os.path.join(os.environ.get("TRITON_LIBCUDA_PATH", ""), "libvprof_gpu.so")  # libraries.load has set the variable
        self.stub = ctypes.CDLL(path) if os.environ.get("VPROF_STUBS") and os.path.exists(path) else None
        if self.stub:
            self.stub.vprof_placeholder.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        if hasattr(getattr(torch, "library", None), "get_kernel"):  # PyTorch 2.11 and later
            for name in ("copy_", "_to_copy", "clone", "cat"):
                self.override(name, getattr(self, name))
            for name in RANDOM if "weights" in ASKED else ():
                self.override(name, self.drawn)
            for name in CHANGES:
                self.override(name, self.unchanged)

    def empty(self, shape, dtype):
        """Returns a host tensor of a shape and dtype without values."""
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
        """Reports whether a host tensor has no values."""
        if not self.ranges or not tensor.is_cpu or tensor.numel() * tensor.element_size() < MAPPED:
            return False
        try:
            return tensor.untyped_storage().data_ptr() in self.ranges
        except (RuntimeError, NotImplementedError):  # the tensor has no storage
            return False

    # Results of the CPU operators for such tensors. A method returns None if the operator's own kernel must run.

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
        """Returns a 0-dim tensor of a number. PyTorch's dispatcher converts such tensors to numbers before it calls
        Python.
        """
        types = {bool: self.torch.bool, int: self.torch.int64, float: self.torch.float64}
        with self.torch._C.DisableTorchFunction():
            return self.torch.scalar_tensor(value, dtype=types[type(value)], device="cpu")

    def copy_(self, to, source, *_):
        return to if self.holds(source) else None

    def unchanged(self, tensor, *_, **__):
        return tensor if self.holds(tensor) else None

    def drawn(self, tensor, *_, **__):
        """Replaces a parameter that is being initialized by a tensor without values, since its initial values have no
        effect either.
        """
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
    """Called when torch was imported."""
    global lazy
    lazy = Lazy(torch)
    files.makes_folders = "documented" in ASKED


# Files.


def write_shapes(path, tensors, metadata=None):
    """Writes a safetensors file with the names, dtypes and shapes of tensors. The file has a hole in place of the
    values.
    """
    names = {dtype: name for name, dtype in sys.modules["safetensors.torch"]._TYPES.items()}
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    write_header(path, header)


def write_header(path, header):
    """Writes a safetensors file with a given header, and a hole of the size that the header states."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    size = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)


def read_header(path):
    """Returns the header of a safetensors file as a dict."""
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


def is_placeholder(path):
    """Reports whether a path names a placeholder file of this run."""
    return isinstance(path, (str, os.PathLike)) and os.path.abspath(os.fspath(path)).startswith(folder() + os.sep)


class Opened:
    """The object that safetensors.safe_open returns for a placeholder file: the same interface, with tensors without
    values.
    """

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
    """The object that get_slice returns: reads parts of one tensor."""

    def __init__(self, file, name):
        self.file, self.name = file, name

    def get_shape(self):
        return list(self.file.header[self.name]["shape"])

    def get_dtype(self):
        return self.file.header[self.name]["dtype"]

    def __getitem__(self, place):
        whole = self.file.get_tensor(self.name)
        return whole if place is Ellipsis or place == slice(None) else whole[place]
