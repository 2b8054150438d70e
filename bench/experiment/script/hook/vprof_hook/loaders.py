"""Finds the longest batches that a training script will load, and trains on them, too.

A run ends after a few steps, but the longest sample may come later. If the data set can be read by index, the sizes of
its samples are read within a time limit, and the largest batches replace the script's next ones. Copies of the data set
and samplers are read, and the random states are restored.
"""

import copy
import functools
import math
import os
import random
import sys
import time

from . import events

# If the first ALIKE samples all have one size, all samples of the data set are taken to have it.
ALIKE = 256

# A batch counts as larger if its size exceeds the largest so far by this factor.
LARGER = 1.02


class Longest:
    """Sizes of the batches of the script's training loader, and the longest batches, which are trained on next."""

    def __init__(self, torch, watch):
        self.torch, self.watch = torch, watch
        self.seconds = float(os.environ.get("VPROF_LONGEST", "0"))
        self.spent = 0  # seconds used of them
        self.loader = None  # the training loader: the one in use after the first optimizer step
        self.other = None  # another loader, if the last batch came from it
        self.largest = self.row = 0  # elements of the largest batch so far, and of the longest sample
        self.shape = []  # shape of the largest tensor in the largest batch
        self.kept = None  # a copy of the largest batch, for trials
        self.waiting = []  # longest batches that were not trained on yet
        self.given = 0  # number of training batches loaded
        self.last = self.rises = 0  # elements of the last one, and the number of last ones each larger than the one before
        self.known = False  # whether the sizes of all samples were read
        self.handed = None  # the step at which the last longest batch was returned
        self.began = 0  # the step at which the search began

    def open(self):
        """Reports whether steps must go on because a longest batch was not trained on yet."""
        if self.loader is None:
            return False
        done = self.watch.step()
        if self.waiting:
            # After 16 steps without it, the script is taken to load no further batch.
            return done < self.began + 16
        return self.handed is not None and done < self.handed + 2  # a trainer may prefetch one batch

    def iterate(self, iterate):
        """Wraps DataLoader.__iter__: the returned iterator also yields the longest batches."""

        @functools.wraps(iterate)
        def wrapped(loader):
            found = iterate(loader)
            if events.quiet or (self.seconds <= 0 or self.watch.ended) and not self.watch.times.started():
                return found
            return Batches(self, loader, found)

        return wrapped

    def next(self, loader, own):
        """Returns the next batch of a loader: own(), which loads the loader's own, or one of the longest batches."""
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
            if self.is_larger(size, shape):  # the script's own batches since the search may be as large
                self.handed = watch.step()
                events.send("longer", shape=shape, before=self.shape)
                # A batch with few elements may hold the longest sample; it is not the one for trials.
                if 2 * size > self.largest:
                    self.kept = copy.copy(batch)
                self.row = max(self.row, math.prod(shape[1:]))
                if size > self.largest:
                    self.largest, self.shape = size, shape
                return batch
        return self.note(own())

    def is_larger(self, size, shape):
        """Reports whether a batch has more elements than all so far, or a longer sample."""
        return size > LARGER * self.largest or math.prod(shape[1:]) > LARGER * self.row

    def note(self, batch):
        """Records the size of a training batch that the script has loaded, and returns the batch."""
        try:
            size, shape = shape_of(self.torch, batch)
        except Exception:  # the batch has a class of the script's own
            return batch
        if self.watch.ended or "evaluation" in self.watch.phases:
            return batch
        self.given += 1
        self.last, self.rises = size, self.rises + 1 if size > self.last else 0
        self.row = max(self.row, math.prod(shape[1:]))
        if size > self.largest:
            self.largest, self.shape = size, shape
            self.kept = None if on_gpu(self.torch, batch) else copy.copy(batch)
        return batch

    def find(self, loader):
        """Searches for the longest batches and reports how many samples were read."""
        began = time.monotonic()
        self.began = self.watch.step()
        states, scan = save_states(self.torch), None
        try:
            scan = Scan(self.torch, loader, began + self.seconds)
            batches, why = scan.longest(), scan.why
            self.known = not why and bool(scan.samples)
            for indices in batches:
                batch = scan.load(indices)
                if self.is_larger(*shape_of(self.torch, batch)):
                    self.waiting.append(batch)
        except Exception as error:  # raised by the script's own data set
            self.waiting, why = [], "%s: %s" % (type(error).__name__, str(error)[:200])
        finally:
            restore_states(self.torch, states)
        self.spent = time.monotonic() - began
        events.send(
            "lengths", batches=length(loader), read=scan.read if scan else 0, samples=scan.samples if scan else 0,
            why=why, seconds=self.spent,
        )


class Batches:
    """Iterates over a loader; each batch comes from Longest.next."""

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
    """Reads the sizes of a loader's samples until a deadline, from copies of its data set and samplers."""

    def __init__(self, torch, loader, until):
        self.torch, self.loader, self.until = torch, loader, until
        self.why = ""  # why not all samples were read; empty if all were
        self.read = self.samples = 0
        self.dataset = copy.copy(loader.dataset)

    def longest(self):
        """Returns the indices of the batch with most elements and, if these are other ones, of the batch with the
        longest sample and of the one with most elements without padding, which some scripts concatenate.
        """
        data = self.torch.utils.data
        if isinstance(self.dataset, data.IterableDataset):
            self.why = "the data set cannot be read by index"
            return []
        self.samples = len(self.dataset)
        if isinstance(self.dataset, data.TensorDataset):
            self.read = self.samples  # slices of one tensor: all samples have one shape
            return []
        batches = self.batches()
        if not batches:
            return []
        best = {}  # (rank, indices) of the batch that is first by each of the three
        sizes = {}
        for indices in batches:
            of = [self.size(i, sizes) for i in indices]
            if None in of:
                break  # the deadline has passed
            highest = max(of, default=0)
            for kind, rank in ("padded", len(of) * highest), ("sample", (highest, len(of))), ("sum", sum(of)):
                if kind not in best or rank > best[kind][0]:
                    best[kind] = rank, indices
            if self.read == ALIKE and len(set(sizes.values())) == 1:
                self.why = "%d samples of one size were taken for all" % ALIKE
                return []
        found = []
        for _, indices in best.values():
            if indices not in found:
                found.append(indices)
        return found

    def batches(self):
        """Returns the sample indices of all batches of an epoch. With a random sampler they are one possible order, not
        the one that training will see.
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
        """Returns the number of elements of a sample; None after the deadline. sizes caches the results."""
        if index in sizes:
            return sizes[index]
        if time.monotonic() > self.until:
            self.why = "the time was over"
            return None
        self.read += 1
        sizes[index] = elements(self.torch, self.dataset[index])
        return sizes[index]

    def load(self, indices):
        """Returns the collated batch of some samples, loaded in this process."""
        if self.loader.batch_sampler is None:
            return self.loader.collate_fn(self.dataset[indices[0]])
        return self.loader.collate_fn([self.dataset[i] for i in indices])


def elements(torch, value):
    """Returns the number of elements of a sample's tensors, arrays, lists of numbers and texts."""
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
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):  # BatchEncoding and similar mappings
        return sum(elements(torch, value[k]) for k in value.keys())
    size = getattr(value, "size", None)  # of an array; of a PIL image (width, height)
    if isinstance(size, int):
        return size
    if isinstance(size, tuple):
        return size[0] * size[1]
    return 1


# At most this many values of a batch are counted.
MOST_VALUES = 100_000


def shape_of(torch, batch):
    """Returns the number of elements of a batch and the shape of its largest tensor."""
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
    """Reports whether a batch holds CUDA tensors. A copy of it must not be kept, since that would hold GPU memory."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else [batch]
    return any(getattr(v, "is_cuda", False) for v in values)


def length(loader):
    """Returns the number of batches of an epoch; zero if the loader has no length."""
    try:
        return len(loader)
    except Exception:  # raised by the script's own data set or sampler
        return 0


def save_states(torch):
    """Returns the states of the random number generators of Python, PyTorch and NumPy."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), torch.random.get_rng_state(), numpy and numpy.random.get_state()


def restore_states(torch, states):
    random.setstate(states[0])
    torch.random.set_rng_state(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])


def watch(module):
    """Called when torch.utils.data was imported: wraps DataLoader.__iter__."""
    from . import training

    loader = module.DataLoader
    if training.watching is not None and not hasattr(loader.__iter__, "__wrapped__"):
        loader.__iter__ = training.watching.longest.iterate(loader.__iter__)
