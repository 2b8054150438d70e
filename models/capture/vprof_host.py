"""Determines which tensors are in host memory when the model trains on a GPU.

Parameters, buffers and inputs are moved to the GPU. Tensors that a module stores as plain attributes are not, nor are
tensors that forward creates without a device; .to(device) copies them.
"""

import torch
from vprof_graph import names_in
from vprof_observe import tensors_of

# Operators that accept CPU and CUDA tensors together; their result is on the device of the first argument.
MIXED = ("copy_", "index", "index_put", "index_put_", "view_as", "reshape_as", "expand_as", "sum_to_size", "_pack_padded_sequence", "ctc_loss", "tensor_split")


class Host:
    """Tracks which tensors would be in host memory, while forward runs without a GPU."""

    def __init__(self, place, moved, made, before=None):
        self.names_device = place == "meta"  # whether an explicit device differs from the GPU (on "meta")
        self.made = made  # ids of live tensors that operators have created
        self.moved = {id(t) for t in moved}
        self.of = {}  # Group by id, of live tensors in host memory
        # Tensors that the previous forward has left.
        self.earlier = {key: group for key, group in before.of.items() if key in made} if before else {}
        self.results = []  # (operator, Group) of operators that ran on the host
        self.kept = {}  # (operator, argument, position, Group) of the first use, by id of an existing tensor
        self.alive = []  # keeps these tensors alive, so that ids stay unique

    def arrive(self, inputs):
        """Records that forward's inputs are on the GPU."""
        self.moved.update(map(id, inputs))
        self.alive += inputs

    def follow(self, number, op, given, out):
        """Records whether an operator's results are in host memory. number is the operator's index."""
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
            if hosted and not onhost:  # PyTorch mixes only 0-dim CPU tensors with CUDA tensors
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
        """Returns the Group of an argument; None if it is on the GPU."""
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
        """Returns the file's entries: nodes that run on the host, and tensors in host memory that no node creates."""
        taken = [k for k in self.kept.values() if k[0] in number and k[3].root().onhost and not nodes[number[k[0]]][1]]
        names = {(k, a["name"]): names_in(a["arg"]) for k, *_ in taken for a in nodes[number[k]][0]["inputs"]}
        return {
            "nodes": [number[k] for k, group in self.results if k in number and group.root().onhost],
            "kept": [names[k, name][i] for k, name, i, _ in taken if i < len(names.get((k, name), ()))],
        }


class Group:
    """Tensors computed from each other, which are all in host memory or all on the GPU."""

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
