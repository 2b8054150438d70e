import unittest

import run_check


def report(allocated=1000, reserved=2000, result="fits", steps=(3,)):
    return {
        "script": {"result": result, "error": "no luck", "steps": list(steps)},
        "points": [{"run": {"allocated_bytes": allocated, "reserved_bytes": reserved}}],
    }


class RunCheckTest(unittest.TestCase):
    record = {"peak_allocated": 1000, "peak_reserved": 2000}

    def test_a_run_is_held_against_its_record(self):
        self.assertEqual(run_check.judge(report(), self.record), "")
        self.assertIn("allocated +3.00 %", run_check.judge(report(allocated=1030), self.record))
        self.assertIn("reserved -3.00 %", run_check.judge(report(reserved=1940), self.record))
        self.assertIn("failed: no luck", run_check.judge(report(result="failed"), self.record))

    def test_a_script_without_a_record_has_to_train(self):
        self.assertEqual(run_check.judge(report(), None), "")
        self.assertEqual(run_check.judge(report(steps=[]), None), "no optimizer stepped")

    def test_all_scripts_are_there(self):
        found = list(run_check.cases())
        found += run_check.zoo(str(run_check.SCRIPTS.parent / "data/2.15/zoo.jsonl.gz"))
        self.assertTrue(all(script.exists() for script, *_ in found))
        self.assertGreater(sum(record is None for *_, record in found), 10)
        self.assertGreater(sum(record is not None for *_, record in found), 50)


if __name__ == "__main__":
    unittest.main()
