"""Redirects the files that a simulated run writes to a folder of vprof, so that they do not replace real ones.

The folder mirrors the file system: /data/best.pt is written to saved/data/best.pt. Every process of the run finds it
under its own name through torch.load, open, os.stat or a listing of /data.
"""

import builtins
import errno
import functools
import io
import os
import shutil
import sys
import tempfile

from . import events

# Extensions of files with weights.
CHECKPOINTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp", ".pth.tar", ".onnx", ".gguf", ".pt2")

# Files that libraries open from C or that compilers read. They are not redirected.
NATIVE = (
    ".arrow", ".parquet", ".feather", ".mmap", ".db", ".sqlite", ".sqlite3", ".h5", ".hdf5", ".lmdb", ".mdb", ".lock", ".so", ".o",
    ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".ninja", ".py", ".pyc",
)

real_open, real_stat, real_mkdir, real_remove = io.open, os.stat, os.mkdir, os.remove

OWN = os.getcwd()  # the folder in which the script was started
absent_rows = None  # function set by data.py: returns a file with rows in place of an absent file, or None
absent_list = None  # the same for a list of samples, which scripts check with os.stat before opening it
absent_folder = None  # function set by folders.py: fills the mirror of an absent folder and reports whether it did
placed = set()  # absent folders whose mirrors were filled
made = set()  # folders that this process has created
makes_folders = False  # whether absent folders of results are made: the command is a documented one
told = set()  # redirected files that were reported to vprof


def diverts():
    """Reports whether writes are redirected."""
    return not os.environ.get("VPROF_KEEP")


# Paths.


def mirror(path):
    """Returns the redirected path of a file."""
    return events.folder("saved", os.path.abspath(os.fspath(path)).lstrip(os.sep))


def named(path):
    """Reports whether an argument is a path, and not a file object or a descriptor."""
    return isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str)


def path_to_read(path):
    """Returns the path to read a file from: the redirected one if this run has written it, else the path itself."""
    if not named(path):
        return path
    other = mirror(path)
    return other if exists(other) or os.path.abspath(os.fspath(path)) in placed else path


def path_to_list(path):
    """Returns the path to list a folder from: its mirror if the folder is absent and has a placeholder."""
    if absent_folder and named(path) and absent_folder(path):
        placed.add(os.path.abspath(os.fspath(path)))
    return path_to_read(path)


def path_to_write(path, copied=False):
    """Returns the path to write a file to. With copied, the file's existing contents are copied there first."""
    folder = os.path.dirname(os.path.abspath(os.fspath(path)))
    if not os.path.isdir(folder) and not place(folder):
        return path  # the write fails as it would without vprof
    other = mirror(path)
    os.makedirs(os.path.dirname(other), exist_ok=True)
    if copied and exists(path) and not os.path.lexists(other):
        shutil.copyfile(path, other)
    if other not in told:
        told.add(other)
        if not cached(folder):  # temporary files are not reported
            events.send("diverted", path=os.path.abspath(os.fspath(path)))
    return other


def is_absent(folder):
    """Reports whether a folder of results is absent and may be made."""
    return makes_folders and not os.path.isdir(folder)


def place(folder):
    """Makes the mirror of an absent folder of results, which the user has by another name, and reports whether it did."""
    folder = os.path.abspath(os.fspath(folder))
    if not makes_folders or cached(folder):
        return False
    os.makedirs(mirror(folder), exist_ok=True)
    made.add(folder)
    placed.add(folder)
    events.send("replaced", kind="setting", path=folder, by="a temporary folder, as it is absent")
    return True


def exists(path):
    """Reports whether a path names a regular file."""
    try:
        return os.path.stat.S_ISREG(real_stat(path).st_mode)
    except OSError:
        return False


# Rules of redirection.


def is_redirected(path):
    """Reports whether a file opened for writing is redirected: a checkpoint, a log of TensorBoard, a file that existed
    before, or a file in a folder that this run has created.
    """
    path = os.path.abspath(os.fspath(path))
    folder, name = os.path.split(path)
    if name.endswith(NATIVE) or cached(folder):
        return False
    return name.endswith(CHECKPOINTS) or name.startswith("events.out.tfevents") or folder in made or exists(path)


def cached(folder):
    """Reports whether a folder belongs to a cache or to the system, or holds temporary files."""
    if within(folder, events.folder()) or within(folder, "/dev") or within(folder, "/proc"):
        return True
    if folder.startswith(os.path.join(tempfile.gettempdir(), "torchinductor_")):
        # A compiler reads Inductor's headers. They stay even if the script was started in a folder for temporary files.
        return True
    inner = folder[len(OWN):] if within(folder, OWN) else folder
    if "site-packages" in inner or any(part.startswith(".") for part in inner.split(os.sep)):
        return True
    return any(within(folder, root) and not within(OWN, root) for root in caches())


def caches():
    yield tempfile.gettempdir()
    yield sys.prefix
    for name, value in os.environ.items():
        if name.endswith(("_HOME", "_CACHE", "CACHE_DIR", "_EXTENSIONS_DIR")) and os.path.isabs(value):
            yield value.rstrip(os.sep)


def within(path, folder):
    return path == folder or path.startswith(folder + os.sep)


# Replacements of Python's functions.


def opened(file, mode="r", *args, **kwargs):
    """Replaces open: opens the redirected file."""
    if named(file):
        if set(mode) & set("wax+"):
            if not os.path.isdir(file) and (os.path.lexists(mirror(file)) or is_redirected(file) or is_absent(os.path.dirname(os.path.abspath(file)))):  # TemporaryFile opens its folder
                file = path_to_write(file, copied=not set(mode) & set("wx"))
        else:
            file = absent_rows and absent_rows(path_to_read(file)) or path_to_read(file)
    return real_open(file, mode, *args, **kwargs)


def following(call):
    """Wraps a function whose first argument is a path to redirect."""

    @functools.wraps(call)
    def wrapped(path, *args, **kwargs):
        return call(path_to_read(path), *args, **kwargs)

    return wrapped


def asking(stat):
    """Wraps os.stat. A script checks a folder with it before listing the folder."""

    @functools.wraps(stat)
    def wrapped(path, *args, **kwargs):
        try:
            return stat(path_to_read(path), *args, **kwargs)
        except FileNotFoundError:
            listed = absent_list and named(path) and absent_list(path)
            if not listed and (kwargs.get("dir_fd") or path_to_list(path) is path):
                raise
            return stat(listed or mirror(path), *args, **kwargs)

    return wrapped


def moving(call):
    """Wraps os.rename or os.replace. A script moves a completely written file into place with them."""

    @functools.wraps(call)
    def wrapped(source, target, **kwargs):
        if not named(source) or not named(target) or kwargs:
            return call(source, target, **kwargs)
        origin = path_to_read(source)
        if origin is source and spared(source) and is_redirected(target):
            return copied(source, target)
        if origin is source and (os.path.isdir(source) or not is_redirected(target)):
            call(source, target)
            if os.path.isdir(mirror(source)):
                os.makedirs(os.path.dirname(mirror(target)), exist_ok=True)
                shutil.move(mirror(source), mirror(target))
            source, target = os.path.abspath(source), os.path.abspath(target)
            for path in sorted(path for path in made if within(path, source)):
                make(target + path[len(source):])
            return None
        there = path_to_write(target)
        if there is target:
            raise FileNotFoundError(2, "No such file or directory", target)
        return shutil.move(origin, there) and None

    return wrapped


def spared(path):
    """Reports whether a file is a checkpoint of a real run, which must not be removed."""
    path = os.path.abspath(os.fspath(path))
    if not path.endswith(CHECKPOINTS) or cached(os.path.dirname(path)) or not exists(path):
        return False
    events.send("kept", path=path)
    return True


def copied(source, target):
    """Copies a file to the redirected path of target."""
    with real_open(source, "rb") as file, real_open(path_to_write(target), "wb") as copy:
        shutil.copyfileobj(file, copy)


def removed(path, **kwargs):
    """Replaces os.remove: checkpoints of real runs are kept."""
    if not named(path) or path_to_read(path) is path and not spared(path):
        real_remove(path, **kwargs)
    elif path_to_read(path) is not path:
        real_remove(path_to_read(path))


def removing(rmtree):
    """Wraps shutil.rmtree: a folder with checkpoints of real runs is kept."""

    @functools.wraps(rmtree)
    def wrapped(path, *args, **kwargs):
        if named(path):
            if any(name.endswith(CHECKPOINTS) for _, _, names in os.walk(path) for name in names if exists(os.path.join(path, name))):
                events.send("kept", path=os.path.abspath(os.fspath(path)))
                return None
            rmtree(mirror(path), ignore_errors=True)
        return rmtree(path, *args, **kwargs)

    wrapped.avoids_symlink_attacks = rmtree.avoids_symlink_attacks
    return wrapped


def make(path):
    """Records a folder that the run has created; vprof removes it at the end if it is empty."""
    path = os.path.abspath(os.fspath(path))
    made.add(path)
    if not cached(path):
        events.send("made", path=path)


@functools.wraps(os.mkdir)
def making(path, *args, **kwargs):
    try:
        real_mkdir(path, *args, **kwargs)
    except OSError as error:
        above = named(path) and os.path.dirname(os.path.abspath(os.fspath(path)))
        if not above or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) and above not in placed or exists(path) or not place(path):
            raise
    if named(path) and not kwargs.get("dir_fd"):
        make(path)


def listing(listdir):
    @functools.wraps(listdir)
    def wrapped(path="."):
        path = path_to_list(path)
        names = listdir(path)
        if named(path) and os.path.isdir(mirror(path)):
            names += [name for name in listdir(mirror(path)) if name not in names and not os.path.isdir(os.path.join(mirror(path), name))]
        return names

    return wrapped


def scanning(scandir):
    class Entries:
        """The entries of a folder, followed by further ones of its mirror."""

        def __init__(self, path):
            self.real, self.other = scandir(path), scandir(mirror(path))

        def __iter__(self):
            names = set()
            for entry in self.real:
                names.add(entry.name)
                yield entry
            yield from (entry for entry in self.other if entry.name not in names and not entry.is_dir())

        def __next__(self):
            self.rest = getattr(self, "rest", None) or iter(self)
            return next(self.rest)

        def close(self):
            self.real.close()
            self.other.close()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

    @functools.wraps(scandir)
    def wrapped(path="."):
        path = path_to_list(path)
        return Entries(path) if named(path) and os.path.isdir(mirror(path)) else scandir(path)

    return wrapped


def patch(module, name, function):
    """Replaces a function of os, also in sets such as os.supports_fd."""
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if getattr(module, name) in able:
            able.add(function)
    setattr(module, name, function)


def divert(torch):
    """Called when torch was imported: redirects the files that the script writes, and later reads of them."""
    if not diverts():
        return
    torch.save, torch.load = saving(torch.save), following(torch.load)
    torch.jit.save, torch.jit.load = saving(torch.jit.save), following(torch.jit.load)
    builtins.open = io.open = opened
    for name in ("rename", "replace"):
        patch(os, name, moving(getattr(os, name)))
    patch(os, "stat", asking(os.stat))
    for name in ("access", "utime", "chmod", "listxattr", "getxattr", "setxattr"):
        patch(os, name, following(getattr(os, name)))
    patch(os, "remove", removed)
    patch(os, "unlink", removed)
    patch(os, "mkdir", making)
    patch(os, "listdir", listing(os.listdir))
    patch(os, "scandir", scanning(os.scandir))
    shutil.rmtree = removing(shutil.rmtree)


def saving(save):
    """Wraps a function that saves an object to a file (torch.save)."""

    @functools.wraps(save)
    def wrapped(obj, f, *args, **kwargs):
        return save(obj, path_to_write(f) if named(f) else f, *args, **kwargs)

    return wrapped


def divert_safetensors(module):
    """Redirects reads of safetensors, which opens files from Rust."""
    if diverts():
        module.safe_open = following(module.safe_open)


def divert_safetensors_torch(module):
    if diverts():
        module.save_file = saving(module.save_file)
