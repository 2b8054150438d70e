"""Know before you train: the peak GPU memory of a PyTorch training step.

Each function runs the vprof command of the same name and returns its result. Options are the command's, with ``_`` for
``-``: ``seq_len=512`` is ``--seq-len 512``. Positional arguments are configuration files of trainers, as for the
command.
"""

from __future__ import annotations

import importlib.metadata
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .command import NoGPUError, UsageError, VprofError, ask, call
from .exporting import capture
from .results import Check, Choice, Fit, Interval, Plan, Point, Run, Smoke
from .watching import Loop, watch

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import FitOptions, PlanOptions, RunOptions, SmokeOptions

__all__ = [
    "Check", "Choice", "Fit", "Interval", "Loop", "NoGPUError", "Plan", "Point", "Run", "Smoke", "UsageError",
    "VprofError", "answer", "capture", "fit", "plan", "run", "smoke", "watch",
]

try:
    __version__ = importlib.metadata.version("vprof-gpu")
except importlib.metadata.PackageNotFoundError:  # run from a checkout
    __version__ = "0"


def __dir__() -> list[str]:
    """Returns what completion offers."""
    return [*__all__, "__version__"]


def answer(verb: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """Returns the JSON of any command: ``answer("time", model="gpt2", gpu="h100", dataset_size=50_000)``."""
    return call(verb, arguments, options)


def plan(*config: str, **options: Unpack[PlanOptions]) -> Plan:
    """Estimates the GPU memory of a training step, without a GPU, for a model or a trainer's configuration file."""
    return Plan.read(ask("plan", config, options))


def fit(*config: str, **options: Unpack[FitOptions]) -> Fit:
    """Finds the largest safe batch and the fastest configuration on a GPU."""
    return Fit.read(ask("fit", config, options))


def smoke(*config: str, **options: Unpack[SmokeOptions]) -> Smoke:
    """Checks whether a configuration is safe at every point of training."""
    return Smoke.read(ask("smoke", config, options))


def run(command: str | Sequence[str], **options: Unpack[RunOptions]) -> Run:
    """Runs a training script on a simulated GPU and returns its peak memory. The command is a list or a string.

    If the script fails, raises a VprofError with its traceback.
    """
    words = shlex.split(command) if isinstance(command, str) else list(command)
    seen = call("run", ["--", *words], {"quiet": True, **options}, accept=(0, 1, 3))
    script = seen["script"]
    if script["result"] not in ("fits", "out of memory"):
        said = script.get("traceback") or script.get("error") or f"the command ended with {script.get('exit_code', 1)}"
        raise VprofError(said, 1)
    return Run.read(seen)
