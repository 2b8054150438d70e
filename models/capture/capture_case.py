"""Common code of capture tests: captures the model of a source text and reads the file."""

import json
import os
import sys
import tempfile
import textwrap
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import capture

kept = capture.prepare()


class Made:
    """A captured file: its nodes and the added facts."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as z:
            names = {n.partition("/")[2]: n for n in z.namelist()}
            self.program = json.loads(z.read(names["models/model.json"]))
            self.extra = json.loads(z.read(names["extra/vprof.json"]))
        self.nodes = capture.nodes_of(self.program["graph_module"]["graph"])
        inputs = [next(iter(spec.values())) for spec in self.program["graph_module"]["signature"]["input_specs"]]
        self.tensors = [i.get("parameter_name") or i["buffer_name"] for i in inputs if "parameter_name" in i or "buffer_name" in i]
        self.targets = [node["target"].removeprefix("torch.ops.aten.") for node, _, _ in self.nodes]

    def deaths(self):
        """Returns {operator: [operators whose results die after it]} for a graph in which each operator occurs once."""
        makes = {v: self.targets[n].partition(".")[0] for n, (_, _, names) in enumerate(self.nodes) for v in names}
        return {self.targets[n].partition(".")[0] if n >= 0 else "": [makes[v] for v in names] for n, names in self.extra["dies"]}


class CaptureCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def capture(self, source, *options, inputs="x=float32[batch,8]"):
        """Captures the model() of a file with this source."""
        path = os.path.join(self.folder, f"m{len(os.listdir(self.folder))}.py")
        with open(path, "w") as f:
            f.write("import torch\nfrom torch import nn\nfrom torch.nn import functional as F\nfrom torch.utils.checkpoint import checkpoint\n" + textwrap.dedent(source))
        out = path.removesuffix("py") + "pt2"
        inputs = [f"--input={inputs}"] if inputs else []
        self.outcome = capture.capture(capture.arguments([path + ":model", "-o", out, *inputs, *options]))
        return Made(out)

    def forward(self, body, init="pass", **options):
        source = "class model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(8, 8)\n"
        return self.capture(source + textwrap.indent(textwrap.dedent(init), " " * 8) + "\n    def forward(self, x):\n" + textwrap.indent(textwrap.dedent(body), " " * 8), **options)

    def refusal(self, *args, **kwargs):
        with self.assertRaises(capture.Refusal) as raised:
            self.capture(*args, **kwargs)
        return raised.exception
