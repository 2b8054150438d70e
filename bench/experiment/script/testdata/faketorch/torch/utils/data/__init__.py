"""Data loaders without workers. The batches are tensors that have a shape but no memory."""

import torch


class Batch(torch.Tensor):
    is_cuda = False

    def __init__(self, rows, longest):
        self.shape = (rows, longest)

    def numel(self):
        return self.shape[0] * self.shape[1]


class IterableDataset:
    pass


class TensorDataset:
    pass


class Sampler:
    """Yields batches of consecutive indices."""

    def __init__(self, samples, rows):
        self.samples, self.rows = samples, rows

    def __iter__(self):
        return (range(i, min(i + self.rows, self.samples)) for i in range(0, self.samples, self.rows))

    def __len__(self):
        return -(-self.samples // self.rows)


class DataLoader:
    def __init__(self, dataset, rows):
        self.dataset, self.rows = dataset, rows
        self.batch_sampler = None if isinstance(dataset, IterableDataset) else Sampler(len(dataset), rows)

    def collate_fn(self, samples):
        torch.counter.clock += 5
        return Batch(len(samples), max(len(s) for s in samples))

    def __len__(self):
        return len(self.batch_sampler)

    def __iter__(self):
        if self.batch_sampler is None:
            return (self.collate_fn([s]) for s in self.dataset)
        return (self.collate_fn([self.dataset[i] for i in indices]) for indices in self.batch_sampler)
