"""Runs one rank of a distributed script without the other ranks."""

import dataclasses
import functools
import importlib
import os
import sys

from . import memory


def world():
    """Returns the number of ranks and the index of this one."""
    return int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


def environment(ranks, rank):
    """Returns the environment variables that torchrun sets for a rank."""
    return {
        "WORLD_SIZE": str(ranks), "RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def start_one_rank(launcher):
    """Makes torchrun, and launchers based on it, run one rank in this process instead of starting all ranks."""

    def become(self, *args):
        enter(self._config.max_nodes * self._config.nproc_per_node)
        # torch.distributed.launch without --use-env passes --local-rank=${local_rank}.
        own = [str(argument).replace("${local_rank}", os.environ["LOCAL_RANK"]) for argument in args]
        os.execvp(self._entrypoint, [self._entrypoint, *own])

    launcher.elastic_launch.__call__ = become


def start_one_of_deepspeed(runner):
    """Makes DeepSpeed's launcher run one rank in this process."""

    def become(args=None):
        given = runner.parse_args(args)
        gpus = given.num_gpus if given.num_gpus > 0 else int(os.environ.get("VPROF_WORLD", "1"))
        rank = enter(max(given.num_nodes, 1) * gpus)
        command = [] if given.no_python else [sys.executable, "-u", *(["-m"] * given.module)]
        command += [given.user_script, *([] if given.no_local_rank else [f"--local_rank={rank}"]), *given.user_args]
        os.execvp(command[0], command)

    runner.main = become


def enter(ranks):
    """Sets the environment of the rank that is to run (VPROF_RANK) and returns its index."""
    rank = min(int(os.environ.get("VPROF_RANK", "0")), ranks - 1)
    os.environ.update(environment(ranks, rank))
    return rank


def answer_for_others(torch):
    """Called when torch was imported: makes process groups initialize and communicate without the other ranks."""
    if world()[0] == 1 or not torch.distributed.is_available():
        return
    dist = torch.distributed
    init, new_group = dist.init_process_group, dist.new_group

    @functools.wraps(init)
    def alone(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", device_id=None, **options):
        ranks, own = world()
        if rank >= 0 and rank != own:  # the script starts its ranks itself
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        rank = rank if rank >= 0 else own
        importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend "fake"
        init(
            backend=without_gloo(backend), timeout=timeout, world_size=world_size if world_size > 0 else ranks,
            rank=rank, store=store_of(dist, rank), group_name=group_name, **options,
        )
        if hasattr(dist.group.WORLD, "bound_device_id"):
            # Without a bound device, NCCL creates a subgroup without splitting the communicator, which requires all
            # ranks.
            dist.group.WORLD.bound_device_id = None

    @functools.wraps(new_group)
    def group_without_gloo(ranks=None, timeout=None, backend=None, *args, **options):
        return new_group(ranks, timeout, backend and without_gloo(backend), *args, **options)

    def all_gather_object(object_list, obj, group=None, **_):
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj, object_gather_list=None, dst=None, group=None, **_):
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, **_):
        given = scatter_object_input_list
        scatter_object_output_list[0] = given[dist.get_rank(group)] if given else None

    def nothing(*_, **__):
        return None

    sent = []

    def send_object_list(object_list, *_, **__):
        sent[:] = object_list

    def recv_object_list(object_list, *_, **__):
        if sent:
            object_list[:] = [gradients_of(o) for o in sent[:len(object_list)]]
            return 0
        inputs = inputs_of_stage(sys._getframe(1).f_locals.get("self"))
        if inputs is not None:
            object_list[0] = inputs
            return 0
        raise RuntimeError(
            "vprof runs this rank alone, which waits here for objects of another rank: run that one (--rank), "
            "or say what it would send (PipelineStage takes input_args)"
        )

    replace_everywhere(dist.distributed_c10d, {
        "init_process_group": alone, "new_group": group_without_gloo, "monitored_barrier": nothing,
        "all_gather_object": all_gather_object, "gather_object": gather_object,
        "scatter_object_list": scatter_object_list, "broadcast_object_list": nothing,
        "send_object_list": send_object_list, "recv_object_list": recv_object_list,
    })


def gradients_of(sent):
    """Returns the shapes of the gradients that the next pipeline stage would send: the shapes of the outputs."""
    if type(sent).__name__ != "_StageForwardMeta":
        return sent
    from torch.distributed.pipelining import stage

    return stage._StageBackwardMeta(backward_metas=sent.forward_metas)


def inputs_of_stage(stage):
    """Returns the inputs that the previous pipeline stage would send, from the script's input_args; None without them.
    """
    inputs = getattr(getattr(stage, "_user_meta", None), "inputs", None)
    if inputs is None:
        return None
    from torch.distributed.pipelining.stage import _StageForwardMeta

    return _StageForwardMeta(forward_metas=inputs)


def accept_plans(planner):
    """Called when torch.distributed.checkpoint.default_planner was imported.

    Accepts checkpoints that contain only this rank's shards. This rank also writes the tensors that PyTorch's
    deduplication would leave to another rank.
    """
    validate = planner._validate_global_plan

    @functools.wraps(validate)
    def accepted(plans, metadata):
        return [] if isinstance(validate(plans, metadata), list) else True  # a list of errors; in older releases a bool

    planner._validate_global_plan = accepted
    planner.dedup_save_plans = lambda plans, *_: [
        plan if rank == world()[1] else dataclasses.replace(plan, items=[]) for rank, plan in enumerate(plans)
    ]


def replace_everywhere(home, functions):
    """Replaces functions of a module, also in modules that have imported them by name."""
    for name, function in functions.items():
        original = getattr(home, name, None)
        for module, variables in memory.modules():
            if original is not None and variables.get(name) is original:
                setattr(module, name, function)


# Size of ncclUniqueId in bytes. Rank 0 creates it and the other ranks read it.
UNIQUE_ID = 128


stores = []


def store_of(dist, rank):
    """Returns a rendezvous store that works with a single rank."""
    if rank == 0:
        return dist.HashStore()

    class Lone(dist.Store):
        """Returns zeros in place of values that rank 0 would have written, and never waits."""

        def __init__(self, values):
            super().__init__()
            self.values = values
            stores.append(self)  # C++ refers to this object without keeping it alive

        def clone(self):
            return Lone(self.values)

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

        def append(self, key, value):
            self.values[key] = self.values.get(key, b"") + value

        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def multi_set(self, keys, values):
            self.values.update(zip(keys, values))

        def has_extended_api(self):
            return True

        def num_keys(self):
            return len(self.values)

        def deleteKey(self, key):  # the name that PyTorch's C++ calls
            return self.delete_key(key)

        def getNumKeys(self):
            return len(self.values)

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

    return Lone({})


def without_gloo(backend):
    """Returns a backend string in which "fake" replaces gloo, since gloo would wait for the other ranks."""
    if not backend:
        return "cpu:fake,cuda:nccl"
    return backend.lower().replace("gloo", "fake")
