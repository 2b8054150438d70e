"""Tests of the comparison, with a vprof that is a script:  python -m unittest discover -s tools/evidence -p '*_test.py'"""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import evidence
import models
import shared

VPROF = """#!/bin/sh
case "$*" in
gpus*) echo '{"gpus": [{"name": "t4", "memory_bytes": 1000}]}'; exit ;;
accuracy*) echo '{"rows": [{"line": 1, "error": {"allocated": -0.01}}, {"line": 2, "error": null}]}'; exit ;;
*bad*) echo "vprof: no" >&2; exit 2 ;;
esac
echo '{"points": [{"batch": 8, "estimate": {"reserved": {"bytes": 800}, "device": {"bytes": 900}, "verdict": "fits"}},
  {"batch": 16, "estimate": {"reserved": {"bytes": 1600}, "device": {"bytes": 1700}, "verdict": "does not fit"}}]}'
"""


class EvidenceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.vprof = os.path.join(folder.name, "vprof")
        with open(self.vprof, "w") as f:
            f.write(VPROF)
        os.chmod(self.vprof, 0o700)
        for name in ("net.pt2", "net@64.pt2", "bad.pt2", "torchvision-net@86.pt2"):
            open(os.path.join(folder.name, name), "w").close()
        self.opts = type("", (), {"vprof": self.vprof, "folder": folder.name, "python": "", "made": False, "rows": folder.name, "out": os.path.join(folder.name, "out.md")})()

    def test_peaks_and_brackets_are_compared(self):
        peaks = {m: [{"batch": 8, "bytes": 1000, "oom": False}, {"batch": 16, "bytes": 1800, "oom": False}, {"batch": 32, "bytes": 9, "oom": True}] for m in ("net", "bad")}
        rows = evidence.compare_peaks(self.opts, peaks, ["net", "bad"])
        self.assertEqual(rows, [("net", 8, 1000, 800, 900), ("net", 16, 1800, 1600, 1700)])
        self.assertEqual([round(e, 3) for e in evidence.errors(rows)], [-0.1, -0.056])
        self.assertEqual(evidence.errors(rows, 200), [0, 0])
        self.assertEqual(evidence.increments(rows), [0])
        brackets = {"net": [{"image": 64, "precision": "amp", "layout": layout, "fits": 8, "oom": 16} for layout in ("nchw", "nhwc")]}
        found = evidence.compare_brackets(self.opts, brackets, ["net"])
        self.assertEqual(found, [("net (64)", "amp", 8, 16, "fits", "does not fit")])
        evidence.write(self.opts, rows, found)
        with open(self.opts.out) as f:
            self.assertIn("Of 1 batch sizes that fitted, vprof says \"fits\" of 1.", f.read())
        with open(os.path.join(self.opts.rows, "brackets.csv")) as f:
            self.assertEqual(f.read().splitlines()[1:], ["net (64),amp,8,fits,16,does not fit"])
        with open(os.path.join(self.opts.rows, "rows.csv")) as f:
            self.assertEqual(len(f.read().splitlines()), 3)

    def test_other_sources_are_compared_apart(self):
        row = {"model": "torchvision:net", "image": 86, "batch": 8, "bytes": 1000, "oom": False, "optimizer": "adam", "gpu": "a100-40", "source": "lab"}
        out = {**row, "batch": 16, "bytes": None, "oom": True}
        peaks, ooms = evidence.compare_others(self.opts, {("lab", "torchvision:net", 86, "adam", "a100-40"): [row, out], ("lab", "torchvision:bad", 86, "adam", "a100-40"): [row]})
        self.assertEqual(peaks, {"lab": [("net, a100-40", 8, 1000, 800, 900)]})
        self.assertEqual(ooms, {"lab": [("net, a100-40", 16, "does not fit")]})
        evidence.write(self.opts, peaks["lab"], [], (peaks, ooms))
        with open(self.opts.out) as f:
            text = f.read()
        self.assertIn("## Peaks by lab", text)
        self.assertIn("Of 1 runs that ended out of memory, vprof says of 1 that they do not fit: net, a100-40, batch 16.", text)

    def test_figures_that_do_not_rise_are_told_apart(self):
        rows = [("a", 8, 100, 0, 0), ("a", 16, 300, 0, 0), ("a", 32, 200, 0, 0), ("b", 8, 100, 0, 0), ("b", 16, 100, 0, 0), ("c", 8, 1, 0, 0)]
        self.assertEqual([r[:2] for r in evidence.rising(rows)], [("a", 8), ("c", 8)])

    def test_files_that_are_not_there_can_be_left_out(self):
        self.opts.made = True
        self.assertIsNone(evidence.captured(self.opts, "timm:other"))

    def test_published_figures_have_their_sources(self):
        peaks, brackets = evidence.published()
        for row in (r for by in (peaks, brackets, evidence.others()) for rows in by.values() for r in rows):
            self.assertTrue(row["source"] and row["gpu"], json.dumps(row))
        self.assertGreater(sum(map(len, peaks.values())), 2000)


class SharedTest(unittest.TestCase):
    LINE = {"by": "run", "gpu": "t4", "batch": 1, "peak_requested": 90, "peak_allocated": 100, "peak_reserved": 200, "peak_device": 300}

    def test_lines_that_cannot_be_are_left_out(self):
        self.assertEqual(shared.implausible(self.LINE, {"t4": 1000}), "")
        for change in (
            {"simulated": True}, {"gpu": "toaster"}, {"by": "me"}, {"batch": 0}, {"peak_allocated": 0},
            {"peak_reserved": 50}, {"peak_device": 2000}, {"peak_requested": 500},
        ):
            self.assertNotEqual(shared.implausible({**self.LINE, **change}, {"t4": 1000}), "", change)

    def test_people_are_counted_by_their_files(self):
        with tempfile.TemporaryDirectory() as folder:
            vprof = os.path.join(folder, "vprof")
            with open(vprof, "w") as f:
                f.write(VPROF)
            os.chmod(vprof, 0o700)
            self.assertEqual(shared.section(vprof, folder), [])
            with open(os.path.join(folder, "ann.jsonl"), "w") as f:
                for line in (self.LINE, self.LINE, {**self.LINE, "gpu": "toaster"}):
                    f.write(json.dumps(line) + "\n")
            text = "\n".join(shared.section(vprof, folder))
        self.assertIn("2 figures by 1 people", text)
        self.assertIn("| ann | t4 | 2 | 1 | 1 | 1.00% |", text)


class ModelsTest(unittest.TestCase):
    def test_a_page_has_a_row_for_each_model_with_an_error(self):
        def row(path, allocated, reserved, oom=False):
            side = {"oom": oom}
            return {"case": path, "torch": "2.11", "gpu": "t4", "reference": side, "estimate": {"oom": False}, "error": {"allocated": allocated, "reserved": reserved}}

        results = [{"rows": [row("x/timm-a.pt2", 0, 0.01), row("x/timm-a.pt2", -0.02, 0)]}, {"rows": [row("b.pt2", 0, 0, oom=True), row("c.pt2", 0, 0)]}]
        text = models.page(results, {"timm-a": 99.96})
        self.assertIn("4 recorded steps of 3 models", text)
        self.assertIn("all verdicts right: c 1.", text)
        self.assertIn("| b | 1 | 0.00% | 0.00% | 0.00% | 0.00% | 0/1 | - |\n| timm-a | 2 | 2.00% | 2.00% | 1.00% | 1.00% | 2/2 | 100.0% |\n", text)

    def test_lists_keep_the_lowest_share_of_a_model(self):
        with tempfile.NamedTemporaryFile("w", delete=False) as f:
            f.write("timm-a-b4-none-adamw   allocations  99.00 %  events  98 %\ntimm-a-b4-bf16-adamw   allocations  97.50 %  events  98 %\n")
        self.addCleanup(os.remove, f.name)
        self.assertEqual(models.lists(f.name), {"timm-a": 97.5})

    def test_one_verdict_alone_is_right(self):
        fits = [("m", "amp", n, None, v, "") for n, v in enumerate(["fits", "fits slowly", "tight"])]
        text = evidence.verdicts(fits, 4, "fits", "fitted")
        self.assertEqual(text, 'Of 3 batch sizes that fitted, vprof says "fits" of 1, "fits slowly" of 1, "tight" of 1.')


if __name__ == "__main__":
    unittest.main()
