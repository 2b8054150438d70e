"""Keeps a run that is not real from spoiling files: what it saves goes to a folder of vprof."""

import functools
import os
import shutil

from . import events

# Files of weights, by which a folder is known as a checkpoint.
CHECKPOINTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp")


class Diversion:
    """Files that were written elsewhere, by the path that the script knows."""

    def __init__(self):
        self.places = {}

    def place(self, path):
        """Where a file goes instead, and vprof is told once."""
        path = os.path.abspath(os.fspath(path))
        if path not in self.places:
            os.makedirs(events.folder("saved"), exist_ok=True)
            name = "%d-%d-%s" % (os.getpid(), len(self.places), os.path.basename(path))
            self.places[path] = events.folder("saved", name)
            events.send("diverted", path=path)
        return self.places[path]

    def found(self, path):
        """Where a file is: elsewhere if the script has written it in this run."""
        try:
            return self.places.get(os.path.abspath(os.fspath(path)), path)
        except TypeError:  # a file object
            return path

    def move(self, call):
        """os.rename or os.replace, which scripts call to put a file in place when it is complete."""

        @functools.wraps(call)
        def wrapped(source, target, **kwargs):
            moved = self.found(source)
            if moved is source:
                return call(source, target, **kwargs)
            del self.places[os.path.abspath(os.fspath(source))]
            self.places[os.path.abspath(os.fspath(target))] = moved
            return None

        return wrapped

    def keep_checkpoints(self, rmtree):
        """shutil.rmtree, which must not remove checkpoints of real runs."""

        @functools.wraps(rmtree)
        def wrapped(path, *args, **kwargs):
            if any(name.endswith(CHECKPOINTS) for name in listed(path)):
                events.send("kept", path=os.path.abspath(os.fspath(path)))
                return None
            return rmtree(path, *args, **kwargs)

        wrapped.avoids_symlink_attacks = rmtree.avoids_symlink_attacks
        return wrapped


diversion = Diversion()


def listed(folder):
    try:
        return os.listdir(folder)
    except (OSError, TypeError):
        return []


def diverts():
    """Tells whether files are written elsewhere at all."""
    return not os.environ.get("VPROF_KEEP")


def divert(torch):
    """Has torch.save write elsewhere, and torch.load read it from there."""
    if not diverts():
        return
    save, load = torch.save, torch.load

    @functools.wraps(save)
    def diverted_save(obj, f, *args, **kwargs):
        return save(obj, diversion.place(f) if isinstance(f, (str, os.PathLike)) else f, *args, **kwargs)

    @functools.wraps(load)
    def diverted_load(f, *args, **kwargs):
        return load(diversion.found(f), *args, **kwargs)

    torch.save, torch.load = diverted_save, diverted_load
    os.rename, os.replace = diversion.move(os.rename), diversion.move(os.replace)
    shutil.rmtree = diversion.keep_checkpoints(shutil.rmtree)


def divert_safetensors(module):
    """The same for safetensors."""
    if not diverts():
        return
    save_file, load_file = module.save_file, module.load_file

    @functools.wraps(save_file)
    def diverted_save(tensors, filename, *args, **kwargs):
        return save_file(tensors, diversion.place(filename), *args, **kwargs)

    @functools.wraps(load_file)
    def diverted_load(filename, *args, **kwargs):
        return load_file(diversion.found(filename), *args, **kwargs)

    module.save_file, module.load_file = diverted_save, diverted_load


def divert_lightning(module):
    """The same for Lightning, which saves to memory and writes that by itself."""
    if not diverts():
        return
    save = module._atomic_save

    @functools.wraps(save)
    def diverted_save(checkpoint, filepath):
        return save(checkpoint, diversion.place(filepath))

    module._atomic_save = diverted_save
