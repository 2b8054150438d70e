"""Matches the exported graph with the forward observed in Python: the node of each operator, and where tensors die."""

import array
import collections
import difflib
import itertools
import re

from vprof_model import SCRIPT_DOOR, Refusal


def nodes_of(graph, inside=""):
    """Returns (node, prefix, names of the tensors that it makes) for each node of the graph and of the graphs inside
    it. Nodes of an inner graph follow the node that contains it, and their names have the
    prefix "N/", the index of that node.
    """
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
    """Returns the tensors of a serialized argument or result, a dict with one key that is its type ({"as_tensor":
    ...}). A tensor is a dict with its name; empty for other types.
    """
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
    """Maps the index of each operator that was observed in Python to the index of its node in the exported graph. Both
    lists come from the same code, so the longest common subsequence of their names pairs them.
    """
    quiet = re.compile(r"torch\.ops\.(higher_order|aten\.(sym_|_assert))")
    theirs = [(n, node["target"]) for n, (node, _, _) in enumerate(nodes) if node["target"].startswith("torch.ops.") and not quiet.match(node["target"])]
    ours = [(k, name) for k, (name, _) in enumerate(ops) if not quiet.match(name)]
    return {ours[i][0]: theirs[j][0] for i, j in common([name for _, name in ours], [name for _, name in theirs])}


def common(a, b):
    """Returns pairs (i, j) of a longest common subsequence of a and b. Among equal elements the last ones match: x[:,
    :2] is one slice in Python and two in a graph with a dynamic batch, and the next node takes the second.
    """
    last = len(a) - 1, len(b) - 1
    pairs = common_first(a[::-1], b[::-1])
    if pairs is None:
        blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
        return [(i + k, j + k) for i, j, size in blocks for k in range(size)]
    return [(last[0] - i, last[1] - j) for i, j in pairs][::-1]


MOST_DIFFERENCES = 3000  # Myers' algorithm takes about 5 seconds and 36 MB for these


def common_first(a, b):
    """Returns pairs (i, j) of a longest common subsequence by Myers' greedy algorithm (1986), or None if more than
    MOST_DIFFERENCES elements differ. For each number d of unmatched elements, it stores the furthest i on each diagonal
    i - j; time and memory grow with the square of d.
    """
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
    """Returns (i at which the path with d unmatched elements enters diagonal k, whether the last unmatched element is
    one of b).
    """
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
    """Returns the lists "dies" and "replaced" of the file, and the number of operators that are not in the graph.

    dies has [node, tensors freed before the next node]; replaced the same for tensors that the next forward frees, with
    whether they were detached. then is (observation, node indices, nodes) of that forward.
    """
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
    """Returns, for each operator, the index of the last node up to it; -1 before the first."""
    return list(itertools.accumulate((number.get(k, -1) for k in range(len(seen.ops))), max))


def memory_of(values, seen, number, nodes):
    """Returns (names of a tensor in the graph, whether it was detached). For a view that the graph lacks, since no node
    uses it, the names are its base's. A detached view keeps the memory without the autograd history.
    """
    for op, _ in values:
        if op not in number and op in seen.views:
            name, arguments = seen.ops[op]
            names, detached = memory_of(next(iter(arguments.values()))[0], seen, number, nodes)
            return names, detached or name.startswith("torch.ops.aten.detach")
    return names_of(values, number, nodes), False


def carried(seen, number, nodes, half, then):
    """Returns the list "state" of the file: [input of the next forward's graph, tensor that this forward stores there,
    whether it is half precision under autocast]. It has buffers and attributes that each forward replaces (self.memory
    = new), or that only this one creates.
    """
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
    """Returns (operator, argument, position) where the graph uses an argument of operator k. If k did nothing
    (x.float()) and has no node, this is the first use of its result.
    """
    if k in number:
        return k, argument, i
    for later in range(k + 1, len(seen.ops)):
        for name, given in seen.ops[later][1].items():
            for j, values in enumerate(given):
                if (k, 0) in values:
                    return taken_at(later, name, j, seen, number)
    return k, argument, i


def outside(name, prefix, nodes):
    """Returns the outermost graph's name of an inner graph's input; None if the outermost graph has none."""
    while prefix and name:
        node, prefix, _ = nodes[int(prefix[:-1])]
        arguments = [i["arg"] for i in node["inputs"]]
        at = next(k for k, a in enumerate(arguments) if "as_graph" in a)
        takes = zip(arguments[at]["as_graph"]["graph"]["inputs"], arguments[at + 1 :])
        name = next((n for i, a in takes for n in names_in(a) if name in names_in(i)), None)
    return name


def names_of(values, number, nodes):
    """Returns the names of an observed tensor in the graph."""
    return [nodes[number[op]][2][i] for op, i in values if op in number and i < len(nodes[number[op]][2])]


def rewire(seen, number, nodes, program):
    """Makes nodes use the tensors that Python used.

    If an operator returned its argument (x.float() of a float32 tensor), export merges the two and uses the later name
    for both. At another precision they are two tensors. If sizes differ, Python took another path than export (repeated
    heads of grouped-query attention with a mask), and the name stays.
    """

    sizes = {name: value["sizes"] for name, value in program["graph_module"]["graph"]["tensor_values"].items()}

    def rename(tensors, observed):
        for tensor, values in zip(tensors, observed):
            names = names_of(values, number, nodes)
            if names and tensor["name"] not in names and sizes.get(names[-1]) == sizes.get(tensor["name"]):
                tensor["name"] = names[-1]

    for k, (_, arguments) in enumerate(seen.ops):
        if k in number and not nodes[number[k]][1]:  # inner graphs have their own names for tensors of the outer one
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
    """Returns the calls of custom Functions whose parts all have nodes, with the indices of these nodes."""
    found = []
    for call in seen.functions.known:
        parts = [number.get(k) for k in (call["begin"], call["backward"], call["end"] - 1)]
        if None in parts or any(nodes[n][1] != nodes[parts[0]][1] for n in parts):
            continue
        found.append({**call, "begin": parts[0], "backward": parts[1], "end": parts[2] + 1})
    return found


def last_uses(number, nodes, program):
    """Returns tensors by the node of their last use, for tensors made by nodes without an observed operator."""
    unseen = set(range(len(nodes))) - set(number.values())
    last = {}
    for n, (node, prefix, names) in enumerate(nodes):
        if n in unseen and not any("as_graph" in i["arg"] for i in node["inputs"]):  # an inner graph names its results itself
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
    """Returns [node, argument, index, a, b] for each integer a + b * batch that differs between programs exported at
    several batches. All batches must be on the line.
    """
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
    """Returns [input, dimension, a, b] for each input size a + b * batch that differs between the programs."""
    graphs = [p["graph_module"]["graph"] for p in programs]
    found = []
    for name in (n for i in graphs[0]["inputs"] for n in names_in(i)):
        sizes = [g["tensor_values"][name]["sizes"] for g in graphs]
        for k, values in enumerate(zip(*([s.get("as_int") for s in each] for each in sizes))):
            if len(set(values)) > 1:
                found.append([name, k, *line(values, batches)])
    return found


def line(values, batches):
    """Returns a and b of the line a + b * batch through the values. Raises Refusal if there is none."""
    b = (values[1] - values[0]) // (batches[1] - batches[0])
    a = values[0] - b * batches[0]
    if any(v != a + b * n for v, n in zip(values, batches)):
        raise Refusal(f"a size of the graph is {values} at the batches {list(batches)}, which does not grow linearly with the batch")
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
