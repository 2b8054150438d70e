"""Placeholders for absent files in special formats: annotations of objects in images (COCO), and HDF5."""

import functools
import json
import os

from . import data, files, placeholders, shapes

# A placeholder's number of images, their usual size in COCO, objects per image (7.3 on average in COCO), and COCO's
# category numbers.
IMAGES, SIZE, OBJECTS = 128, "640x480", 7
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
    states.
    """

    class File(module.File):
        def __init__(self, name, mode="r", *args, **kwargs):
            absent = files.named(name) and mode == "r" and not os.path.exists(name)
            super().__init__(arrays(module, os.fspath(name)) if absent else name, mode, *args, **kwargs)

    real, module.File = module.File, File

    def arrays(module, path):
        stated = shapes.entry("files", path)
        if not isinstance(stated, dict):
            data.stop("the arrays of %s, which is absent" % path, data.SHAPES_FLAG + ': {"files": {"*%s": {"action": "float32 400x7"}}}' % os.path.splitext(path)[1])
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


WATCHED = {"pycocotools.coco": watch_coco, "h5py": watch_h5py}
