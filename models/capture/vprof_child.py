"""Runs a function in a child process, so that a crash in it can be reported.

Libraries are not tested with tensors without values. Some operators crash the process instead of raising an error.
"""

import faulthandler
import json
import os
import re
import signal
import sys
import tempfile


class Crash(Exception):
    """The child process was killed by a signal. frames are the (file, line) pairs that were running, the innermost
    first.
    """

    def __init__(self, number, frames):
        super().__init__(signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}")
        self.frames = frames


def in_child(function):
    """Returns the function's result, passed as JSON. Raises Crash if the child process dies."""
    if not hasattr(os, "fork"):
        return function()
    with tempfile.TemporaryFile("w+") as trace, tempfile.TemporaryFile("w+") as said:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            faulthandler.enable(file=trace)
            json.dump(function(), said)
            said.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        trace.seek(0)
        said.seek(0)
        text = said.read()
        if os.WIFSIGNALED(status) or not text:
            raise Crash(os.WTERMSIG(status), re.findall(r'File "(.*?)", line (\d+)', trace.read()))
        return json.loads(text)
