"""One vprof process that answers the calls of this process, by the Model Context Protocol over pipes.

It starts with the first call and serves as long as the binary, the working directory and the environment stay the same.
It ends with this process, whose death closes its standard input. Threads share it; a forked child starts its own.
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

# Seconds that a process may take to start, and to end once its standard input is closed.
STARTING, ENDING = 60.0, 2.0


class Gone(Exception):
    """The process has ended before it answered; the message is the end of its standard error."""


class Expired(Exception):
    """The answer took longer than allowed."""


class Server:
    """A running process. Requests of several threads are answered at the same time."""

    def __init__(self, path: str) -> None:
        with tempfile.TemporaryFile() as errors:
            # A session of its own: Ctrl-C interrupts the call here, not the process behind it.
            self.process = subprocess.Popen(
                [path, "mcp"], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True)
            self.errors = os.fdopen(os.dup(errors.fileno()), "rb")
        self.ids = itertools.count(1)
        self.lock = threading.Lock()  # of what follows, and of writing
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
        """Returns the result of a request; raises Gone, Expired, or RuntimeError with the process's refusal."""
        answer: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self.lock:
            if self.ended:
                raise Gone(self.last_words)
            number = next(self.ids)
            self.waiting[number] = answer
            self.write({"id": number, "method": method, "params": params})
        try:
            message = answer.get(timeout=timeout)
        except BaseException as why:  # also KeyboardInterrupt: nobody waits for the answer any more
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
        """Writes a message, with the lock held. A broken pipe shows where the answer is awaited."""
        assert self.process.stdin is not None
        try:
            left = memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            while left:
                left = left[self.process.stdin.write(left):]
        except (OSError, ValueError):
            self.process.kill()

    def read(self) -> None:
        """Hands answers to those who wait, until the process ends."""
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
        """Ends the process after the requests that it has: nobody asks it again."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def close(self) -> None:
        """Ends the process."""
        self.retire()
        self.reader.join(ENDING)  # what is asked meanwhile still gets its answer
        self.process.kill()
        self.reader.join(ENDING)


Surroundings = tuple[str, str, dict[str, str]]
lock = threading.Lock()
current: tuple[Surroundings, Server] | None = None
inherited: list[Server] = []  # of the parent; its reader may hold the lock of the pipe, so that nothing may close it


def server(path: str) -> Server:
    """Returns the process of a binary in this working directory and environment, and starts it if need be."""
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
    """Returns what a tool answers. A process that ends is started again, once."""
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
    """Leaves the process to the parent, after a fork: the child's copy of the pipe would keep it alive."""
    global current, lock
    lock = threading.Lock()
    if current is not None:
        inherited.append(current[1])
        current[1].retire()
        current[1].process.returncode = 0  # it is not this process's child
    current = None


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
