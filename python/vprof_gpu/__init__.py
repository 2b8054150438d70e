"""Know before you train: the peak GPU memory of a PyTorch training step.

Each function calls the command of the same name and returns what it says; nothing is computed here. Options
are the command's, with ``_`` for ``-``: ``seq_len=512`` is ``--seq-len 512``. Arguments without a name are
files of trainers, as the command takes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from .command import VprofError, call
from .exporting import capture
from .results import Check, Choice, Fit, Interval, Plan, Point, Run, Smoke

__all__ = [
    "Check", "Choice", "Fit", "Interval", "Plan", "Point", "Run", "Smoke", "VprofError",
    "capture", "fit", "plan", "run", "smoke",
]


def plan(*config: str, **options: Any) -> Plan:
    """What a training step needs, estimated without a GPU: of a model, or of a trainer's file."""
    return Plan.read(call("plan", config, options))


def fit(*config: str, **options: Any) -> Fit:
    """The largest safe batch and the fastest configuration on a GPU."""
    return Fit.read(call("fit", config, options))


def smoke(*config: str, **options: Any) -> Smoke:
    """Whether a configuration is safe at every point of training."""
    return Smoke.read(call("smoke", config, options))


def run(command: str | Sequence[str], **options: Any) -> Run:
    """What a training script needs: vprof runs it on a simulated GPU. The command is a list, or a line."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    return Run.read(call("run", ["--", *words], {"quiet": True, **options}, accept=(0, 1, 3)))
