"""What PyTorch needed, beside what was planned: shared by the callbacks of trainers."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

from .results import GIB, Plan


class Watch:
    """Compares PyTorch's peaks with a plan at its ``step``-th optimizer step; the third has met all that comes.

    ``record`` is a file for one line that ``vprof accuracy`` reads. Where less than ``margin`` of the GPU is
    left, or more is reserved than the plan's upper end, a warning says so, once.
    """

    def __init__(
        self, plan: Plan, step: int = 3, margin: float = 0.05, record: str | os.PathLike[str] | None = None
    ) -> None:
        self.case, self.point, self.warned = plan.case, plan.points[0], False
        self.step, self.margin, self.record = step, margin, record

    def after(self, step: int) -> Mapping[str, float]:
        """What there is to log after an optimizer step: nothing, but at the step that is compared."""
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
            # What the driver counts now, other processes included, and memory that the cache has freed since its peak.
            "peak_device": total - free + reserved - torch.cuda.memory_reserved(),
        }
        with open(self.record, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")
