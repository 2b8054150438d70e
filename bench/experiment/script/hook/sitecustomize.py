"""Runs at the start of every Python process that inherits the environment of `vprof run`.

Its folder is the first of PYTHONPATH. It makes vprof_hook watch for the import of PyTorch, and then runs the
sitecustomize module that it hides.
"""

import os
import sys


def run_hidden_sitecustomize(here):
    """Runs the sitecustomize module that Python would have found without this one, if there is one."""
    from importlib.machinery import PathFinder

    others = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("VPROF_HOOK"):
    import vprof_hook

    vprof_hook.watch()
run_hidden_sitecustomize(os.path.dirname(os.path.realpath(__file__)))
