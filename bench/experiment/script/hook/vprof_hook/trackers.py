"""Accounts and experiment trackers without a network: calls succeed and record nothing."""

import builtins
import functools
import importlib.machinery
import io
import os
import re
import sys
import types

from . import memory, placeholders

# Trackers that get a placeholder if the user's own source imports one that is not installed.
TRACKERS = {"wandb", "tensorboardX", "mlflow", "comet_ml", "neptune", "swanlab", "clearml", "aim", "trackio", "dvclive", "torch.utils.tensorboard",
            "tensorboard_logger", "visdom", "dllogger", "livelossplot", "codecarbon", "labml", "polyaxon", "azureml", "pytorch_logger", "logx"}


class Nothing:
    """An object whose attributes, items and calls are objects of the same kind, and which does nothing."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *args, **__):
        return args[0] if len(args) == 1 and isinstance(args[0], types.FunctionType) else Nothing()  # used as a decorator

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __getitem__(self, _):
        return Nothing()

    def __setitem__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __bool__(self):
        return True

    def __str__(self):
        return "placeholder"

    def __fspath__(self):
        return placeholders.folder()

    def __mro_entries__(self, _):
        return (Nothing,)

    def __instancecheck__(self, _):
        return False


class Finder:
    """Finds placeholders of trackers for imports in the user's own source."""

    def find_spec(self, name, path=None, target=None):
        root = "torch.utils.tensorboard" if name == "torch.utils.tensorboard" else name.split(".")[0]
        if root not in TRACKERS or root not in sys.modules and not imported_by_user():
            return None
        if name == root and name == "torch.utils.tensorboard" and importlib.machinery.PathFinder.find_spec("tensorboard"):
            return None
        return importlib.machinery.ModuleSpec(name, Loader(), is_package=True)


class Loader:
    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = Nothing().__getattr__
        module.__version__, module.SummaryWriter = "0.0.0", Nothing
        return module

    def exec_module(self, module):
        placeholders.replaced("tracker", module.__name__.split(".")[0] if not module.__name__.startswith("torch.") else module.__name__, "a tracker that records nothing")


def imported_by_user():
    """Reports whether the user's own source imports the package, and does not handle its absence."""
    from . import packages

    frame = placeholders.importer(sys._getframe(2))
    path = frame and frame.f_code.co_filename
    return frame is not None and memory.of_user(path, memory.LIBRARIES) and frame.f_lineno not in packages.spared(path)


# Names of environment variables with accounts, which some scripts require.
ACCOUNTS = re.compile(r"ENTITY|PROJECT|KEY|TOKEN|SECRET|PASSWORD|WANDB|USER|ACCOUNT")


def naming(get):
    """Wraps os.environ[...]: returns a placeholder if the user's own source reads a missing account."""

    @functools.wraps(get)
    def wrapped(self, key):
        try:
            return get(self, key)
        except KeyError:
            if not isinstance(key, str) or not ACCOUNTS.search(key) or not memory.of_user(sys._getframe(1).f_code.co_filename, memory.LIBRARIES):
                raise
        placeholders.replaced("tracker", key, "a name in place of the variable of the environment")
        return "absent-" + key.lower()

    return wrapped


def answering(ask):
    """Wraps input(): returns an empty line, the default of most questions, if standard input has ended."""
    asked = []

    @functools.wraps(ask)
    def wrapped(prompt="", /):
        try:
            return ask(prompt)
        except EOFError:
            asked.append(prompt)
            if len(asked) > QUESTIONS:
                raise
        placeholders.replaced("tracker", str(prompt).strip()[:80], "an empty line in place of an answer")
        return ""

    return wrapped


def terminals():
    """Makes the size and the user of a terminal known to scripts that ask for them; they run without one."""
    size, popen, login = os.get_terminal_size, os.popen, os.getlogin

    @functools.wraps(login)
    def getlogin():
        try:
            return login()
        except OSError:
            return os.environ.get("USER", "user")

    @functools.wraps(size)
    def get_terminal_size(*args):
        try:
            return size(*args)
        except OSError:
            return os.terminal_size((80, 24))

    os.get_terminal_size, os.getlogin = get_terminal_size, getlogin
    os.popen = functools.wraps(popen)(lambda cmd, *args: io.StringIO("24 80\n") if str(cmd).strip() == "stty size" else popen(cmd, *args))


# At most this many questions are answered: a script that rejects an empty line would ask forever.
QUESTIONS = 20


def start():
    builtins.input = answering(builtins.input)
    terminals()
    type(os.environ).__getitem__ = naming(type(os.environ).__getitem__)
    sys.meta_path.append(Finder())
    finder = Finder()
    sys.meta_path.insert(0, types.SimpleNamespace(find_spec=lambda name, *args: finder.find_spec(name) if name == "torch.utils.tensorboard" else None))


# Uploads.


def watch_hub(module):
    """Called when huggingface_hub.hf_api was imported."""
    answers = {
        "create_repo": lambda repo_id="", *_, **__: Address(repo_id), "whoami": lambda *_, **__: {"name": "user", "type": "user", "orgs": []},
        "repo_exists": lambda *_, **__: False,
    }
    for name in ("upload_file", "upload_folder", "upload_large_folder", "create_commit", "create_branch", "create_tag", "delete_repo", "delete_file",
                 "update_repo_settings", "update_repo_visibility", "preupload_lfs_files", "super_squash_history", "run_as_future"):
        answers[name] = done(name)
    for name, answer in answers.items():
        if hasattr(module.HfApi, name):
            setattr(module.HfApi, name, lambda self, *args, answer=answer, **kwargs: answer(*args, **kwargs))
        if hasattr(module, name):
            setattr(module, name, answer)


def done(name):
    def answer(*_, **kwargs):
        placeholders.replaced("tracker", kwargs.get("repo_id", "the hub"), "%s uploads nothing" % name)
        return Nothing()

    return answer


class Address(str):
    """The URL of a repository that was not created."""

    @property
    def repo_id(self):
        return str(self)

    url = endpoint = repo_id
    repo_type = "model"


def watch_login(module):
    """Called when huggingface_hub._login was imported."""
    module.login = module.notebook_login = module.interpreter_login = lambda *_, **__: None


def watch_wandb(module):
    """Called when wandb was imported: its runs are offline, so login needs no key."""
    module.login = lambda *_, **__: True


def watch_availability(module):
    """Called when a library was imported that tells scripts which trackers are installed."""

    def wrap(available):
        return functools.wraps(available)(lambda: memory.of_user(sys._getframe(1).f_code.co_filename, memory.LIBRARIES) or available())

    if module.__name__ == "transformers.utils" and not hasattr(module, "send_example_telemetry"):  # removed in release 5
        module.send_example_telemetry = lambda *_, **__: None
    for name in ("is_tensorboard_available", "is_wandb_available"):
        if hasattr(module, name):
            setattr(module, name, wrap(getattr(module, name)))


WATCHED = {
    "huggingface_hub.hf_api": watch_hub, "huggingface_hub._login": watch_login, "wandb": watch_wandb,
    "diffusers.utils.import_utils": watch_availability, "accelerate.utils.imports": watch_availability,
    "transformers.utils": watch_availability,
}
