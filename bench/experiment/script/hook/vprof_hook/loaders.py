"""Finds the longest batches that a training script will meet, and has it train on them, too.

A script is ended after a few steps, and its longest sample may come in a later one. Where the data set can be read by
index, the sizes of its samples are read in a time limit, and the batches that hold most come next, in place of the
script's own. Copies are read, and the states of random numbers are put back.
"""

import copy
import functools
import math
import os
import random
import sys
import time

from . import events

# So many samples of one size, one after the other, are taken for a data set of which all are alike.
ALIKE = 256

# Batches that are larger by less than this are no others.
LARGER = 1.02


class Longest:
    """What is known of the batches of the loader that a script trains with."""

    def __init__(self, torch, watch):
        self.torch, self.watch = torch, watch
        self.seconds = float(os.environ.get("VPROF_LONGEST", "0"))
        self.spent = 0  # of them
        self.loader = None  # that is trained with, once an optimizer has stepped
        self.other = None  # another, which gave the last batch
        self.largest = self.row = 0  # elements of the largest batch so far, and of the longest sample in one
        self.shape = []  # of the largest batch
        self.kept = None  # a copy of it, for trials
        self.waiting = []  # batches that are to come
        self.known = False  # whether it is known that later batches are no larger
        self.given = 0  # batches for training
        self.handed = None  # the step at which the last of them was handed out
        self.began = 0  # the step that was running when they were found

    def open(self):
        """Reports whether a batch has been found that was not trained on yet."""
        if self.loader is None:
            return False
        done = self.watch.step()
        if self.waiting:
            return done < self.began + 16  # a script that asks for no further batch
        return self.handed is not None and done < self.handed + 2  # trainers may hold the next batch already

    def iterate(self, iterate):
        """Wraps DataLoader.__iter__, which also gives training the longest batches."""

        @functools.wraps(iterate)
        def wrapped(loader):
            found = iterate(loader)
            if events.quiet or (self.seconds <= 0 or self.watch.ended) and not self.watch.times.started():
                return found
            return Batches(self, loader, found)

        return wrapped

    def next(self, loader, own):
        """Returns the next batch of a loader: its own, or one that was found. own makes its own."""
        watch = self.watch
        if watch.times.running:
            return watch.times.apart(own)
        if self.seconds <= 0:
            return own()
        watch.stop()
        watch.settle(loader is self.loader)
        if watch.trials.running and loader is self.loader and self.kept is not None:
            return copy.copy(self.kept)
        if watch.ended or "evaluation" in watch.phases or watch.step() < 1 or self.loader not in (None, loader):
            watch.closing.check(loader)
            watch.loaded()
            self.other = None if "evaluation" in watch.phases or self.loader in (None, loader) else loader
            return self.note(own())
        watch.closing.cut()
        if watch.trials.running:
            return self.note(own()) if self.kept is None else copy.copy(self.kept)
        if self.loader is None:
            self.loader = loader
            self.find(loader)
        while self.waiting and watch.step() >= watch.wanted and not watch.growth.open():
            batch = self.waiting.pop(0)
            size, shape = shape_of(self.torch, batch)
            if self.is_larger(size, shape):  # the script has come upon none as large since
                self.handed = watch.step()
                events.send("longer", shape=shape, before=self.shape)
                if 2 * size > self.largest:  # else its elements alone are few
                    self.kept = copy.copy(batch)
                return batch
        return self.note(own())

    def is_larger(self, size, shape):
        """Reports whether a batch has more elements than those so far, or longer samples."""
        return size > LARGER * self.largest or math.prod(shape[1:]) > LARGER * self.row

    def note(self, batch):
        """Keeps the size of the largest batch that the script itself has loaded."""
        try:
            size, shape = shape_of(self.torch, batch)
        except Exception:  # of a class of the script's own
            return batch
        if self.watch.ended or "evaluation" in self.watch.phases:
            return batch
        self.given += 1
        self.row = max(self.row, math.prod(shape[1:]))
        if size > self.largest:
            self.largest, self.shape = size, shape
            self.kept = None if on_gpu(self.torch, batch) else copy.copy(batch)
        return batch

    def find(self, loader):
        """Searches the longest batches, and reports how many samples were read."""
        began = time.monotonic()
        self.began = self.watch.step()
        states, scan = save_states(self.torch), None
        try:
            scan = Scan(self.torch, loader, began + self.seconds)
            batches, why = scan.longest(), scan.why
            self.known = not why or scan.alike
            for indices in batches:
                batch = scan.load(indices)
                if self.is_larger(*shape_of(self.torch, batch)):
                    self.waiting.append(batch)
        except Exception as error:  # of the script's own data set
            self.waiting, why = [], "%s: %s" % (type(error).__name__, str(error)[:200])
        finally:
            restore_states(self.torch, states)
        self.spent = time.monotonic() - began
        events.send(
            "lengths", batches=length(loader), read=scan.read if scan else 0, samples=scan.samples if scan else 0,
            why=why, seconds=self.spent,
        )


class Batches:
    """An iterator of a loader whose batches pass by Longest."""

    def __init__(self, longest, loader, found):
        self.longest, self.loader, self.found = longest, loader, found

    def __iter__(self):
        return self

    def __next__(self):
        return self.longest.next(self.loader, self.found.__next__)

    def __len__(self):
        return len(self.found)

    def __getattr__(self, name):
        return getattr(self.found, name)


class Scan:
    """Reads the sizes of the samples of a loader until a time, by copies of its data set and samplers."""

    def __init__(self, torch, loader, until):
        self.torch, self.loader, self.until = torch, loader, until
        self.why = ""  # why not all samples were read; empty if all were
        self.alike = False  # whether the others are taken for alike
        self.read = self.samples = 0
        self.dataset = copy.copy(loader.dataset)

    def longest(self):
        """Returns the indices of the batch with most elements, and of the one with the longest sample where that is
        another.
        """
        data = self.torch.utils.data
        if isinstance(self.dataset, data.IterableDataset):
            self.why = "the data set cannot be read by index"
            return []
        self.samples = len(self.dataset)
        if isinstance(self.dataset, data.TensorDataset):
            self.read = self.samples  # one tensor, of which all samples have one shape
            return []
        batches = self.batches()
        if not batches:
            return []
        most = longest = None
        sizes = {}
        for indices in batches:
            of = [self.size(i, sizes) for i in indices]
            if None in of:
                break  # the time is over
            highest = max(of, default=0)
            if most is None or len(of) * highest > most[0]:
                most = (len(of) * highest, indices)
            if longest is None or (highest, len(of)) > longest[0]:
                longest = ((highest, len(of)), indices)
            if self.read == ALIKE and len(set(sizes.values())) == 1:
                self.alike, self.why = True, "%d samples of one size were taken for all" % ALIKE
                return []
        found = [most[1]] if most else []
        if longest and longest[1] != found[0]:
            found.append(longest[1])
        return found

    def batches(self):
        """Returns the indices of all batches of an epoch, as the sampler gives them; shuffled ones in an order like its
        own.
        """
        sampler = self.loader.batch_sampler
        single = sampler is None
        sampler = copy.copy(self.loader.sampler if single else sampler)
        inner = getattr(sampler, "sampler", None)
        if inner is not None:
            sampler.sampler = copy.copy(inner)
        generators = [g for g in (getattr(s, "generator", None) for s in (sampler, inner)) if g is not None]
        states = [g.get_state() for g in generators]
        try:
            found = []
            for indices in sampler:
                found.append([indices] if single else list(indices))
                if time.monotonic() > self.until:
                    self.why = "the time was over"
                    return []
            return found
        finally:
            for generator, state in zip(generators, states):
                generator.set_state(state)

    def size(self, index, sizes):
        """Returns the number of elements of a sample; None when the time is over."""
        if index in sizes:
            return sizes[index]
        if time.monotonic() > self.until:
            self.why = "the time was over"
            return None
        self.read += 1
        sizes[index] = elements(self.torch, self.dataset[index])
        return sizes[index]

    def load(self, indices):
        """Returns the batch of some indices, as the loader makes it in this process."""
        if self.loader.batch_sampler is None:
            return self.loader.collate_fn(self.dataset[indices[0]])
        return self.loader.collate_fn([self.dataset[i] for i in indices])


def elements(torch, value):
    """Returns the number of elements of a sample: of its tensors, arrays, lists of numbers and texts."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            raise TypeError("samples are on the GPU")
        return value.numel()
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(elements(torch, v) for v in value.values())
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(v, (int, float)) for v in value):
            return len(value)
        return sum(elements(torch, v) for v in value)
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):  # BatchEncoding and its like
        return sum(elements(torch, value[k]) for k in value.keys())
    size = getattr(value, "size", None)  # of an array, or of a picture: width and height
    if isinstance(size, int):
        return size
    if isinstance(size, tuple):
        return size[0] * size[1]
    return 1


# The most values of a batch that are looked at.
MOST_VALUES = 100_000


def shape_of(torch, batch):
    """Returns the number of elements of a batch, and the shape of its largest tensor."""
    total, shape, largest, seen = 0, [], 0, 0
    todo = [batch]
    while todo and seen < MOST_VALUES:
        value = todo.pop()
        seen += 1
        if isinstance(value, torch.Tensor):
            total += value.numel()
            if value.numel() > largest:
                largest, shape = value.numel(), list(value.shape)
        elif isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, (list, tuple)):
            todo.extend(value)
        elif hasattr(value, "keys") and hasattr(value, "__getitem__"):
            todo.extend(value[k] for k in value.keys())
    return total, shape


def on_gpu(torch, batch):
    """Reports whether a batch has values on the GPU, which must not be kept."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else [batch]
    return any(getattr(v, "is_cuda", False) for v in values)


def length(loader):
    """Returns the number of batches of an epoch; zero where the loader does not know it."""
    try:
        return len(loader)
    except Exception:  # of the script's own data set or sampler
        return 0


def save_states(torch):
    """Returns the states of all generators of random numbers that data sets use."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), torch.random.get_rng_state(), numpy and numpy.random.get_state()


def restore_states(torch, states):
    random.setstate(states[0])
    torch.random.set_rng_state(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])


def watch(module):
    """Called when torch.utils.data has been imported."""
    from . import training

    loader = module.DataLoader
    if training.watching is not None and not hasattr(loader.__iter__, "__wrapped__"):
        loader.__iter__ = training.watching.longest.iterate(loader.__iter__)
