"""Tests of the GitHub action's scripts, run like its steps."""

import functools
import hashlib
import http.server
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

from vprof_gpu import command

ACTION = pathlib.Path(__file__).parents[2] / "packaging" / "action"


@unittest.skipIf(sys.platform == "win32", "needs bash")
class ActionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def step(self, script, **environment):
        """Runs a script and returns its exit code, its output, and the outputs of the step."""
        outputs = self.folder / "outputs"
        outputs.write_text("")
        done = subprocess.run(
            [ACTION / script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder, env={
                **os.environ, "GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
                "RUNNER_TEMP": str(self.folder), "RUNNER_OS": "Linux", "RUNNER_ARCH": "X64", **environment})
        return done.returncode, done.stdout, dict(line.split("=", 1) for line in outputs.read_text().splitlines())

    def smoke(self, arguments, baseline=""):
        return self.step(
            "smoke.sh", VPROF=command.binary(), ARGUMENTS=arguments, BASELINE=baseline, TOLERANCE="1%")

    def test_a_training_that_fits_is_the_next_baseline(self):
        code, said, outputs = self.smoke("--model resnet18 --batch 64\n  --gpu 't4'")
        self.assertEqual(code, 0, said)
        self.assertIn("SAFE: resnet18, batch 64 on t4", (self.folder / "summary").read_text())
        self.assertNotIn("::error", said)
        code, said, _ = self.smoke("--model resnet18 --batch 65 --gpu t4", outputs["result"])
        self.assertEqual(code, 3, said)
        self.assertIn("::error title=vprof smoke::", said)

    def test_a_training_that_does_not_fit_is_annotated_in_one_line(self):
        code, said, _ = self.smoke("--model resnet18 --batch 100000 --gpu t4")
        self.assertEqual(code, 3)
        annotation, = (line for line in said.splitlines() if line.startswith("::error title=vprof smoke::NOT SAFE"))
        self.assertIn("the largest safe batch is", annotation)

    def test_quotes_keep_words_together_and_nothing_else_is_run(self):
        code, said, _ = self.smoke("--model resnet18 --gpu \"no such $(touch ran) `touch ran`; touch ran\"")
        self.assertEqual(code, 2)
        self.assertIn("no such $(touch ran) `touch ran`; touch ran", said)
        self.assertFalse((self.folder / "ran").exists())
        code, said, _ = self.smoke("--model 'resnet18")
        self.assertEqual(code, 2)
        self.assertIn("::error title=vprof smoke::arguments: a quote is not closed", said)
        self.assertIn("--model 'resnet18; close the quote", said)

    def release(self, checksum=None):
        """Writes a release with an archive, and returns the URL of a server for it."""
        program = b"#!/bin/sh\necho released\n"
        (self.folder / "v1.2.3").mkdir()
        archive = self.folder / "v1.2.3" / "vprof_1.2.3_linux_amd64.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            entry = tarfile.TarInfo("vprof")
            entry.size, entry.mode = len(program), 0o755
            tar.addfile(entry, io.BytesIO(program))
        checksum = checksum or hashlib.sha256(archive.read_bytes()).hexdigest()
        (self.folder / "v1.2.3" / "checksums.txt").write_text(f"{'0' * 64}  other\n{checksum}  {archive.name}\n")

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=str(self.folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def test_the_release_of_the_tag_is_downloaded(self):
        code, said, outputs = self.step("release.sh", URL=self.release(), TAG="v1.2.3")
        self.assertEqual(code, 0, said)
        self.assertEqual(subprocess.check_output([outputs["vprof"]], text=True), "released\n")

    def test_without_a_release_vprof_is_built(self):
        url = self.release()
        for tag, machine in (("main", "X64"), ("v9.9.9", "X64"), ("v1.2.3", "ARM64")):
            code, said, outputs = self.step("release.sh", URL=url, TAG=tag, RUNNER_ARCH=machine)
            self.assertEqual((code, outputs), (0, {}), said)
            self.assertIn("vprof is built", said)

    def test_an_archive_with_another_checksum_ends_the_step(self):
        code, _, outputs = self.step("release.sh", URL=self.release("1" * 64), TAG="v1.2.3")
        self.assertNotEqual(code, 0)
        self.assertEqual(outputs, {})
