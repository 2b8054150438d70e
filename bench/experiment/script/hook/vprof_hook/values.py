"""Computes on the host the values that a script branches or indexes on. Kernels of the simulated GPU compute nothing.

Results of integer and bool operators (masks, lengths, positions, comparisons) are computed if the tensors are small.
PyTorch's own kernel allocates as usual; then the result is written into device memory, which is host memory here. So
are floating-point results (boxes, thresholds, probabilities) of the operators listed below, if the tensors are smaller
still or depend on values copied from the host. Layers are not computed: their outputs read as zeros. Each tensor's
storage records how much of its values is known.
"""

import contextlib
import ctypes
import functools
import importlib
import math
import os
import sys
import warnings

from . import events, memory, placeholders

# Largest number of elements of tensors that are computed: MOST for integers, and for floating-point numbers computed
# from known ones unless these were copied from a large host tensor; FLOATS for other floating-point numbers.
MOST, FLOATS = 1 << 22, 1 << 16

# How much of a tensor's values is known: nothing, some of its inputs, everything.
NOTHING, SOME, ALL = 0, 1, 2

# Operators that return a new tensor.
RESULTS = """
    eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar
    logical_and logical_or logical_not logical_xor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_not
    add.Tensor sub.Tensor mul.Tensor floor_divide remainder.Tensor remainder.Scalar neg abs minimum maximum clamp clamp.Tensor
    clamp_min clamp_max isnan isinf isfinite isin.Tensor_Tensor
    where.self masked_fill.Scalar sum sum.dim_IntList any any.dim all all.dim max min min.dim amax amin aminmax _aminmax argmin
    cumsum sort sort.stable index.Tensor index_select gather cat flip roll tril triu bincount searchsorted.Tensor repeat_interleave.Tensor
    scatter.value scatter.src scatter_add scatter_reduce.two index_add index_copy index_fill.int_Scalar masked_scatter masked_fill.Tensor
    bucketize.Tensor histc count_nonzero.dim_IntList median median.dim kthvalue mode cummax cummin tril_indices triu_indices
    __lshift__.Scalar __lshift__.Tensor __rshift__.Scalar __rshift__.Tensor fmod.Tensor fmod.Scalar _log_softmax
    unfold_backward
"""
# Operators whose results on unknown values may be infinite or NaN.
ARITHMETIC = """
    div.Tensor div.Tensor_mode reciprocal exp expm1 log log1p log2 sqrt rsqrt pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar
    sigmoid tanh softplus _softmax mean mean.dim std.correction var.correction linalg_vector_norm prod cumprod
    sin cos atan2 floor ceil round trunc sign lerp.Scalar addcmul addcdiv _cdist_forward
"""
CHANGES = """
    fill_.Scalar fill_.Tensor zero_ copy_ eq_.Scalar logical_and_ logical_or_ logical_not_ bitwise_and_.Tensor bitwise_or_.Tensor
    add_.Tensor sub_.Tensor mul_.Tensor div_.Tensor clamp_ clamp_min_ clamp_max_ exp_ sqrt_ neg_ cos_ sin_ masked_fill_.Scalar
    index_put_ _index_put_impl_ index_fill_.int_Scalar scatter_.value scatter_.src
    scatter_add_ scatter_reduce_.two index_add_ index_copy_ masked_scatter_ masked_fill_.Tensor remainder_.Scalar logical_xor_
    arange.start_out linspace.out eye.m_out cumsum.out any.out all.out
"""
RANDOM = """
    random_ random_.to random_.from randperm.generator_out uniform_ normal_ exponential_ bernoulli bernoulli_.float bernoulli_.Tensor multinomial
"""
# Operators whose results are known, since unknown numbers count as finite (see Host.read).
FINITE = {"isnan", "isinf", "isfinite"}
# Operators that select the largest columns. Scripts route tokens to experts with them.
CHOICES = "topk argmax max.dim"
# Operators whose result size is counted by a kernel; PyTorch reads the count back.
COUNTED = "nonzero _unique2 unique_dim unique_consecutive masked_select"
# Operators whose result does not depend on the previous values of the changed tensor.
OVERWRITES = {"fill_", "zero_", "copy_", "arange", "linspace", "eye", "cumsum", "any", "all"}


def compute(torch):
    """Overrides PyTorch's CUDA operators to return correct values where that is cheap. Needs PyTorch 2.11."""
    # libraries.load has set the variable.
    path = os.path.join(os.environ.get("TRITON_LIBCUDA_PATH", ""), "libvprof_gpu.so")
    if os.environ.get("VPROF_TIMED"):
        return  # computing here would count as the script's host time
    if not os.environ.get("VPROF_STUBS") or not os.path.exists(path) or not hasattr(getattr(torch, "library", None), "get_kernel"):
        return
    global host
    host = Host(torch, ctypes.CDLL(path))
    for names, with_numbers in (
        (RESULTS, host.result), (ARITHMETIC, host.finite), (CHANGES, host.change), (RANDOM, host.random), (CHOICES, host.choice), (COUNTED, host.counted),
    ):
        for name in names.split():
            host.override(name, with_numbers)
    host.override("_local_scalar_dense", host.read)
    host.override("equal", host.compared)
    host.override("_coalesce", host.coalesced, key="SparseCUDA")
    host.override("dot", host.product)
    torch._is_all_true = host.asserted(torch._is_all_true)
    torch.Tensor.numpy, torch.Tensor.tolist = host.naming(torch.Tensor.numpy), host.naming(torch.Tensor.tolist)
    optimizers = importlib.import_module("torch.optim.lbfgs")
    optimizers.LBFGS.step = host.descending(optimizers.LBFGS.step)
    optimizers._strong_wolfe = host.accepting(optimizers._strong_wolfe)


def compute_detection(_torchvision):
    """Called when torchvision was imported: its nms has a result size that a kernel counts."""
    if host is not None:
        host.override("nms", host.counted, "torchvision")


host = None


def tensors_of(op):
    """Returns the positions of an operator's tensor arguments. Callers may pass numbers there."""
    return [i for i, argument in enumerate(op._schema.arguments) if str(argument.type) == "Tensor"]


class Host:
    """Computes operators on the host, on the values in device memory."""

    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        # DeepSpeed's zero.Init replaces these functions of torch.
        self.zeros, self.empty, self.ones = torch.zeros, torch.empty, torch.ones
        self.library.vprof_tell.argtypes = [ctypes.c_int64]
        self.library.cudaMemset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        self.libraries = []
        self.whole = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self.generator = torch.Generator().manual_seed(0)
        self.telling = False
        self.descends = False  # whether L-BFGS is stepping
        self.compares = False  # whether torch.equal is running
        self.readings = 0
        self.lines = set()

    def override(self, name, with_numbers, namespace="aten", key="CUDA"):
        torch = self.torch
        packet, _, overload = name.partition(".")
        packet = getattr(getattr(torch.ops, namespace), packet, None)
        op = packet and getattr(packet, overload or "default", None)
        try:
            kernel = op and torch.library.get_kernel(op, key)
        except RuntimeError:
            return
        if not kernel:
            return
        wrapped = with_numbers(op, kernel.call_boxed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.libraries.append(torch.library.Library(namespace, "IMPL"))
            self.libraries[-1].impl(op, wrapped, key, with_keyset=True)

    # Wrappers of kernels, one for each group of operators above.

    def result(self, op, kernel, finite=False):
        tensors = tensors_of(op)

        def run(keys, *args, **kwargs):
            args = self.lifted(args, tensors)
            out = kernel(keys, *args, **kwargs)
            known = self.known(*args)
            if self.is_small(out, args, known):
                self.write(out, self.computed(op, args, kwargs), finite and known < ALL)
                self.mark(out, ALL if op.__name__.partition(".")[0] in FINITE else known)
            else:
                self.clear(out)
            return out

        return run

    def finite(self, op, kernel):
        return self.result(op, kernel, finite=True)

    def change(self, op, kernel):
        name = op.__name__.partition(".")[0]
        tensors, overwrites, zeroes = tensors_of(op), name in OVERWRITES, name == "zero_"

        def run(keys, *args, **kwargs):
            args = self.lifted(args, tensors)
            out = kernel(keys, *args, **kwargs)
            if not out.is_cuda:
                return self.seen_by_host(out, args)
            if self.in_backward() and out.dtype not in self.whole:
                return out
            whole = out.numel() * out.element_size() == out.untyped_storage().nbytes()
            known = self.known(*(a for a in args if a is not out)) if overwrites else self.known(*args)
            if overwrites and not whole:
                self.guess_rest(out)
                known = min(known, max(self.known(out), SOME))
            if self.is_small(out, args, known):
                if zeroes and whole:
                    self.zero(out.untyped_storage())
                else:
                    self.blank(out)
                    self.computed(op, args, kwargs)
            else:
                known = self.copied(out, args, whole)
            self.mark(out, known)
            return out

        return run

    def random(self, op, kernel):
        def run(keys, *args, **kwargs):
            out = kernel(keys, *args, **kwargs)
            if self.is_small(out, args, NOTHING):
                self.write(out, self.computed(op, args, {**kwargs, "generator": self.generator}))
                self.mark(out, ALL)
            else:
                self.clear(out)
            return out

        return run

    def choice(self, op, kernel):
        """Wraps an operator of CHOICES. If all scores are equal, as unknown ones are, rows select different columns in
        turn, so that every column is selected equally often.
        """
        computed = self.result(op, kernel)
        at, dim = next((i, a) for i, a in enumerate(op._schema.arguments) if a.name == "dim")

        def run(keys, *args, **kwargs):
            out = computed(keys, *args, **kwargs)
            along, scores = args[at] if at < len(args) else kwargs.get("dim", dim.default_value), args[0]
            places = out[1] if isinstance(out, tuple) else out
            if along is not None and scores.dim() and 0 < places.numel() <= MOST and self.are_alike(scores):
                k = args[1] if op.__name__.startswith("topk") else 1
                turns = self.torch.arange(places.numel()).view(*scores.select(along, 0).shape, k) % scores.size(along)
                self.write(places, turns.movedim(-1, along).reshape(places.shape))
            return out

        return run

    def counted(self, op, kernel):
        def run(keys, *args, **kwargs):
            tensors = [a for a in args if isinstance(a, self.torch.Tensor)]
            if self.telling:
                return kernel(keys, *args, **kwargs)
            known = self.computed(op, args, kwargs) if all(t.numel() <= MOST for t in tensors) else None
            if self.known(*tensors) < ALL:
                self.guessed()
            first = known[0] if isinstance(known, tuple) else known
            along = args[1] if op.__name__.startswith("unique_dim") else 0
            # If the count is not computed here, every element counts.
            with self.tell(tensors[0].numel() if first is None else first.size(along)):
                out = kernel(keys, *args, **kwargs)
            if known is None:
                self.clear(out)
            else:
                self.write(out, known)
            self.mark(out, NOTHING if known is None else self.known(*tensors))
            return out

        return run

    def coalesced(self, _op, kernel):
        """Wraps the operator that coalesces a sparse tensor (such as an embedding's gradient) to one entry per index.

        PyTorch's kernel counts the indices in its own memory, so a count cannot be supplied to it.
        """
        torch = self.torch

        def run(keys, tensor):
            places, values = tensor._indices(), tensor._values()
            if not 0 < places.numel() <= MOST:
                return kernel(keys, tensor)
            known = self.view(places).unique(dim=1)
            # Allocations of the kernel: linear indices, their order, and the first position of each distinct index.
            scratch = [torch.empty_like(places[0]) for _ in range(3)]
            sums = values.new_empty((known.size(1), *values.shape[1:]))
            once = places.new_empty(known.shape)
            del scratch
            self.write(once, known)
            return torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
                tensor.sparse_dim(), tensor.dense_dim(), tensor.size(), once, sums,
                dtype=sums.dtype, layout=torch.sparse_coo, device=sums.device, is_coalesced=True,
            )

        return run

    @contextlib.contextmanager
    def tell(self, number):
        """Makes the stub library return number wherever PyTorch copies a count from the GPU."""
        self.telling = True
        self.library.vprof_tell(number)
        try:
            yield
        finally:
            self.library.vprof_tell(-1)
            self.telling = False

    def asserted(self, check):
        """Wraps torch._is_all_true, which torch.distributions uses to check arguments: unknown values pass."""

        def holds(tensor):
            out = check(tensor)
            if out.is_cuda and self.known(tensor) < ALL:
                self.write(out, self.ones((), dtype=self.torch.bool))
                self.mark(out, ALL)
            return out

        return holds

    def read(self, _op, kernel):
        """Wraps the operator behind .item(). An unknown float is returned as positive; the use of an unknown bool is
        reported.
        """

        def run(keys, tensor):
            number = kernel(keys, tensor)
            if self.known(tensor) == ALL:
                return number
            if isinstance(number, bool) and not self.compares:
                self.guessed()
            if isinstance(number, float) and (number == 0 or number - number != 0 or not self.is_written(tensor)):
                # Scripts divide by losses and take their logarithms. The value decreases, so that loops waiting for a
                # small one end.
                self.readings += 1
                return max(0.9 ** self.readings, 1e-30)
            return number

        return run

    def compared(self, op, kernel):
        """Wraps torch.equal, whose kernel calls other kernels without the dispatcher."""

        def run(keys, *args):
            self.compares = True
            try:
                kernel(keys, *args)
            finally:
                self.compares = False
            if self.known(*args) < ALL:
                self.guessed()
            small = all(t.numel() <= MOST for t in args)
            return bool(small and self.computed(op, args, {}))

        return run

    # L-BFGS decides by gradients, which are unknown. It does not stop early, treats each direction as one of positive
    # curvature, and its line search accepts the first step.

    def descending(self, step):
        @functools.wraps(step)
        def wrapped(optimizer, *args, **kwargs):
            group = optimizer.param_groups[0]
            tolerances = {key: group[key] for key in ("tolerance_grad", "tolerance_change")}
            group.update(dict.fromkeys(tolerances, -math.inf))
            self.descends = True
            try:
                return step(optimizer, *args, **kwargs)
            finally:
                self.descends = False
                group.update(tolerances)

        return wrapped

    def accepting(self, search):
        def wrapped(objective, x, t, d, _loss, gradient, _slope, **options):
            return search(objective, x, t, d, math.inf, gradient, -math.inf, **options)

        return wrapped

    def product(self, _op, kernel):
        def run(keys, *args):
            out = kernel(keys, *args)
            if self.descends and self.known(*args) < ALL:
                self.write(out, self.ones((), dtype=out.dtype))
                self.mark(out, SOME)
            return out

        return run

    def seen_by_host(self, out, args):
        """Returns a copy to the host, with zeros for memory that was never written and finite values for unknown
        numbers.
        """
        known = self.known(*args[1:])
        if known < ALL:
            out.untyped_storage().vprof = known
        if out.is_floating_point() and out.numel() <= MOST and known < ALL:
            if all(self.is_written(t) for t in self.tensors(args[1:])):
                self.torch.nan_to_num_(out, 0.0, 0.0, 0.0)
            else:
                out.zero_()
        return out

    def naming(self, convert):
        """Wraps Tensor.numpy or tolist, through which integers leave PyTorch. The use of an unknown value is reported.
        """

        @functools.wraps(convert)
        def wrapped(tensor, *args, **kwargs):
            if tensor.dtype in self.whole and self.known(tensor) < ALL:
                self.guessed()
            return convert(tensor, *args, **kwargs)

        return wrapped

    def guessed(self):
        """Reports the user's line that depends on a value that was never computed."""
        libraries = (*memory.LIBRARIES, os.path.join(os.path.dirname(self.torch.__file__), ""))
        frame = memory.frame_of_user(sys._getframe(1), libraries)
        line = frame and "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)
        if line and line not in self.lines:
            self.lines.add(line)
            events.send("guessed", path=line)

    def lifted(self, args, tensors):
        """Returns args with numbers converted to tensors at the positions in tensors. PyTorch passes such arguments to
        Python as numbers, but the kernel requires tensors of the result's dtype.
        """
        for i in tensors:
            if i < len(args) and isinstance(args[i], (bool, int, float, complex)):
                torch = self.torch
                with torch._C.DisableTorchFunction():
                    other = next(a for a in args if isinstance(a, torch.Tensor))
                    number = torch.scalar_tensor(args[i], dtype=torch.result_type(other, args[i]), device="cpu")
                args = (*args[:i], number, *args[i + 1:])
        return args

    # How much is known.

    def known(self, *args):
        """Returns how much is known about the values of tensor arguments: ALL, SOME or NOTHING."""
        levels = {self.level(t) for t in self.tensors(args)}
        return ALL if levels <= {ALL} else SOME if levels - {NOTHING} else NOTHING

    def level(self, tensor):
        if tensor.is_cuda and self.in_backward():
            return NOTHING
        otherwise = NOTHING if tensor.is_cuda else ALL
        try:
            return getattr(tensor.untyped_storage(), "vprof", otherwise)
        except (RuntimeError, NotImplementedError):  # the tensor has no storage
            return otherwise

    def in_backward(self):
        """Reports whether backward runs. Then no attribute is set on storages: autograd accumulates gradients in place
        only if Python holds no reference to them.
        """
        return self.torch._C._current_graph_task_id() >= 0

    def mark(self, out, known):
        if self.in_backward():
            return
        for t in self.tensors((out,)):
            storage = t.untyped_storage()
            if known or hasattr(storage, "vprof"):
                storage.vprof = known

    def tensors(self, args):
        for a in args:
            if isinstance(a, self.torch.Tensor):
                yield a
            elif isinstance(a, (list, tuple)):
                yield from self.tensors(a)

    def is_written(self, tensor):
        """Reports whether a tensor's values may be read. A floating-point CUDA tensor that was never written reads as
        zeros.
        """
        if not tensor.is_cuda or tensor.dtype in self.whole:
            return True
        try:
            return hasattr(tensor.untyped_storage(), "vprof")
        except (RuntimeError, NotImplementedError):  # the tensor has no storage
            return True

    def are_alike(self, scores):
        """Reports whether all scores are equal because no known value distinguishes them."""
        if scores.dtype in self.whole or self.known(scores) == ALL:
            return False
        return not self.is_written(scores) or scores.numel() <= MOST and bool((self.view(scores) == self.view(scores).flatten()[0]).all())

    def guess_rest(self, out):
        """Sets unknown scores to 1 before a script overwrites some of them, such as with zeros for excluded choices."""
        storage = out.untyped_storage()
        size = storage.nbytes() // out.element_size()
        if out.dtype in self.whole or out.numel() > 64 or size > MOST or self.in_backward() or self.known(out) == ALL:
            return
        whole = out.as_strided((size,), (1,), 0)
        if self.are_alike(whole):
            self.view(whole).fill_(1)
            storage.vprof = self.known(out)

    def copied(self, out, args, whole):
        """Returns how much is known about the result of a copy that is too large to compute here. Copies of host
        tensors are known.
        """
        sources = [t for t in self.tensors(args[1:]) if t.is_cpu and t.dim()]
        if not sources or self.in_backward():
            return NOTHING
        storage = out.untyped_storage()
        trained = any(t.requires_grad for t in (out, *sources))  # no script branches on the values of parameters
        if whole and not trained and out.is_contiguous() and not any(placeholders.lazy and placeholders.lazy.holds(t) for t in sources):
            storage.vprof, storage.vprof_copied = NOTHING, True
            return self.known(*sources)
        if not self.is_written(out):
            storage.vprof = NOTHING
        return NOTHING

    def blank(self, out):
        """Zeroes a tensor's memory before its first write."""
        storage = out.untyped_storage()
        if not self.is_written(out) and not self.in_backward():
            self.zero(storage)
            storage.vprof = NOTHING

    def zero(self, storage):
        """Zeroes a storage. The stub returns its pages to the host, so that zeros take no host memory."""
        self.library.cudaMemset(storage.data_ptr(), 0, storage.nbytes())

    def clear(self, out):
        """Zeroes integers that were not computed: stale memory would be an invalid index or length."""
        for t in self.tensors((out,)):
            if t.is_cuda and t.dtype in self.whole and t.numel() * t.element_size() == t.untyped_storage().nbytes():
                self.zero(t.untyped_storage())

    # Computing.

    def is_small(self, out, args, known):
        """Reports whether the tensors are small enough to compute the result on the host (see MOST and FLOATS)."""
        outs = list(self.tensors((out,)))
        whole = any(o.dtype in self.whole for o in outs)
        if not whole and self.in_backward():
            return False
        host = any(t.is_cpu and t.dim() for t in self.tensors(args))
        most = MOST if whole or known and not host and not (known < ALL and self.trains(args)) else FLOATS
        if not all(t.numel() <= most for t in (*outs, *self.tensors(args))):
            return False
        return whole or all(o.numel() <= FLOATS for o in outs) or not any(self.is_copied(t) for t in self.tensors(args))

    def is_copied(self, tensor):
        """Reports whether a large tensor was copied from the host. Operators on it are not computed."""
        return tensor.is_cuda and tensor.numel() > FLOATS and hasattr(tensor.untyped_storage(), "vprof_copied")

    def trains(self, args):
        """Reports whether autograd records the operator. Scripts sample from masked scores only if it does not."""
        return self.torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors(args))

    def computed(self, op, args, kwargs):
        """Returns an operator's result computed on the host; None if that raises an error."""
        torch = self.torch
        with torch._C.DisableTorchFunction():
            try:
                return op(*self.seen(args), **{k: torch.device("cpu") if k == "device" else self.seen(v) for k, v in kwargs.items()})
            except (RuntimeError, IndexError, TypeError, NotImplementedError):
                return None

    def seen(self, value):
        if isinstance(value, self.torch.Tensor):
            if not value.is_cuda:
                return value
            return self.view(value) if self.is_written(value) else self.zeros((), dtype=value.dtype).expand(value.shape)
        if isinstance(value, (list, tuple)):
            return type(value)(self.seen(v) for v in value)
        return value

    def view(self, tensor):
        """Returns a host tensor that shares the memory of a CUDA tensor."""
        storage = tensor.untyped_storage()
        size = storage.nbytes() // tensor.element_size()
        if not size:
            return self.empty(tensor.shape, dtype=tensor.dtype)
        memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
        flat = self.torch.frombuffer(memory, dtype=tensor.dtype, count=size)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def write(self, out, known, finite=False):
        """Writes computed values into a result; zeros for integers that the host could not compute. finite replaces NaN
        and infinity by zero.
        """
        outs = out if isinstance(out, tuple) else (out,)
        known = (0,) * len(outs) if known is None else known if isinstance(known, tuple) else (known,)
        for to, numbers in zip(outs, known):
            failed = isinstance(numbers, int)
            if to is None or not to.numel() or not failed and (to.dtype != numbers.dtype or to.shape != numbers.shape):
                continue
            with self.torch._C.DisableTorchFunction():
                if not failed:
                    self.view(to).copy_(numbers.nan_to_num_(0.0, 0.0, 0.0) if finite and numbers.is_floating_point() else numbers)
                elif to.dtype in self.whole:
                    self.view(to).zero_()
