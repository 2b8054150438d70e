"""Reports the workspace bytes of cuDNN's convolutions and other graphs, without a GPU.

    python ask.py --result answers.json --stubs FOLDER --gpu sm86.json < questions

cuDNN 9.8 and newer build plans for a device that is only described. Like PyTorch with cudnn.benchmark off, this script
selects the first engine configuration of mode instant, then fallback, that has no excluded numerical note and can be
built. A question is a line:

    operation dtype layout dims N C K groups x.. kernel.. y.. stride.. pad.. dilation..

with operation 0 forward, 1 gradient of x, 2 gradient of w; dtype 0 fp32, 1 fp16, 2 bf16; layout 1 channels last; dims 2
or 3. The answer is the workspace in bytes, -1 for none. After the word "notes" it is the numerical notes of the selected
engine. After "all" it is two lists, for mode instant and fallback: bytes and notes of all configurations that PyTorch
tries with cudnn.benchmark on.

A question about another graph is "graph" and a word for each descriptor, with the graph's own last. A word is the
descriptor's type, then for each attribute "|" and name:type:values, as numbers of cudnn_graph.h. A descriptor among the
values is its index in the line. The answer is the bytes that the first proposal reports.

The result is a JSON file with the answers in order. With --converse, each answer is also printed at once, after a line
with cuDNN's version.

cuDNN asks cuBLASLt whether it has a kernel for a product, which needs a GPU. The folder of stubs has a cuBLASLt that
always agrees. Engines compiled at run time, such as attention, are only proposed if libcuda can be loaded, which --driver
names. Nothing is compiled, since a proposal reports its workspace.
"""

import argparse
import ctypes
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
import sys

OLDEST = (9, 8)

# Constants of cudnn_graph.h, the same in all releases of cuDNN 9.
CONVOLUTION, ENGINE, ENGINECFG, ENGINEHEUR, PLAN, KNOB, GRAPH, TENSOR, DEVICEPROP = 1, 2, 3, 4, 5, 7, 15, 17, 38
OPERATIONS = [(10, 700), (12, 706), (11, 712)]  # descriptor type and first attribute: forward, gradient of x, gradient of w
BOOLEAN = 2
DATA_TYPE, INT64, FLOAT, CONVOLUTION_MODE, HEUR_MODE, KNOB_TYPE, NOTE, DESCRIPTOR, CHAR = 1, 3, 4, 7, 8, 9, 11, 15, 24
DOUBLE, INT64_FRACTION = 5, 26
DOWN_CONVERT_INPUTS = 1
INSTANT, FALLBACK, MODE_A = 0, 2, 3
DTYPES = [0, 2, 9]  # float, half, bfloat16
# A knob of engines that call cuBLASLt: they compute a 1x1 convolution as one matrix product.
PRODUCT_KNOB = 25
MOST_KNOBS = 32
NONE = (-1, [])  # answer (bytes, notes) if no engine works


class Refusal(Exception):
    """An error that the user can correct: the problem, and in do the remedy."""

    def __init__(self, what, do=""):
        super().__init__(what)
        self.do = do


def find_cudnn(named):
    """Returns the path of libcudnn: the named one, or the one of this Python. Raises Refusal if there is none."""
    if named:
        return named
    places = []
    for package, inside in (("nvidia.cudnn", "lib"), ("torch", "lib")):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            spec = None
        for folder in (spec.submodule_search_locations or []) if spec else []:
            places.append(os.path.join(folder, inside, "libcudnn.so.9"))
    places.append(os.path.join(sys.prefix, "lib", "libcudnn.so.9"))  # conda
    for path in places:
        if os.path.exists(path):
            return path
    do = "install the CUDA build of torch there (no GPU is needed), name another Python with --python, or a library with --cudnn"
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise Refusal(f"there is no libcudnn.so.9 beside {sys.executable}, which has no PyTorch", do) from None
    raise Refusal(f"there is no libcudnn.so.9 beside PyTorch {torch} of {sys.executable}", do)


class CuDNN:
    def __init__(self, path, stubs):
        # dlopen() of cuBLASLt then returns the stub that is already loaded under its name.
        for name in sorted(os.listdir(stubs)):
            ctypes.CDLL(os.path.join(stubs, name), ctypes.RTLD_GLOBAL)
        try:
            self.lib = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
            self.lib.cudnnGetVersion.restype = ctypes.c_size_t
            number = self.lib.cudnnGetVersion()
        except (OSError, AttributeError) as e:
            raise Refusal(f"cannot load {path}: {e}") from e
        self.version = (number // 10000, number // 100 % 100)
        if self.version < OLDEST:
            raise Refusal(
                f"{path} is cuDNN {self.name}; cuDNN answers without a GPU from 9.8 on",
                "name a Python that has PyTorch 2.8 or newer with --python",
            )
        b = "cudnnBackend"
        self.create, self.destroy = self.lib[b + "CreateDescriptor"], self.lib[b + "DestroyDescriptor"]
        self.finalize_, self.set_, self.get_ = (self.lib[b + n] for n in ("Finalize", "SetAttribute", "GetAttribute"))
        self.destroy.argtypes = self.finalize_.argtypes = [ctypes.c_void_p]
        self.create.argtypes = [ctypes.c_int, ctypes.c_void_p]
        self.set_.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p]
        self.get_.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]

    @property
    def name(self):
        return "%d.%d" % self.version

    def describe(self, gpu):
        """Sets the device of all questions: gpu is the text of a device description (JSON)."""
        text = gpu.encode()
        self.device = self.make(DEVICEPROP)
        self.set(self.device, 2702, CHAR, ctypes.create_string_buffer(text, len(text)), len(text))
        if not self.finalize(self.device):
            raise Refusal(f"cuDNN {self.name} rejects vprof's description of the GPU; please report it")

    def make(self, kind):
        d = ctypes.c_void_p()
        if self.create(kind, ctypes.byref(d)):
            raise RuntimeError(f"cuDNN cannot create a descriptor of type {kind}; please report it")
        return d

    def drop(self, *descriptors):
        for d in descriptors:
            self.destroy(d)

    def finalize(self, d):
        return self.finalize_(d) == 0

    def set(self, d, attribute, kind, array, n):
        if self.set_(d, attribute, kind, n, array):
            raise RuntimeError(f"cuDNN rejects attribute {attribute}; please report it")

    def ints(self, d, attribute, *values, kind=INT64):
        c = ctypes.c_int64 if kind == INT64 else ctypes.c_int
        self.set(d, attribute, kind, (c * len(values))(*values), len(values))

    def points(self, d, attribute, other):
        self.set(d, attribute, DESCRIPTOR, ctypes.byref(other), 1)

    def get(self, d, attribute, kind, most, array):
        n = ctypes.c_int64()
        return 0 if self.get_(d, attribute, kind, most, ctypes.byref(n), array) else n.value

    def tensor(self, sizes, channels_last, name, dtype):
        order = [0, *range(2, len(sizes)), 1] if channels_last else range(len(sizes))
        strides, step = [0] * len(sizes), 1
        for i in reversed(order):
            strides[i], step = step, step * sizes[i]
        d = self.make(TENSOR)
        self.ints(d, 900, 32)  # alignment in bytes
        self.ints(d, 901, dtype, kind=DATA_TYPE)
        self.ints(d, 902, *sizes)
        self.ints(d, 903, *strides)
        self.ints(d, 906, ord(name))
        if not self.finalize(d):
            raise RuntimeError("cuDNN rejects a tensor; please report it")
        return d

    def notes(self, config):
        """Returns the numerical notes of the engine of a heuristics result."""
        engine, notes = self.make(ENGINE), (ctypes.c_int * 64)()
        self.get(config, 300, DESCRIPTOR, 1, ctypes.byref(engine))
        n = self.get(engine, 1303, NOTE, 64, notes)
        self.drop(engine)
        return notes[:n]

    def is_product(self, config):
        knobs = (ctypes.c_void_p * MOST_KNOBS)(*(self.make(KNOB).value for _ in range(MOST_KNOBS)))
        n, found, kind = self.get(config, 302, DESCRIPTOR, MOST_KNOBS, knobs), False, ctypes.c_int()
        for k in knobs[:n]:
            self.get(k, 600, KNOB_TYPE, 1, ctypes.byref(kind))
            found |= kind.value == PRODUCT_KNOB
        self.drop(*knobs)
        return found

    def workspace(self, config):
        """Returns the workspace bytes of an engine configuration; None if no plan can be built from it."""
        plan, n = self.make(PLAN), None
        self.points(plan, 401, config)
        self.points(plan, 407, self.device)
        if self.finalize(plan):
            n = ctypes.c_int64(-1)
            self.get(plan, 402, INT64, 1, ctypes.byref(n))
        self.drop(plan)
        return None if n is None else n.value

    def work(self, graph, mode, products):
        """Yields (workspace bytes, numerical notes) of the engine configurations that the heuristics propose for a
        graph and that can be built, in their order.
        """
        h = self.make(ENGINEHEUR)
        try:
            self.points(h, 201, graph)
            self.ints(h, 200, mode, kind=HEUR_MODE)
            self.points(h, 204, self.device)
            n = self.get(h, 202, DESCRIPTOR, 0, None) if self.finalize(h) else 0
            # ^The first configuration nearly always works. Requesting all of them takes ten times as long.
            for seen, most in ((0, min(1, n)), (1, n)):
                yield from self.build(h, seen, most, products)
        finally:
            self.drop(h)

    def build(self, heuristics, seen, most, products):
        """Takes the configurations with the indices seen to most - 1 of the heuristics' ranking, and returns (bytes,
        notes) of each for which cuDNN can build a plan.

        Engines that convert their inputs to a smaller type are left out, as in PyTorch.
        """
        configs = (ctypes.c_void_p * most)(*(self.make(ENGINECFG).value for _ in range(most)))
        n = self.get(heuristics, 202, DESCRIPTOR, most, configs) if most else 0
        work = []
        for c in map(ctypes.c_void_p, configs[seen : min(n, most)]):
            notes = self.notes(c)
            bytes_ = None if DOWN_CONVERT_INPUTS in notes or not products and self.is_product(c) else self.workspace(c)
            if bytes_ is not None:
                work.append((bytes_, notes))
        self.drop(*configs)
        return work

    def choose(self, graph, products):
        """Returns (bytes, notes) of the engine that PyTorch uses without cudnn.benchmark; NONE if no engine works."""
        return next(itertools.chain.from_iterable(self.work(graph, mode, products) for mode in (INSTANT, FALLBACK)), NONE)

    def try_all(self, graph, products):
        """Returns (bytes, notes) of all engines that PyTorch tries with cudnn.benchmark: a list for mode instant and
        one for fallback.
        """
        return [list(self.work(graph, mode, products)) for mode in (INSTANT, FALLBACK)]

    def ask(self, question, products, then, none):
        """Builds the cuDNN graph of a convolution and returns then(graph, products), or the argument none if cuDNN
        refuses the graph.
        """
        operation, dtype, last, dims, n, c, k, groups, *rest = question
        x, kernel, y, stride, pad, dilation = (rest[i * dims : (i + 1) * dims] for i in range(6))
        products = products or operation == 2 or max(kernel) > 1
        dtype = DTYPES[dtype]
        tensors = [self.tensor(s, last, name, dtype) for s, name in (([k, c // groups, *kernel], "w"), ([n, c, *x], "x"), ([n, k, *y], "y"))]
        conv = self.make(CONVOLUTION)
        self.ints(conv, 100, 0, kind=DATA_TYPE)  # accumulates in fp32
        self.ints(conv, 101, 1, kind=CONVOLUTION_MODE)  # cross-correlation
        self.ints(conv, 102, *dilation)
        self.ints(conv, 103, *stride)
        self.ints(conv, 104, *pad)
        self.ints(conv, 105, *pad)
        self.ints(conv, 106, dims)
        kind, at = OPERATIONS[operation]
        op, graph = self.make(kind), self.make(GRAPH)
        try:
            if not self.finalize(conv):
                return none
            self.set(op, at, FLOAT, ctypes.byref(ctypes.c_float(1)), 1)
            self.set(op, at + 1, FLOAT, ctypes.byref(ctypes.c_float(0)), 1)
            for i, d in enumerate((conv, *tensors)):
                self.points(op, at + 2 + i, d)
            if not self.finalize(op):
                return none
            self.points(graph, 801, op)
            return then(graph, products) if self.finalize(graph) else none
        finally:
            self.drop(graph, op, conv, *tensors)

    def first_size(self, graph):
        """Returns the workspace bytes that the first proposal reports without being built; -1 if there is no proposal.
        """
        h, config, bytes_ = self.make(ENGINEHEUR), self.make(ENGINECFG), ctypes.c_int64(-1)
        self.points(h, 201, graph)
        self.ints(h, 200, MODE_A, kind=HEUR_MODE)
        self.points(h, 204, self.device)
        if self.finalize(h) and self.get(h, 202, DESCRIPTOR, 1, ctypes.byref(config)) > 0:
            self.get(config, 303, INT64, 1, ctypes.byref(bytes_))
        self.drop(h, config)
        return bytes_.value

    def ask_graph(self, words):
        """Returns the workspace bytes for a graph given as a list of descriptors (see above); -1 if cuDNN refuses it.
        """
        made = []
        try:
            for word in words:
                kind, *attributes = word.split("|")
                made.append(self.make(int(kind)))
                for attribute in attributes:
                    self.set_again(made[-1], made, *attribute.split(":"))
                if not self.finalize(made[-1]):
                    return -1
            return self.first_size(made[-1])
        except RuntimeError:
            return -1
        finally:
            self.drop(*reversed(made))

    def set_again(self, d, made, name, kind, values):
        """Sets an attribute of a descriptor, to numbers or to earlier descriptors given by their indices in made."""
        kind, values = int(kind), [int(v) for v in values.split(",") if v]
        if kind == DESCRIPTOR:
            array = (ctypes.c_void_p * len(values))(*(made[v].value for v in values))
        elif kind in (INT64, DOUBLE, INT64_FRACTION):
            array = (ctypes.c_int64 * len(values))(*values)
        else:
            array = ((ctypes.c_int8 if kind in (BOOLEAN, CHAR) else ctypes.c_int32) * len(values))(*values)
        self.set(d, int(name), kind, array, len(values))

    def answer(self, line, products):
        """Returns the answer to one line of the input."""
        words = line.split()
        if words[0] == "graph":
            return self.ask_graph(words[1:])
        if words[0] == "all":
            return self.ask([int(n) for n in words[1:]], products, self.try_all, [[], []])
        if words[0] == "notes":
            return self.ask([int(n) for n in words[1:]], products, self.choose, NONE)[1]
        return self.ask([int(n) for n in words], products, self.choose, NONE)[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", required=True)
    parser.add_argument("--stubs", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--cudnn", default="")
    parser.add_argument("--driver", default="", help="a libcuda.so.1 to load")
    # On these GPUs cuBLASLt has no kernel for many products, and cuDNN then uses its next proposal.
    parser.add_argument("--no-products-from", default="", help="version of cuDNN from which 1x1 convolutions are no products")
    parser.add_argument("--converse", action="store_true", help="print each answer at once")
    opts = parser.parse_args()
    say = functools.partial(print, flush=True) if opts.converse else lambda *_: None
    try:
        if opts.driver:
            ctypes.CDLL(opts.driver)
        cudnn = CuDNN(find_cudnn(opts.cudnn), opts.stubs)
        with open(opts.gpu) as f:
            cudnn.describe(f.read())
        products = not opts.no_products_from or cudnn.version < tuple(map(int, opts.no_products_from.split(".")))
        say(cudnn.name)
        answer = {"cudnn": cudnn.name, "bytes": []}
        for line in sys.stdin:
            answer["bytes"].append(cudnn.answer(line, products))
            say(json.dumps(answer["bytes"][-1]))
    except Refusal as e:
        answer = {"error": str(e), "do": e.do}
    with open(opts.result, "w") as f:
        json.dump(answer, f)
    return 2 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
