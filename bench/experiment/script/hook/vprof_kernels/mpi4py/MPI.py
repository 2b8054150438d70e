"""Placeholder of mpi4py for one process: vprof runs one rank, which has nobody to exchange data with."""


class Comm:
    """A communicator with one rank."""

    rank, size = 0, 1

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def bcast(self, obj=None, *_, **__):
        return obj

    allreduce = reduce = bcast

    def gather(self, obj, *_, **__):
        return [obj]

    allgather = gather

    def scatter(self, objects, *_, **__):
        return objects[0]

    def Allreduce(self, source, to, *_, **__):
        if source is not None:  # None is MPI.IN_PLACE
            to[...] = source

    Reduce = Allgather = Gather = Allreduce

    def Split(self, *_, **__):
        return self

    Dup = Split_type = Create = Split

    def Barrier(self, *_, **__):
        return None

    barrier = Bcast = Free = Barrier


COMM_WORLD = COMM_SELF = Comm()


def __getattr__(name):
    """Returns None for constants: operations such as SUM, which change nothing of one rank, and IN_PLACE."""
    if not name.isupper():
        raise AttributeError(name)
