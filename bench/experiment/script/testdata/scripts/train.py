"""A training loop whose behaviour the arguments select. It runs until vprof stops it."""

import collections
import ctypes
import functools
import glob
import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import types

assert importlib.util.find_spec("torch")  # as transformers asks before anybody imports it
import torch


def model():
    m = torch.nn.Module()
    m._parameters["w"] = torch.nn.Parameter(1000)
    m._buffers["b"] = torch.Tensor(64)
    return m


class Rows:
    """Samples of about 20 numbers with a long one near the end; the arguments select other lengths."""

    def __len__(self):
        return 600

    def __getitem__(self, i):
        if "unreadable" in args and i == 100:
            raise OSError("no such sample")
        return [1] * (900 if i == 555 and "alike" not in args else 20 + i % 3 * ("alike" not in args))


class Stream(Rows, __import__("torch.utils.data").utils.data.IterableDataset):
    def __iter__(self):
        return (self[i] for i in range(600))


def train(model, optimizer, scaler, extra=0):
    x = torch.Tensor(500)
    hidden = torch.Tensor(3000 + extra)
    torch.autograd.backward(model.parameters(), 1000)
    del hidden
    scaler.step(optimizer)
    for p in model.parameters():
        p.grad = None
    del x


def files():
    """Saves, copies, lists, moves and removes files, as scripts do with checkpoints."""
    os.makedirs("out/ckpt", exist_ok=True)
    torch.save({"a": 1}, "out/ckpt/a.pt")
    assert os.path.isfile("out/ckpt/a.pt")
    assert glob.glob("out/ckpt/*.pt") == ["out/ckpt/a.pt"]
    assert [p.name for p in pathlib.Path("out").rglob("*.pt")] == ["a.pt"]
    shutil.copy2("out/ckpt/a.pt", "out/ckpt/best.pt")
    assert torch.load("out/ckpt/best.pt") == {"a": 1}
    os.remove("out/ckpt/a.pt")
    assert os.listdir("out/ckpt") == ["best.pt"]
    with tempfile.TemporaryFile(dir="out/ckpt") as unnamed:  # TemporaryFile opens the folder itself
        unnamed.write(b"gone when it is closed")
    with open("log.txt", "a") as log:
        log.write("new line\n")
    with open("log.txt") as log:
        assert log.read() == "old line\nnew line\n"
    pathlib.Path("out/metrics.json").write_text("{}")
    assert pathlib.Path("out/metrics.json").stat().st_size == 2
    with open("fresh.txt", "w") as fresh:
        fresh.write("not there before\n")
    os.makedirs("cache/inner")
    subprocess.run(["touch", "cache/inner/rows"], check=True)
    os.replace("real.pt", "moved.pt")
    os.remove("real.pt")
    with open("moved.pt") as moved:
        assert moved.read() == "real"
    shutil.copytree("out", "copy")
    shutil.rmtree("copy")
    assert not os.path.exists("copy/ckpt/best.pt")
    tempfile.tempdir, before = os.path.dirname(os.getcwd()), tempfile.tempdir
    headers = os.path.join(tempfile.mkdtemp(prefix="torchinductor_"), "precompiled")
    os.makedirs(headers)
    pathlib.Path(headers, "a.tmp").write_text("")
    os.rename(os.path.join(headers, "a.tmp"), os.path.join(headers, "a.h"))
    subprocess.run(["test", "-e", os.path.join(headers, "a.h")], check=True)
    shutil.rmtree(os.path.dirname(headers))
    tempfile.tempdir = before
    os.rename("out", "new")
    script = "import torch; assert torch.load('new/ckpt/best.pt') == {'a': 1}"
    subprocess.run([sys.executable, "-c", script], check=True)


@functools.lru_cache(maxsize=None)
def table(step):
    return torch.Tensor(2000)


class Rollout:
    def __init__(self):
        self.rows = collections.deque()


def keeper(module):
    """Registers a forward hook that stores every output."""
    seen = {}

    def hook(output):
        seen[len(seen)] = output

    module._forward_hooks = {0: hook}
    return hook


class Node(torch.Tensor):
    """A tensor with an autograd graph."""

    def __init__(self, graph):
        super().__init__(8)
        self.grad_fn = graph

    def __add__(self, other):
        return Node(torch.Graph(other, self.grad_fn))


args = sys.argv[1:]
if "files" in args:
    for name, text in ("log.txt", "old line\n"), ("real.pt", "real"):
        subprocess.run([sys.executable, "-c", f"open({name!r}, 'w').write({text!r})"], check=True, env={})
    files()
if "within" in args:
    sys.exit(1 + subprocess.run([sys.executable, __file__]).returncode)
def resume():
    """Resumes from an absent checkpoint with the keys of several training loops; uses the network and credentials."""
    last = torch.load("last.pt", map_location="cpu")
    m.load_state_dict(last["model"])
    m.load_state_dict({key.replace("module.", ""): value for key, value in last["state_dict"].items()})
    adam.load_state_dict(last["optimizer"])
    scaler.load_state_dict(last["scaler"])
    assert [*range(last["epoch"] + 1, 3)] == [1, 2] and "HF_TOKEN" not in os.environ and "USER_SETTING" in os.environ
    try:
        socket.create_connection(("192.0.2.1", 80))
    except ConnectionRefusedError as error:
        print(error)


if "smi" in args:
    subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"], check=True)
if "host" in args:  # trains on the CPU
    torch.optim.SGD([torch.nn.Parameter(0)]).step()
    sys.exit()
if "bare" in args:  # updates its parameters without an optimizer
    for it in range(40):
        torch.autograd.backward(model().parameters(), 1000)
    sys.exit()
if "graphs" in args:  # runs no backward pass
    m = model()
    kept = [torch.Tensor(5000 if torch.recording[0] else 100) for _ in range(3)]
    sys.exit()
if "slow" in args:
    time.sleep(2)
if "library" in args:
    import blocks

    library = blocks.Model()
m = model()
average = model() if "average" in args else m
adam = torch.optim.Adam(m.parameters())
scaler = torch.amp.GradScaler(finite="skip" not in args)
never = torch.optim.SGD([torch.nn.Parameter(8)]) if "never" in args else None
if "resume" in args:
    resume()
if "whole" in args:
    torch.load("whole.pt").eval()
if "wrapped" in args:
    wrapper = torch.optim.SGD(m.parameters())
    wrapper.param_groups = adam.param_groups
if "within backward" in args:
    torch.grad_hooks += [adam.step, lambda: print("backward goes on")]
    for it in range(40):
        torch.autograd.backward(m.parameters(), 1000)
    sys.exit()
if "lazy" in args:  # like packages that import their parts at the first access

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            raise ImportError("this package is optional, and not there")

    sys.modules["optional"] = Lazy("optional")
if "rows" in args:
    loader = torch.utils.data.DataLoader(Stream() if "stream" in args else Rows(), 4)
    for batch in loader:
        train(m, adam, scaler, 10 * batch.numel())
        print("batch", *batch.shape, flush=True)
        if "ema" in args:
            m.state_dict()
    if "validate" in args:
        average.eval()
        kept = torch.Tensor(90000)
        del kept
        m.train()
        gathered = m.state_dict(), torch.Tensor(70000)
        torch.save({}, "m.pt")
        del gathered
    if "broken" in args:
        raise ZeroDivisionError("no batches")
    print("epoch ends", flush=True)
    sys.exit()
if "grow" in args:
    kept = []
    if "closure" in args:
        keeper = keeper(m)
    if "object" in args:
        keeper = Rollout()
    total = Node(None)
    for _ in range(4 if "rounds" in args else 0):
        kept = []
        for it in range(10):
            train(m, adam, scaler)
            kept.append(torch.Tensor(2000))
        torch.Tensor(50000)
    for it in range(40):
        train(m, adam, scaler)
        if "uneven" in args:
            kept.append(torch.Tensor(2000 + 100 * (it * it % 7)))
        elif "closure" in args:
            m._forward_hooks[0](torch.Tensor(2000))
        elif "object" in args:
            keeper.rows.append({"obs": torch.Tensor(2000)})
        elif "cache" in args:
            table(it)
        elif "graph" in args:
            total = total + torch.Tensor(2000)
        elif it > 3 or "warm" not in args:
            kept.append(torch.Tensor(2000))
        elif it < 3:
            kept.append(torch.Tensor(100 * (it + 1)))
    sys.exit()
if "foreach" in args:
    adam.param_groups[0]["foreach"] = None
if "small" in args:
    torch.counter.limit = 5500
for it in range(40):
    outputs = library.forward() if "library" in args else None
    try:
        train(m, adam, scaler)
    except torch.OutOfMemoryError:
        if "catch" not in args:
            raise
        torch.counter.limit = 1 << 40
    if "save" in args:
        torch.save({"it": it}, "m.part")
        os.replace("m.part", "m.pt")
        assert torch.load("m.pt") == {"it": it}
    if "eval" in args and it % 5 == 4:
        m.eval()
        peak = torch.Tensor(9000)
        del peak
        m.train()
    if "crash" in args:
        ctypes.string_at(0)
    if "fail" in args:
        raise ValueError("no such luck")
    print("iteration", it, "peak", torch.cuda.max_memory_allocated(), flush=True)
print("done")
if "released" in args:
    adam = None
