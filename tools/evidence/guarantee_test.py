import unittest

import guarantee


def row(need, low, high, capped):
    reserved = {"bytes": need, "low_bytes": low, "high_bytes": high}
    return {"spec": "timm:x", "batch": 2, "amp": "none", "optimizer": "sgd", "reserved": reserved, "need": need, "capped": capped}


class GuaranteeTest(unittest.TestCase):
    def test_cases_are_the_same_every_time_and_all_models_have_their_turn(self):
        self.assertEqual(guarantee.drawn(60), guarantee.drawn(60))
        self.assertEqual({c["spec"] for c in guarantee.drawn(len(guarantee.MODELS))}, {"timm:" + name for name in guarantee.MODELS})

    def test_a_case_without_memory_under_its_upper_end_is_a_failure(self):
        lines = guarantee.told([row(100, 95, 110, 100), row(100, 95, 120, 100), row(100, 80, 90, None)])
        self.assertEqual(lines[0], "3 cases: 1 ran out of memory under the upper end; 2 needs inside; median given away 10.0%")
        self.assertEqual(lines[1:], ["  failed: timm:x batch 2 none sgd: 100 of 90"])


if __name__ == "__main__":
    unittest.main()
