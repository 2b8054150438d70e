"""Tests of vprof_hook/libraries.py:  python -m unittest bench/experiment/script/libraries_test.py"""

import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import libraries


class LibrariesTest(unittest.TestCase):
    def test_conda_lists_its_packages_in_files(self):
        with tempfile.TemporaryDirectory() as prefix, unittest.mock.patch.object(sys, "prefix", prefix):
            listed = pathlib.Path(prefix, "conda-meta")
            listed.mkdir()
            for name in ("cuda-cudart-12.9.79-h5888daf_0", "cuda-cudart-dev-12.9.79-h5888daf_0", "cudnn-9.10.2.21-hbcb9cd8_0"):
                (listed / (name + ".json")).touch()
            self.assertEqual([12, 9, 79], libraries.installed(("no-such", "cuda-cudart")))
            self.assertEqual([9, 10, 2], libraries.installed(("no-such", "libcudnn", "cudnn")))
            self.assertEqual([], libraries.installed(("no-such", "nccl")))


if __name__ == "__main__":
    unittest.main()
