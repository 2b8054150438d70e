"""Runs the vprof binary."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import server
from .options import ANSWERED

# Time limit of a call in seconds; None for no limit.
timeout: float | None = None


class VprofError(Exception):
    """An error message of vprof. Its exit code is 1 for a failure, 2 for invalid input, 4 for no GPU."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(VprofError):
    """Invalid input: an option, a file or a model. The message names it and says what to do."""


class NoGPUError(VprofError):
    """This machine has no GPU that vprof can use."""


def failure(message: str, exit_code: int) -> VprofError:
    """Returns the exception for an exit code. Its message leaves out the command line's hint at its help."""
    message, _, _ = message.partition('\nSee "vprof ')
    return {2: UsageError, 4: NoGPUError}.get(exit_code, VprofError)(message, exit_code)


def expired(verb: str) -> VprofError:
    """Returns the exception for a call that exceeded the time limit."""
    return VprofError(f"vprof {verb} took longer than {timeout:g} s; set vprof_gpu.command.timeout to allow more", 1)


def unusable(why: OSError) -> VprofError:
    """Returns the exception for a binary that does not start."""
    return VprofError(f"{binary()} does not start: {why.strerror}; set VPROF_BINARY to the path of vprof", 1)


def binary() -> str:
    """Returns the path of the vprof binary: VPROF_BINARY, else this package's, else the first on the PATH, which may
    belong to another tool.
    """
    named = os.environ.get("VPROF_BINARY")
    if named:
        return named
    for installed in importlib.metadata.distributions(name="vprof-gpu"):
        for file in installed.files or []:
            if file.name in ("vprof", "vprof.exe"):
                return str(file.locate())
    found = shutil.which("vprof")
    if found is None:
        raise VprofError("the vprof program was not found: pip install vprof-gpu, or set VPROF_BINARY to its path", 1)
    return found


def flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Yields the command-line flags for options by their Python names. Lists are joined by commas; None is left out."""
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


def request(arguments: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options and files as arguments of a tool of the vprof server process, by flag name."""
    asked: dict[str, Any] = {"report": True, "files": [str(file) for file in arguments]}
    for name, value in options.items():
        name = name.rstrip("_").replace("_", "-")
        if isinstance(value, Mapping):
            asked[name] = {key: str(part) for key, part in value.items()}
        elif isinstance(value, Iterable) and not isinstance(value, str):
            asked[name] = ",".join(map(str, value))
        elif value is not None:
            asked[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return asked


def call(
    verb: str, arguments: Iterable[str], options: Mapping[str, Any], accept: tuple[int, ...] = (0, 3)
) -> dict[str, Any]:
    """Runs a verb and returns its JSON output. Exit code 3 is a result, too: the configuration does not fit."""
    command = [binary(), verb, "--format=json", *flags(options), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False,
                              timeout=timeout)
    except subprocess.TimeoutExpired:
        raise expired(verb) from None
    except OSError as why:
        raise unusable(why) from None
    if done.returncode not in accept or not done.stdout.strip():
        raise failure(done.stderr.strip() or f"vprof {verb} failed with exit code {done.returncode}", done.returncode)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def ask(verb: str, arguments: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of a verb like `call`, but from the vprof server process if it knows all options, which write
    no files and use no GPU. Unknown options are passed to `call`, which raises the command's own error.
    """
    names = {name.rstrip("_").replace("-", "_") for name in options}
    if not names <= ANSWERED[verb]:
        return call(verb, arguments, options)
    try:
        result = server.call(binary(), verb, request(arguments, options), timeout)
    except server.Expired:
        raise expired(verb) from None
    except server.Gone as last:
        raise VprofError(f"vprof exited before it answered. {last}".strip(), 1) from None
    except OSError as why:
        raise unusable(why) from None
    text = result["content"][0]["text"]
    if result.get("isError"):
        raise failure(text, result.get("_meta", {}).get("exit_code", 1))
    document: dict[str, Any] = json.loads(text)
    return document
