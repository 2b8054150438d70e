"""The parts of PyTorch that the hook uses, with an allocator that only counts."""

import importlib
import os
import pickle
import sys
import time
import types

__version__ = "2.99.0"
version = types.SimpleNamespace(cuda=os.environ.get("FAKE_CUDA", "13.2"))


class Counter:
    """The allocator: bytes in use, their peak, and the trace of all allocations and frees."""

    def __init__(self):
        self.now = self.peak = self.blocks = 0
        self.trace = []
        self.recorded = None
        self.passes = self.clock = 0  # backward passes, and milliseconds on the GPU
        self.segments = [
            {"device": 0, "segment_pool_id": pool, "address": address, "total_size": size}
            for pool, address, size in (((0, 0), 0, 8192), ((0, 1), 11000, 4096), ((0, 1), 20000, 4096))
        ]
        self.next = 4096
        self.limit = 1 << 40

    def note(self, action, address, size):
        frames, frame = [], sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
            frame = frame.f_back
        at = time.time_ns() // 1000
        self.trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": at, "frames": frames})
        time.sleep(2e-5)  # so that the times of all events differ

    def alloc(self, size):
        if self.now + size > self.limit:
            self.note("oom", 0, size)
            self.trace[-1]["device_free"] = self.limit - self.now
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes")
        address, self.next = self.next, self.next + size
        self.now += size
        self.blocks += 1
        self.peak = max(self.peak, self.now)
        self.note("alloc", address, size)
        return address

    def free(self, address, size):
        self.now -= size
        self.blocks -= 1
        self.note("free_completed", address, size)


counter = Counter()
recording = [True]  # whether autograd records graphs


def set_grad_enabled(on):
    recording[0] = on


strided, float32 = "strided", "float32"


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    is_cuda, is_leaf, requires_grad, grad, grad_fn, layout, dtype = True, True, False, None, None, "strided", "float16"

    def __init__(self, size):
        self.size, self.shape = size, (size,)
        self.address = counter.alloc(size)

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address, nbytes=lambda: self.size)

    def __del__(self):
        if hasattr(self, "address"):
            counter.free(self.address, self.size)


class Graph:
    """A node of the autograd graph. Its saved tensor is no Python object until _saved_self is read."""

    def __init__(self, saved, before):
        self.storage, self.next_functions = Storage(saved), [] if before is None else [(before, 0)]
        saved.__dict__.clear()

    @property
    def _saved_self(self):
        return types.SimpleNamespace(untyped_storage=lambda: self.storage)


class Storage:
    def __init__(self, tensor):
        self.address, self.size = tensor.address, tensor.size

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.size

    def __del__(self):
        counter.free(self.address, self.size)


class Parameter(Tensor):
    requires_grad = True


def stats(device):
    second = int(os.environ.get("FAKE_SECOND", "0"))
    now, peak = [(counter.now, counter.peak), (second, second), (0, 0)][device]
    amount = {"all": {"current": now, "peak": peak}}
    kinds = {kind: {pool: dict(a) for pool, a in amount.items()} for kind in ("allocated_bytes", "reserved_bytes", "requested_bytes")}
    blocks = {"all": {"current": counter.blocks, "peak": counter.blocks, "allocated": 0}}
    return {**kinds, "allocation": blocks, "num_alloc_retries": 0, "num_ooms": sum(e["action"] == "oom" for e in counter.trace)}


def reset(device):
    if device == 0:
        counter.peak = counter.now


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        assert not counter.recorded, "what is timed is not recorded"
        self.at = counter.clock

    def elapsed_time(self, later):
        return later.at - self.at


def record_history(enabled="all", **_):
    _C._cuda_record_memory_history(enabled)


_C = types.SimpleNamespace(
    _cuda_record_memory_history=lambda enabled: setattr(counter, "recorded", enabled),
    _cuda_memoryStats=stats, _cuda_resetPeakMemoryStats=reset, _cuda_getDevice=lambda: 0, _cuda_hasPrimaryContext=lambda device: device < 2,
    _current_graph_task_id=lambda: graph_task,
)
cuda = types.SimpleNamespace(
    Event=Event, synchronize=lambda: None,
    device_count=lambda: 3, is_available=lambda: os.environ.get("CUDA_VISIBLE_DEVICES") != "9", _lazy_call=lambda call: call(), empty_cache=lambda: None, get_device_name=lambda: "fake",
    memory=types.SimpleNamespace(_record_memory_history=record_history, _snapshot=lambda: {"device_traces": [counter.trace, counter.trace], "segments": counter.segments}),
    mem_get_info=lambda _: ((1 << 34) - 4096 - counter.peak, 1 << 34),
    max_memory_allocated=lambda: _C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"],
)


class Module:
    def __init__(self):
        self._parameters, self._buffers, self._modules, self.training = {}, {}, {}, True

    def parameters(self):
        return list(self._parameters.values())

    def modules(self):
        return [self]

    def named_modules(self):
        return [("", self), *self._modules.items()]

    def train(self, mode=True):
        self.training = mode
        return self

    def eval(self):
        return self.train(False)

    def state_dict(self):
        return {**self._parameters, **self._buffers}

    def load_state_dict(self, state_dict, strict=True, assign=False):
        assert not strict or set(state_dict) == set(self.state_dict()), sorted(state_dict)


_IncompatibleKeys = lambda missing, unexpected: types.SimpleNamespace(missing_keys=missing, unexpected_keys=unexpected)  # noqa: E731
nn = types.SimpleNamespace(Module=Module, Parameter=Parameter, modules=types.SimpleNamespace(module=types.SimpleNamespace(_IncompatibleKeys=_IncompatibleKeys, register_module_forward_pre_hook=lambda hook: None)))


nn.functional = types.SimpleNamespace(cross_entropy=lambda logits: logits)
nn.MultiheadAttention = type("MultiheadAttention", (Module,), {"forward": lambda *_: None})
nn.ModuleList = nn.Sequential = list


class autocast:
    def __enter__(self):
        return self


class GradScaler:
    def __init__(self, finite=True):
        self.finite = finite

    def load_state_dict(self, state_dict):
        self.finite = state_dict["finite"]

    def step(self, optimizer):
        if self.finite:
            optimizer.step()


amp = types.SimpleNamespace(GradScaler=GradScaler)


graph_task, grad_hooks = -1, []


def backward(parameters, size):
    global graph_task
    counter.passes += 1
    counter.clock += 20 if counter.passes > 6 else 1000
    for p in parameters:
        p.grad = Tensor(size)
    graph_task = 0
    for hook in grad_hooks:
        hook()
    graph_task = -1


autograd = types.SimpleNamespace(backward=backward, grad=backward)
random = types.SimpleNamespace(get_rng_state=lambda: 0, set_rng_state=lambda state: None)
distributed = types.SimpleNamespace(is_available=lambda: False)


def save(obj, f):
    with open(f, "wb") as file:
        pickle.dump(obj, file)


class device:
    def __init__(self, name):
        self.type = name


def load(f, map_location=None):
    with open(f, "rb") as file:
        return pickle.load(file)


jit = types.SimpleNamespace(save=save, load=load)
optim = importlib.import_module("torch.optim")
