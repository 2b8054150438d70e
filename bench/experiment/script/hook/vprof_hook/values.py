"""Numbers that kernels would have computed, where scripts go by them.

Kernels of the simulated GPU do nothing. What comes out as whole numbers or as true and false
(masks, lengths, positions, comparisons) is computed here on the host, if it is small: PyTorch's own
kernel allocates as ever, then the result is written where the device's memory is, which is host
memory. Floating-point numbers stay as they are, zeros where nobody wrote others.
"""

import ctypes
import os
import warnings

# Elements of the largest tensors that are computed.
MOST = 1 << 20

# Operators by what they give: a result, or a changed argument.
RESULTS = """
    eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar
    logical_and logical_or logical_not logical_xor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_not
    add.Tensor sub.Tensor mul.Tensor floor_divide remainder.Tensor remainder.Scalar neg abs minimum maximum clamp isnan isin.Tensor_Tensor
    where.self masked_fill.Scalar sum sum.dim_IntList any any.dim all all.dim max max.dim min min.dim aminmax _aminmax argmax argmin
    cumsum sort sort.stable topk index.Tensor index_select gather cat flip roll tril triu bincount searchsorted.Tensor repeat_interleave.Tensor
"""
CHANGES = """
    fill_.Scalar fill_.Tensor zero_ copy_ eq_.Scalar logical_and_ logical_or_ logical_not_ bitwise_and_.Tensor bitwise_or_.Tensor
    add_.Tensor sub_.Tensor mul_.Tensor masked_fill_.Scalar index_put_ _index_put_impl_ index_fill_.int_Scalar scatter_.value scatter_.src
    scatter_add_ arange.start_out eye.m_out cumsum.out any.out all.out
"""
RANDOM = "random_ random_.to random_.from randperm.generator_out"
# Operators whose result has as many elements as a kernel counts: PyTorch reads the number back.
COUNTED = "nonzero _unique2 unique_dim unique_consecutive"


def compute(torch):
    """Has PyTorch's operators give right numbers where that is cheap; nothing in releases that cannot (before 2.11)."""
    # libraries.load has set the folder.
    path = os.path.join(os.environ.get("TRITON_LIBCUDA_PATH", ""), "libvprof_gpu.so")
    if not os.environ.get("VPROF_STANDINS") or not os.path.exists(path) or not hasattr(getattr(torch, "library", None), "get_kernel"):
        return
    host = Host(torch, ctypes.CDLL(path))
    for names, with_numbers in ((RESULTS, host.result), (CHANGES, host.change), (RANDOM, host.random), (COUNTED, host.counted)):
        for name in names.split():
            host.override(name, with_numbers)


def tensors_of(op):
    """The places of an operator's arguments that are tensors and can be given as numbers."""
    return [i for i, argument in enumerate(op._schema.arguments) if str(argument.type) == "Tensor"]


class Host:
    """Computes on the host what is in the memory of the device."""

    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        self.library.vprof_tell.argtypes = [ctypes.c_int64]
        self.registered = torch.library.Library("aten", "IMPL")
        self.whole = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self.generator = torch.Generator().manual_seed(0)

    def override(self, name, with_numbers):
        torch = self.torch
        packet, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, packet, None)
        op = packet and getattr(packet, overload or "default", None)
        try:
            kernel = op and torch.library.get_kernel(op, "CUDA")
        except RuntimeError:
            return
        if not kernel:
            return
        wrapped = with_numbers(op, kernel.call_boxed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.registered.impl(op, wrapped, "CUDA", with_keyset=True)

    # What replaces a kernel, by kind of operator.

    def result(self, op, kernel):
        tensors = tensors_of(op)

        def run(keys, *args, **kwargs):
            args = self.lifted(args, tensors)
            out = kernel(keys, *args, **kwargs)
            if self.is_whole(out) and self.is_small(out, args):
                self.write(out, self.computed(op, args, kwargs))
            return out

        return run

    def change(self, op, kernel):
        tensors = tensors_of(op)

        def run(keys, *args, **kwargs):
            args = self.lifted(args, tensors)
            out = kernel(keys, *args, **kwargs)
            if self.is_whole(out) and self.is_small(out, args):
                self.computed(op, args, kwargs)
            return out

        return run

    def random(self, op, kernel):
        def run(keys, *args, **kwargs):
            out = kernel(keys, *args, **kwargs)
            if out.numel() <= MOST:
                self.computed(op, args, {**kwargs, "generator": self.generator})
            return out

        return run

    def counted(self, op, kernel):
        def run(keys, *args, **kwargs):
            known = self.computed(op, args, kwargs) if self.is_small(args[0], ()) else None
            if known is None:
                return kernel(keys, *args, **kwargs)
            first = known[0] if isinstance(known, tuple) else known
            self.library.vprof_tell(first.size(args[1] if op.__name__.startswith("unique_dim") else 0))
            try:
                out = kernel(keys, *args, **kwargs)
            finally:
                self.library.vprof_tell(-1)
            self.write(out, known)
            return out

        return run

    def lifted(self, args, tensors):
        """Makes numbers tensors where those are wanted, as PyTorch had before it called Python, of the type of the result."""
        for i in tensors:
            if i < len(args) and isinstance(args[i], (bool, int, float, complex)):
                torch = self.torch
                with torch._C.DisableTorchFunction():
                    other = next(a for a in args if isinstance(a, torch.Tensor))
                    number = torch.scalar_tensor(args[i], dtype=torch.result_type(other, args[i]), device="cpu")
                args = (*args[:i], number, *args[i + 1:])
        return args

    # Numbers.

    def is_whole(self, out):
        if isinstance(out, tuple):
            return any(o.dtype in self.whole for o in out)
        return out.dtype in self.whole

    def is_small(self, out, args):
        return all(t.numel() <= MOST for t in (*(out if isinstance(out, tuple) else (out,)), *args) if isinstance(t, self.torch.Tensor))

    def computed(self, op, args, kwargs):
        """What the operator gives on the host; None where it fails."""
        torch = self.torch
        with torch._C.DisableTorchFunction():
            try:
                return op(*self.seen(args), **{k: torch.device("cpu") if k == "device" else self.seen(v) for k, v in kwargs.items()})
            except (RuntimeError, IndexError, TypeError, NotImplementedError):
                return None

    def seen(self, value):
        if isinstance(value, self.torch.Tensor):
            return self.view(value) if value.is_cuda else value
        if isinstance(value, (list, tuple)):
            return type(value)(self.seen(v) for v in value)
        return value

    def view(self, tensor):
        """A tensor of the host in the memory of one of the device."""
        storage = tensor.untyped_storage()
        size = storage.nbytes() // tensor.element_size()
        if not size:
            return self.torch.empty(tensor.shape, dtype=tensor.dtype)
        memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
        flat = self.torch.frombuffer(memory, dtype=tensor.dtype, count=size)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def write(self, out, known):
        if known is None:
            return
        for to, numbers in zip(out, known) if isinstance(out, tuple) else ((out, known),):
            if to.dtype in self.whole and to.shape == numbers.shape and to.numel():
                with self.torch._C.DisableTorchFunction():
                    self.view(to).copy_(numbers)
