"""Placeholders for absent data: data sets with rows of the declared features, or of the columns that the script uses.

If nothing states the length of texts or the size of images, a size is used that scripts truncate or resize. If a batch
still has that size, the run ends with the line and the flag that states the size.
"""

import ast
import functools
import importlib
import io
import json
import os
import re
import sys

from . import files, folders, formats, hub, lists, memory, options, placeholders, shapes
from .placeholders import replaced, wanted

# Kinds of the columns of data sets on the hub, as their cards declare the features.
KNOWN = {
    "imdb": {"text": "string", "label": "int64<2"}, "rotten_tomatoes": {"text": "string", "label": "int64<2"},
    "ag_news": {"text": "string", "label": "int64<4"}, "dbpedia_14": {"label": "int64<14", "title": "string", "content": "string"},
    "emotion": {"text": "string", "label": "int64<6"}, "yelp_review_full": {"label": "int64<5", "text": "string"}, "yelp_polarity": {"text": "string", "label": "int64<2"},
    "wikitext": {"text": "string"}, "bookcorpus": {"text": "string"}, "openwebtext": {"text": "string"}, "ptb_text_only": {"sentence": "string"},
    "tinystories": {"text": "string"}, "c4": {"text": "string", "timestamp": "string", "url": "string"},
    "wikipedia": {"id": "string", "url": "string", "title": "string", "text": "string"},
    "fineweb": {"text": "string", "id": "string", "url": "string"}, "fineweb-edu": {"text": "string", "id": "string", "url": "string"},
    "squad": {"id": "string", "title": "string", "context": "string", "question": "string", "answers": {"text": ["string"], "answer_start": ["int32"]}},
    "alpaca": {"instruction": "string", "input": "string", "output": "string", "text": "string"},
    "alpaca-cleaned": {"output": "string", "input": "string", "instruction": "string"},
    "databricks-dolly-15k": {"instruction": "string", "context": "string", "response": "string", "category": "string"},
    "openassistant-guanaco": {"text": "string"}, "guanaco-llama2-1k": {"text": "string"}, "slimorca": {"conversations": "conversations"},
    "ultrachat_200k": {"prompt": "string", "prompt_id": "string", "messages": "messages"}, "capybara": {"source": "string", "messages": "messages", "num_turns": "int64"},
    "ultrafeedback_binarized": {"chosen": "messages", "rejected": "messages", "score_chosen": "float64", "score_rejected": "float64"},
    "hh-rlhf": {"chosen": "string", "rejected": "string"}, "gsm8k": {"question": "string", "answer": "string"},
    "cnn_dailymail": {"article": "string", "highlights": "string", "id": "string"}, "xsum": {"document": "string", "summary": "string", "id": "string"},
    "samsum": {"id": "string", "dialogue": "string", "summary": "string"}, "billsum": {"text": "string", "summary": "string", "title": "string"},
    "opus_books": {"id": "string", "translation": {"en": "string", "fr": "string"}}, "sst2": {"idx": "int32", "sentence": "string", "label": "int64<2"},
    "mnist": {"image": "image 28x28", "label": "int64<10"}, "fashion_mnist": {"image": "image 28x28", "label": "int64<10"},
    "cifar10": {"img": "image 32x32", "label": "int64<10"}, "cifar100": {"img": "image 32x32", "fine_label": "int64<100", "coarse_label": "int64<20"},
    "food101": {"image": "image", "label": "int64<101"}, "beans": {"image_file_path": "string", "image": "image", "labels": "int64<3"},
    "imagenet-1k": {"image": "image", "label": "int64<1000"}, "tiny-imagenet": {"image": "image 64x64", "label": "int64<200"},
    "smithsonian_butterflies_subset": {"image": "image"}, "naruto-blip-captions": {"image": "image", "text": "string"}, "pokemon-blip-captions": {"image": "image", "text": "string"},
    "fill50k": {"image": "image 512x512", "conditioning_image": "image 512x512", "text": "string"},
    "instructpix2pix-1000-samples": {"input_image": "image", "edit_prompt": "string", "edited_image": "image"},
}
GLUE = {
    "cola": ("sentence",), "sst2": ("sentence",), "mrpc": ("sentence1", "sentence2"), "stsb": ("sentence1", "sentence2"), "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"), "qnli": ("question", "sentence"), "rte": ("sentence1", "sentence2"), "wnli": ("sentence1", "sentence2"),
}

# torchvision's data sets: width, height, classes, training samples and test samples. Width 0 means that sizes differ.
PICTURES = {
    "MNIST": (28, 28, 10, 60000, 10000), "FashionMNIST": (28, 28, 10, 60000, 10000), "KMNIST": (28, 28, 10, 60000, 10000),
    "CIFAR10": (32, 32, 10, 50000, 10000), "CIFAR100": (32, 32, 100, 50000, 10000), "SVHN": (32, 32, 10, 73257, 26032), "STL10": (96, 96, 10, 5000, 8000),
    "Food101": (0, 0, 101, 75750, 25250), "Flowers102": (0, 0, 102, 1020, 6149), "OxfordIIITPet": (0, 0, 37, 3680, 3669), "ImageNet": (0, 0, 1000, 1281167, 50000),
    "StanfordCars": (0, 0, 196, 8144, 8041), "DTD": (0, 0, 47, 1880, 1880), "EuroSAT": (64, 64, 10, 27000, 27000), "GTSRB": (0, 0, 43, 26640, 12630),
    "FGVCAircraft": (0, 0, 100, 3334, 3333), "Caltech101": (0, 0, 101, 8677, 8677), "Caltech256": (0, 0, 257, 30607, 30607),
}

# The first ALIKE images are transformed. Later samples repeat these, since random transforms do not change sizes.
ALIKE = 16

MODES = {"MNIST": "L", "FashionMNIST": "L", "KMNIST": "L"}


class Unknown(SystemExit):
    """Ends the script because the shape of its data cannot be known. Handlers of Exception do not catch it."""


def stop(what, answer):
    wanted(what, answer)
    raise Unknown(2)


SHAPES_FLAG = "state it in a file, --data-shapes FILE"
transparent = set()  # folders whose images have an alpha channel
made = set()  # kinds of the placeholders made so far: "text", "image", "sound N" (N samples)


def start(torch):
    """Called when torch was imported."""
    loader = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
    loader.__next__ = checking(torch, loader.__next__)
    torch.utils.data.DataLoader.__init__ = alone(torch.utils.data.DataLoader.__init__)
    for base in (torch.utils.data.Dataset, torch.utils.data.IterableDataset):
        base.__init_subclass__ = classmethod(stating(base.__dict__.get("__init_subclass__"), torch, base))


# Checks of batches.


def checking(torch, real):
    """Wraps __next__ of a DataLoader's iterator to end the run if the script did not truncate or resize a placeholder.
    """
    from . import loaders

    @functools.wraps(real)
    def wrapped(self):
        batch = real(self)
        if made:
            total, shape = loaders.shape_of(torch, batch)
            check(shape)
        return batch

    return wrapped


def alone(real):
    """Wraps DataLoader.__init__ to use at most one worker: batches prefetched by more workers are never trained on."""

    @functools.wraps(real)
    def wrapped(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.num_workers = min(self.num_workers, 1)

    return wrapped


def check(shape):
    """Ends the run if a dimension of a batch has a size that only placeholders have."""
    if "text" in made and not shapes.lengths() and any(shapes.uncut() <= n <= shapes.uncut() + 16 for n in shape[-3:]):
        stop("the lengths of texts, which nothing cuts (a batch has the shape %s)" % "x".join(map(str, shape)),
             "state them with --lengths, such as --lengths lognormal:mean=512,p95=1500")
    whole = [int(kind.split()[1]) for kind in made if kind.startswith("sound")] if not shapes.lengths() and shapes.seconds != shapes.SHORTER else ()
    if any(abs(samples - d * hop) <= 2 * hop for samples in whole for d in shape[-3:] for hop in HOPS):
        stop("the lengths of sounds, which nothing cuts (a batch has the shape %s)" % "x".join(map(str, shape)), "state their samples with --lengths, such as --lengths 160000")
    if "image" in made and shapes.sizes("images") is None and any(is_scaled(a, b) for a in shape[-3:] for b in shape[-3:]):
        stop("the size of images, which nothing resizes", 'state it in a file, --data-shapes FILE: {"images": "640x480"}')


# Usual hop lengths of spectrograms, in samples; 1 is the waveform itself.
HOPS = (1, 80, 128, 160, 200, 240, 256, 275, 300, 320, 400, 441, 480, 512)


def is_scaled(a, b):
    """Reports whether two sizes have the aspect ratio of a placeholder image, within one pixel."""
    width, height = shapes.UNSIZED
    return min(a, b) > 100 and abs(a - b * width / height) < 1


# Data sets of the hub.


def watch_load(module):
    """Called when datasets.load was imported."""
    real, disk = module.load_dataset, module.load_from_disk

    @functools.wraps(real)
    def load_dataset(path, name=None, data_dir=None, data_files=None, split=None, *args, **kwargs):
        try:
            return real(path, name, data_dir, data_files, split, *args, **kwargs)
        except OSError:  # no such files, or no network
            source = data_files if path in ("json", "csv", "parquet", "text", "imagefolder", "audiofolder", "arrow") and data_files else path
            return placeholder(str(source), path, name, split, kwargs.get("streaming"))

    @functools.wraps(disk)
    def load_from_disk(path, *args, **kwargs):
        return disk(path, *args, **kwargs) if os.path.isdir(str(path)) else placeholder(str(path), "disk", None, None, False)

    module.load_dataset, module.load_from_disk = load_dataset, load_from_disk


def watch_rows(module):
    """Called when datasets.arrow_dataset was imported: if a script selects more rows than a placeholder has, rows
    repeat, and if it splits off more, an eighth of the rows is split off.
    """
    real = module.Dataset.select

    @functools.wraps(real)
    def select(self, indices, *args, **kwargs):
        indices = list(indices)
        if made and len(self) and max(indices, default=0) >= len(self):
            indices = [row % len(self) for row in indices]
        return real(self, indices, *args, **kwargs)

    split = module.Dataset.train_test_split

    @functools.wraps(split)
    def train_test_split(self, test_size=None, train_size=None, *args, **kwargs):
        few = [len(self) // 8 if made and isinstance(size, int) and size >= len(self) else size for size in (test_size, train_size)]
        return split(self, *few, *args, **kwargs)

    module.Dataset.select, module.Dataset.train_test_split = select, train_test_split


def watch_stream(module):
    """Called when datasets.iterable_dataset has been imported. skip() skips nothing in a run with placeholder data,
    which may have fewer rows than the script skips.
    """
    real = module.IterableDataset.skip

    @functools.wraps(real)
    def skip(self, n):
        return real(self, 0 if made else n)

    module.IterableDataset.skip = skip


def placeholder(source, path, name, split, streaming):
    """Returns a datasets.Dataset, or a dict of its splits, in place of an absent one."""
    datasets = importlib.import_module("datasets")
    if series() and not shapes.entry("datasets", source):
        whole = datasets.Dataset.from_pandas(hours(importlib.import_module("pandas"), source))
        return whole if isinstance(split, str) else datasets.DatasetDict(dict.fromkeys(("train", "validation", "test"), whole))
    columns, origin = columns_of(source, path, name)
    rows = (shapes.entry("datasets", source) or {}).get("rows", shapes.ROWS)
    replaced("data", source, "%d rows of %s (%s)" % (rows, ", ".join("%s: %s" % pair for pair in columns.items()), origin))
    made_of(columns)
    whole = table(datasets, columns, rows)
    wants = [split] if isinstance(split, str) else list(split or ())
    found = {part: whole if part.startswith("train") or wants else whole.select(range(min(rows, shapes.OTHER_ROWS))) for part in wants or ("train", "validation", "test")}
    for part in wants:
        share = re.search(r"\[.*?(\d+)(%?)\]", part)
        if share:
            found[part] = whole.select(range(max(1, min(rows, int(share[1]) * rows // 100 if share[2] else int(share[1])))))
    if streaming:
        found = {part: stream(rows, part.startswith("train")) for part, rows in found.items()}
    if isinstance(split, str):
        return found[split]
    if split:
        return [found[part] for part in wants]
    return (datasets.IterableDatasetDict if streaming else datasets.DatasetDict)(found)


def stream(rows, train):
    """Returns a data set as a stream; for training it does not end before an optimizer has the batches of a step."""
    found = rows.to_iterable_dataset()
    return found.repeat(None) if train and hasattr(found, "repeat") else found


def made_of(columns):
    kinds = json.dumps(columns)
    made.update(word for word, mark in (("text", "string"), ("text", "messages"), ("text", "conversations"), ("image", '"image"')) if mark in kinds)


def columns_of(source, path, name):
    """Returns the kinds of a data set's columns by name, and a text that tells where they come from."""
    stated = shapes.entry("datasets", source)
    if stated:
        return stated["columns"], "as --data-shapes states"
    declared = declared_columns(source)
    if declared:
        return declared, "the features that its card declares"
    short = source.split("/")[-1].lower()
    if short == "glue" and name in GLUE:
        return {**dict.fromkeys(GLUE[name], "string"), "label": "float32" if name == "stsb" else "int64<3" if name == "mnli" else "int64<2", "idx": "int32"}, "vprof's table"
    if short in KNOWN:
        return KNOWN[short], "vprof's table"
    if path in ("text",):
        return {"text": "string"}, "as datasets reads files of text"
    if path == "imagefolder":
        stop("the classes of the images in %s" % source, SHAPES_FLAG)
    used = used_columns()
    if not used:
        stop("the columns of %s" % source, SHAPES_FLAG + ': {"datasets": {"%s": {"columns": {"text": "string"}}}}' % source)
    return used, "columns that the script uses, by their names"


def declared_columns(source):
    """Returns the columns that a data set's card declares, by name. --fetch downloads the card; None without it."""
    if not os.environ.get("VPROF_FETCH") or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source):
        return None
    path = os.path.join(os.environ["VPROF_FETCH"], "datasets--" + source.replace("/", "--"), "README.md")
    card = hub.keep(path, lambda: hub.download("%s/datasets/%s/resolve/main/README.md" % (hub.endpoint(), source)))
    try:
        facts = importlib.import_module("yaml").safe_load(card.decode().split("---")[1])["dataset_info"]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ImportError):
        return None
    return {f["name"]: kind_of(f) for f in (facts[0] if isinstance(facts, list) else facts)["features"]}


def kind_of(feature):
    """Returns the kind of a feature in the notation of data-set cards."""
    if "struct" in feature:
        return {f["name"]: kind_of(f) for f in feature["struct"]}
    inner = feature.get("list") or feature.get("sequence")
    if inner is not None:
        return [{f["name"]: kind_of(f) for f in inner} if isinstance(inner, list) else kind_of({"dtype": inner} if isinstance(inner, str) else inner)]
    kind = feature.get("dtype", "string")
    if isinstance(kind, dict):
        return "int64<%d" % max(len(kind.get("class_label", {}).get("names", ())), 2)
    return kind if kind in ("image", "audio") or shapes.NUMBERS.match(kind) else "string"


def used_columns():
    """Returns columns that the user's source names in subscripts and in arguments about columns. Their kinds follow
    from their names.
    """
    usual = {name: kind for kind, names in shapes.USUAL.items() for name in names.split()}
    usual.update({**shapes.NESTED, **shapes.given().get("columns", {})})
    found = {}
    names, stated = names_used(tuple(sources()))
    usual.update((of or opened, "path") for path in sources() for of, opened in PATHS.findall(source(path)))
    for name in names:
        kind = usual.get(name) or (name in stated and next((kind for end, kind in ENDS.items() if name.endswith(end)), None))
        if kind:
            found[name] = kind
    return found


# Uses of a column as the path of a file: file_name = row["source"], imread(root + row["target"]).
PATHS = re.compile(r"\b\w*(?:file|path)\w*\s*=\s*\w+\[[\"'](\w+)[\"']\]|\b(?:imread|Image\.open)\([^\n]*?\[[\"'](\w+)[\"']\]")

# Kinds of columns by the ends of their names, for names that appear in arguments, such as conditioning_image.
ENDS = {"_image": "image", "_prompt": "string", "_caption": "string", "_text": "string"}


def sources():
    """Returns the paths of the user's source: the script and the modules that it has imported, or else the files beside
    it.
    """
    script = os.path.abspath(sys.argv[0] or os.curdir)
    folder = script if os.path.isdir(script) else os.path.dirname(script)
    near = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".py")][:200] if os.path.isdir(folder) else []
    own = [f for _, f in memory.loaded() if f.endswith(".py") and memory.of_user(f, memory.LIBRARIES)]
    return list(dict.fromkeys([f for f in [script] if f.endswith(".py") and os.path.exists(f)] + (own or near)))


@functools.lru_cache(maxsize=None)
def names_used(paths):
    """Returns the strings in subscripts, in arguments and defaults about columns, and the fields of templates, in the
    order of the source; then the strings of arguments alone.
    """
    names, stated = [], []
    for path in paths:
        try:
            tree = ast.parse(source(path))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript):
                names += constants(node.slice)
            elif isinstance(node, ast.keyword) and node.arg and re.search("column|field|default|key", node.arg):
                stated += constants(node.value)
                names += constants(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "rename_column", "select_columns", "cast_column"):
                names += [name for argument in node.args for name in constants(argument)]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names += FIELDS.findall(node.value)
    names += sys.argv[1:]
    return tuple(dict.fromkeys(names)), frozenset(stated)


FIELDS = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")  # of a template for rows, such as "### Instruction: {instruction}"


def source(path):
    """Returns the text of a source file of the user; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def constants(node):
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def table(datasets, columns, rows):
    """Returns a datasets.Dataset whose columns have the given kinds."""
    features, content = {}, {}
    parts = shapes.strings(columns)
    for name, kind in columns.items():
        if isinstance(kind, str) and kind.startswith("image"):
            buffer = io.BytesIO()
            shapes.value(kind).save(buffer, "PNG")
            features[name], content[name] = datasets.Image(), [{"bytes": buffer.getvalue(), "path": None}] * rows
            continue
        content[name] = [shapes.value(kind, row, parts) for row in range(rows)]
        if isinstance(kind, str) and kind.startswith("int64<"):
            features[name] = datasets.ClassLabel(num_classes=int(kind.split("<")[1].split()[0])) if " " not in kind else None
    whole = datasets.Dataset.from_dict({name: [v.tolist() if hasattr(v, "tolist") else v for v in column] for name, column in content.items()})
    known = {name: features.get(name) or feature for name, feature in whole.features.items()}
    return whole.cast(datasets.Features(known)) if features else whole


# Data sets of torchvision.


def watch_torchvision(module):
    """Called when torchvision.datasets was imported."""
    for name, picture in PICTURES.items():
        if hasattr(module, name):
            wrap_pictures(getattr(module, name), name, picture)
    wrap_pictures(module.ImageFolder, "ImageFolder", None)


def wrap_pictures(cls, name, picture):
    """Wraps __init__ of a torchvision data set: if its files are absent, the object becomes a placeholder."""
    real = cls.__init__
    if name == "ImageNet":  # ImageFolder, its base class, is wrapped
        return

    @functools.wraps(real)
    def init(self, root=None, *args, **kwargs):
        try:
            return real(self, root, *args, **{**kwargs, **({"download": False} if kwargs.get("download") else {})})
        except (RuntimeError, OSError):
            given = arguments(real, self, root, *args, **kwargs)
        stated = picture or folder_picture(str(root))
        train = given.get("train", given.get("split", "train")) in (True, "train", "trainval", "train+unlabeled")
        size = stated[:2] if stated[0] else shapes.size_of(str(root))
        width, height = shapes.sizes("images") or size or shapes.UNSIZED
        if not size:
            made.add("image")
        self.__class__ = pictures(type(self), name, (width, height, stated[2], stated[3 if train else 4], MODES.get(name, "RGB")))
        self.root, self.train = root, train
        self.transform, self.target_transform = given.get("transform"), given.get("target_transform")
        self.transforms = given.get("transforms") or sys.modules["torchvision.datasets.vision"].StandardTransform(self.transform, self.target_transform)
        self.fill()
        replaced("data", "%s in %s" % (name, root), "%d images of %dx%d in %d classes" % (len(self), width, height, stated[2]))

    cls.__init__ = init


def arguments(function, *args, **kwargs):
    bound = importlib.import_module("inspect").signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return {**bound.arguments, **bound.arguments.get("kwargs", {})}


def folder_picture(root):
    """Returns the row for an image folder, as in PICTURES: the counts of classes and images that --data-shapes states,
    else the classes that an option of the script states, else 1000 as in ImageNet, with the number of its images if the path names it.
    """
    stated = shapes.entry("folders", root)
    if stated:
        return 0, 0, stated["classes"], stated.get("images", shapes.ROWS), stated.get("images", shapes.ROWS)
    if "imagenet" in root.lower():
        return 0, 0, 1000, 1281167, 50000
    classes = next((n for name, n in options.values.items() if CLASSES.match(name) and isinstance(n, int) and n > 0), 1000)
    return 0, 0, classes, max(shapes.ROWS, 2 * classes), max(shapes.ROWS, classes)


# Names of options that state the number of classes.
CLASSES = re.compile("(n|nb|num)_?(class(es)?|labels)$")


def pictures(cls, name, facts):
    """Returns a subclass of a data set whose images are placeholders: width, height, classes, samples and mode."""
    own = {key: vars(Pictures)[key] for key in ("fill", "__len__", "__getitem__", "__reduce__")}
    return type(name, (cls,), {**own, "vprof": facts, "vprof_made": []})


def restored(cls, name, facts, state):
    """Returns a placeholder that another process has sent."""
    made = pictures(cls, name, facts)
    found = made.__new__(made)
    found.__dict__.update(state)
    found.fill()
    return found


class Pictures:
    """A data set of black images in place of one of torchvision's."""

    def fill(self):
        numpy = importlib.import_module("numpy")
        width, height, classes, count, mode = self.vprof
        names = getattr(type(self), "classes", None) or ["class %d" % i for i in range(classes)]
        targets = [i % classes for i in range(count)]
        grey = (count, height, width)
        pixels = grey if mode == "L" else (*grey, 3)
        values = dict(classes=names, class_to_idx={name: i for i, name in enumerate(names)}, targets=targets, labels=targets, _labels=targets,
                      data=numpy.broadcast_to(numpy.uint8(0), pixels),
                      samples=Samples(count, classes), imgs=Samples(count, classes))
        if mode == "L":
            torch = sys.modules["torch"]
            values.update(data=torch.zeros((), dtype=torch.uint8).expand(grey), targets=torch.tensor(targets))
        for name, content in values.items():
            try:
                setattr(self, name, content)
            except AttributeError:  # a read-only property of the class
                pass

    def __reduce__(self):
        sent = {key: value for key, value in vars(self).items() if "transform" in key or key in ("root", "train")}
        return restored, (type(self).__mro__[1], type(self).__name__, self.vprof, sent)

    def __len__(self):
        return self.vprof[3]

    def __getitem__(self, index):
        width, height, classes, _, mode = self.vprof
        target = int(index) % classes
        if len(self.vprof_made) == ALIKE and not self.target_transform:
            return self.vprof_made[target % ALIKE], target
        picture = shapes.image((width, height)).convert(mode)
        found = self.transforms(picture, target) if self.transforms else (picture, target)
        self.vprof_made.append(found[0])
        return found


class Samples:
    """The (path, class) pairs of the images in a folder."""

    def __init__(self, count, classes):
        self.count, self.classes = count, classes

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.count))]
        if index >= self.count:
            raise IndexError(index)
        return "%d.jpg" % index, index % self.classes


# Data sets defined by the user, whose samples --data-shapes states.


def stating(before, torch, base):
    """Wraps Dataset.__init_subclass__: classes that --data-shapes names return samples without reading files."""

    def made_class(cls, **kwargs):
        super(base, cls).__init_subclass__(**kwargs)
        stated = shapes.entry("classes", "%s.%s" % (cls.__module__, cls.__name__)) or shapes.entry("classes", cls.__name__)
        if not stated:
            return
        rows = stated.get("rows", shapes.ROWS)

        def init(self, *args, **kwargs):
            for name, content in stated.get("attributes", {}).items():
                setattr(self, name, content)
            replaced("data", cls.__name__, "%d samples as --data-shapes states" % rows)

        def item(self, index):
            if index >= rows:
                raise IndexError(index)
            return sample(torch, stated["item"], index)

        cls.__init__, cls.__getitem__, cls.__len__ = init, item, lambda self: rows
        if issubclass(cls, torch.utils.data.IterableDataset):
            cls.__iter__ = lambda self: (sample(torch, stated["item"], i) for i in range(rows))

    return made_class


def sample(torch, kind, row):
    """Returns a sample of a kind, with tensors in place of arrays."""
    if isinstance(kind, dict):
        return {name: sample(torch, inner, row) for name, inner in kind.items()}
    if isinstance(kind, list):
        return tuple(sample(torch, inner, row) for inner in kind)
    found = shapes.value(kind, row)
    return torch.from_numpy(found) if hasattr(found, "dtype") and hasattr(found, "shape") else found


# Files.

# Extensions of files of rows, and names of JSON files that hold rows.
ROW_FILES = (".jsonl", ".ndjson", ".csv", ".tsv")
LISTS = re.compile(r"(train|valid|val|dev|test|data|instruct|alpaca|prompt|caption|anno|meta)[^/]*\.json$")


def watch_files():
    """Called when Python starts, before files are redirected: makes absent files of rows readable."""
    files.absent_rows, files.absent_list = rows_file, lists.file


def rows_file(path):
    """Returns the path of a file with rows in place of an absent one; None for files of other kinds."""
    listed = lists.file(path)
    if listed:
        return listed
    path = os.path.abspath(os.fspath(path))
    known = next((make for pattern, make in formats.BY_NAME.items() if pattern.search(path)), None)
    if known and not os.path.lexists(path) and not files.cached(os.path.dirname(path)):
        return known(path)
    if os.path.lexists(path) or not path.endswith(ROW_FILES) and not LISTS.search(path) or files.cached(os.path.dirname(path)):
        return None
    stated = shapes.entry("datasets", path)
    columns = stated["columns"] if stated else used_columns()
    if not columns or any(isinstance(kind, str) and kind.startswith(("image", "audio")) for kind in columns.values()):
        return None
    made_of(columns)
    count = (stated or {}).get("rows", shapes.ROWS)
    replaced("data", path, "%d rows of %s (%s)" % (count, ", ".join(columns), "as --data-shapes states" if stated else "columns that the script uses, by their names"))
    rows = [{name: plain(shapes.value(kind, row, shapes.strings(columns))) for name, kind in columns.items()} for row in range(count)]
    target = os.path.join(placeholders.folder(), "rows-%d-%s" % (len(os.listdir(placeholders.folder())), os.path.basename(path)))
    with files.real_open(target, "w", encoding="utf-8") as file:
        if path.endswith((".csv", ".tsv")):
            writer = importlib.import_module("csv").DictWriter(file, list(columns), delimiter="\t" if path.endswith(".tsv") else ",")
            writer.writeheader()
            writer.writerows(rows)
        elif path.endswith(".json") and not read_by_lines():
            json.dump(rows, file)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return target


def read_by_lines():
    """Reports whether the user's function that opens a file reads a JSON object from each of its lines."""
    frame = memory.frame_of_user(sys._getframe(1), memory.LIBRARIES)
    try:
        return frame is not None and re.search(r"for line in [^\n]*\n[^\n]*json\.loads\(", importlib.import_module("inspect").getsource(frame.f_code)) is not None
    except OSError:
        return False


def plain(content):
    return content.tolist() if hasattr(content, "tolist") else content


def watch_numpy(module):
    """Called when numpy was imported: replaces absent files of tokens (np.memmap), and arrays that --data-shapes
    states.
    """
    real_map, real_load = module.memmap, module.load

    class Mapped(real_map):
        def __new__(cls, filename, dtype=module.uint8, mode="r+", offset=0, shape=None, order="C"):
            if not files.named(filename) or os.path.exists(filename) or mode not in ("r", "c", "r+"):
                return real_map.__new__(real_map, filename, dtype, mode, offset, shape, order)
            size = shape if shape is not None else 10_000_000
            replaced("data", filename, "%s values of %s" % (size, module.dtype(dtype).name))
            path = os.path.join(placeholders.folder(), "map-%d" % len(os.listdir(placeholders.folder())))
            with files.real_open(path, "wb") as file:
                file.truncate(offset + int(module.prod(size)) * module.dtype(dtype).itemsize)
            return real_map.__new__(real_map, path, dtype, "r+" if mode == "r+" else "c", offset, shape, order)

    @functools.wraps(real_load)
    def load(file, *args, **kwargs):
        if not files.named(file) or os.path.exists(files.path_to_read(file)):
            return real_load(file, *args, **kwargs)
        stated = shapes.entry("files", os.fspath(file))
        if stated is None:
            wanted("the array of %s, which is absent" % file, 'state it in a file, --data-shapes FILE: {"files": {"%s": "float32 100x7"}}' % os.path.basename(file))
            return real_load(file, *args, **kwargs)
        replaced("data", file, "%s, as --data-shapes states" % stated)
        return shapes.value(stated)

    module.memmap, module.load = Mapped, load


def sized(folder):
    """Reports that images of a folder are absent, and returns the size of their placeholders."""
    size = shapes.size_of(folder)
    made.update(() if size else ("image",))
    replaced("data", folder, "images of %dx%d" % (size or shapes.UNSIZED))
    return size


def watch_pil(module):
    """Called when PIL.Image was imported."""
    real = module.open

    @functools.wraps(real)
    def opened(fp, *args, **kwargs):
        if files.named(fp) and not os.path.exists(fp):
            size = sized(os.path.dirname(os.path.abspath(fp)))
            picture = shapes.image(size, "L" if folders.MASKS.search(os.path.basename(os.path.dirname(os.path.abspath(fp)))) else "RGB")
            picture.format = "PNG" if str(fp).endswith(".png") else "JPEG"
            return picture
        return real(fp, *args, **kwargs)

    module.open = opened


def watch_imread(module):
    """Called when a library with a function imread has been imported: OpenCV, scikit-image or imageio."""
    real = module.imread

    @functools.wraps(real)
    def imread(filename, *args, **kwargs):
        path = files.path_to_read(filename)
        if not files.named(path) or os.path.exists(path):
            return real(filename if path is filename else os.fspath(path), *args, **kwargs)
        flag = (args or (kwargs.get("flags", 1),))[0] if module.__name__ == "cv2" else -1  # IMREAD_UNCHANGED
        folder = os.path.dirname(os.path.abspath(path))
        size = sized(folder)
        grey = flag == 0 or flag == -1 and folders.MASKS.search(os.path.basename(folder))
        return importlib.import_module("numpy").asarray(shapes.image(size, "L" if grey else "RGBA" if folder in transparent and flag == -1 else "RGB"))

    module.imread = imread


def watch_pandas(module):
    """Called when pandas was imported."""
    for name in ("read_csv", "read_json", "read_parquet", "read_table"):
        setattr(module, name, reading(module, getattr(module, name)))


# Rows of a file of time series: about two years of hourly values, as in ETTh1.
HOURS = 17420


@functools.lru_cache(maxsize=None)
def series():
    """Returns the names of the columns of a time series. The options --enc_in and --target of forecasting scripts state
    them; empty for other scripts.
    """
    options = dict(zip(sys.argv, sys.argv[1:]))
    count = options.get("--enc_in", "")
    return ["series %d" % n for n in range(int(count) - 1)] + [options.get("--target", "OT")] if count.isdigit() else []


def hours(pandas, source):
    """Returns a pandas.DataFrame with hourly values in place of an absent time series."""
    replaced("data", source, "%d rows of %d series, one of each hour" % (HOURS, len(series())))
    dates = pandas.date_range("2016-07-01", periods=HOURS, freq="h").strftime("%Y-%m-%d %H:%M:%S")
    return pandas.DataFrame({"date": dates, **{name: [0.5 + row % 7 for row in range(HOURS)] for name in series()}})


def reading(module, real):
    @functools.wraps(real)
    def wrapped(source, *args, **kwargs):
        if not files.named(source) or os.path.exists(files.path_to_read(source)) or "://" in str(source):
            return real(source, *args, **kwargs)
        stated = shapes.entry("datasets", str(source))
        if not stated and series():
            return hours(module, source)
        columns = stated["columns"] if stated else used_columns()
        if not columns:
            stop("the columns of %s" % source, SHAPES_FLAG + ': {"datasets": {"%s": {"columns": {"text": "string"}}}}' % os.path.basename(str(source)))
        made_of(columns)
        count = (stated or {}).get("rows", shapes.ROWS)
        replaced("data", source, "%d rows of %s" % (count, ", ".join(columns)))
        return module.DataFrame({name: [plain(shapes.value(kind, row, shapes.strings(columns))) for row in range(count)] for name, kind in columns.items()})

    return wrapped


WATCHED = {
    "datasets.load": watch_load, "datasets.arrow_dataset": watch_rows, "datasets.iterable_dataset": watch_stream, "torchvision.datasets": watch_torchvision, "numpy": watch_numpy, "PIL.Image": watch_pil, **dict.fromkeys(("cv2", "skimage.io", "imageio", "imageio.v2", "imageio.v3"), watch_imread), "pandas": watch_pandas,
}
