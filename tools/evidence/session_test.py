import json
import os
import sys
import tempfile
import unittest

import session


def python(code):
    return [sys.executable, "-c", code]


class SessionTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = self.folder.name

    def run_parts(self, parts, seconds):
        lines = session.session(parts, self.out, seconds)
        with open(os.path.join(self.out, "session.jsonl")) as f:
            self.assertEqual([json.loads(line) for line in f], lines)
        return [(line["part"], line["ended"]) for line in lines], lines

    def test_the_line_of_a_part_is_written_before_the_next_begins(self):
        look = python(f"print(open({os.path.join(self.out, 'session.jsonl')!r}).read().count('first'))")
        ended, _ = self.run_parts([session.Part("first", 60, python("print(1)")), session.Part("second", 60, look)], 60)
        self.assertEqual(ended, [("first", "finished"), ("second", "finished")])
        with open(os.path.join(self.out, "second.txt")) as f:
            self.assertEqual(f.read().splitlines()[-1], "1")

    def test_a_part_at_its_limit_is_interrupted_and_ended_and_the_next_begins(self):
        session.GRACE, before = 0.3, session.GRACE
        self.addCleanup(setattr, session, "GRACE", before)
        stubborn = python("import signal, time; signal.signal(signal.SIGINT, lambda *_: print('asked', flush=True)); time.sleep(60); time.sleep(60)")
        ended, lines = self.run_parts([session.Part("stubborn", 0.5, stubborn, python("print('never')")), session.Part("next", 60, python(""))], 60)
        self.assertEqual(ended, [("stubborn", "limit"), ("next", "finished")])
        self.assertEqual([line["exits"] for line in lines], [[-9], [0]])
        with open(os.path.join(self.out, "stubborn.txt")) as f:
            text = f.read()
        self.assertIn("asked", text)
        self.assertNotIn("\nnever", text)

    def test_parts_without_time_are_skipped_and_a_command_that_is_missing_or_fails_is_recorded(self):
        parts = [session.Part("missing", 60, ["/no/such/command"], python("raise SystemExit(3)"))]
        ended, lines = self.run_parts(parts, 60)
        self.assertEqual(lines[0]["exits"], [None, 3])
        with open(os.path.join(self.out, "missing.txt")) as f:
            self.assertIn("/no/such/command", f.read())
        os.remove(os.path.join(self.out, "session.jsonl"))
        self.assertEqual(self.run_parts(parts, 0)[0], [("missing", "skipped")])

    def test_the_limits_of_the_first_parts_fit_a_quarter_of_an_hour(self):
        options = session.arguments(["--out", self.out, "--python", "python3", "--times", "times.py"])
        parts = session.parts(options)
        self.assertEqual([p.name for p in parts][:5], ["doctor", "gpu-check", "times", "calibrate", "guarantee"])
        self.assertLessEqual(sum(p.limit for p in parts[:5]), 60 * options.minutes)


if __name__ == "__main__":
    unittest.main()
