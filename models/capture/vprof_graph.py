"""The exported graph beside what plain Python did: which node is which operator, and where tensors die."""

import array
import collections
import difflib
import itertools
import re

from vprof_model import SCRIPT_DOOR, Refusal


def nodes_of(graph, inside=""):
    """Nodes of the program and of the graphs in it, each right after the node that holds it:
    (node, names of the tensors that it makes). Names of an inner graph have its number before them."""
    count = itertools.count()

    def walk(graph, prefix):
        for node in graph["nodes"]:
            n = next(count)
            names = [prefix + v for o in node["outputs"] for v in names_in(o)]
            yield node, prefix, names
            for i in node["inputs"]:
                if "as_graph" in i["arg"]:
                    yield from walk(i["arg"]["as_graph"]["graph"], f"{n}/")

    return list(walk(graph, inside))


def tensors_in(value):
    """Returns the tensors in an argument or result of an exported node, which are objects with a name."""
    tag, v = next(iter(value.items()))
    if tag == "as_tensor":
        return [v]
    if tag == "as_optional_tensor":
        return tensors_in(v)
    if tag in ("as_tensors", "as_optional_tensors", "as_nested_tensors"):
        return [found for t in v for found in ([t] if "name" in t else tensors_in(t))]
    return []


def names_in(value):
    return [t["name"] for t in tensors_in(value)]


def align(ops, nodes):
    """Operator of the observation -> number of its node. The same Python has run twice, so
    the names follow each other but for what one side alone shows."""
    quiet = re.compile(r"torch\.ops\.(higher_order|aten\.(sym_|_assert))")
    theirs = [(n, node["target"]) for n, (node, _, _) in enumerate(nodes) if node["target"].startswith("torch.ops.") and not quiet.match(node["target"])]
    ours = [(k, name) for k, (name, _) in enumerate(ops) if not quiet.match(name)]
    return {ours[i][0]: theirs[j][0] for i, j in common([name for _, name in ours], [name for _, name in theirs])}


def common(a, b):
    """Returns the pairs (i, j) of a longest common subsequence of a and b. Of equal elements it has the last ones: x[:,
    :2] is one slice in Python and two in a graph whose batch is open, and what follows takes the second."""
    last = len(a) - 1, len(b) - 1
    pairs = common_first(a[::-1], b[::-1])
    if pairs is None:
        blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
        return [(i + k, j + k) for i, j, size in blocks for k in range(size)]
    return [(last[0] - i, last[1] - j) for i, j in pairs][::-1]


MOST_DIFFERENCES = 3000  # for which Myers' algorithm takes some 5 seconds and 36 MB


def common_first(a, b):
    """Returns the longest common subsequence by Myers' greedy algorithm (1986), whose time and memory go with the
    square of how much differs: for each number d of elements left out, how far in a one comes on each diagonal i - j.
    None if more differs than that pays for."""
    zero = min(len(a) + len(b), MOST_DIFFERENCES) + 1  # index of diagonal 0
    furthest, reached = [0] * (2 * zero + 1), []
    for d in range(zero):
        reached.append(array.array("i", furthest[zero - d - 1 : zero + d + 2]))
        for k in range(-d, d + 1, 2):
            i, _ = entered(furthest, zero, k, d)
            while i < len(a) and i - k < len(b) and a[i] == b[i - k]:
                i += 1
            furthest[zero + k] = i
            if (i, i - k) == (len(a), len(b)):
                return walked_back(reached, i, i - k)
    return None


def entered(furthest, zero, k, d):
    """Returns where in a one comes to diagonal k with the d-th element left out, and whether that is one of b."""
    from_b = k == -d or k != d and furthest[zero + k - 1] < furthest[zero + k + 1]
    return (furthest[zero + k + 1], True) if from_b else (furthest[zero + k - 1] + 1, False)


def walked_back(reached, i, j):
    pairs = []
    for d in range(len(reached) - 1, -1, -1):
        start, from_b = entered(reached[d], d + 1, i - j, d)
        pairs += [(i - n, j - n) for n in range(1, i - start + 1)]
        i, j = (start, start - (i - j) - 1) if from_b else (start - 1, start - (i - j))
    return pairs[::-1]


def lifetimes(seen, number, nodes, program, then):
    """Returns the lists "dies" and "replaced" of the file, [number of a node, values that die before the next one], of
    this forward and of what it leaves to the next one, there with whether they were detached; and how many operators
    are not in the graph. Then is the next forward with the numbers and nodes of its graph."""
    last = last_nodes(seen, number)
    replaced, kept, later = [], set(), last_nodes(*then[:2])
    for k, values in then[0].replaced if then[0] is not seen or seen.keeps else ():
        names, detached = memory_of(values, seen, number, nodes)
        if names:
            replaced.append([later[k] if k >= 0 else -1, names[:1], detached])
            kept.update(() if detached else names[:1])
    dies = collections.defaultdict(list)
    named = set()
    for k, values in seen.deaths:
        names = names_of(values, number, nodes)
        if names and names[0] not in kept:
            dies[last[k] if k >= 0 else -1].append(names[0])
        named.update(names)
    for n, names in last_uses(number, nodes, program).items():
        dies[n] += [v for v in names if v not in named]
    return [[n, dies[n]] for n in sorted(dies) if dies[n]], replaced, sum(k not in number and k not in seen.views for k in range(len(seen.ops)))


def last_nodes(seen, number):
    """Returns the number of the last node by each operator."""
    return list(itertools.accumulate((number.get(k, -1) for k in range(len(seen.ops))), max))


def memory_of(values, seen, number, nodes):
    """Returns what the graph calls values, or, of a view that is not in it since nothing there takes it, the values
    that it looks at; and whether such a view was detached, so that it keeps the memory and no history."""
    for op, _ in values:
        if op not in number and op in seen.views:
            name, arguments = seen.ops[op]
            names, detached = memory_of(next(iter(arguments.values()))[0], seen, number, nodes)
            return names, detached or name.startswith("torch.ops.aten.detach")
    return names_of(values, number, nodes), False


def carried(seen, number, nodes, half, then):
    """Returns the list "state" of the file: [input of the next forward's graph, value that this one has put in its
    place, whether it is half precision under autocast] of buffers and other attributes that each forward replaces
    (self.memory = new), or that this one alone has made."""
    following, numbers, theirs = then
    gone = [values for _, values in following.replaced]
    found = {}
    for *at, values, _ in following.state if following is not seen or seen.keeps else ():
        k, argument, i = taken_at(*at, following, numbers)
        if k in numbers and (following is not seen or any(values is g for g in gone)):
            node, prefix, _ = theirs[numbers[k]]
            given = [names_in(a["arg"]) for a in node["inputs"] if a["name"] == argument]
            names, _ = memory_of(values, seen, number, nodes)
            if names and given and i < len(given[0]) and (name := outside(given[0][i], prefix, theirs)):
                found.setdefault(name, [names[0], tuple(at) in half])
    return [[name, *pair] for name, pair in found.items()]


def taken_at(k, argument, i, seen, number):
    """Returns where the graph takes what operator k took: there, or, where k did nothing (x.float()) and is not in it,
    where k's result is taken."""
    if k in number:
        return k, argument, i
    for later in range(k + 1, len(seen.ops)):
        for name, given in seen.ops[later][1].items():
            for j, values in enumerate(given):
                if (k, 0) in values:
                    return taken_at(later, name, j, seen, number)
    return k, argument, i


def outside(name, prefix, nodes):
    """Returns what the outermost graph calls an input of the graph with a prefix, None if that has no such input."""
    while prefix and name:
        node, prefix, _ = nodes[int(prefix[:-1])]
        arguments = [i["arg"] for i in node["inputs"]]
        at = next(k for k, a in enumerate(arguments) if "as_graph" in a)
        takes = zip(arguments[at]["as_graph"]["graph"]["inputs"], arguments[at + 1 :])
        name = next((n for i, a in takes for n in names_in(a) if name in names_in(i)), None)
    return name


def names_of(values, number, nodes):
    """Returns the graph's names of values."""
    return [nodes[number[op]][2][i] for op, i in values if op in number and i < len(nodes[number[op]][2])]


def rewire(seen, number, nodes, program):
    """Lets the graph name the tensors that Python used. Where an operator had nothing to do and gave its
    argument (x.float() of a float32), export takes the two for one from there on, and the graph says the later
    name for both. With another precision they are two. A tensor of other sizes is none of the two: there Python took
    another way than export did (grouped heads that it repeats beside a mask alone)."""

    sizes = {name: value["sizes"] for name, value in program["graph_module"]["graph"]["tensor_values"].items()}

    def rename(tensors, observed):
        for tensor, values in zip(tensors, observed):
            names = names_of(values, number, nodes)
            if names and tensor["name"] not in names and sizes.get(names[-1]) == sizes.get(tensor["name"]):
                tensor["name"] = names[-1]

    for k, (_, arguments) in enumerate(seen.ops):
        if k in number and not nodes[number[k]][1]:  # in an inner graph, values of the outer ones have other names
            node = nodes[number[k]][0]
            for i in node["inputs"]:
                tensors, observed = tensors_in(i["arg"]), arguments.get(i["name"], [])
                if len(tensors) == len(observed):
                    rename(tensors, observed)
    graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
    results = [spec["user_output"]["arg"] for spec in signature["output_specs"] if "user_output" in spec]
    for side in (results, graph["outputs"][len(graph["outputs"]) - len(results) :]):
        tensors = [t for value in side for t in tensors_in(value)]
        if len(tensors) == len(seen.results):
            rename(tensors, seen.results)


def functions(seen, number, nodes):
    """Returns the calls of custom Functions whose parts are all in the graph, with the numbers of their first nodes."""
    found = []
    for call in seen.functions.known:
        parts = [number.get(k) for k in (call["begin"], call["backward"], call["end"] - 1)]
        if None in parts or any(nodes[n][1] != nodes[parts[0]][1] for n in parts):
            continue
        found.append({**call, "begin": parts[0], "backward": parts[1], "end": parts[2] + 1})
    return found


def last_uses(number, nodes, program):
    """Returns where values of nodes that no operator of the observation has made are used last."""
    unseen = set(range(len(nodes))) - set(number.values())
    last = {}
    for n, (node, prefix, names) in enumerate(nodes):
        if n in unseen and not any("as_graph" in i["arg"] for i in node["inputs"]):  # what a graph gives has its own names there
            last.update((v, n) for v in names)
        for i in node["inputs"]:
            last.update((v, n) for v in (prefix + name for name in names_in(i["arg"])) if v in last)
    for o in program["graph_module"]["graph"]["outputs"]:
        for name in names_in(o):
            last.pop(name, None)
    uses = collections.defaultdict(list)
    for v, n in last.items():
        uses[n].append(v)
    return uses


def affine(programs, batches):
    """Integers in which programs of two batches differ, as a + b * batch; the third checks them."""
    graphs = [nodes_of(p["graph_module"]["graph"]) for p in programs]
    shape = [[(node["target"], len(node["inputs"])) for node, _, _ in g] for g in graphs]
    if any(s != shape[0] for s in shape):
        different = f"forward calls other operators at batch {batches[1]} than at {batches[0]}, as a loop over samples does"
        raise Refusal(different, f"capture it at the one batch that you train with (--input 'x=float32[8,...]'), or {SCRIPT_DOOR}")

    args = []
    for n, rows in enumerate(zip(*graphs)):
        for each in zip(*(node["inputs"] for node, _, _ in rows)):
            for index, values in enumerate(zip(*(integers(i["arg"]) for i in each))):
                if len(set(values)) > 1:
                    args.append([n, each[0]["name"], index, *line(values, batches)])
    return args


def affine_inputs(programs, batches):
    """Sizes of inputs that differ between the programs: [input, dimension, a, b] of a + b * batch."""
    graphs = [p["graph_module"]["graph"] for p in programs]
    found = []
    for name in (n for i in graphs[0]["inputs"] for n in names_in(i)):
        sizes = [g["tensor_values"][name]["sizes"] for g in graphs]
        for k, values in enumerate(zip(*([s.get("as_int") for s in each] for each in sizes))):
            if len(set(values)) > 1:
                found.append([name, k, *line(values, batches)])
    return found


def line(values, batches):
    """a and b of a + b * batch."""
    b = (values[1] - values[0]) // (batches[1] - batches[0])
    a = values[0] - b * batches[0]
    if any(v != a + b * n for v, n in zip(values, batches)):
        raise Refusal(f"a size of the graph is {values} at the batches {list(batches)}, which no line goes through")
    return a, b


def integers(arg):
    tag, v = next(iter(arg.items()))
    if tag == "as_int":
        return [v]
    if tag == "as_ints":
        return v
    if tag == "as_sym_int":
        return [v["as_int"]] if "as_int" in v else []
    return [s["as_int"] for s in v if "as_int" in s] if tag == "as_sym_ints" else []
