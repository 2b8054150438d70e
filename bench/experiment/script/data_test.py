"""Tests of vprof_hook/data.py, shapes.py, tokenizers.py and trackers.py. They need NumPy, and no PyTorch."""

import contextlib
import glob
import gzip
import itertools
import json
import linecache
import os
import pickle
import re
import signal
import sys
import tarfile
import tempfile
import types
import unittest
import unittest.mock
import wave
import zipfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook"))
from vprof_hook import arrays, data, failures, families, files, folders, formats, lists, memory, pipelines, placeholders, retries, shapes, sounds, tokenizers, trackers


class Folder:
    """Stands for a data set of torchvision."""


class DataTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        patched = unittest.mock.patch.dict(os.environ, {"VPROF_HOOK": os.path.join(folder.name, "room"), "VPROF_SHAPES": "", "VPROF_LENGTHS": ""})
        patched.start()
        self.addCleanup(patched.stop)
        os.mkdir(os.environ["VPROF_HOOK"])
        for cached in (shapes.given, shapes.lengths, shapes.uncut, data.names_used, data.series, sounds.configured):
            cached.cache_clear()
        data.made.clear()

    def state(self, stated):
        path = os.path.join(self.folder, "shapes.json")
        with open(path, "w") as file:
            json.dump(stated, file)
        os.environ["VPROF_SHAPES"] = path
        shapes.given.cache_clear()

    def test_kinds(self):
        self.assertEqual(shapes.value("float32 2x3").shape, (2, 3))
        self.assertEqual([shapes.value("int64<3", row) for row in range(4)], [0, 1, 2, 0])
        self.assertEqual(shapes.value({"a": ["int32"]}), {"a": [0]})
        with self.assertRaises(SystemExit):
            shapes.value("float31")

    def test_the_length_of_a_row_is_shared_by_its_texts(self):
        os.environ["VPROF_LENGTHS"] = "10,20"
        self.assertEqual(len(shapes.value("string", 1, 2).split()), 10)
        self.assertEqual(len(shapes.value("messages", 0)[0]["content"].split()), 5)

    def test_columns_are_those_that_the_source_uses(self):
        path = os.path.join(self.folder, "train.py")
        with open(path, "w") as file:
            file.write("x = row['instruction'] + row.get('input', '')\ny = thing['weird']\nf(text_column='summary')\nt = '{response} {{x}}'\n")
        with unittest.mock.patch.object(data, "sources", lambda: [path]), unittest.mock.patch.object(sys, "argv", ["train.py"]):
            self.assertEqual(data.used_columns(), dict.fromkeys(("instruction", "input", "summary", "response"), "string"))
            absent = os.path.join(self.folder, "train.jsonl")
            with unittest.mock.patch.object(files, "cached", lambda _: False):
                rows = data.rows_file(absent)
        with open(rows) as file:
            row = json.loads(file.readline())
        self.assertEqual(sorted(row), ["input", "instruction", "response", "summary"])
        self.assertGreaterEqual(sum(len(text.split()) for text in row.values()), 3 * (shapes.UNCUT - 1))

    def test_a_size_that_came_through_ends_the_run(self):
        data.made.update(("text", "image"))
        data.check([8, 512])
        with self.assertRaises(data.Unknown):
            data.check([8, shapes.uncut() + 2])
        with self.assertRaises(data.Unknown):
            data.check([8, 3, *reversed(shapes.UNSIZED)])
        with open(os.path.join(os.environ["VPROF_HOOK"], "events.jsonl")) as file:
            self.assertIn("--lengths", json.loads(file.readline())["by"])
        self.state({"images": "509x503"})
        data.check([8, 3, *reversed(shapes.UNSIZED)])

    def test_a_size_that_is_scaled_ends_the_run_too(self):
        data.made.add("image")
        for half in (2, 4):
            with self.assertRaises(data.Unknown):
                data.check([8, 3, *(n // half for n in reversed(shapes.UNSIZED))])
        data.check([8, 3, 256, 256])
        data.check([8, 3, 480, 640])

    def test_columns_of_paths_and_of_time_series(self):
        self.assertEqual(shapes.value("path", 3), "absent/3.jpg")
        with unittest.mock.patch.object(sys, "argv", ["run.py", "--enc_in", "3", "--target", "T"]):
            self.assertEqual(data.series(), ["series 0", "series 1", "T"])
        data.series.cache_clear()
        with unittest.mock.patch.object(sys, "argv", ["run.py"]):
            self.assertEqual(data.series(), [])

    def test_annotations_are_of_the_images_that_are_opened(self):
        with open(formats.written("instances_train.json"), encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual(len(found["annotations"]), formats.OBJECTS * len(found["images"]))
        self.assertEqual(shapes.sizes("images"), (found["images"][0]["width"], found["images"][0]["height"]))
        self.assertLessEqual({a["image_id"] for a in found["annotations"]}, {i["id"] for i in found["images"]})

    def test_the_rate_of_sounds_is_the_setting_of_a_file_that_the_command_names(self):
        path = os.path.join(self.folder, "config.json")
        with open(path, "w") as file:
            json.dump({"segment_size": 8192, "sampling_rate": 22050}, file)
        with unittest.mock.patch.object(sys, "argv", ["train.py", "--config=" + path]):
            samples, rate = sounds.absent(os.path.join(self.folder, "a.wav"))
        self.assertEqual(rate, 22050)
        with self.assertRaises(data.Unknown):
            data.check([4, 80, len(samples) // 256])
        data.check([4, 80, 8192 // 256])

    def test_accounts_have_names_and_ranks_have_none(self):
        get = trackers.naming(lambda _, key: {}[key])
        with unittest.mock.patch.object(memory, "of_user", lambda *_: True):
            self.assertEqual(get(None, "WANDB_ENTITY"), "absent-wandb_entity")
            with self.assertRaises(KeyError):
                get(None, "RANK")
        with unittest.mock.patch.object(memory, "of_user", lambda *_: False), self.assertRaises(KeyError):
            get(None, "WANDB_ENTITY")

    def test_placeholders_of_images_go_to_other_processes(self):
        sent = Folder()
        sent.__class__ = data.pictures(Folder, "ImageFolder", (8, 4, 3, 7, "RGB"))
        sent.root, sent.transform = "/absent", None
        sent.fill()
        found = pickle.loads(pickle.dumps(sent))
        self.assertEqual((len(found), found.root, found.classes, found.data.shape, type(found).__name__), (7, "/absent", sent.classes, (7, 4, 8, 3), "ImageFolder"))

    def test_a_loader_has_one_worker(self):
        loader = type("Loader", (), {"__init__": data.alone(lambda self, workers: setattr(self, "num_workers", workers))})
        self.assertEqual([loader(n).num_workers for n in (0, 1, 8)], [0, 1, 1])

    def test_a_data_set_that_lists_an_absent_folder_finds_images(self):
        absent, end = os.path.join(self.folder, "photos"), unittest.mock.patch.object(folders, "kind_of_files", lambda: ".png")
        picture = unittest.mock.Mock(save=lambda path: open(path, "w").close())
        listing = files.listing(os.listdir)
        with end, unittest.mock.patch.object(shapes, "image", lambda *_: picture), unittest.mock.patch.object(files, "cached", lambda _: False), \
                unittest.mock.patch.object(files, "absent_folder", folders.image_folder):
            with unittest.mock.patch.object(folders, "lists_samples", lambda: False), self.assertRaises(FileNotFoundError):
                listing(absent)
            with unittest.mock.patch.object(folders, "lists_samples", lambda: True):
                self.assertEqual(len(listing(absent)), shapes.ROWS)
                self.assertTrue(os.path.isfile(files.path_to_read(os.path.join(absent, "00001.png"))))
                folders.Opened(os.path.join(absent, "00001.png")).close()
                self.assertTrue(folders.fill(absent), "another process of the script has filled it")
                self.assertEqual(os.listdir(os.path.dirname(files.mirror(absent))), ["photos"])
                self.assertEqual(listing(self.folder), os.listdir(self.folder), "a folder with files stays as it is")
            asking = files.asking(os.stat)
            for name in ("mask/other.png", "mask/00001.txt"):
                with self.assertRaises(FileNotFoundError):
                    asking(os.path.join(self.folder, name))
            self.assertTrue(asking(os.path.join(self.folder, "mask", "00001.jpg")), "the mask of an image")
            with self.assertRaises(FileNotFoundError):
                asking(os.path.join(self.folder, "mask", "00001.png"))

    def test_absent_folders_of_results_are_made_for_documented_commands(self):
        absent = os.path.join(self.folder, "$replace_this", "logs")
        refused = unittest.mock.Mock(side_effect=PermissionError(13, "refused"))
        with unittest.mock.patch.object(files, "cached", lambda _: False), unittest.mock.patch.object(files.events, "send") as send:
            with self.assertRaises(FileNotFoundError):
                files.opened(os.path.join(absent, "a.yaml"), "w")
            with unittest.mock.patch.object(files, "makes_folders", True):
                files.opened(os.path.join(absent, "a.yaml"), "w").close()
                with unittest.mock.patch.object(files, "real_mkdir", refused):
                    files.making(os.path.join(self.folder, "YOUR"))
        self.assertFalse(os.path.exists(absent))
        self.assertTrue(os.path.isfile(files.path_to_read(os.path.join(absent, "a.yaml"))))
        self.assertTrue(files.asking(os.stat)(os.path.join(self.folder, "YOUR")))
        self.assertEqual([call.kwargs["path"] for call in send.call_args_list if call.args[0] == "replaced"], [absent, os.path.join(self.folder, "YOUR")])

    def test_packages_of_the_repository_are_found_from_the_folder_of_an_example(self):
        os.makedirs(os.path.join(self.folder, "repository/examples/image"))
        os.makedirs(os.path.join(self.folder, "repository/library"))
        for name in ("setup.py", "library/__init__.py"):
            open(os.path.join(self.folder, "repository", name), "w").close()
        with unittest.mock.patch.object(files, "OWN", os.path.join(self.folder, "repository/examples/image")), unittest.mock.patch.object(sys, "path", list(sys.path)):
            folders.installable.cache_clear()
            self.addCleanup(folders.installable.cache_clear)
            self.assertEqual(folders.Finder().find_spec("library").origin, os.path.join(self.folder, "repository/library/__init__.py"))
            asked = []
            with unittest.mock.patch.object(os.path, "isdir", lambda path: asked.append(folders.image_folder(path))), unittest.mock.patch.object(folders, "lists_samples", lambda: True):
                self.assertIsNone(folders.Finder().find_spec("other"))
            self.assertEqual(set(asked), {False}, "no samples are made where a package is looked for")

    def test_images_have_the_size_that_their_path_names(self):
        for path, size in (("/data/cifar10-32x48", (32, 48)), ("/data/imagenet_64/train", (64, 64)), ("/data/run-12345x6", None), ("/data/photos", None)):
            self.assertEqual(shapes.size_of(path), size, path)
        self.state({"images": "8x4"})
        self.assertEqual(shapes.size_of("/data/cifar10-32x32"), (8, 4))

    def test_a_folder_that_tells_what_belongs_there_is_empty(self):
        for name, empty in ((".gitkeep", True), ("README.md", True), ("put_images_here", True), ("a.png", False)):
            folder = tempfile.mkdtemp(dir=self.folder)
            open(os.path.join(folder, name), "w").close()
            self.assertEqual(folders.is_empty(folder), empty, name)

    def test_arrays_have_the_widths_that_errors_tell(self):
        self.addCleanup(arrays.used.clear)
        for error, learned in (
            ("mat1 and mat2 shapes cannot be multiplied (800x23 and 14x512)", {"action": 14}),
            ("The size of tensor a (7) must match the size of tensor b (29) at non-singleton dimension 1", {"qpos": 7}),
            ("operands could not be broadcast together with shapes (8,23) (14,)", {"action": 14}),
            ("mat1 and mat2 shapes cannot be multiplied (800x24 and 14x512)", {}),
        ):
            arrays.used.clear()
            episode = arrays.Node("episode_0.hdf5")
            self.assertEqual([episode["obs/" + name][:4].shape for name in ("action", "qpos")], [(4, 23), (4, 29)])
            self.assertEqual(arrays.learned(RuntimeError(error)), learned)
        self.assertEqual((episode["obs"]["top_cam"].shape[-1], episode["label"].dtype, episode.attrs["sim"]), (3, "int64", 0))
        with unittest.mock.patch.dict(retries.known, {"action": 14}):
            arrays.used.clear()
            self.assertEqual(arrays.Node("episode_1.hdf5")["action"].shape, (arrays.ROWS, 14))

    def test_a_script_starts_again_with_what_its_error_told(self):
        self.addCleanup(arrays.used.clear)
        placeholders.told.add("data")
        self.addCleanup(placeholders.told.clear)
        arrays.Node("x.hdf5")["action"][:1]
        with unittest.mock.patch.object(os, "execv") as execute, unittest.mock.patch.dict(os.environ):
            retries.retry(RuntimeError("no width"), None)
            execute.assert_not_called()
            retries.retry(RuntimeError("cannot be multiplied (1x23 and 14x5)"), None)
            self.assertEqual((retries.read(), execute.call_count), ({"action": 14}, 1))
            with unittest.mock.patch.dict(retries.known, retries.read()):
                retries.retry(RuntimeError("cannot be multiplied (1x23 and 14x5)"), None)
                self.assertEqual(execute.call_count, 1, "it told nothing new")

    def test_a_script_starts_again_without_assertions_of_releases_if_its_command_is_documented(self):
        path = os.path.join(self.folder, "train.py")
        with open(path, "w") as file:
            file.write("assert lib.__version__ == '0.3.2'\n")
        try:
            with open(path) as file:
                exec(compile(file.read(), path, "exec"), {"lib": unittest.mock.Mock(__version__="1")})
        except AssertionError as error:
            failed = error
        for asked, starts in (("data", 0), ("documented", 1)):
            with unittest.mock.patch.object(os, "execv") as execute, unittest.mock.patch.dict(os.environ), unittest.mock.patch.object(placeholders, "ASKED", {asked}):
                retries.retry(failed, failed.__traceback__)
                self.assertEqual(execute.call_count, starts, asked)
        self.addCleanup(placeholders.told.clear)

    def test_a_script_that_keeps_no_long_sound_starts_again_with_shorter_ones(self):
        data.made.add("sound 1345")
        with unittest.mock.patch.object(os, "execv") as execute, unittest.mock.patch.object(shapes, "seconds", shapes.seconds):
            retries.retry(ZeroDivisionError("modulo by zero"), None)
            self.assertEqual((retries.read(), execute.call_count), ({"seconds": [10, 5, 2]}, 1))
            retries.start()
            self.addCleanup(retries.known.clear)
            self.assertEqual([len(shapes.value("audio 100", row)["array"]) for row in range(4)], [1007, 507, 207, 1007])
            retries.retry(ZeroDivisionError("modulo by zero"), None)
            self.assertEqual(execute.call_count, 1, "shorter ones did not help")

    def test_an_archive_has_images(self):
        library, made = types.SimpleNamespace(ZipFile=type("ZipFile", (zipfile.ZipFile,), {})), []
        picture = types.SimpleNamespace(save=lambda file, kind: made.append(file.write(b"png")))
        formats.watch_zip(library)
        with unittest.mock.patch.object(shapes, "image", lambda _: picture):
            found = library.ZipFile("/absent/cifar10-32x32.zip")
        self.assertEqual(len(json.loads(found.read("dataset.json"))["labels"]), shapes.ROWS)
        self.assertEqual((found.read(found.namelist()[0]), made), (b"png", [3]))
        with self.assertRaises(FileNotFoundError):
            library.ZipFile("/absent/cifar10.tar")

    def test_databases_and_shards_have_images(self):
        picture = types.SimpleNamespace(save=lambda file, kind: file.write(kind.encode()))
        with unittest.mock.patch.object(shapes, "image", lambda size: picture), unittest.mock.patch.object(files, "cached", lambda _: False):
            library = types.SimpleNamespace(open=lambda path, **_: path)
            formats.watch_lmdb(library)
            self.assertEqual(library.open(self.folder, readonly=True), self.folder)
            with library.open("/absent/ffhq.lmdb", readonly=True).begin(write=False) as database:
                keys = (b"length", b"256-00001", b"label-000000001", b"image-000000001")
                self.assertEqual([database.get(key) for key in keys], [b"256", b"PNG", b"the", b"PNG"])
                self.assertEqual((len(list(database)), next(iter(database.cursor()))), (database.stat()["entries"], (b"00000000", b"PNG")))
            with tarfile.open(data.rows_file("/absent/00000.tar")) as archive:
                self.assertEqual(archive.getnames()[:4], ["00000.jpg", "00000.txt", "00000.cls", "00000.json"])
                self.assertEqual(len(archive.getnames()), 4 * shapes.ROWS)
        self.assertIsNone(data.rows_file(os.path.join(tempfile.gettempdir(), "absent.tar")), "a file of a cache")

    def test_texts_have_characters(self):
        with unittest.mock.patch.object(files, "cached", lambda _: False):
            with open(data.rows_file("/absent/input.txt"), encoding="utf-8") as file:
                text = file.read()
            self.assertEqual((len(set(text)), len(text)), (65, 1_115_394 // 65 * 65))
            with gzip.open(data.rows_file("/absent/enwik8.gz")) as file:
                self.assertEqual(len(file.read(1000)), 1000)
            self.assertIsNone(data.rows_file("/absent/vocabulary.txt"))

    def test_views_have_poses_and_images_with_transparency(self):
        with unittest.mock.patch.object(files, "cached", lambda _: False), unittest.mock.patch.object(shapes, "image", lambda size, mode: (size, mode)):
            with open(data.rows_file("/absent/lego/transforms_train.json"), encoding="utf-8") as file:
                frames = json.load(file)["frames"]
            library = types.SimpleNamespace(__name__="imageio", imread=None)
            data.watch_imread(library)
            with unittest.mock.patch.object(numpy, "asarray", lambda picture: picture):
                self.assertEqual(library.imread(os.path.join("/absent/lego", frames[0]["file_path"] + ".png")), ((800, 800), "RGBA"))
                self.assertEqual(library.imread("/absent/other/1.png"), ((800, 800), "RGB"))

    def test_a_pattern_of_names_lists_an_absent_folder(self):
        kinds = []

        def scandir(_):
            kinds.append(folders.lists_samples() and folders.kind_of_files())
            raise FileNotFoundError

        with unittest.mock.patch.object(os, "scandir", scandir):
            found = [glob.glob("/absent/images/*" + end) for end in (".png", ".txt", ".wav")]
        self.assertEqual((found, kinds), ([[], [], []], [".png", False, ".wav"]))
        self.assertFalse(folders.lists_samples())

    @unittest.mock.patch.object(data, "replaced")
    def test_libraries_that_open_images_find_absent_ones(self, _):
        picture = {"RGB": numpy.zeros((3, 4, 3)), "L": numpy.zeros((3, 4))}
        with unittest.mock.patch.object(shapes, "image", lambda _, mode: picture[mode]):
            for name, arguments, folder, dims in (
                ("cv2", (), "masks", 3), ("cv2", (0,), "photos", 2), ("cv2", (-1,), "masks", 2), ("cv2", (-1,), "photos", 3),
                ("skimage.io", (), "photos", 3), ("skimage.io", (), "masks", 2),
            ):
                library = types.SimpleNamespace(__name__=name, imread=lambda path, *_: path)
                data.watch_imread(library)
                self.assertEqual(library.imread("/absent/%s/1.png" % folder, *arguments).ndim, dims, (name, arguments, folder))
                self.assertEqual(library.imread(__file__), __file__, "a file that is there is read")

    def test_sounds_have_the_stated_rate(self):
        self.state({"files": {"*.wav": "audio 100"}})
        os.environ["VPROF_LENGTHS"] = "70"
        samples, rate = sounds.absent("absent.wav")
        self.assertEqual((len(samples), rate, len(sounds.resampled(samples, rate, 200)[0])), (70, 100, 140))
        self.assertIsNone(sounds.absent(__file__))
        source = os.path.join(self.folder, "mel.py")
        for text, known in (("x = 16000", False), ("Mel(sample_rate=16000)", True)):
            sounds.configured.cache_clear()
            with open(source, "w") as file:
                file.write(text)
            with unittest.mock.patch.object(sys, "argv", ["train.py"]), unittest.mock.patch.object(data, "sources", lambda: [source]):
                with contextlib.nullcontext() if known else self.assertRaises(data.Unknown):
                    self.assertEqual(sounds.absent("absent.flac")[1], 16000)

    def test_what_a_failure_means(self):
        for error, meaning in (
            (ImportError("cannot import name 'x' from 'lib.old' (file)", name="lib.old"), "another release of lib (cannot import name 'x' from 'lib.old')"),
            (FileNotFoundError("no such file: 'x.h5'"), "a file (no such file: 'x.h5'), which is absent"),
            (FileNotFoundError(2, "No such file", "x.h5"), "x.h5, which is absent"),
            (FileNotFoundError("Caught FileNotFoundError in DataLoader worker process 0.\n  trace\nother.h5"), "x.h5, which is absent"),  # reported in the worker
            (OSError("CUDA_HOME environment variable is not set. Please set it"), "a CUDA toolkit, to compile kernels of its own"),
            (type("ConfigAttributeError", (AttributeError,), {"__module__": "omegaconf.errors"})("Key '_target_' is not in struct"), "another configuration (Key '_target_' is not in struct)"),
            (EOFError("EOF when reading a line"), "an answer from the keyboard (EOF when reading a line)"),
        ):
            failures.explain(error, None)
            with open(os.path.join(os.environ["VPROF_HOOK"], "events.jsonl")) as file:
                self.assertEqual(json.loads(file.readlines()[-1])["text"], meaning)

    def test_a_process_that_fails_is_explained_by_the_first_exception(self):
        def call():
            try:
                raise ModuleNotFoundError("No module named 'x'", name="x")
            except ImportError as error:
                raise RuntimeError("Error locating target") from error

        with self.assertRaises(RuntimeError):
            failures.noting(call)()
        with open(os.path.join(os.environ["VPROF_HOOK"], "events.jsonl")) as file:
            self.assertIn("the package x", json.loads(file.readlines()[-1])["text"])

    def test_a_thread_that_fails_for_its_data_interrupts_the_process(self):
        killed = unittest.mock.patch.object(os, "kill")
        with killed as kill, unittest.mock.patch.object(failures, "explain") as explain, unittest.mock.patch.object(failures, "data_set", lambda trace: "Set"):
            failures.interrupting(lambda _: None)(types.SimpleNamespace(exc_value=KeyError("text"), exc_traceback=None))
        kill.assert_called_once_with(os.getpid(), signal.SIGINT)
        explain.assert_called_once()
        with killed as kill:
            failures.interrupting(lambda _: None)(types.SimpleNamespace(exc_value=KeyError("text"), exc_traceback=None))
        kill.assert_not_called()

    def meaning(self, source, names):
        """Returns the first line of the list that a user's function gets."""
        path = os.path.join(self.folder, "train.py")
        with open(path, "w") as file:
            file.write(source)
        with unittest.mock.patch.object(memory, "LIBRARIES", (os.path.dirname(os.__file__),)):
            try:
                exec(compile(source, path, "exec"), names)
            except Exception as error:
                failures.explain(error, error.__traceback__, "a process that ends without an error")
        with open(os.path.join(os.environ["VPROF_HOOK"], "events.jsonl")) as file:
            return json.loads(file.readlines()[-1])["text"]

    def test_what_a_library_lacks_asks_for_another_release(self):
        for source, meaning in (
            ("json.loads(1, 2)", "another release of json (loads() takes 1 positional argument but 2 were given)"),
            ("json.parse('')", "another release of json (module 'json' has no attribute 'parse')"),
            ("own(1)", "a process that ends without an error (DataTest.test_what_a_library_lacks_asks_for_another_release.<locals>.<lambda>() takes 0 positional arguments but 1 was given)"),
            ("re.compile('x', old=re.compile)", "another release of re (compile() got an unexpected keyword argument 'old')"),
            ("raise ValueError('removed in 2')", "a process that ends without an error (removed in 2)"),
            ("[].parse", "a process that ends without an error ('list' object has no attribute 'parse')"),
        ):
            self.assertEqual(self.meaning(source, {"json": json, "re": re, "own": lambda: 0}), meaning)

    def test_lengths_of_which_a_script_keeps_none_are_wanted(self):
        data.made.add("sound 1345")
        for lengths, meaning in (("", "the lengths of texts or sounds, of which it keeps none (division by zero)"), ("70", "a process that ends without an error (division by zero)")):
            os.environ["VPROF_LENGTHS"] = lengths
            shapes.lengths.cache_clear()
            self.assertEqual(self.meaning("1 / 0", {}), meaning)

    def test_a_question_is_answered_by_an_empty_line(self):
        def ask(prompt):
            raise EOFError

        answer = trackers.answering(ask)
        self.assertEqual([answer("Go on?") for _ in range(trackers.QUESTIONS)], [""] * trackers.QUESTIONS)
        with self.assertRaises(EOFError):
            answer("Go on?")

    def test_scripts_run_without_a_terminal(self):
        absent = unittest.mock.Mock(side_effect=OSError)
        with unittest.mock.patch.multiple(os, get_terminal_size=absent, getlogin=absent, popen=lambda cmd: cmd), unittest.mock.patch.dict(os.environ, USER="me"):
            trackers.terminals()
            self.assertEqual((os.get_terminal_size().columns, os.getlogin(), os.popen("stty size").read().split(), os.popen("ls")), (80, "me", ["24", "80"], "ls"))

    def list_for(self, text):
        """Returns the first line of the list that a user's function gets."""
        path, found, names = os.path.join(self.folder, "train.py"), [], {}
        with open(path, "w") as file:
            file.write(text)
        linecache.checkcache()
        names["open"] = lambda name: found.append(lists.file(name)) or ["a b"]
        exec(compile(text, path, "exec"), names)
        with unittest.mock.patch.object(data, "sources", lambda: [path]), unittest.mock.patch.object(memory, "LIBRARIES", (os.path.dirname(os.__file__), __file__)):
            names["data"]("/absent/%d/train_list.txt" % len(text))
        with open(found[0]) as file:
            return file.readline().rstrip("\n")

    def test_rows_begin_anew_behind_the_last(self):
        split = lambda self, test_size=None, train_size=None: (test_size, train_size)
        dataset = type("Dataset", (list,), {"select": lambda self, rows: [self[row] for row in rows], "train_test_split": split})
        data.watch_rows(types.SimpleNamespace(Dataset=dataset))
        with self.assertRaises(IndexError):
            dataset("ab").select(range(3))
        data.made.add("text")
        self.assertEqual(dataset("ab").select(range(3)), ["a", "b", "a"])
        self.assertEqual([dataset("a" * 16).train_test_split(size) for size in (2000, 3, 0.5)], [(2, None), (3, None), (0.5, None)])

    def test_a_stream_does_not_end_in_the_rows_that_a_script_skips(self):
        stream = type("IterableDataset", (list,), {"skip": lambda self, n: self[n:]})
        data.watch_stream(types.SimpleNamespace(IterableDataset=stream))
        self.assertEqual(stream("abc").skip(2), ["c"])
        data.made.add("text")
        self.assertEqual(stream("abc").skip(5), ["a", "b", "c"])

    def test_masks_have_an_object(self):
        pasted = []
        library = types.SimpleNamespace(new=lambda mode, size: types.SimpleNamespace(mode=mode, size=size, paste=lambda *to: pasted.append(to)))
        with unittest.mock.patch.dict(sys.modules, {"PIL.Image": library}):
            self.assertEqual((shapes.image((8, 4)).size, pasted), ((8, 4), []))
            self.assertEqual((shapes.image((8, 4), "L").mode, pasted), ("L", [(1, (2, 1, 6, 3))]))

    def test_a_stream_for_training_does_not_end(self):
        endless = types.SimpleNamespace(repeat=lambda times: itertools.cycle("ab") if times is None else None)
        rows = types.SimpleNamespace(to_iterable_dataset=lambda: endless)
        self.assertEqual(list(itertools.islice(data.stream(rows, True), 3)), ["a", "b", "a"])
        self.assertIs(data.stream(rows, False), endless)

    def test_columns_that_are_used_as_paths_are_paths(self):
        path = os.path.join(self.folder, "train.py")
        with open(path, "w") as file:
            file.write("source_filename = item['source']\npicture = Image.open(os.path.join(root, item['image']))\ncaption = item['prompt']\n")
        with unittest.mock.patch.object(data, "sources", lambda: [path]), unittest.mock.patch.object(sys, "argv", ["train.py"]):
            self.assertEqual(data.used_columns(), {"source": "path", "image": "path", "prompt": "string"})

    def test_arguments_about_columns_name_them_in_full(self):
        path = os.path.join(self.folder, "train.py")
        with open(path, "w") as file:
            file.write("rows['own_image'] = f(image_column='first_image', default='edit_prompt')\n")
        with unittest.mock.patch.object(data, "sources", lambda: [path]), unittest.mock.patch.object(sys, "argv", ["train.py"]):
            self.assertEqual(data.used_columns(), {"first_image": "image", "edit_prompt": "string"})

    def test_lists_have_the_fields_that_the_function_splits(self):
        os.environ["VPROF_LENGTHS"] = "800"
        with unittest.mock.patch.object(sounds, "configured", lambda: "audio 100"):
            spoken = self.list_for("def data(path):\n    # wav\n    return [line.split('|') for line in open(path)]\n")
            self.assertEqual(spoken, "absent/00000.wav|" + " ".join(["the"] * 30))
            seen = "def data(path):\n    for image, label in [line.split() for line in open(path)]:\n        return image, label\n"
            self.assertEqual(self.list_for(seen), "./images/absent/00000.jpg 0")
            numbered = "def data(path):\n    for line in open(path):\n        part = line.strip().split()\n        who = part[0]\n        file_name = 'in/' + part[1]\n"
            self.assertEqual(self.list_for(numbered), "0 ./images/absent/00000.jpg")
            self.assertEqual(self.list_for("def data(path):\n    return open(path)\n"), "./images/absent/00000.jpg")
            self.assertIsNone(lists.file("/absent/train_list.txt"), "no data set asks")

    def test_sounds_of_a_data_set_have_a_size_before_they_are_read(self):
        for rate, asks, there in (("audio 100", True, True), ("audio 100", False, False), (None, True, False)):
            with unittest.mock.patch.object(sounds, "configured", return_value=rate), unittest.mock.patch.object(folders, "lists_samples", return_value=asks):
                path = lists.file("/absent/%s/1.wav" % rate)
                self.assertEqual(bool(path), there)
        with unittest.mock.patch.object(sounds, "configured", lambda: "audio 100"), unittest.mock.patch.object(folders, "lists_samples", lambda: True):
            self.assertEqual(os.path.getsize(lists.file("/absent/1.wav")), 2 * (100 * 61 + 7) + 44)

    def test_folders_have_samples_of_the_stated_kinds(self):
        self.state({"files": {"*.npy": "float32 3x5", "*.wav": "audio 100"}})
        os.environ["VPROF_LENGTHS"] = "70"
        array, sound = (os.path.join(self.folder, "00000" + end) for end in (".npy", ".wav"))
        folders.sample(array, "/absent", ".npy")
        self.assertEqual(numpy.load(array).shape, (3, 5))
        self.assertEqual(folders.sample(sound, "/absent", ".wav"), "sounds of 70 samples at 100 Hz")
        with wave.open(sound) as file:
            self.assertEqual((file.getnframes(), file.getframerate()), (70, 100))

    def test_an_assertion_of_a_version_asks_for_the_release(self):
        path = os.path.join(self.folder, "train.py")
        with open(path, "w") as file:
            file.write("assert lib.__version__ == '0.3.2'\n")
        try:
            with open(path) as file:
                exec(compile(file.read(), path, "exec"), {"lib": unittest.mock.Mock(__version__="1")})
        except AssertionError as error:
            failures.explain(error, error.__traceback__)
        with open(os.path.join(os.environ["VPROF_HOOK"], "events.jsonl")) as file:
            self.assertEqual(json.loads(file.readline())["text"], "another release (assert lib.__version__ == '0.3.2')")

    def test_parts_of_pipelines(self):
        self.assertEqual(pipelines.config("CompVis/stable-diffusion-v1-4", "unet/config.json")["cross_attention_dim"], 768)
        self.assertEqual(pipelines.config("stabilityai/sd-vae-ft-ema", "config.json")["latent_channels"], 4)
        self.assertEqual(pipelines.config("org/FLUX.1-dev", "tokenizer_2/config.json")["vocab_size"], 32128)
        self.assertIn("vae/config.json", pipelines.names("org/stable-diffusion-v1-5"))
        self.assertEqual(pipelines.names("org/other"), [])
        for absent in ("unet/model.json", "unet_2/config.json"):
            self.assertIsNone(pipelines.config("org/stable-diffusion-v1-5", absent))
        self.assertIsNone(pipelines.config("org/other", "config.json"))

    def test_features_of_cards(self):
        self.assertEqual(data.kind_of({"name": "x", "dtype": {"class_label": {"names": {"0": "a", "1": "b", "2": "c"}}}}), "int64<3")
        self.assertEqual(data.kind_of({"name": "x", "list": [{"name": "role", "dtype": "string"}]}), [{"role": "string"}])

    def test_a_tokenizer_has_the_size_of_the_vocabulary(self):
        path = os.path.join(self.folder, "config.json")
        with open(path, "w") as file:
            json.dump({"model_type": "bert", "vocab_size": 300}, file)
        repository = unittest.mock.Mock(file=lambda name: path, origin="")
        repository.name = "org/model"
        made = json.loads(tokenizers.file(repository, "tokenizer.json"))
        self.assertEqual(sorted(made["model"]["vocab"].values()), list(range(300)))
        self.assertEqual(made["post_processor"]["single"][0]["SpecialToken"]["id"], "[CLS]")
        with open(path, "w") as file:
            json.dump(families.config("openai/clip-vit-large-patch14"), file)
        made = json.loads(tokenizers.file(repository, "tokenizer_config.json"))
        self.assertEqual(made["model_max_length"], 77)

    def test_scripts_are_told_that_trackers_are_there_and_libraries_are_not(self):
        library = types.ModuleType("library")
        library.is_wandb_available = lambda: False
        trackers.watch_availability(library)
        self.assertTrue(library.is_wandb_available())
        with unittest.mock.patch.object(memory, "LIBRARIES", (os.path.dirname(os.path.abspath(__file__)),)):
            self.assertFalse(library.is_wandb_available())

    def test_trackers_take_anything(self):
        run = trackers.Nothing().init(project="x")
        run.config["a"] = run.log({"loss": 1}, step=run.step)
        with run as inside:
            self.assertEqual(["%s" % inside.name, *run], ["placeholder"])

    def test_placeholders_stay_in_their_folder(self):
        for name in ("../x", "/x", "a/../../x"):
            with self.assertRaises(ValueError):
                placeholders.inside(self.folder, name)


if __name__ == "__main__":
    unittest.main()
