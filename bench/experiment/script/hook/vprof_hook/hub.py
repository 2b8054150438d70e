"""The Hugging Face hub without a network: downloads of its client are replaced by entries of tables or by placeholders.

With --fetch, configurations, tokenizers and headers of weights are downloaded from HF_ENDPOINT and cached; other files
never are. HF_TOKEN is sent only to the host of HF_ENDPOINT, not to hosts that it redirects to.
"""

import contextlib
import functools
import importlib.util
import json
import os
import re
import struct
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

from . import events, families, files, memory, pipelines, placeholders

# Size limit in bytes of a configuration, a tokenizer or a header of weights.
MOST = 64 << 20

# Extensions of the files that --fetch may download, besides headers of weights.
SMALL = (".json", ".txt", ".model", ".jinja", ".yaml", ".vocab")

# Files of tokenizers, of which a repository has some.
TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tekken.json"}

# Files that a library requires to load a model. It also requests optional ones, which few repositories have.
REQUIRED = {"config.json", "model_index.json", "preprocessor_config.json", "scheduler_config.json", "tokenizer.json", "tokenizer_config.json"}

own = threading.local()  # own.fetching is true while this thread downloads for vprof


def start():
    """Called when Python starts: keeps the script's processes off the network."""
    sys.addaudithook(refuse)


# Commands that download. Python's audit events report each command before it starts.
DOWNLOADS = re.compile(r"(^|[\s/;&|])(curl|wget|aria2c|gdown|gsutil|(pip3?|conda|apt(-get)?|uv pip) (install|download)|git (clone|fetch|pull))\b")


# Audit events of network calls, each with the index of the argument that is a host name or an address (host, port).
NETWORK = {
    "socket.connect": -1, "socket.sendto": -1, "socket.sendmsg": -1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.gethostbyaddr": 0, "socket.getnameinfo": 0,
}


def refuse(event, args):
    """An audit hook of Python: refuses connections to other machines and commands that download."""
    if NETWORK is None:  # the interpreter has cleared the variables of modules at its end
        return
    if event in ("subprocess.Popen", "os.system"):
        words = args[1 if event == "subprocess.Popen" else 0]
        command = " ".join(map(os.fsdecode, words)) if isinstance(words, (list, tuple)) else os.fsdecode(words)
        if DOWNLOADS.search(command):
            raise FileNotFoundError(2, "vprof run without weights or data runs no command that downloads", command)
    if event not in NETWORK or getattr(own, "fetching", False):
        return
    host = args[NETWORK[event]]
    if isinstance(host, tuple):
        host = host[0]
    # The address is the path of a Unix socket, or None on a connected socket, which connect() has checked.
    elif NETWORK[event]:
        return
    if host is None or is_local(host.decode() if isinstance(host, bytes) else str(host)):
        return
    raise ConnectionRefusedError("vprof run without weights or data uses no network: %s was not asked" % (host,))


def is_local(host):
    return host in ("", "localhost", "::1", "0.0.0.0", "::", os.uname().nodename) or host.startswith("127.")


# Repositories.


@functools.lru_cache(maxsize=None)
def repository(name):
    return Repository(str(name))


class Repository:
    """A repository of the hub, or a path to a missing model folder: finds or makes its files without downloading them.
    """

    def __init__(self, name):
        self.name = name.rstrip("/")
        self.folder = os.path.join(placeholders.folder(), "hub", re.sub(r"[^\w.-]+", "--", self.name).strip("-.") or "unnamed")
        self.origin = ""  # where the configuration comes from, for the report

    def file(self, name):
        """Returns the path of a file: in the hub's cache, fetched, or a placeholder. Returns None if its contents are
        unknown.
        """
        there = cached(self.name, name)
        if there:
            return there
        path = placeholders.inside(self.folder, name)
        if os.path.exists(path):
            return path
        if name.endswith(SMALL):
            text = self.fetched(name) or self.known(name)
            if text is None:
                return None
        elif name.endswith(files.CHECKPOINTS):
            text = b""
        else:
            return None
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text)
        return path

    def known(self, name):
        """Returns the contents of a small file from the tables; None if they lack it."""
        config = pipelines.config(self.name, name)
        if config is None and name == "config.json":
            config = self.config()
        if config is not None:
            return json.dumps(config).encode()
        if "data" in placeholders.ASKED and name.startswith("tokenizer"):
            from . import tokenizers

            return tokenizers.file(self, name)
        if "data" in placeholders.ASKED and name == "preprocessor_config.json":
            from . import processors

            return processors.file(self)
        return None

    def config(self):
        """Returns the configuration from vprof's tables, else the defaults of the class whose documentation names this
        repository, else the configuration of a similar model. Returns None if there is none.
        """
        for key, config in tables().items():
            if key == self.name or "/" in key and key.split("/")[1].lower() == os.path.basename(self.name).lower():
                self.origin = " (of %s in vprof's table)" % key
                return config
        config = families.config(self.name)
        self.origin = " (of vprof's table)" if config else ""
        return config or self.default() or self.kin()

    def kin(self):
        """Returns the configuration of a model in the tables whose name has the same family and size; None if there is
        none.
        """
        own, best = words(self.name), None
        for key, config in tables().items():
            of = words(key)
            if of[0] not in own or any(word in kinds() for word in own[:own.index(of[0])]):  # clip-vit-large is no vit
                continue
            if sized(of) and sized(of) == sized(own) and (best is None or len(set(of) - set(own)) < best[0]):
                best = len(set(of) - set(own)), key, config
        if best is None:
            return None
        self.origin = " (of %s in vprof's table, whose family and size its name has)" % best[1]
        return best[2]

    def default(self):
        """Returns the defaults of the configuration class whose documentation names this repository; None if no class
        does.
        """
        found = defaults().get(self.name) or defaults().get(os.path.basename(self.name))
        if found is None:
            return None
        name, module, kind = found
        config = getattr(importlib.import_module(module), kind)()
        self.origin = " (the defaults of %s, which transformers describes as similar to %s)" % (kind, name)
        return config.to_dict()

    # Downloads.

    def fetched(self, name):
        """Returns the contents of a small file that --fetch downloads; None without --fetch, or if the hub has no such
        file.
        """
        kept = os.environ.get("VPROF_FETCH")
        if not kept or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", self.name):
            return None
        path = placeholders.inside(os.path.join(kept, self.name.replace("/", "--")), name)
        return keep(path, lambda: download(self.address(name)))

    def address(self, name):
        return "%s/%s/resolve/main/%s" % (endpoint(), self.name, urllib.parse.quote(name))

    def header(self, name):
        """Returns the header (JSON text) of a safetensors file on the hub; None if there is no such file."""
        kept = os.environ.get("VPROF_FETCH")
        path = placeholders.inside(os.path.join(kept, self.name.replace("/", "--")), name + ".header.json")

        def get():
            first = download(self.address(name), (0, 7))
            if first is None:
                return None
            size = struct.unpack("<Q", first)[0]
            if size > MOST:
                raise ValueError("the header of %s of %s has %d bytes; at most %d are read" % (name, self.name, size, MOST))
            return download(self.address(name), (8, 7 + size))

        return keep(path, get)

    def fetch_weights(self, inner):
        """Returns a folder with placeholders made from the headers of a model's weights. Returns None without --fetch,
        or if the hub has no safetensors files of this model.
        """
        if not os.environ.get("VPROF_FETCH"):
            return None
        for base in ("model", "diffusion_pytorch_model"):
            single = os.path.join(inner, base + ".safetensors")
            index = self.fetched(single + ".index.json")
            names = sorted(set(json.loads(index)["weight_map"].values())) if index else [base + ".safetensors"]
            headers = {name: self.header(os.path.join(inner, name)) for name in names}
            if all(headers.values()):
                break
        else:
            return None
        folder = placeholders.inside(self.folder, os.path.join("weights", inner))
        os.makedirs(folder, exist_ok=True)
        for name, text in headers.items():
            placeholders.write_header(placeholders.inside(folder, name), json.loads(text))
        others = {base + ".safetensors.index.json": index}
        others.update({name: self.fetched(os.path.join(inner, name)) for name in ("config.json", "generation_config.json")})
        for name, text in others.items():
            if text:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(text)
        return folder


def words(name):
    """Returns the words of a model's name, without its owner."""
    return os.path.basename(name).lower().replace("_", "-").split("-")


def sized(of):
    """Returns the word that states a model's size, such as 7b or base; empty if no word does."""
    return next((word for word in of if re.fullmatch(r"\d+(\.\d+)?[bm]|tiny|small|base|medium|large|xl|xxl", word)), "")


@functools.lru_cache(maxsize=None)
def tables():
    """Returns the configurations of vprof's tables by model name."""
    with open(events.folder("configs.json"), encoding="utf-8") as file:
        return json.load(file)


@functools.lru_cache(maxsize=None)
def kinds():
    """Returns the kinds of models that the installed transformers has."""
    found = importlib.util.find_spec("transformers")
    return frozenset(os.listdir(os.path.join(os.path.dirname(found.origin), "models"))) if found and found.origin else frozenset()


@functools.lru_cache(maxsize=None)
def defaults():
    """Returns (repository, module, class) of transformers' configuration classes, by the repository that the class's
    documentation names for its defaults.
    """
    transformers = importlib.import_module("transformers")
    root, found = os.path.join(os.path.dirname(transformers.__file__), "models"), {}
    for model in sorted(os.listdir(root)):
        path = os.path.join(root, model, "configuration_%s.py" % model)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        # Several classes name the same repository: CLIPTextConfig, CLIPVisionConfig, CLIPConfig. The last contains the others.
        for name, kind in reversed(re.findall(r"@auto_docstring\(checkpoint=\"([^\"]+)\"[^\n]*\n(?:@[^\n]*\n)*class (\w+)\(", text)):
            entry = (name, "transformers.models.%s.configuration_%s" % (model, model), kind)
            found.setdefault(name, entry)
            found.setdefault(name.split("/")[-1], entry)
    return found


def cached(name, file, revision=None, cache_dir=None):
    """Returns the path of a file in the cache of the hub's client; None if it is not there."""
    hub = sys.modules.get("huggingface_hub") or importlib.import_module("huggingface_hub")
    try:
        found = hub.try_to_load_from_cache(name, file, cache_dir=cache_dir, revision=revision)
    except ValueError:  # not a valid repository name
        return None
    return found if isinstance(found, str) and os.path.exists(found) else None


# Wrappers of the hub's client.


def watch_download(module):
    """Called when huggingface_hub.file_download was imported."""
    real = module.hf_hub_download

    @functools.wraps(real)
    def wrapped(repo_id, filename, *args, **kwargs):
        try:
            return real(repo_id, filename, *args, **{**kwargs, "local_files_only": True})
        except (OSError, ValueError):
            whole = os.path.join(kwargs.get("subfolder") or "", filename)
            found = repository(repo_id).file(whole) if kwargs.get("repo_type") in (None, "model") else None
            if found is None:
                if os.path.basename(whole) in REQUIRED or memory.of_user(sys._getframe(1).f_code.co_filename, memory.LIBRARIES):
                    placeholders.wanted("%s of %s" % (whole, repo_id), "put it into the cache of the hub, or give --fetch if it is a configuration")
                raise
            return found

    module.hf_hub_download = wrapped


def watch_cached_files(module):
    """Called when transformers.utils.hub was imported. Before 4.51 it has cached_file only, which loads one file."""
    one = module.cached_file
    real = getattr(module, "cached_files", None) or (lambda name, filenames, **kwargs: [one(name, filenames[0], **kwargs)])

    @functools.wraps(real)
    def wrapped(path_or_repo_id, filenames, **kwargs):
        try:
            found = real(path_or_repo_id, filenames, **kwargs)
            if found or os.path.isdir(str(path_or_repo_id)):
                return found
        except (OSError, ValueError):
            found = None
            if os.path.isdir(str(path_or_repo_id)):
                raise
            if not any(answer(path_or_repo_id, filenames, kwargs)):
                if "config.json" in filenames:
                    placeholders.wanted("the configuration of %s" % path_or_repo_id, "put its config.json into a folder and name that, or give --fetch")
                raise
        paths = [path for path in answer(path_or_repo_id, filenames, kwargs) if path]
        if not paths and "data" not in placeholders.ASKED and TOKENIZER.intersection(filenames) and not any(cached(path_or_repo_id, f) for f in TOKENIZER):
            # transformers would make a tokenizer without a vocabulary, whose rows have one token or none
            placeholders.wanted("the tokenizer of %s" % path_or_repo_id, "give --without-data, which makes a token of each word, or put it into the cache of the hub")
            raise OSError("the tokenizer of %s is absent" % path_or_repo_id)
        return paths or found

    def answer(name, filenames, kwargs):
        return [repository(name).file(os.path.join(kwargs.get("subfolder") or "", f)) for f in filenames if f.endswith(SMALL)]

    if hasattr(module, "cached_files"):
        module.cached_files = wrapped
    else:
        module.cached_file = lambda name, filename, **kwargs: (wrapped(name, [filename], **kwargs) or [None])[0]


def watch_names(module):
    """Called when huggingface_hub.utils._validators was imported: a name with a slash at its end may be a folder that is
    absent, and is looked for as a repository.
    """
    real = module.validate_repo_id

    @functools.wraps(real)
    def validate(repo_id):
        return real(repo_id.rstrip("/") if isinstance(repo_id, str) else repo_id)

    module.validate_repo_id = validate


def watch_api(module):
    """Called when huggingface_hub.hf_api was imported: model_info lists the files of the pipelines in vprof's table."""
    real = module.HfApi.model_info

    @functools.wraps(real)
    def model_info(self, repo_id, *args, **kwargs):
        names = pipelines.names(repo_id)
        if not names:
            return real(self, repo_id, *args, **kwargs)
        return module.ModelInfo(id=repo_id, siblings=[{"rfilename": name} for name in names])

    module.HfApi.model_info = model_info
    module.model_info = functools.partial(model_info, module.api)


# Downloads with --fetch.


def endpoint():
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def keep(path, get):
    """Returns the contents of a cached file. The first time, get() downloads it; None if there is no such file."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    data = get()
    if data is not None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open("%s.%d" % (path, os.getpid()), "wb") as file:
            file.write(data)
        os.replace("%s.%d" % (path, os.getpid()), path)
    return data


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects. The token for HF_ENDPOINT is not sent to another host."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        to = urllib.parse.urlsplit(newurl)
        if to.scheme not in ("http", "https") or to.scheme == "http" and urllib.parse.urlsplit(endpoint()).scheme == "https":
            raise urllib.error.HTTPError(newurl, code, "vprof follows no redirect from https to %s" % to.scheme, headers, fp)
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and not is_endpoint(newurl):
            new.remove_header("Authorization")
        return new


def is_endpoint(url):
    """Reports whether a URL has the scheme, host and port of HF_ENDPOINT."""
    return urllib.parse.urlsplit(url)[:2] == urllib.parse.urlsplit(endpoint())[:2]


def download(url, span=None):
    """Downloads a file, or the bytes of span (first, last). Returns None on failure, and for files over the size limit.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "vprof"})
    if os.environ.get("HF_TOKEN") and is_endpoint(url):
        request.add_header("Authorization", "Bearer " + os.environ["HF_TOKEN"])
    most = MOST
    if span:
        request.add_header("Range", "bytes=%d-%d" % span)
        most = span[1] - span[0] + 1
    with fetching():
        try:
            with urllib.request.build_opener(Redirects).open(request, timeout=30) as answer:
                data = answer.read(most if span else most + 1)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                placeholders.wanted("%s, which %s refuses (%d)" % (url, endpoint(), error.code), "set HF_TOKEN to a token that may read it")
            return None
        except (urllib.error.URLError, OSError) as error:
            placeholders.wanted("%s, which cannot be fetched (%s)" % (url, error), "check HF_ENDPOINT and the network")
            return None
    if not span and len(data) > most:
        return None
    return data


@contextlib.contextmanager
def fetching():
    own.fetching = True
    try:
        yield
    finally:
        own.fetching = False


WATCHED = {
    "huggingface_hub.utils._validators": watch_names, "huggingface_hub.file_download": watch_download, "huggingface_hub.hf_api": watch_api, "transformers.utils.hub": watch_cached_files,
}
