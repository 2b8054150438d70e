"""At which batch sizes Inductor decides otherwise than at the one that is recorded."""

import importlib
import inspect
import math


def fusions(batch):
    """Returns a set that fills with the batch sizes from which on Inductor fuses a sum of rows with one of columns, of
    those it meets.

    It does so of at least 4096 rows with 5 * 2**20 elements (MixOrderReduction.can_fuse), and needs other buffers then.
    """
    import torch

    found = set()
    mix = getattr(importlib.import_module("torch._inductor.scheduler"), "MixOrderReduction", None)
    config, strict = torch._inductor.config.triton, "mix_order_reduction_non_strict_mode"
    if mix is None or not hasattr(config, strict):  # PyTorch is older
        return found
    fuses = mix.can_fuse

    def noted(cls, one, other):
        was, fused = getattr(config, strict), fuses(one, other)
        setattr(config, strict, True)  # whatever the sizes
        try:
            possible = fused or fuses(one, other)
        finally:
            setattr(config, strict, was)
        if possible:
            rows, columns = cls.get_numel_rnumel(one if cls.is_contiguous_node(one) else other)
            if rows.is_number and rows % batch == 0:
                found.add(max(-(-least * batch // int(n)) for least, n in ((4096, rows), (5 * 2**20, rows * columns))))
        return fused

    mix.can_fuse = classmethod(noted)
    return found


def pieces(batch):
    """Returns a set that fills with the sums over samples that Inductor may split into samples: the device, how many
    elements of a sample each result is the sum of, and how many results there are.

    They lie side by side in each sample, but not from one sample to the next, as in the sum for the gradient of a
    convolution's bias. Where Inductor splits such a sum into as many pieces as there are samples
    (Reduction.num_splits), it finds each piece in the order in which other kernels go through the tensor and fuses it with
    these; else it keeps the tensor until it sums.
    """
    ir = importlib.import_module("torch._inductor.ir")
    found = set()
    split, hints = ir.Reduction.num_splits, ir.ReductionHint
    names = inspect.signature(split)

    def noted(*args, **named):
        hint, n = split(*args, **named)
        asked = names.bind(*args, **named).arguments
        of = [int(d) for d in asked["reduction_ranges"] if str(d).isdigit()]
        results = [int(d) for d in asked["ranges"] if str(d).isdigit()]
        static = len(of) == len(asked["reduction_ranges"]) and len(results) == len(asked["ranges"])
        inner = static and hint == hints.INNER and of[0] == batch and math.prod(of) > batch and math.prod(results) > 1
        if inner and not given(asked.get("input_node")):
            found.add((asked["device"], math.prod(of[1:]), math.prod(results)))
        return hint, n

    ir.Reduction.num_splits = staticmethod(noted)
    return found


def given(summed):
    """Reports whether what is summed comes from outside of the graph, so that no kernel there is to be fused with."""
    from torch._inductor.virtualized import V

    return summed is not None and set(summed.get_read_names() or [summed.get_name()]) <= V.graph.graph_inputs.keys()


def splits(sums, most=512):
    """Returns the batch sizes up to most at which each of some sums is split into samples; sums that are split at none
    are left out."""
    from torch._inductor.virtualized import V

    factor = getattr(getattr(V, "choices", None), "reduction_split_factor", None)
    if factor is None:  # PyTorch is older
        return []
    found = {tuple(b for b in range(2, most + 1) if factor(device, b * each, results, True) == b) for device, each, results in sums}
    return sorted(found - {()})
