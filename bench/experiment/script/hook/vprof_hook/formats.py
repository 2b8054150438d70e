"""Placeholders for absent files in special formats: annotations of objects in images (COCO), and HDF5."""

import functools
import io
import json
import os
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


WATCHED = {"zipfile": watch_zip, "pycocotools.coco": watch_coco, "h5py": watch_h5py}
