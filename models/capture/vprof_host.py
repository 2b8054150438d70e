"""Which tensors lie in the host's memory when the model trains on a GPU.

Parameters, buffers and inputs are moved to the GPU. A tensor that a module keeps as a plain attribute is not, nor
is what forward makes without naming a device, until .to(device) makes a copy of it there.
"""

import torch
from vprof_graph import names_in
from vprof_observe import tensors_of

# Operators that take a tensor of the host beside one of the GPU, and give one where their first argument lies.
MIXED = ("copy_", "index", "index_put", "index_put_", "view_as", "reshape_as", "expand_as", "sum_to_size", "_pack_padded_sequence", "ctc_loss", "tensor_split")


class Host:
    """Follows where tensors lie while forward runs without a GPU."""

    def __init__(self, place, moved, made, before=None):
        self.names_device = place == "meta"  # where a device that is named can be told from the GPU
        self.made = made  # ids of living tensors that operators have made
        self.moved = {id(t) for t in moved}
        self.of = {}  # id of a living tensor on the host -> its Group
        self.earlier = {key: group for key, group in before.of.items() if key in made} if before else {}  # that the forward before has left
        self.results = []  # (operator, Group) of operators that ran on the host
        self.kept = {}  # id of a tensor that forward found -> (operator, argument, position, Group) where it was first taken
        self.alive = []  # so that ids of those stay their own

    def arrive(self, inputs):
        """Forward is called with tensors that lie on the GPU."""
        self.moved.update(map(id, inputs))
        self.alive += inputs

    def follow(self, number, op, given, out):
        """An operator has run: which of its results lie on the host."""
        tensors = [(name, i, t) for name, v in given.items() for i, t in enumerate(tensors_of(v))]
        groups = [self.group(number, *found) for found in tensors]
        hosted = [g for g in groups if g is not None]
        name = op._schema.name.removeprefix("aten::")
        device = given.get("device")
        if name == "to" and "other" in given:  # x.to(y)
            onhost = groups[-1] is not None
        elif device is not None:
            onhost = self.names_device and torch.device(device).type == "cpu"
        elif name in MIXED:
            onhost = bool(groups) and groups[0] is not None
        elif tensors:
            onhost = len(hosted) == len(groups)
            if hosted and not onhost:  # PyTorch takes numbers from the host beside tensors of the GPU, no others
                for group, (_, _, t) in zip(groups, tensors):
                    if group is not None and t.dim():
                        group.root().onhost = False
        else:
            onhost = any(a.name == "device" for a in op._schema.arguments)
        if not onhost or not out or any(t.requires_grad for t in out):
            return
        group = Group.together(hosted)
        self.results.append((number, group))
        self.of.update((id(t), group) for t in out)

    def group(self, number, name, i, tensor):
        """Returns the Group of an argument; None if it lies on the GPU."""
        key = id(tensor)
        if key in self.of:
            return self.of[key]
        if key not in self.earlier and (key in self.made or key in self.moved or tensor.requires_grad):
            return None
        group = self.of[key] = self.earlier.pop(key, None) or Group()
        self.kept[key] = number, name, i, group
        self.alive.append(tensor)
        return group

    def told(self, number, nodes):
        """Returns what the file says: the nodes that run on the host, and the tensors there that are not made in the
        graph."""
        taken = [k for k in self.kept.values() if k[0] in number and k[3].root().onhost and not nodes[number[k[0]]][1]]
        names = {(k, a["name"]): names_in(a["arg"]) for k, *_ in taken for a in nodes[number[k]][0]["inputs"]}
        return {
            "nodes": [number[k] for k, group in self.results if k in number and group.root().onhost],
            "kept": [names[k, name][i] for k, name, i, _ in taken if i < len(names.get((k, name), ()))],
        }


class Group:
    """Tensors that were made of each other, and so lie in one memory."""

    def __init__(self):
        self.onhost, self.joined = True, None

    def root(self):
        return self.joined.root() if self.joined else self

    @classmethod
    def together(cls, groups):
        one = cls()
        for g in groups:
            root = g.root()
            if root is not one:
                one.onhost = one.onhost and root.onhost
                root.joined = one
        return one
