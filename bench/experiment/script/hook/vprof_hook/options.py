"""Reports the options of the script's argument parser. `vprof card` varies a command by them."""

import functools
import sys

from . import events


def watch_argparse(module):
    """Called when argparse was imported. HfArgumentParser and many other parsers are based on it."""
    parse = module.ArgumentParser.parse_known_args

    @functools.wraps(parse)
    def wrapped(self, args=None, namespace=None):
        found = parse(self, args, namespace)
        if args is None or list(args) == sys.argv[1:]:
            send([describe(module, action, found[0]) for action in self._actions if action.option_strings])
        return found

    module.ArgumentParser.parse_known_args = wrapped


def describe(module, action, values):
    flags = [o for o in action.option_strings if o.startswith("--")] or action.option_strings
    switch = getattr(action, "const", None) is True or isinstance(action, getattr(module, "BooleanOptionalAction", ()))
    return {
        "flag": flags[0], "value": plain(getattr(values, action.dest, None)), "switch": switch,
        "choices": [str(c) for c in action.choices or ()][:50], "number": action.type in (int, float),
    }


def watch_click(module):
    """Called when click.core was imported."""
    make = module.Command.make_context

    @functools.wraps(make)
    def wrapped(self, *args, **kwargs):
        context = make(self, *args, **kwargs)
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
