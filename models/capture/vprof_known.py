"""Computes tensor values that do not depend on the batch, for models that read them.

A model is captured without values. Values of masks, counters and flags follow from its code nevertheless. They are
computed separately on the CPU to answer bool((mask == causal).all()), `if self.initted` and int(self.step). The answers
given while forward is observed are repeated during its export.
"""

import ast
import collections
import contextlib
import functools
import linecache
import math
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

MOST = 1 << 22  # most elements of a tensor whose values are kept

# Functions that return tensor values to Python.
READERS = {
    torch.Tensor: ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "equal", "allclose", "is_nonzero"),
    torch: ("equal", "allclose", "is_nonzero"),
}

looking = None  # the Numbers or Answers that answers a reader; None for PyTorch's own answer


class Numbers:
    """The known values of tensors without values of their own."""

    forward = False  # whether forward runs, and not a constructor

    def __init__(self, of_buffers=None):
        self.kept = {}  # values by id of a live tensor
        self.lost = set()  # ids of tensors overwritten by unknown values
        self.of_buffers = of_buffers or {}
        self.answers = collections.defaultdict(list)  # results of reads, by place in the code
        self.counts = collections.defaultdict(list)  # lists of Count by line
        self.assigned = lambda: None  # called before an operator that is the copy for tensor.data = value
        self.placed = lambda tensor: None  # called with a tensor created on an explicit device

    def of(self, tensor):
        if id(tensor) in self.kept:
            return self.kept[id(tensor)]
        return tensor if isreal(tensor) and id(tensor) not in self.lost else None

    def adopt(self, model, computed):
        """Called before forward. Sets the known values of the model's buffers to the values at its construction, unless
        forward computes values itself.
        """
        self.forward = True
        with unwatched():  # a fake mode would make the copies fake
            for name, buffer in model.named_buffers():
                if name in self.of_buffers and not computed:
                    self.kept[id(buffer)] = self.of_buffers[name].clone()

    def buffers(self, model):
        found = {name: self.of(b) for name, b in model.named_buffers() if not torch.nn.parameter.is_lazy(b) and b.numel() <= MOST}
        return {name: n.clone() for name, n in found.items() if n is not None}

    def begin(self):
        """Called before each further forward: clears the answers of the last one."""
        self.answers.clear()
        self.counts.clear()

    def follow(self, op, args, kwargs, out):
        """Computes an operator's result on the CPU if all of its arguments are known."""
        leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
        made = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        known = all(self.of(t) is not None for t in tensors) and all(t.numel() <= MOST for t in made)
        if not known or torch.Tag.nondeterministic_seeded in op.tags or "empty" in op.name():
            if op._schema.is_mutable:
                self.forget(t for t in tensors[:1])
            return
        try:
            args, kwargs = torch.utils._pytree.tree_unflatten([self.plain(v) for v in leaves], spec)
            if any(a.name == "device" for a in op._schema.arguments):
                kwargs["device"] = torch.device("cpu")
            with unwatched():
                numbers = [n for n in torch.utils._pytree.tree_leaves(op(*args, **kwargs)) if isinstance(n, torch.Tensor)]
        except Exception:  # for example no CPU kernel
            return
        for t, n in zip(made, numbers):
            if not isreal(t):
                self.kept[id(t)] = n

    def made_of(self, made, maker, args, kwargs):
        if made.numel() <= MOST and not any(isinstance(v, torch.Tensor) for v in torch.utils._pytree.tree_leaves((args, kwargs))):
            with unwatched():
                self.kept[id(made)] = maker(*args, **{**kwargs, "device": "cpu"})

    def plain(self, v):
        """Returns an argument with known values, and with the example's sizes for symbolic ones."""
        if isinstance(v, torch.Tensor):
            return self.of(v)
        if isinstance(v, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return v.node.hint
        return v

    def forget(self, tensors):
        """Drops the known values of all tensors that share memory with tensors overwritten by unknown values."""
        for n in filter(lambda n: n is not None, map(self.of, list(tensors))):
            at = n.untyped_storage().data_ptr()
            for key in [k for k, other in self.kept.items() if other.untyped_storage().data_ptr() == at]:
                del self.kept[key]
                self.lost.add(key)

    def gone(self, key):
        self.kept.pop(key, None)
        self.lost.discard(key)

    def read(self, where, reader, args, kwargs, frame):
        given = [self.of(a) if isinstance(a, torch.Tensor) else a for a in args]
        if any(g is None for g, a in zip(given, args) if isinstance(a, torch.Tensor)):
            answer = passes(frame) if where[-1] in BOOLEAN else None
            self.answers[where].append(None if answer is None else [answer])
            return reader(*args, **kwargs) if answer is None else answer
        with unwatched():
            answer = reader(*given, **kwargs)
        self.answers[where].append([answer])
        return answer


    def count(self, op, arguments, line):
        """Returns the Count of an operator whose result size depends on values: true elements of a mask, or unique
        elements. Returns None if the values are unknown.
        """
        name = str(op).removeprefix("aten.")
        mask = arguments.get(MASKS[name]) if name in MASKS else None
        masks = [m for m in (mask if isinstance(mask, (list, tuple)) else [mask]) if isinstance(m, torch.Tensor)]
        if name.startswith("index"):
            masks = [m for m in masks if m.dtype in (torch.bool, torch.uint8)]
        if not masks or (numbers := self.of(masks[0])) is None:
            return None
        with asking(None), unwatched():
            count = Count(numbers.unique().numel() if "unique" in name else int(torch.count_nonzero(numbers)), numbers.numel())
        if not name.startswith("index_put"):  # the result of index_put does not depend on the count
            self.counts[line()].append(count)
        return count


class Count:
    """Number of true elements of a mask: least + linear * batch + square * batch**2 + elements * true // among."""

    def __init__(self, true, among):
        self.seen = true
        # At least 2, also at half of the example's batch: torch.export specializes sizes 0 and 1.
        self.formula = [0, 0, 0, true, among] if true >= 4 else [min(2, among), 0, 0, max(true - 2, 0), max(among, 1)]

    def fit(self, batch, others):
        """Replaces the share by a polynomial of the batch, if one with integer coefficients matches all counts. others
        holds the counts at three other batches.
        """
        (b0, y0), (b1, y1), (b2, y2) = others.items()
        slope, later = (y1 - y0) / (b1 - b0), (y2 - y1) / (b2 - b1)
        square = (later - slope) / (b2 - b0)
        linear = slope - square * (b0 + b1)
        formula = [y0 - linear * b0 - square * b0**2, linear, square]
        if all(n == int(n) for n in formula) and formula[0] + formula[1] * batch + formula[2] * batch**2 == self.seen and min(others.values()) > 1:
            self.formula = [*map(int, formula), 0, 1]

    def of(self, elements, batch=None):
        """Returns the count for a number of elements, at a fixed batch unless elements is symbolic. Returns None if the
        batch is unknown.
        """
        least, linear, square, true, among = self.formula
        if linear or square:
            batch = batch if isinstance(elements, int) else batch_in(elements)
            return None if batch is None else least + linear * batch + square * batch * batch
        g = math.gcd(true, among)
        return least + elements * (true // g) // (among // g) if true else least


def batch_in(elements):
    """Returns the batch if it is the only symbol in a number of elements; else None."""
    node = elements.node
    free = list(node.expr.free_symbols)
    return node.shape_env.create_symintnode(free[0], hint=int(node.shape_env.size_hint(free[0]))) if len(free) == 1 else None


MASKS = {"nonzero.default": "self", "_unique2.default": "self", "nonzero_numpy.default": "self", "where.default": "condition", "masked_select.default": "mask", "index.Tensor": "indices", "index_put.default": "indices", "index_put_.default": "indices"}
BOOLEAN = ("__bool__", "is_nonzero", "equal", "allclose")


def passes(frame, callers=2):
    """Returns the answer with which forward continues, for a check whose other branch only raises an error
    (torch.distributions). Returns None if the line is no such check. A function may return the check's value to its
    caller, up to callers levels.
    """
    at = statement(frame.f_code.co_filename, frame.f_lineno)
    if isinstance(at, ast.Return) and at.value and callers and frame.f_back:
        answer = passes(frame.f_back, callers - 1)
        return None if answer is None else answer_of(at.value, answer)
    if isinstance(at, ast.Assert) or isinstance(at, ast.If) and all(isinstance(s, ast.Raise) for s in at.body):
        return answer_of(at.test, isinstance(at, ast.Assert))
    return None


@functools.cache
def statement(path, line):
    """Returns the if, assert or return statement on a line; None if there is none."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(path)))):
            if isinstance(node, (ast.If, ast.Assert, ast.Return)) and node.lineno <= line <= getattr(node, "test", node).end_lineno:
                return node
    return None


def answer_of(test, value):
    """Returns the value of the tensors in a test that makes the test equal to value; None if they differ."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return answer_of(test.operand, not value)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "bool" and test.args:
        return answer_of(test.args[0], value)
    if isinstance(test, ast.BoolOp):
        said = {answer_of(v, value) for v in test.values}
        return said.pop() if len(said) == 1 else None
    return value


class Answers:
    """Returns, in order, the values and mask counts that an observed forward has read."""

    forward = True

    def __init__(self, numbers, batch=None):
        self.batch = batch  # used where the number of elements is not symbolic
        self.left = {where: list(answers) for where, answers in numbers.answers.items()}
        self.counts = {line: list(counts) for line, counts in numbers.counts.items()}
        self.assigned = lambda: None

    def read(self, where, reader, args, kwargs, frame):
        answers = self.left.get(where)
        answer = answers.pop(0) if answers else None
        return answer[0] if answer else reader(*args, **kwargs)

    def count(self, line, elements):
        """Returns the number of a mask's true elements, as on that line of the observed forward; None if the line was
        not seen.
        """
        counts = self.counts.get(line)
        return (counts.pop(0) if len(counts) > 1 else counts[0]).of(elements, self.batch) if counts else None


class Building(TorchDispatchMode):
    """Tracks the values of tensors that a constructor creates."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.made = numbers, []

    def __enter__(self):
        self.looked = asking(self.numbers)
        self.looked.__enter__()
        return super().__enter__()

    def __exit__(self, *failure):
        super().__exit__(*failure)
        self.looked.__exit__(*failure)

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        self.numbers.follow(op, args, kwargs or {}, out)
        self.made.append(out)  # keeps tensors alive, so that ids stay unique
        return out


class OneDevice(TorchFunctionMode):
    """Keeps tensors on the capture's device if the model's code moves them to a GPU or back to the CPU."""

    def __init__(self, place):
        super().__init__()
        self.place = torch.device(place if place in ("meta", "cuda") else "cpu")

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.place.type != "cuda":
            if function is torch.Tensor.cuda or function is torch.Tensor.cpu and isinstance(args[0], torch.Tensor):
                return args[0]
            if function is torch.Tensor.to:
                args = (args[0], *(self.place if ongpu(a) else a for a in args[1:]))
            if ongpu(kwargs.get("device")):
                kwargs["device"] = self.place
        return function(*args, **kwargs)


def count(line, elements):
    """Returns the number of a mask's true elements during export; None otherwise."""
    return looking.count(line(), elements) if isinstance(looking, Answers) else None


def ongpu(device):
    return str(device).startswith("cuda") if isinstance(device, (str, torch.device)) else False


def isreal(tensor):
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor) and tensor.numel() <= MOST and type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@contextlib.contextmanager
def unwatched():
    with _disable_current_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False), torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.PreDispatch)):
        yield


def watch_readers():
    """Patches READERS to use known values while looking is set."""

    def asking(name, reader):
        def read(*args, **kwargs):
            global looking
            if looking is None:
                return reader(*args, **kwargs)
            frame, asked = sys._getframe(1), looking
            looking = None  # a reader may call another reader
            try:
                return asked.read((frame.f_code.co_filename, frame.f_lineno, name), reader, args, kwargs, frame)
            finally:
                looking = asked

        return read

    def keeping(maker):
        @functools.wraps(maker)
        def make(*args, **kwargs):
            made = maker(*args, **kwargs)
            if isinstance(looking, Numbers) and kwargs.get("device") is not None:
                looking.placed(made)
            if isinstance(looking, Numbers) and not isreal(made):
                looking.made_of(made, maker, args, kwargs)
            return made

        return make

    base = torch.Tensor.data

    def write(tensor, value):
        if looking is None or not looking.forward:
            base.__set__(tensor, value)
            return
        looking.assigned()
        with torch.no_grad():
            tensor.copy_(value)

    # The graph does not contain tensor.data: reading it is replaced by detach(), writing it by a copy.
    torch.Tensor.data = property(lambda tensor: tensor.detach() if looking is not None and looking.forward else base.__get__(tensor), write)
    for name in ("tensor", "as_tensor"):  # these create tensors without an operator
        setattr(torch, name, keeping(getattr(torch, name)))
    for owner, names in READERS.items():
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, asking(name, getattr(owner, name)))


@contextlib.contextmanager
def asking(whom):
    global looking
    before, looking = looking, whom
    try:
        yield whom
    finally:
        looking = before
