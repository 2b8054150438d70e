"""Tests of vprof_hook/hub.py and placeholders.py. They need neither PyTorch nor a network."""

import http.server
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import families, hub, placeholders

HEADER = json.dumps({"w": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]}}).encode()
FILES = {
    "/org/model/resolve/main/config.json": b'{"model_type": "llama"}',
    "/org/model/resolve/main/model.safetensors": struct.pack("<Q", len(HEADER)) + HEADER + b"\1" * 16,
    "/org/bad/resolve/main/model.safetensors.index.json": b'{"weight_map": {"w": "../../../outside.safetensors"}}',
    "/org/huge/resolve/main/model.safetensors": struct.pack("<Q", 1 << 40),
}


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server that serves files, or redirects all requests to another server."""

    def __init__(self, to=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.to, self.asked = to, []
        self.url = "http://127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
        body = FILES.get(self.path)
        if self.server.to:
            self.send_response(302)
            self.send_header("Location", self.server.to + self.path)
            self.end_headers()
        elif body is None:
            self.send_error(404)
        else:
            if self.headers.get("Range"):
                first, last = map(int, self.headers["Range"].split("=")[1].split("-"))
                body = body[first:last + 1]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class HubTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.server = folder.name, Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.environment = {
            "VPROF_HOOK": folder.name, "VPROF_FETCH": os.path.join(folder.name, "kept"), "HF_TOKEN": "secret", "HF_ENDPOINT": self.server.url,
        }
        patched = unittest.mock.patch.dict(os.environ, self.environment)
        patched.start()
        self.addCleanup(patched.stop)
        for patched in (unittest.mock.patch.object(hub, "cached", lambda *_: None), unittest.mock.patch.object(hub, "defaults", dict),
                        unittest.mock.patch.object(hub, "tables", dict)):
            patched.start()
            self.addCleanup(patched.stop)

    def test_commands_that_download_do_not_run(self):
        for event, words in (("os.system", (b"curl -L http://a/b",)), ("subprocess.Popen", ("pip", ["pip", "install", "x"], None, None))):
            with self.assertRaises(FileNotFoundError):
                hub.refuse(event, words)
        hub.refuse("subprocess.Popen", ("git", ["git", "describe", "--tags"], None, None))
        hub.refuse("os.system", (b"pip list",))

    def test_the_token_goes_to_the_endpoint_alone(self):
        other = Server()
        self.addCleanup(other.server_close)
        self.addCleanup(other.shutdown)
        self.server.to = other.url
        self.assertEqual(hub.download(hub.Repository("org/model").address("config.json")), FILES["/org/model/resolve/main/config.json"])
        self.assertEqual(self.server.asked[0][1], "Bearer secret")
        self.assertIsNone(other.asked[0][1])
        hub.download(other.url + "/org/model/resolve/main/config.json")
        self.assertIsNone(other.asked[1][1], "not to a host that is asked by its own name")

    def test_a_redirect_within_the_endpoint_keeps_the_token(self):
        self.server.to = self.server.url
        self.assertIsNone(hub.download(self.server.url + "/loop"), "it is followed a few times, and not for ever")
        self.assertTrue(all(token == "Bearer secret" for _, token, _ in self.server.asked))

    def test_of_weights_the_header_is_fetched_and_nothing_else(self):
        folder = hub.Repository("org/model").fetch_weights("")
        header = placeholders.read_header(os.path.join(folder, "model.safetensors"))
        self.assertEqual(header["w"]["shape"], [4, 2])
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
        self.assertEqual(os.path.getsize(file.name), 8 + size + 16, "a hole has the size of the values")
        spans = [span for path, _, span in self.server.asked if path.endswith(".safetensors")]
        self.assertEqual(spans, ["bytes=0-7", "bytes=8-%d" % (7 + len(HEADER))])
        asked = len(self.server.asked)
        hub.Repository("org/model").header("model.safetensors")
        self.assertEqual(len(self.server.asked), asked, "it is kept")

    def test_paths_stay_inside(self):
        with self.assertRaisesRegex(ValueError, "leaves its folder"):
            hub.Repository("org/bad").fetch_weights("")
        for name in ("../x", "/etc/passwd", "a/../../x"):
            with self.assertRaises(ValueError):
                hub.Repository("org/model").file(name)
        self.assertNotIn("..", os.path.relpath(hub.Repository("../../..").folder, placeholders.folder()))

    def test_headers_are_bounded(self):
        with self.assertRaisesRegex(ValueError, "at most"):
            hub.Repository("org/huge").header("model.safetensors")

    def test_without_fetch_nothing_is_asked(self):
        del os.environ["VPROF_FETCH"]
        self.assertIsNone(hub.Repository("org/model").file("config.json"))
        self.assertIsNone(hub.Repository("org/model").fetch_weights(""))
        self.assertEqual(self.server.asked, [])

    def test_configurations_of_encoders_by_the_sizes_in_their_names(self):
        for name, key, value in (
            ("t5-base", "d_ff", 3072), ("google/flan-t5-xl", "d_ff", 5120), ("google/umt5-xxl", "vocab_size", 256384), ("openai/clip-vit-large-patch14-336", "projection_dim", 768),
            ("laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "projection_dim", 1024), ("facebook/dinov2-giant", "num_hidden_layers", 40), ("nvidia/mit-b5", "depths", [3, 6, 40, 3]),
        ):
            self.assertEqual(families.config(name)[key], value, name)
        self.assertEqual(families.config("google/siglip-so400m-patch14-384")["vision_config"]["image_size"], 384)
        self.assertIsNone(families.config("google/t5-efficient-tiny"))

    def test_names_may_end_in_a_slash(self):
        module = types.SimpleNamespace(validate_repo_id=lambda name: name)
        hub.watch_names(module)
        self.assertEqual(module.validate_repo_id("own/model/"), "own/model")

    def test_relatives_have_the_family_of_the_name(self):
        known = {"google/vit-large-patch16-224": {"model_type": "vit"}, "meta-llama/Llama-3.1-8B": {"model_type": "llama"}}
        for patched in (unittest.mock.patch.object(hub, "tables", lambda: known), unittest.mock.patch.object(hub, "kinds", lambda: {"clip", "vit", "llama"})):
            patched.start()
            self.addCleanup(patched.stop)
        self.assertIsNone(hub.Repository("own/clip-vit-large").kin())
        for name, kind in (("own/vit-large-finetuned", "vit"), ("NousResearch/Meta-Llama-3-8B", "llama")):
            self.assertEqual(hub.Repository(name).kin()["model_type"], kind)

    def test_other_machines_are_refused(self):
        with self.assertRaises(ConnectionRefusedError):
            hub.refuse("socket.connect", (None, ("192.0.2.1", 443)))
        with self.assertRaises(ConnectionRefusedError):
            hub.refuse("socket.getaddrinfo", ("huggingface.co", 443, 0, 0, 0))
        hub.refuse("socket.connect", (None, ("127.0.0.1", 443)))
        hub.refuse("socket.connect", (None, "/tmp/socket"))
        hub.refuse("socket.sendmsg", (None, None))
        self.assertTrue(hub.is_local(socket.gethostname()))

    def test_python_refuses_what_its_audit_reports(self):
        calls = (
            "socket.create_connection(('192.0.2.1', 80), 1)", "socket.gethostbyname('vprof.invalid')", "socket.gethostbyaddr('192.0.2.1')", "socket.getnameinfo(('192.0.2.1', 80), 0)",
            "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 9))", "socket.socket(type=socket.SOCK_DGRAM).sendmsg([b''], [], 0, ('192.0.2.1', 9))",
            "subprocess.run(['curl', 'http://192.0.2.1'])",
        )
        text = "import socket, subprocess, sys\nsys.path.insert(0, %r)\nfrom vprof_hook import hub\nhub.start()\n" % sys.path[0]
        text += "".join("try:\n    %s\n    print('asked')\nexcept (ConnectionRefusedError, FileNotFoundError) as error:\n    print('vprof' in str(error))\n" % call for call in calls)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        self.assertEqual(done.stdout.split(), ["True"] * len(calls), done.stderr)

    def test_nothing_is_refused_when_the_interpreter_ends(self):
        with unittest.mock.patch.object(hub, "NETWORK", None):
            self.assertIsNone(hub.refuse("import", ()))


if __name__ == "__main__":
    unittest.main()
