"""Reads from a script's source how many rounds the loops around a training step have, and which functions they call."""

import ast
import functools
import itertools
import linecache
import math
import re

from . import memory

# Expressions of these kinds are evaluated: they have no side effects.
PLAIN = (ast.Expression, ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.operator, ast.Subscript, ast.expr_context)


@functools.lru_cache(maxsize=None)
def parsed(file):
    """Returns the loops, functions and calls in the syntax tree of a source file; empty if it cannot be parsed."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [n for n in ast.walk(tree) if isinstance(n, (ast.For, ast.While, ast.FunctionDef, ast.Call))]


def around(frame):
    """Returns the loops of a frame's function that contain its current line, the innermost last."""
    first, line = frame.f_code.co_firstlineno, frame.f_lineno
    loops = [n for n in parsed(frame.f_code.co_filename) if isinstance(n, (ast.For, ast.While))]
    return sorted((n for n in loops if first <= n.lineno <= line <= n.end_lineno), key=lambda n: n.lineno)


def nest(frame, libraries, batches):
    """Returns the loops of the user's code around a frame, the innermost first, as (rounds, variables).

    rounds is zero if unknown. variables are the (name, function) pairs that each round assigns anew. Of the loops over
    the result of a call, the innermost counts as the loop over the DataLoader: it has batches rounds.
    """
    found, inner = [], set()
    for f in memory.frames_of_user(frame, libraries):
        code = f.f_code
        function = "" if code.co_name == "<module>" else code.co_name
        for loop in reversed(around(f)):
            count = length(loop, f)
            if not count and isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call):
                count, batches = batches, 0
            found.append((count, inner | {(name, function) for name in assigned(loop)}))
        inner = inner | {(name, code.co_name) for name in [*code.co_varnames[code.co_argcount:], *made(f)]}
    return found


def made(frame):
    """Yields the arguments of a frame's function that the call expression creates: lists, dicts and objects of classes.
    """
    caller, code = frame.f_back, frame.f_code
    names = code.co_varnames[code.co_varnames[:1] == ("self",):]
    for call in parsed(caller.f_code.co_filename) if caller else ():
        here = isinstance(call, ast.Call) and call.lineno <= caller.f_lineno <= call.end_lineno
        if here and getattr(call.func, "id", getattr(call.func, "attr", "")) == code.co_name:
            given = [*zip(names, call.args), *((k.arg, k.value) for k in call.keywords)]
            yield from (name for name, node in given if is_new(node, caller))


def is_new(node, frame):
    """Reports whether an expression creates a new object each time it is evaluated."""
    try:
        return isinstance(node, (ast.List, ast.Dict)) or isinstance(value(node.func, frame), type)
    except Exception:  # a call of a function, or a name that is unknown
        return False


def assigned(loop):
    """Yields the variables that every round of a loop assigns from other variables."""
    for node in loop.body:
        if isinstance(node, ast.Assign):
            read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            yield from (t.id for t in node.targets if isinstance(t, ast.Name) and t.id not in read)


def rounds(loops, holder):
    """Returns the product of the rounds of the inner loops, up to the loop that assigns holder (name, function) anew;
    zero if unknown.
    """
    within = list(itertools.takewhile(lambda loop: holder not in loop[1], loops))
    return math.prod(count for count, _ in within) if within else 0


def length(loop, frame):
    """Returns how many rounds a loop has; zero if unknown."""
    try:
        if isinstance(loop, ast.For):
            return count(loop.iter, frame)
        if isinstance(loop.test, ast.Compare) and isinstance(loop.test.ops[0], (ast.Lt, ast.LtE)):
            return int(value(loop.test.comparators[0], frame))
    except Exception:  # raised by the script's own objects
        pass
    return 0


def count(node, frame):
    """Returns the number of values of an iterable expression: a range, an object with a length, or a call around one
    (enumerate).
    """
    if isinstance(node, ast.Call) and node.args:
        if getattr(node.func, "id", "") in ("range", "trange"):
            return len(range(*(value(a, frame) for a in node.args)))
        return count(node.args[0], frame)
    return len(value(node, frame))


def value(node, frame):
    """Returns the value of an expression that contains no call. Raises ValueError for others."""
    if not all(isinstance(n, PLAIN) for n in ast.walk(node)):
        raise ValueError
    return eval(compile(ast.Expression(node), "<loop>", "eval"), frame.f_globals, memory.variables(frame))


def calls(frame, lines):
    """Reports whether the innermost loop around a frame contains one of the lines (file:line), directly or in a
    function that it calls by name.
    """
    todo = [(frame.f_code.co_filename, loop) for loop in around(frame)[-1:]]
    files, seen = {line.rpartition(":")[0] for line in lines}, set()
    while todo:
        file, node = todo.pop()
        if any(f"{file}:{number}" in lines for number in range(node.lineno, node.end_lineno + 1)):
            return True
        text = "".join(linecache.getlines(file)[node.lineno:node.end_lineno])
        for other in files:
            for n in parsed(other):
                if isinstance(n, ast.FunctionDef) and n not in seen and re.search(r"\b%s\(" % n.name, text):
                    seen.add(n)
                    todo.append((other, n))
    return False
