"""Exports a module of this process to a .pt2 file."""

from __future__ import annotations

import copy
import inspect
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import types
from typing import Any

from .command import VprofError, binary


def capture(module: Any, example: Any, output: str | os.PathLike[str], batch_dim: int = 0) -> str:
    """Exports a torch.nn.Module for ``plan(model=output)``. ``example`` is the input of its forward: a tensor, several,
    or a dict of them. Dimension ``batch_dim`` is the batch. The module is not changed: a forked child process exports a
    copy without weights.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise VprofError(
            "capturing a module needs os.fork, which this system lacks; use the command vprof capture "
            "(see vprof capture --help)", 1)
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "outcome.json")
        child = multiprocessing.get_context("fork").Process(
            target=export, args=(module, example, os.fspath(output), batch_dim, result)
        )
        child.start()
        child.join()
        try:
            with open(result, encoding="utf-8") as f:
                outcome = json.load(f)
        except FileNotFoundError:
            raise VprofError(f"the process that exports the model exited with code {child.exitcode}", 1) from None
    if "error" in outcome:
        raise VprofError(" ".join(filter(None, (outcome["error"], outcome.get("do")))), 2)
    return os.fspath(output)


def export(module: Any, example: Any, output: str, batch_dim: int, result: str) -> None:
    """Runs the script of `vprof capture` on the module."""
    source = subprocess.run([binary(), "capture", "--print-script"], capture_output=True, text=True, check=True).stdout
    script = types.ModuleType("vprof_capture")
    sys.modules[script.__name__] = script
    exec(compile(source, "vprof_capture.py", "exec"), script.__dict__)
    here = types.ModuleType("vprof_gpu_capture")
    vars(here).update(build=lambda: without_memory(module), example=example)
    sys.modules[here.__name__] = here
    inputs = [f"--inputs-from={here.__name__}:example"] if batch_dim == 0 else described(module, example, batch_dim)
    script.main([f"{here.__name__}:build", f"--output={output}", f"--result={result}", *inputs])


def without_memory(module: Any) -> Any:
    """Returns a copy of the module on the meta device, made without copying its weights."""
    import torch

    memo: dict[int, Any] = {}
    for p in module.parameters():
        memo[id(p)] = torch.nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad)
    for b in module.buffers():
        memo[id(b)] = b.detach().to("meta")
    return copy.deepcopy(module, memo)


def described(module: Any, example: Any, batch_dim: int) -> list[str]:
    """Returns the example's tensors in the format of `vprof capture --input`, with one dimension named batch."""
    if not isinstance(example, dict):
        values = example if isinstance(example, (tuple, list)) else (example,)
        example = dict(zip(inspect.signature(module.forward).parameters, values))
    flags = []
    for name, tensor in example.items():
        sizes = ["batch" if i == batch_dim else str(n) for i, n in enumerate(tensor.shape)]
        flags.append(f"--input={name}={str(tensor.dtype).removeprefix('torch.')}[{','.join(sizes)}]")
    return flags
