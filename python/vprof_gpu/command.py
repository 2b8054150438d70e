"""Calls the vprof binary."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class VprofError(Exception):
    """vprof refused, in its own words. Its exit code is 1 for a failure, 2 for wrong input, 4 for no GPU."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(VprofError):
    """An option, a file or a model that vprof does not take; the message names it and says what to do."""


class NoGPUError(VprofError):
    """This machine has no GPU that vprof can use."""


def failure(message: str, exit_code: int) -> VprofError:
    """Returns the error of an exit code."""
    return {2: UsageError, 4: NoGPUError}.get(exit_code, VprofError)(message, exit_code)


def binary() -> str:
    """The vprof of this package; VPROF_BINARY names another. A vprof of the PATH may be another tool's."""
    named = os.environ.get("VPROF_BINARY")
    if named:
        return named
    for installed in importlib.metadata.distributions(name="vprof-gpu"):
        for file in installed.files or []:
            if file.name in ("vprof", "vprof.exe"):
                return str(file.locate())
    found = shutil.which("vprof")
    if found is None:
        raise VprofError("there is no vprof: pip install vprof-gpu, or say where it is with VPROF_BINARY", 1)
    return found


def flags(options: Mapping[str, Any]) -> Iterator[str]:
    """The flags of options by their Python names: lists are joined by commas, None is not given."""
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if isinstance(value, Mapping):
            for key, part in value.items():
                yield f"{flag}={key}={part}"
        elif isinstance(value, bool):
            yield flag if value else flag + "=false"
        elif isinstance(value, Iterable) and not isinstance(value, str):
            yield f"{flag}={','.join(map(str, value))}"
        elif value is not None:
            yield f"{flag}={value}"


def call(
    verb: str, arguments: Iterable[str], options: Mapping[str, Any], accept: tuple[int, ...] = (0, 3)
) -> dict[str, Any]:
    """Returns the JSON that a verb writes. Exit code 3 is an answer: it does not fit."""
    command = [binary(), verb, "--format=json", *flags(options), *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode not in accept or not done.stdout.strip():
        raise failure(done.stderr.strip() or f"vprof {verb} ended with {done.returncode}", done.returncode)
    document: dict[str, Any] = json.loads(done.stdout)
    return document
