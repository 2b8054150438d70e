"""Finds the object of a script that holds memory growing with every step: a list, an autograd graph, a hook, a cache.
"""

import collections
import gc
import linecache
import os
import re
import sys
import types

from . import growth, memory

COLLECTIONS = (list, dict, set, collections.deque)

# Limits of the search: references between a named variable and a tensor, objects visited, and autograd nodes visited.
FARTHEST = 10
MOST_OBJECTS = 20_000
MOST_NODES = 50_000


def find(watch):
    """Describes the object that holds the tensors left by the last steps, such as "list losses of main (train.py:12)".
    Returns an empty string if none is found.
    """
    torch, grown = watch.torch, addresses(watch)
    gc.collect()
    tensors = [t for t in gc.get_objects() if is_strided(torch, t)]
    seen = {}
    for t in tensors:
        if address_of(t) in grown:
            seen.setdefault(address_of(t), t)
    size = sum(grown[a] for a in seen)
    if 2 * size < sum(grown.values()):
        with_graph = [t for t in seen.values() if t.grad_fn is not None]
        return by_graph(watch, with_graph, tensors, grown)
    largest = seen[max(seen, key=grown.get)]
    return Path(watch, largest).text() or by_graph(watch, [], tensors, grown)


def by_graph(watch, kept, tensors, grown):
    """Describes the variable whose tensors keep autograd graphs alive: a growing collection, or one tensor to which
    every step adds.
    """
    best, owner = 0, None
    for tensor in kept[-1:] or [t for t in tensors if t.grad_fn is not None][-256:]:
        held = saved(tensor.grad_fn, grown)
        if held > best:
            best, owner = held, tensor
    path = Path(watch, owner) if best else None
    text = path and path.text()
    if not text:
        return by_graph(watch, [], tensors, grown) if kept else ""
    if path.kind:
        return text + ", with the graphs of its tensors: detach them, or keep .item()"
    return text + ", to whose graph every step adds: detach what is added, or use .item()"


def addresses(watch):
    """Returns sizes in bytes, by address, of allocations that earlier steps did not free. If all were freed, returns
    those replaced by larger ones in each step.
    """
    times, trace = watch.growth.times, watch.memory.trace()
    first, last = times[-min(1 + growth.STEADY * watch.growth.row, len(times))], times[-2]
    left = {address: e["size"] for address, e in alive(trace).items() if first < e.get("time_us", 0) <= last}
    return left or watch.growth.rising(trace).growing()


def alive(trace):
    """Returns the entries of a trace whose allocations were not freed, by address."""
    live = {}
    for e in trace:
        if e["action"] == "alloc":
            live[e["addr"]] = e
        elif e["action"] == "free_completed":
            live.pop(e["addr"], None)
    return live


def is_strided(torch, thing):
    return issubclass(type(thing), torch.Tensor) and thing.is_cuda and thing.layout is torch.strided


def address_of(tensor):
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # the tensor has no storage
        return 0


def held_by(error, trace, since=0):
    """Returns the bytes of the tensors, and of their graphs, in the variables of the functions that an exception left,
    as far as they were allocated since a time in microseconds. Also returns the place of the innermost of these
    functions in the user's source.
    """
    live = {address: e["size"] for address, e in alive(trace).items() if e.get("time_us", 0) > since}
    found, place, step = set(), "", error.__traceback__.tb_next  # the first one handles it
    while step is not None:
        code = step.tb_frame.f_code
        for value in memory.variables(step.tb_frame).values():
            for tensor in value if type(value) in (list, tuple) else (value,):
                if hasattr(tensor, "grad_fn") and tensor.is_cuda and not (tensor.is_leaf and tensor.requires_grad):
                    found |= {address_of(tensor)} | (saved_by(tensor.grad_fn) if tensor.grad_fn is not None else set())
        if memory.of_user(code.co_filename, ()):
            place = "%s:%d" % (code.co_filename, step.tb_lineno)
        step = step.tb_next
    return sum(live.get(address, 0) for address in found), place


def saved(node, grown):
    """Returns how many bytes of the growing memory an autograd graph holds in its saved tensors."""
    return sum(grown.get(address, 0) for address in saved_by(node))


def saved_by(node):
    """Returns the addresses of the tensors that an autograd graph has saved."""
    nodes, todo, found = set(), [node], set()
    while todo and len(nodes) < MOST_NODES:
        node = todo.pop()
        if node in nodes:
            continue
        nodes.add(node)
        todo += [n for n, _ in node.next_functions if n is not None]
        for name in dir(node):
            if name.startswith("_saved_") or name == "saved_tensors":
                try:
                    values = getattr(node, name)
                except RuntimeError:  # backward has freed the saved tensors
                    continue
                found.update(address_of(v) for v in (values if isinstance(values, tuple) else [values]) if hasattr(v, "untyped_storage"))
    return found


class Path:
    """The references that lead from a variable of the script to a tensor: attributes and elements of collections."""

    def __init__(self, watch, tensor):
        self.torch, self.libraries, self.growth = watch.torch, watch.memory.libraries, watch.growth
        self.fresh = watch.closing.loops[0][1] if watch.closing.loops else ()  # variables that each step assigns anew
        self.steps = []  # (holder, held) pairs, from the variable to the tensor
        self.name = self.kind = ""
        names, came, level = self.names(), {id(tensor): None}, [tensor]
        own = {id(came), id(names), id(self.steps)}
        for _ in range(FARTHEST):
            ids = {id(thing) for thing in level}
            own |= {id(level)}
            found = []
            for holder in gc.get_referrers(*level):
                if id(holder) in came or id(holder) in own or isinstance(holder, types.FrameType) or self.is_ours(holder):
                    continue
                for held in gc.get_referents(holder):
                    if id(held) in ids:
                        came[id(holder)] = (holder, held)
                        found.append(holder)
                        break
            for thing in [*level, *found]:
                if id(thing) in names:
                    return self.found(names[id(thing)], thing, came)
            if not found or len(came) > MOST_OBJECTS:
                return
            level = found

    def is_ours(self, holder):
        return isinstance(holder, dict) and str(holder.get("__name__", "")).startswith("vprof_hook")

    def found(self, name, thing, came):
        """Stores the references from a named object to the tensor. came maps an object's id to its (holder, held) pair.
        """
        self.name = name
        while came[id(thing)] is not None:
            self.steps.append(came[id(thing)])
            thing = self.steps[-1][1]

    def names(self):
        """Returns (name, function, file) by object id, for the script's global and local variables and the variables of
        libraries that call it. Variables that each step assigns anew are left out.
        """
        names, frame = {}, sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith(os.path.dirname(__file__)):
                function = "" if code.co_name == "<module>" else code.co_name
                for name, value in memory.variables(frame).items():
                    if (name, function) in self.fresh:
                        continue
                    if self.is_user(code.co_filename) or id(value) not in names:
                        names[id(value)] = (name, function, code.co_filename)
            frame = frame.f_back
        for module, file in memory.loaded():
            if self.is_user(file):
                named = [(name, value) for name, value in module.items() if not name.startswith("__") and (name, "") not in self.fresh]
                names.update((id(value), (name, "", file)) for name, value in named)
        for singleton in (None, True, False, self.torch):
            names.pop(id(singleton), None)
        return names

    def is_user(self, file):
        return memory.of_user(file, self.libraries)

    def text(self):
        """Describes the growing object: its kind and name, the line that adds to it, and the hook that runs this line.
        Empty if no variable leads to the tensor.
        """
        if not self.name:
            return ""
        name, function, file = self.name
        owner, parts, kind, end = None, [name], "", None
        for number, (holder, held) in enumerate(self.steps):
            namespace = parts[-1] == "_modules" or self.is_namespace(holder)
            if isinstance(holder, COLLECTIONS) and len(holder) >= 3 and not namespace:
                kind, end = kind if kind == "functools.lru_cache" else type(holder).__name__, len(parts)
            elif type(holder).__name__ == "_lru_cache_wrapper":
                kind, end = "functools.lru_cache", len(parts)
            above = self.steps[max(number - 1, 0)][0]
            if isinstance(held, types.CellType) and isinstance(above, types.FunctionType):
                names = zip(above.__code__.co_freevars, above.__closure__)
                attribute = next((name for name, cell in names if cell is held), "")
            else:
                attribute = key_of(holder, held) if namespace else attribute_of(holder, held)
            if attribute and end is None:  # objects inside elements of the collection get no name
                owner = above if namespace else holder
                parts.append(attribute)
                file = self.file_of(owner) or file
        whole = ".".join(parts)
        if owner is not None and (len(parts) > 3 or not self.is_user(self.name[2])):
            whole = type(owner).__name__ + "." + parts[-1]
        self.kind, self.growth.holder = kind, (name, function)
        limits = [h.maxlen * len(self.growth.ends) // len(h) for h, _ in self.steps if isinstance(h, collections.deque) and h.maxlen and h]
        self.growth.bound = min(limits, default=0)
        text = f"the {kind} {whole}" if kind else whole
        text += " of " + function if function and whole == name else ""
        where = line_that_fills(file, parts[-1], kind)
        text += f" ({file}:{where})" if where else f" ({os.path.basename(file)})"
        hook = self.hook()
        return text + (f", which the hook {hook} fills" if hook else "")

    def is_namespace(self, holder):
        """Reports whether a dict holds a module's globals or an object's attributes."""
        if not isinstance(holder, dict):
            return False
        return "__name__" in holder or any(getattr(o, "__dict__", None) is holder for o in gc.get_referrers(holder))

    def file_of(self, owner):
        """Returns the user's file that defines the class of an object; empty for a library's class."""
        module = sys.modules.get(type(owner).__module__)
        file = getattr(module, "__file__", None)
        return file if isinstance(file, str) and self.is_user(file) else ""

    def hook(self):
        """Returns the name of a module hook that refers to an object on the path; empty if none does."""
        on_way = {id(holder) for holder, _ in self.steps}
        for module in gc.get_objects():
            if not issubclass(type(module), self.torch.nn.Module):
                continue
            for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
                for hook in (vars(module).get(kind) or {}).values():
                    if id(module) not in on_way and on_way & reach(hook):
                        return getattr(hook, "__qualname__", type(hook).__name__)
        return ""


def attribute_of(holder, held):
    """Returns the name of the attribute of holder whose value is held; empty if there is none."""
    try:
        values = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return next((n for n in getattr(type(holder), "__slots__", ()) if getattr(holder, n, None) is held), "")
    if held is values:  # held is the attribute dict; the next pair names the attribute
        return ""
    return key_of(values, held) if isinstance(values, dict) else ""


def key_of(values, held):
    return next((name for name, value in values.items() if value is held and isinstance(name, str)), "")


def reach(hook):
    """Returns the ids of the objects that a hook refers to: closure cells, default arguments, globals, self."""
    function = getattr(hook, "func", hook)
    known = [getattr(function, "__self__", None), *getattr(hook, "args", ()), *(getattr(function, "__defaults__", None) or ())]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            known.append(cell.cell_contents)
        except ValueError:  # an empty cell
            pass
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    known += [function.__globals__[n] for n in names if n in getattr(function, "__globals__", {})]
    known += [value for k in list(known) for value in getattr(k, "__dict__", {}).values() if isinstance(value, COLLECTIONS)]
    return {id(k) for k in known if not isinstance(k, (types.ModuleType, type, types.FunctionType)) and k is not None}


def line_that_fills(file, name, kind):
    """Returns the number of the line that adds to a variable; zero if none is found."""
    word = r"\b" + re.escape(name) + r"\b"
    item = r"(\[[^]]*\])*"
    patterns = [word + item + r"\.(append|appendleft|extend|add|insert|update|setdefault|push)\b", word + r"\[[^]]*\]\s*=[^=]"] if kind else []
    patterns += [word + item + r"\s*\+=", word + r"\s*=[^=].*" + word]
    if kind == "functools.lru_cache":
        patterns = [r"def\s+" + word]
    lines = linecache.getlines(file)
    for pattern in patterns:
        for number, line in enumerate(lines, 1):
            if re.search(pattern, line):
                return number
    return 0
