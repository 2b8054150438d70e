"""Finds batch sizes at which Inductor makes other decisions than at the recorded one."""

import importlib
import inspect
import math


def fusions(batch):
    """Returns a set to which the batch sizes are added from which on Inductor fuses a sum over rows with a sum over
    columns.

    Inductor does so from 4096 rows and 5 * 2**20 elements on (MixOrderReduction.can_fuse), and then needs other
    buffers.
    """
    import torch

    found = set()
    mix = getattr(importlib.import_module("torch._inductor.scheduler"), "MixOrderReduction", None)
    config, strict = torch._inductor.config.triton, "mix_order_reduction_non_strict_mode"
    if mix is None or not hasattr(config, strict):  # an older PyTorch
        return found
    fuses = mix.can_fuse

    def noted(cls, one, other):
        was, fused = getattr(config, strict), fuses(one, other)
        setattr(config, strict, True)  # fuse at any size
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
    """Returns a set to which the reductions over samples are added that Inductor may split by sample: (device, elements
    of a sample in each sum, number of sums).

    Their elements are contiguous in each sample, but not across samples, as in the gradient of a convolution's bias. If
    Inductor splits such a reduction into as many parts as there are samples (Reduction.num_splits), the loop order of
    each part matches other kernels on the tensor and it fuses with them. Otherwise the tensor stays allocated until it
    is summed.
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
    """Reports whether a reduction's input is an input of the graph, so that there is no kernel to fuse it with."""
    from torch._inductor.virtualized import V

    return summed is not None and set(summed.get_read_names() or [summed.get_name()]) <= V.graph.graph_inputs.keys()


def splits(sums, most=512):
    """Returns, for each reduction, the tuple of batch sizes up to most at which it is split by sample. Reductions that
    are never split are left out.
    """
    from torch._inductor.virtualized import V

    factor = getattr(getattr(V, "choices", None), "reduction_split_factor", None)
    if factor is None:  # an older PyTorch
        return []
    found = {tuple(b for b in range(2, most + 1) if factor(device, b * each, results, True) == b) for device, each, results in sums}
    return sorted(found - {()})
