"""Facts about a model on a GPU under autocast that a graph exported without both does not show."""

import contextlib
import types

from vprof_graph import common
from vprof_observe import answers_of, numbers_of, observe, seed


def observe_on_gpu(captured, make, example, seen):
    """Observes forward under bf16 autocast on fake CUDA tensors. Returns (observation, its operator by operator of
    seen); (None, {}) if that fails.
    """
    import torch
    import vprof_backward
    import vprof_known as known
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    try:
        with fake:
            seed()
            with torch.device("cuda"):
                model = make()
            for module in model.modules():
                for tensors in (module._parameters, module._buffers):
                    tensors.update({n: type(t)(t.to("cuda")) if isinstance(t, torch.nn.Parameter) else t.to("cuda") for n, t in tensors.items() if t is not None and t.device.type != "cuda"})
        numbers_of[model] = numbers_of.get(captured, {})
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        cast = vprof_backward.until_known(lambda: observe(model, example, "cuda", dict(example.symbols), fake, seen.names(), lambda: known.Answers(answers_of[captured])))
    except Exception:
        return None, {}
    finally:
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", dtype)
    return cast, dict(common([n for n, _ in seen.ops], [n for n, _ in cast.ops]))


@contextlib.contextmanager
def described_gpu():
    """Makes torch.cuda describe one GPU of compute capability 8.9 while the block runs."""
    import torch

    gpu = types.SimpleNamespace(name="a described GPU", major=8, minor=9, multi_processor_count=128, total_memory=24 << 30)
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "get_device_name": gpu.name, "get_device_capability": (8, 9), "get_device_properties": gpu}
    was = {name: getattr(torch.cuda, name) for name in answers}
    try:
        for name, answer in answers.items():
            setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
        yield
    finally:
        for name, function in was.items():
            setattr(torch.cuda, name, function)


def marks_of_gpu(captured, make, example, seen, number):
    """Returns three facts that the graph lacks: [node, argument, whether it is half precision under autocast] for dtype
    arguments that are float32 in the graph (x.to(y.dtype)); [node, kernels] for attention that may not use all kernels;
    and the entries of seen.state that are half precision.
    """
    import torch

    wanted = sorted((k, a) for k, given in enumerate(seen.types) for a, t in given.items() if t is torch.float32)
    attends = [k for k, (name, _) in enumerate(seen.ops) if name == "torch.ops.aten.scaled_dot_product_attention.default"]
    if not wanted and not attends and not seen.state:
        return [], [], set()
    with described_gpu():
        cast, other = observe_on_gpu(captured, make, example, seen)
    if cast is None or not cast.ended:  # the model needs a real GPU there
        plain = observe_on_gpu(captured, make, example, seen)
        if cast is None or plain[0] and len(plain[0].ops) > len(cast.ops):
            cast, other = plain
    marks = [[number[k], a, cast.types[other[k]].get(a) is torch.bfloat16] for k, a in wanted if k in number and k in other]
    allowed = {k: cast.attention.get(other[k]) if k in other else seen.attention.get(k) for k in attends}
    halves = {tuple(at) for *at, _, dtype in cast.state if dtype is torch.bfloat16} if cast else set()
    half = {(k, argument, i) for k, argument, i, *_ in seen.state if (other.get(k), argument, i) in halves}
    return marks, [[number[k], kernels] for k, kernels in allowed.items() if kernels and k in number], half
