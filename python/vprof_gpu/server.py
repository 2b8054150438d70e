"""A vprof process that serves the calls of this process by the Model Context Protocol over pipes.

It starts with the first call and serves as long as the binary, the working directory and the environment stay the same.
It ends with this process, when its standard input closes. Threads share it; a forked child starts its own.
"""

from __future__ import annotations

import atexit
import io
import itertools
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

PROTOCOL = "2025-06-18"

# Seconds for a process to start, and to end after its standard input is closed.
STARTING, ENDING = 60.0, 2.0


class Gone(Exception):
    """The process ended before it answered. The message is the end of its standard error."""


class Expired(Exception):
    """The answer took longer than the time limit."""


class Server:
    """A running vprof process. It serves requests of several threads at the same time."""

    def __init__(self, path: str) -> None:
        with tempfile.TemporaryFile() as errors:
            # In its own session, Ctrl-C interrupts this call but not the process.
            self.process = subprocess.Popen(
                [path, "mcp"], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True)
            self.errors = os.fdopen(os.dup(errors.fileno()), "rb")
        self.ids = itertools.count(1)
        self.lock = threading.Lock()  # for the fields below, and for writing to the pipe
        self.waiting: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self.ended = False
        self.last_words = ""
        self.reader = threading.Thread(target=self.read, name="vprof-gpu", daemon=True)
        self.reader.start()
        client = {"name": "vprof-gpu", "version": "1"}
        try:
            self.ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}, STARTING)
            with self.lock:
                self.write({"method": "notifications/initialized"})
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Returns the result of a request. Raises Gone, Expired, or RuntimeError with an error message of the process.
        """
        answer: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self.lock:
            if self.ended:
                raise Gone(self.last_words)
            number = next(self.ids)
            self.waiting[number] = answer
            self.write({"id": number, "method": method, "params": params})
        try:
            message = answer.get(timeout=timeout)
        except BaseException as why:  # also KeyboardInterrupt: the answer has no receiver
            self.process.kill()
            if isinstance(why, queue.Empty):
                raise Expired from None
            raise
        if message is None:
            raise Gone(self.last_words)
        if "error" in message:
            raise RuntimeError(message["error"].get("message", "vprof mcp refuses the request"))
        result: dict[str, Any] = message["result"]
        return result

    def write(self, message: Mapping[str, Any]) -> None:
        """Writes a message; the caller holds the lock. A broken pipe is reported to the thread that awaits the answer.
        """
        assert self.process.stdin is not None
        try:
            left = memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            while left:
                left = left[self.process.stdin.write(left):]
        except (OSError, ValueError):
            self.process.kill()

    def read(self) -> None:
        """Reads answers and passes them to the waiting threads, until the process ends."""
        assert self.process.stdout is not None
        lines = io.BufferedReader(self.process.stdout)  # type: ignore[type-var]  # a raw file: see bufsize
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                break
            with self.lock:
                answer = self.waiting.pop(message.get("id"), None)
            if answer is not None:
                answer.put(message)
        self.process.kill()
        self.process.wait()
        lines.close()
        with self.errors as said:
            said.seek(max(0, os.fstat(said.fileno()).st_size - 2000))
            self.last_words = said.read().decode(errors="replace").strip()
        with self.lock:
            self.ended = True
            left, self.waiting = self.waiting, {}
        for answer in left.values():
            answer.put(None)

    def retire(self) -> None:
        """Closes the process's standard input: it ends after the pending requests."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def close(self) -> None:
        """Ends the process, after at most ENDING seconds for pending requests."""
        self.retire()
        self.reader.join(ENDING)  # pending requests still get their answers
        self.process.kill()
        self.reader.join(ENDING)


Surroundings = tuple[str, str, dict[str, str]]
lock = threading.Lock()
current: tuple[Surroundings, Server] | None = None
# The parent's servers. Their reader may hold the lock of the pipe, so the pipe must not be closed in a child.
inherited: list[Server] = []


def server(path: str) -> Server:
    """Returns the server of a binary in this working directory and environment; starts one if necessary."""
    global current
    now = path, os.getcwd(), dict(os.environ)
    with lock:
        if current is not None and (current[0] != now or current[1].ended):
            current[1].retire()
            current = None
        if current is None:
            current = now, Server(path)
        return current[1]


def call(path: str, verb: str, arguments: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
    """Returns the result of a tool. If the process ends, the call is repeated once with a new one."""
    request = {"name": verb, "arguments": arguments}
    try:
        return server(path).ask("tools/call", request, timeout)
    except Gone:
        return server(path).ask("tools/call", request, timeout)


def close() -> None:
    """Ends the process, if there is one."""
    global current
    with lock:
        last, current = current, None
    if last is not None:
        last[1].close()


def forget() -> None:
    """Called in a forked child: leaves the process to the parent. An open copy of the pipe would keep it alive."""
    global current, lock
    lock = threading.Lock()
    if current is not None:
        inherited.append(current[1])
        current[1].retire()
        current[1].process.returncode = 0  # not a child of this process
    current = None


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
