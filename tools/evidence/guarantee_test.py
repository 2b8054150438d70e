import json
import os
import tempfile
import unittest

import guarantee


def row(need, low, high, capped, kind="timm"):
    reserved = {"bytes": need, "low_bytes": low, "high_bytes": high}
    return {"kind": kind, "spec": "timm:x", "batch": 2, "amp": "none", "optimizer": "sgd", "reserved": reserved, "need": need, "capped": capped}


class GuaranteeTest(unittest.TestCase):
    def test_cases_are_the_same_every_time_and_all_models_have_their_turn(self):
        kinds = ["timm", "transformers", "script"]
        self.assertEqual(guarantee.drawn(kinds), guarantee.drawn(kinds))
        self.assertEqual({c["spec"] for c in guarantee.drawn(["timm"])}, {"timm:" + name for name in guarantee.MODELS})
        self.assertEqual({c["spec"] for c in guarantee.drawn(["transformers"])}, set(guarantee.CONFIGURATIONS))
        some = guarantee.spread(guarantee.drawn(kinds), 20)
        self.assertEqual((len(some), {c["kind"] for c in some}), (20, set(kinds)))

    def test_scripts_are_there(self):
        for case in guarantee.drawn(["script"]):
            self.assertTrue(os.path.exists(guarantee.command(case["spec"])[1]), case["spec"])

    def test_a_case_without_memory_under_its_upper_end_is_a_failure(self):
        rows = [row(100, 95, 110, 100), row(100, 95, 120, 100), row(100, 80, 90, None)]
        lines = guarantee.told(rows)
        self.assertEqual(lines[0], "timm: 3 cases, 1 ran out of memory under the upper end; 2 needs inside; median given away 10.0%")
        self.assertEqual(lines[1:], ["  failed: timm:x batch 2 amp none optimizer sgd: 100 of 90"])
        self.assertTrue(guarantee.told([*rows, row(100, 95, 110, 100, "script")])[0].startswith("all: 4 cases, 1 ran out"))

    def test_a_result_is_written_at_once_and_a_case_that_has_one_is_not_run_again(self):
        case = guarantee.drawn(["script"])[0]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.jsonl")
            planned = {**case, "reserved": {"bytes": 9, "low_bytes": 8, "high_bytes": 10}}
            guarantee.tried(planned, lambda _case, limit: limit or 9, out)
            with open(out) as f:
                self.assertEqual(json.loads(f.read()), {**planned, "need": 9, "capped": 10})
            guarantee.run(None, [case], out)  # a machine would be asked for a plan
            self.assertEqual(len(guarantee.results(out)), 1)


if __name__ == "__main__":
    unittest.main()
