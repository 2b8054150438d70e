"""Loads the stubs of NVIDIA's libraries before PyTorch loads the real ones."""

import ctypes
import glob
import importlib.metadata
import os
import re
import sys

from . import events

# Packages of NVIDIA's libraries (names on PyPI and in conda), and the factors that make a version number from the
# package's version: 9.10.2 is 91002 with (10000, 100, 1).
PACKAGES = {
    "runtime": (("nvidia-cuda-runtime", "cuda-cudart"), (1000, 10)),
    "cudnn": (("nvidia-cudnn", "libcudnn", "cudnn"), (10000, 100, 1)),
    "cublas": (("nvidia-cublas", "libcublas"), (10000, 100, 1)),
    "nccl": (("nvidia-nccl", "nccl"), (10000, 100, 1)),
}

# Libraries that work without a GPU, and their packages. A stub is loaded only if the package is not installed.
KEPT = {"nvrtc": ("nvidia-cuda-nvrtc", "cuda-nvrtc"), "curand": ("nvidia-curand", "libcurand")}

# Modules whose release changes the memory of a step, and their packages.
TRAINERS = {
    "transformers": "transformers", "trl": "trl", "peft": "peft", "accelerate": "accelerate", "bitsandbytes": "bitsandbytes",
    "liger_kernel": "liger-kernel", "deepspeed": "deepspeed", "axolotl": "axolotl", "llamafactory": "llamafactory",
    "swift": "ms-swift", "torchtune": "torchtune", "torchtitan": "torchtitan",
}


def releases():
    """Returns the installed versions of the imported packages of TRAINERS, by package."""
    found = {}
    for module, package in TRAINERS.items():
        if module in sys.modules:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                pass  # the user's own module has this name
    return found


def load():
    """Loads the stubs for PyTorch's CUDA version, in alphabetical order.

    The dynamic linker then resolves PyTorch's libraries to them by SONAME.
    """
    folder = os.environ.get("VPROF_STUBS")
    if not folder:
        return
    folder = os.path.join(folder, cuda_of_torch())
    if not os.path.isdir(folder):
        return  # PyTorch finds no GPU then; vprof reports this
    tell_versions()
    use_own_allocator()
    os.environ["TRITON_LIBCUDA_PATH"] = folder
    own = [name for name, packages in KEPT.items() if installed(packages)]
    if "nvrtc" not in own:
        os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # else the cache would keep the stub's empty kernels
    for name in sorted(os.listdir(folder)):
        if not any(kept in name for kept in own):
            ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)
    load_builtins()


# Settings under which PyTorch bypasses its caching allocator, so that no allocations are recorded.
OTHER_ALLOCATORS = ("backend:cudaMallocAsync", "PYTORCH_NO_CUDA_MEMORY_CACHING")


def use_own_allocator():
    """Makes PyTorch use its own caching allocator if another was configured, and reports the change."""
    asynchronous, uncached = OTHER_ALLOCATORS
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        settings = os.environ.get(name, "").split(",")
        kept = [s for s in settings if s.strip() != asynchronous]
        if len(kept) < len(settings):
            os.environ[name] = ",".join(kept)
            events.send("allocator", path=asynchronous)
    if os.environ.pop(uncached, None) is not None:
        events.send("allocator", path=uncached)


def load_builtins():
    """Loads libnvrtc-builtins, which NVRTC opens by name. Normally NVIDIA's cuBLAS loads it; the stub does not."""
    nvrtc = distribution(KEPT["nvrtc"])
    for file in nvrtc.files or () if nvrtc else ():
        if file.name.startswith("libnvrtc-builtins.so."):
            ctypes.CDLL(str(nvrtc.locate_file(file)))


def cuda_of_torch():
    """Returns the major version of CUDA that PyTorch was built for, such as "13", before PyTorch is imported. Returns
    "none" for a build without CUDA.
    """
    for folder in sys.path:
        path = os.path.join(folder, "torch", "version.py")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = re.search(r"^cuda\b.*=\s*['\"](\d+)", file.read(), re.MULTILINE)
            return found[1] if found else "none"
    return "none"


def tell_versions():
    """Adds the installed versions of NVIDIA's libraries to the GPU's description, which the stubs read."""
    path = os.environ.get("VPROF_STUB_GPU")
    if not path:
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    own = events.folder("gpu-%d" % os.getpid())
    with open(own, "w", encoding="utf-8") as file:
        file.write(text)
        for key, (packages, factors) in PACKAGES.items():
            version = installed(packages)
            if version:
                file.write("%s %d\n" % (key, sum(f * n for f, n in zip(factors, version))))
    os.environ["VPROF_STUB_GPU"] = own


def distribution(packages):
    """Returns the distribution of the first package that is installed from PyPI; None if there is none."""
    for name in (package + suffix for package in packages for suffix in ("", "-cu13", "-cu12")):
        try:
            return importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def installed(packages):
    """Returns the version of the first installed package as a list of numbers; empty if none is installed."""
    found = distribution(packages)
    version = found.version if found else in_conda(packages)
    return [int(n) for n in version.split(".")[:3] if n.isdigit()]


def in_conda(packages):
    """Returns the version of the first installed conda package, from the name of its file NAME-VERSION-BUILD.json;
    empty if none is installed.
    """
    for name in packages:
        for path in glob.glob(os.path.join(sys.prefix, "conda-meta", name + "-[0-9]*.json")):
            return os.path.basename(path)[len(name) + 1:].split("-")[0]
    return ""
