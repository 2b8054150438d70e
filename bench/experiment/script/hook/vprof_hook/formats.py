"""Placeholders for absent files in special formats: annotations of objects in images (COCO), and HDF5."""

import functools
import importlib
import io
import json
import os
import re
import sys

from . import arrays, data, files, placeholders, shapes

# A placeholder's number of images, their usual size in COCO, objects per image (7.3 on average in COCO), and COCO's
# category numbers.
IMAGES, SIZE, OBJECTS = 128, "640x480", 7
CLASSES = 10  # of an archive of images
CATEGORIES = [n for n in range(1, 91) if n not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)]


def watch_coco(module):
    """Called when pycocotools.coco was imported."""
    real = module.COCO.__init__

    @functools.wraps(real)
    def init(self, annotation_file=None):
        absent = files.named(annotation_file) and not os.path.exists(files.path_to_read(annotation_file))
        real(self, written(annotation_file) if absent else annotation_file)

    module.COCO.__init__ = init


def written(path):
    """Writes a file of annotations in place of an absent one and returns its path."""
    shapes.given().setdefault("images", SIZE)
    width, height = shapes.sizes("images")
    box = [width // 4, height // 4, width // 2, height // 2]
    left, top, right, bottom = box[0], box[1], box[0] + box[2], box[1] + box[3]
    outline = [left, top, right, top, right, bottom, left, bottom]
    of = [{
        "id": n + 1, "image_id": n // OBJECTS, "category_id": CATEGORIES[n % len(CATEGORIES)], "bbox": box, "area": box[2] * box[3], "iscrowd": 0,
        "segmentation": [outline], "keypoints": [left, top, 2] * 17, "num_keypoints": 17, "caption": shapes.text(12),
    } for n in range(IMAGES * OBJECTS)]
    images = [{"id": n, "file_name": "%012d.jpg" % n, "width": width, "height": height} for n in range(IMAGES)]
    categories = [{"id": n, "name": "category %d" % n, "supercategory": "object"} for n in CATEGORIES]
    target = os.path.join(placeholders.folder(), "objects-%s" % os.path.basename(path))
    with files.real_open(target, "w", encoding="utf-8") as file:
        json.dump({"info": {}, "licenses": [], "images": images, "annotations": of, "categories": categories}, file)
    placeholders.replaced("data", path, "%d images of %dx%d with %d objects each, of %d categories" % (IMAGES, width, height, OBJECTS, len(CATEGORIES)))
    return target


# Files of plain text on which models of characters and bytes train, and the sizes in bytes of Tiny Shakespeare and enwik8.
CORPORA = re.compile(r"/(input|corpus|text8|enwik|wiki|book|\w*shakespeare)[^/]*\.(txt|gz)$")
LETTERS = "".join(map(chr, range(ord("A"), ord("A") + 64)))


def corpus(path):
    """Writes a text of 65 different characters in place of an absent one and returns its path."""
    packed = path.endswith(".gz")
    size, target = 100_000_000 if packed else 1_115_394, os.path.join(placeholders.folder(), "corpus-" + os.path.basename(path))
    with importlib.import_module("gzip").open(target, "wt", compresslevel=1) if packed else files.real_open(target, "w", encoding="utf-8") as file:
        file.write((LETTERS + "\n") * (size // 65))
    placeholders.replaced("data", path, "a text of %d bytes with 65 different characters" % size)
    return target


# Files of camera poses with one image each, as NeRF's synthetic scenes have them: views, and the size of an image.
VIEWS = re.compile(r"/transforms(_\w+)?\.json$")
FRAMES, SIDE = 100, "800x800"


def views(path):
    """Writes a file of camera poses in place of an absent one and returns its path."""
    shapes.given().setdefault("images", SIDE)
    folder, width, height = os.path.dirname(path), *shapes.sizes("images")
    poses = [[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 4.0], [0.0, 0.0, 0.0, 1.0]]] * FRAMES
    content = {"camera_angle_x": 0.69, "w": width, "h": height, "fl_x": float(width), "fl_y": float(width), "cx": width / 2, "cy": height / 2}
    content["frames"] = [{"file_path": "./views/r_%d" % n, "transform_matrix": pose, "rotation": 0.01} for n, pose in enumerate(poses)]
    target = os.path.join(placeholders.folder(), "views-" + os.path.basename(path))
    with files.real_open(target, "w", encoding="utf-8") as file:
        json.dump(content, file)
    data.transparent.add(os.path.normpath(os.path.join(folder, "views")))
    placeholders.replaced("data", path, "%d views of %dx%d" % (FRAMES, width, height))
    return target


def watch_h5py(module):
    """Called when h5py was imported: an absent file has the arrays, and the attributes (@name), that --data-shapes
    states, else the arrays that the script names.
    """

    class File(module.File):
        def __new__(cls, name, mode="r", *_, **__):
            stated = not absent(name, mode) or isinstance(shapes.entry("files", os.fspath(name)), dict)
            return super().__new__(cls) if stated else arrays.Node(os.fspath(name))

        def __init__(self, name, mode="r", *args, **kwargs):
            super().__init__(written_arrays(os.fspath(name)) if absent(name, mode) else name, mode, *args, **kwargs)

    real, module.File = module.File, File

    def absent(name, mode):
        return files.named(name) and mode == "r" and not os.path.exists(name)

    def written_arrays(path):
        stated = shapes.entry("files", path)
        target = os.path.join(placeholders.folder(), "arrays-" + os.path.basename(path))
        if not os.path.exists(target):
            with real(target + ".part", "w") as file:
                for name, kind in stated.items():
                    if name.startswith("@"):
                        file.attrs[name[1:]] = shapes.value(kind)
                    else:
                        dtype, _, sizes = shapes.shape_of(kind)
                        file.create_dataset(name, sizes, dtype)
            os.replace(target + ".part", target)
        placeholders.replaced("data", "%s files" % os.path.splitext(path)[1], "%s, as --data-shapes states" % ", ".join(stated))
        return target


def watch_zip(module):
    """Called when zipfile was imported: an absent archive has images with labels, in the layout of StyleGAN's data sets."""
    real = module.ZipFile.__init__

    @functools.wraps(real)
    def init(self, file, mode="r", *args, **kwargs):
        absent = files.named(file) and mode == "r" and str(file).endswith(".zip") and file not in sys.path and not os.path.exists(files.path_to_read(file))
        real(self, archive(os.fspath(file)) if absent else file, mode, *args, **kwargs)

    def archive(path):
        target = os.path.join(placeholders.folder(), "images-" + os.path.basename(path))
        if not os.path.exists(target):
            picture, names = io.BytesIO(), ["%05d/img%08d.png" % (0, n) for n in range(shapes.ROWS)]
            shapes.image(data.sized(path)).save(picture, "PNG")
            with module.ZipFile(target + ".part", "w") as made:
                for name in names:
                    made.writestr(name, picture.getvalue())
                made.writestr("dataset.json", json.dumps({"labels": [[name, n % CLASSES] for n, name in enumerate(names)]}))
            os.replace(target + ".part", target)
        return target

    module.ZipFile.__init__ = init


def watch_lmdb(module):
    """Called when lmdb was imported: an absent database has images, as many as its keys of lengths tell."""
    real = module.open

    @functools.wraps(real)
    def opened(path, *args, **kwargs):
        return real(path, *args, **kwargs) if os.path.exists(files.path_to_read(path)) else Database(os.fspath(path))

    module.open = opened


class Database:
    """An absent LMDB environment, and a transaction and cursor of it: an image for each key that names no length."""

    def __init__(self, path):
        self.path, self.pictures = path, {}

    def begin(self, *_, **__):
        return self

    cursor = __enter__ = begin

    def __exit__(self, *_):
        return None

    close = abort = __exit__

    def __iter__(self):
        return ((b"%08d" % n, self.get(b"%08d" % n)) for n in range(shapes.ROWS))

    def stat(self):
        return {"entries": shapes.ROWS}

    def get(self, key, default=None):
        name = bytes(key).decode(errors="replace")
        if re.search("num|len|count", name):
            return b"%d" % shapes.ROWS
        if re.search("label|text|caption", name):
            return b"the"
        side = re.match(r"(\d{2,4})-", name)  # StyleGAN's keys, such as 256-00001
        size = (int(side[1]), int(side[1])) if side else data.sized(self.path)
        if size not in self.pictures:
            picture = io.BytesIO()
            shapes.image(size).save(picture, "PNG")
            self.pictures[size] = picture.getvalue()
            placeholders.replaced("data", self.path, "images of %dx%d" % (size or shapes.UNSIZED))
        return self.pictures[size]


def shard(path):
    """Writes an archive of images with captions and classes in place of an absent shard of WebDataset; returns its path."""
    target = os.path.join(placeholders.folder(), "shard.tar")
    size = data.sized(os.path.dirname(path))
    if not files.exists(target):
        picture = io.BytesIO()
        shapes.image(size).save(picture, "JPEG")
        content = {"jpg": picture.getvalue(), "txt": shapes.text(12).encode(), "cls": b"0", "json": json.dumps({"caption": shapes.text(12)}).encode()}
        tarfile = importlib.import_module("tarfile")
        with tarfile.open(target + ".part", "w") as archive:
            for n in range(shapes.ROWS):
                for end, text in content.items():
                    entry = tarfile.TarInfo("%05d.%s" % (n, end))
                    entry.size = len(text)
                    archive.addfile(entry, io.BytesIO(text))
        os.replace(target + ".part", target)
    return target


# Functions that write a file in place of an absent one, by patterns of paths.
BY_NAME = {VIEWS: views, CORPORA: corpus, re.compile(r"\.tar$"): shard}
WATCHED = {"lmdb": watch_lmdb, "zipfile": watch_zip, "pycocotools.coco": watch_coco, "h5py": watch_h5py}
