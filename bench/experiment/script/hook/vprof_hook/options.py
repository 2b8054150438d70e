"""Sends the options of the script's argument parser to vprof: `vprof card` tries other values of them. A value that the
documentation leaves to its reader is replaced by the option's default.
"""

import functools
import sys

from . import events, placeholders

# Packages of launchers, which parse their own options before they start the script.
LAUNCHERS = ("torch.distributed", "accelerate.commands", "deepspeed.launcher")

# Prefix of a value that the documentation leaves to its reader: vprof card writes <your epochs> as absent-your-epochs.
ABSENT = "absent-"


def watch_argparse(module):
    """Called when argparse has been imported. HfArgumentParser and many other parsers are based on it."""
    parse, get, check = module.ArgumentParser.parse_known_args, module.ArgumentParser._get_value, module.ArgumentParser._check_value

    @functools.wraps(parse)
    def wrapped(self, args=None, namespace=None):
        found = parse(self, args, namespace)
        if (args is None or list(args) == sys.argv[1:]) and not launches(sys._getframe(1)):
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
                raise
        value = get(self, action, action.default) if isinstance(action.default, str) else action.default
        placeholders.replaced("setting", max(action.option_strings, key=len, default=action.dest), "the default %s, as the command leaves the value open" % (value,))
        return value

    module.ArgumentParser.parse_known_args, module.ArgumentParser._get_value = wrapped, converted


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
