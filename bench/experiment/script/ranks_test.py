"""Tests of vprof_hook/ranks.py. They need no PyTorch."""

import os
import sys
import types
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import ranks


class RanksTest(unittest.TestCase):
    def test_a_launcher_passes_the_local_rank(self):
        launcher = types.SimpleNamespace(elastic_launch=type("Launch", (), {}))
        ranks.start_one_rank(launcher)
        launch = launcher.elastic_launch()
        launch._config, launch._entrypoint = types.SimpleNamespace(max_nodes=1, nproc_per_node=4), "python"
        with unittest.mock.patch.dict(os.environ, {"VPROF_RANK": "2"}), unittest.mock.patch.object(os, "execvp") as become:
            launch("-u", "train.py", "--local-rank=${local_rank}", 3)
        become.assert_called_once_with("python", ["python", "-u", "train.py", "--local-rank=2", "3"])


if __name__ == "__main__":
    unittest.main()
