"""Sends the options of the script's argument parser to vprof: `vprof card` tries other values of them. A value that the
documentation leaves to its reader is replaced by the option's default. An option that the parser requires and the
command lacks gets a value of its type.
"""

import functools
import re
import sys
import types

from . import events, placeholders

# Packages of launchers, which parse their own options before they start the script.
LAUNCHERS = ("torch.distributed", "accelerate.commands", "deepspeed.launcher")

# Prefix of a value that the documentation leaves to its reader: vprof card writes <your epochs> as absent-your-epochs.
ABSENT = "absent-"

# Values of the options of the last parser, by name.
values = {}


def watch_argparse(module):
    """Called when argparse has been imported. HfArgumentParser and many other parsers are based on it."""
    parse, get, check = module.ArgumentParser.parse_known_args, module.ArgumentParser._get_value, module.ArgumentParser._check_value

    @functools.wraps(parse)
    def wrapped(self, args=None, namespace=None):
        if args is not None and list(args) != sys.argv[1:] or launches(sys._getframe(1)):
            return parse(self, args, namespace)
        if "--local_rank" in self._option_string_actions:  # as torch.distributed.launch wrote it before PyTorch 2.0
            args = [a.replace("--local-rank", "--local_rank") for a in sys.argv[1:]]
        given = {word.split("=")[0] for word in args or sys.argv[1:]}
        required = [a for a in self._actions if a.required and a.default is None and a.nargs not in ("*", "...") and not isinstance(a, module._SubParsersAction) and not given & set(a.option_strings)]
        for action in required:
            action.required, action.default = False, value_of(action)
        try:
            found = parse(self, args, namespace)
        finally:
            defaults = {a.dest: a.default for a in required}
            for action in required:
                action.required, action.default = True, None
        for name, default in defaults.items():
            if getattr(found[0], name, None) is default:
                note(name, default)
        if "documented" in placeholders.ASKED and sys._getframe(1).f_code.co_name == "parse_args":  # which allows no others
            found = found[0], leave_out(found[1])
        values.update(vars(found[0]))
        send([describe(module, action, found[0]) for action in self._actions if action.option_strings])
        return found

    @functools.wraps(get)
    def converted(self, action, text):
        if not str(text).startswith(ABSENT):
            return get(self, action, text)
        try:
            found = get(self, action, text)
            check(self, action, found)
            return found
        except module.ArgumentError:
            if action.default == module.SUPPRESS or not isinstance(action.default, (str, int, float)):
                note(action.dest, value_of(action))
                return value_of(action)
        value = get(self, action, action.default) if isinstance(action.default, str) else action.default
        placeholders.replaced("setting", max(action.option_strings, key=len, default=action.dest), "the default %s, as the command leaves the value open" % (value,))
        return value

    module.ArgumentParser.parse_known_args, module.ArgumentParser._get_value = wrapped, converted


def value_of(action):
    """Returns a value for an option that the command lacks: its first choice, or one of its type."""
    value = next(iter(action.choices or ()), None)
    if value is None:
        number = {int: 0 if re.search("id|rank|seed|gpu", action.dest) else 1, float: 1e-4 if re.search("lr|rate", action.dest) else 1.0}
        value = number.get(action.type, ABSENT + action.dest)
        if callable(action.type) and action.type not in number:
            value = action.type(value)
    return [value] * action.nargs if isinstance(action.nargs, int) else [value] if action.nargs == "+" else value


def note(name, value):
    placeholders.replaced("setting", name, "%s, as the command does not state it" % (value,))


def leave_out(words):
    """Reports the words of a documented command which its parser does not know, and returns none."""
    for word in words:
        if word.startswith("-") or word is words[0]:
            placeholders.replaced("setting", word.split("=")[0], "left out, as the script does not take this option")
    return []


def launches(frame):
    """Reports whether the parser belongs to a launcher (torchrun, accelerate, deepspeed) instead of the script."""
    while frame.f_globals.get("__name__") == "argparse" or frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return str(frame.f_globals.get("__package__")).startswith(LAUNCHERS)


def describe(module, action, values):
    flags = [o for o in action.option_strings if o.startswith("--")] or action.option_strings
    switch = getattr(action, "const", None) is True or isinstance(action, getattr(module, "BooleanOptionalAction", ()))
    return {
        "flag": flags[0], "value": plain(getattr(values, action.dest, None)), "switch": switch,
        "choices": [str(c) for c in action.choices or ()][:50], "number": action.type in (int, float),
    }


def watch_click(module):
    """Called when click.core has been imported."""
    make = module.Command.make_context

    @functools.wraps(make)
    def wrapped(self, *args, **kwargs):
        filled = [p for p in self.params if p.required and p.default in (None, getattr(module, "UNSET", None))]
        for p in filled:
            kind = {"integer": int, "float": float}.get(p.type.name)
            p.required, p.default = False, value_of(types.SimpleNamespace(dest=p.name, choices=getattr(p.type, "choices", ()), type=kind, nargs=None))
        context = make(self, *args, **kwargs)
        for p in filled:
            if context.params.get(p.name) == p.default:
                note(p.name, p.default)
        options = [p for p in self.params if isinstance(p, module.Option)]
        send([{
            "flag": max(p.opts, key=len), "value": plain(context.params.get(p.name)), "switch": p.is_flag,
            "choices": [str(c) for c in getattr(p.type, "choices", ())][:50], "number": p.type.name in ("integer", "float"),
        } for p in options])
        return context

    module.Command.make_context = wrapped


def plain(value):
    return "" if value is None else str(value)[:200]


def send(options):
    if options:
        events.send("options", options=options[:2000])


WATCHED = {"argparse": watch_argparse, "click.core": watch_click}
