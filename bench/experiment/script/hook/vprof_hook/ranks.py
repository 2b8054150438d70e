"""One rank of several: the other ranks are not there, and their part is answered here."""

import functools
import os


def world():
    """The number of ranks, and which of them this is."""
    return int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


def environment(ranks, rank):
    """What torchrun tells a rank by its environment."""
    return {
        "WORLD_SIZE": str(ranks), "RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def start_one_rank(launcher):
    """Has torchrun, and what is built on it, become one rank in place of starting them all."""

    def become(self, *args):
        config = self._config
        ranks = config.max_nodes * config.nproc_per_node
        rank = min(int(os.environ.get("VPROF_RANK", "0")), ranks - 1)
        os.environ.update(environment(ranks, rank))
        os.execvp(self._entrypoint, [self._entrypoint, *map(str, args)])

    launcher.elastic_launch.__call__ = become


def answer_for_others(torch):
    """Lets process groups come about though nobody else is there."""
    if world()[0] == 1 or not torch.distributed.is_available():
        return
    dist = torch.distributed
    init = dist.init_process_group

    @functools.wraps(init)
    def alone(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", **options):
        ranks, own = world()
        return init(
            backend=without_gloo(backend), timeout=timeout, world_size=world_size if world_size > 0 else ranks,
            rank=rank if rank >= 0 else own, store=store_of(dist, own), group_name=group_name, **options,
        )

    def all_gather_object(object_list, obj, group=None):
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj, object_gather_list=None, dst=None, group=None, **_):
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(output, given=None, src=None, group=None, **_):
        output[0] = given[dist.get_rank(group)] if given else None

    def broadcast_object_list(object_list, *_, **__):
        return None

    for module in (dist, dist.distributed_c10d):
        module.init_process_group = alone
        module.all_gather_object, module.gather_object = all_gather_object, gather_object
        module.scatter_object_list, module.broadcast_object_list = scatter_object_list, broadcast_object_list


# The size in bytes of ncclUniqueId, which rank 0 makes and the others read.
UNIQUE_ID = 128


def store_of(dist, rank):
    """The store of a rendezvous in which nobody else writes."""
    if rank == 0:
        return dist.HashStore()

    class Lone(dist.Store):
        """Answers what rank 0 would have written with an identifier of zeros, and never waits."""

        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value

        def get(self, key):
            return self.values.get(key, bytes(UNIQUE_ID))

        def add(self, key, amount):
            self.values[key] = str(int(self.values.get(key, "0")) + amount)
            return int(self.values[key])

        def compare_set(self, key, _expected, desired):
            return self.values.setdefault(key, desired)

        def check(self, keys):
            return all(key in self.values for key in keys)

        def wait(self, *_):
            return None

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

    return Lone()


def without_gloo(backend):
    """A backend whose groups on the CPU need no other rank."""
    if not backend:
        return "cpu:fake,cuda:nccl"
    return backend.lower().replace("gloo", "fake")
