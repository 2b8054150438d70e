"""Compares PyTorch's measured peaks with a plan: shared by the callbacks of trainers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .command import VprofError, binary
from .results import GIB, Plan


class Watch:
    """Compares PyTorch's peaks with a plan at optimizer step number ``step``. By the third step, all allocations have
    occurred.

    ``record`` is a file to which one line for ``vprof accuracy`` is appended. It warns once if less than ``margin`` of
    the GPU is free, or if more is reserved than the plan's upper bound.
    """

    def __init__(
        self, plan: Plan, step: int = 3, margin: float = 0.05, record: str | os.PathLike[str] | None = None
    ) -> None:
        self.case, self.point, self.warned = plan.case, plan.points[0], False
        self.step, self.margin, self.record = step, margin, record

    def after(self, step: int) -> Mapping[str, float]:
        """Returns the values to log after an optimizer step: empty except at the compared step."""
        import torch

        if step < self.step or not torch.cuda.is_available():
            return {}
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        self.watch(reserved, torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
        if step > self.step:
            return {}
        if self.record is not None:
            self.write(allocated, reserved, torch)
        p = self.point
        return {
            "vprof/allocated_gib": allocated / GIB, "vprof/allocated_planned_gib": p.allocated.bytes / GIB,
            "vprof/reserved_gib": reserved / GIB, "vprof/reserved_planned_gib": p.reserved.bytes / GIB,
            "vprof/allocated_error": p.allocated.bytes / allocated - 1 if allocated else 0.0,
        }

    def watch(self, reserved: int, memory: int) -> None:
        most, left = self.point.reserved.high_bytes, ""
        if reserved > (1 - self.margin) * memory:
            left = f"{(memory - reserved) / GIB:.2f} of {memory / GIB:.2f} GiB are left"
        elif reserved > most:
            left = f"the plan's upper end was {most / GIB:.2f} GiB"
        if left and not self.warned:
            self.warned = True
            warnings.warn(f"PyTorch has reserved {reserved / GIB:.2f} GiB: {left}", ResourceWarning, stacklevel=2)

    def write(self, allocated: int, reserved: int, torch: Any) -> None:
        free, total = torch.cuda.mem_get_info()
        line = {
            "by": "callback", "case": self.case, "batch": self.point.batch, "gpu": self.point.gpu,
            "device": torch.cuda.get_device_name(), "torch": torch.__version__, "status": "ok", "steps": self.step,
            "simulated": bool(os.environ.get("VPROF_STUBS")),
            "peak_requested": torch.cuda.memory_stats().get("requested_bytes.all.peak", 0),
            "peak_allocated": allocated, "peak_reserved": reserved,
            # Bytes in use by the driver's count, with other processes, plus memory that the cache has freed since its
            # peak.
            "peak_device": total - free + reserved - torch.cuda.memory_reserved(),
        }
        if self.record is not None:
            with open(self.record, "a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")


class CliffError(RuntimeError):
    """Raised by a watched loop before the GPU runs out of memory."""


class Loop:
    """Peaks of a training loop, in bytes."""

    def __init__(self, limit: int | None, stop: bool) -> None:
        self.limit, self.stop, self.steps, self.warned = limit, stop, 0, False
        self.allocated_bytes = self.reserved_bytes = 0

    def step(self) -> None:
        """Records the peaks so far. Call it after each optimizer step.

        If more than the limit is reserved, it warns once, or raises `CliffError` with ``stop=True``.
        """
        import torch

        self.steps += 1
        if not torch.cuda.is_available():
            return
        self.allocated_bytes = torch.cuda.max_memory_allocated()
        self.reserved_bytes = torch.cuda.max_memory_reserved()
        limit = self.limit
        if limit is None:
            limit = int(0.95 * torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
        if self.reserved_bytes <= limit or self.warned:
            return
        self.warned = True
        words = (f"step {self.steps}: PyTorch has reserved {self.reserved_bytes / GIB:.2f} GiB, "
                 f"more than the limit of {limit / GIB:.2f} GiB")
        if self.stop:
            raise CliffError(words)
        warnings.warn(words, ResourceWarning, stacklevel=2)


@contextmanager
def watch(limit: int | str | None = None, stop: bool = False) -> Iterator[Loop]:
    """Watches the memory of a training loop without a trainer.

    ``with vprof_gpu.watch(limit="11GiB") as loop: ...; loop.step()`` records the peaks. It warns if more than ``limit``
    is reserved (default: 95 % of the GPU), or raises CliffError with ``stop=True``. For an OutOfMemoryError, it prints
    the output of ``vprof diagnose`` to standard error and raises the error again.
    """
    try:
        yield Loop(size(limit) if isinstance(limit, str) else limit, stop)
    except Exception as failure:
        if type(failure).__name__ == "OutOfMemoryError":
            explain(str(failure))
        raise


def size(memory: str) -> int:
    """Returns the bytes of a size like "11GiB", "512 MiB" or "12GB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", memory, re.IGNORECASE)
    if found is None:
        raise ValueError(f"limit={memory!r}: write a size like '11GiB'")
    number, prefix, binary_unit = found.groups()
    base = 1024 if binary_unit or not prefix else 1000
    return int(float(number) * base ** " KMGT".index(prefix.upper() or " "))


def explain(message: str) -> None:
    """Prints what vprof diagnose reports about PyTorch's message to standard error."""
    try:
        done = subprocess.run([binary(), "diagnose", "-"], input="torch.OutOfMemoryError: " + message,
                              capture_output=True, encoding="utf-8", errors="replace", check=False)
    except (OSError, VprofError):
        return  # the original error is raised
    print(done.stdout.strip(), file=sys.stderr)
