"""Tests of vprof_hook/loops.py:  python -m unittest bench/experiment/script/loops_test.py"""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import loops

SCRIPT = """
kept, outputs = [], 0
def step():
    told(frame())
def epoch():
    losses = []
    for batch in range(50):
        step()
for number in range(7):
    epoch()
for number in range(3):
    outputs = []
    for batch in loader():
        step()
def train(meter, bank, lines):
    for number in range(30):
        step()
bank = dict()
for number in range(4):
    train(dict(), bank, lines=[])
"""


class LoopsTest(unittest.TestCase):
    def test_rounds_end_where_what_holds_the_growth_begins_anew(self):
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "train.py")
            file.write_text(SCRIPT)
            names = {"told": lambda frame: seen.append(loops.nest(frame, (), 20)), "frame": sys._getframe, "loader": lambda: iter("ab")}
            exec(compile(SCRIPT, str(file), "exec"), names)
        first, later, last = seen[0], seen[350], seen[-1]
        for of, holder, rounds in (
            (first, ("kept", ""), 350), (first, ("losses", "epoch"), 50),
            (later, ("kept", ""), 60), (later, ("outputs", ""), 20), (later, None, 60),
            (last, ("meter", "train"), 30), (last, ("lines", "train"), 30), (last, ("bank", "train"), 120),
        ):
            self.assertEqual(rounds, loops.rounds(of[:2], holder), holder)


if __name__ == "__main__":
    unittest.main()
