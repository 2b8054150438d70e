"""Loads the libraries that take the place of NVIDIA's, before PyTorch loads those."""

import ctypes
import glob
import importlib.metadata
import os
import re
import sys

from . import events

# Packages with NVIDIA's libraries, as pip and as conda call them, and how the library counts its releases: factors of
# the first numbers of the package's version.
PACKAGES = {
    "runtime": (("nvidia-cuda-runtime", "cuda-cudart"), (1000, 10)),
    "cudnn": (("nvidia-cudnn", "libcudnn", "cudnn"), (10000, 100, 1)),
    "cublas": (("nvidia-cublas", "libcublas"), (10000, 100, 1)),
    "nccl": (("nvidia-nccl", "nccl"), (10000, 100, 1)),
}

# Libraries that work without a GPU, and their packages: they are only stood in for where they are missing.
KEPT = {"nvrtc": ("nvidia-cuda-nvrtc", "cuda-nvrtc"), "curand": ("nvidia-curand", "libcurand")}

# Modules above PyTorch on whose release the memory of a step depends, and their packages.
TRAINERS = {
    "transformers": "transformers", "trl": "trl", "peft": "peft", "accelerate": "accelerate", "bitsandbytes": "bitsandbytes",
    "liger_kernel": "liger-kernel", "deepspeed": "deepspeed", "axolotl": "axolotl", "llamafactory": "llamafactory",
    "swift": "ms-swift", "torchtune": "torchtune", "torchtitan": "torchtitan",
}


def releases():
    """Returns the releases of the imported packages of TRAINERS."""
    found = {}
    for module, package in TRAINERS.items():
        if module in sys.modules:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                pass  # a module of the user by that name
    return found


def load():
    """Loads every library of the folder for PyTorch's CUDA, in the order of their names.

    The linker then finds them under their names (their SONAME) when PyTorch asks.
    """
    folder = os.environ.get("VPROF_STUBS")
    if not folder:
        return
    folder = os.path.join(folder, cuda_of_torch())
    if not os.path.isdir(folder):
        return  # PyTorch finds no GPU then, which vprof reports
    tell_versions()
    use_own_allocator()
    os.environ["TRITON_LIBCUDA_PATH"] = folder
    own = [name for name, packages in KEPT.items() if installed(packages)]
    if "nvrtc" not in own:
        os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # in which the stub's empty kernels would stay
    for name in sorted(os.listdir(folder)):
        if not any(kept in name for kept in own):
            ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)
    load_builtins()


# Settings under which PyTorch neither counts nor records what it allocates as its own allocator does.
OTHER_ALLOCATORS = ("backend:cudaMallocAsync", "PYTORCH_NO_CUDA_MEMORY_CACHING")


def use_own_allocator():
    """Makes PyTorch use its own caching allocator if another was configured, and reports that."""
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
    """Loads the builtins library of NVRTC, which NVRTC finds by name. PyTorch loads it beside NVIDIA's cuBLAS, which
    ours replaces.
    """
    nvrtc = distribution(KEPT["nvrtc"])
    for file in nvrtc.files or () if nvrtc else ():
        if file.name.startswith("libnvrtc-builtins.so."):
            ctypes.CDLL(str(nvrtc.locate_file(file)))


def cuda_of_torch():
    """Returns the major version of the CUDA that PyTorch was built for ("13"), which is not imported yet."""
    for folder in sys.path:
        path = os.path.join(folder, "torch", "version.py")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = re.search(r"^cuda\b.*=\s*['\"](\d+)", file.read(), re.MULTILINE)
            return found[1] if found else "none"
    return "none"


def tell_versions():
    """Adds the releases of NVIDIA's libraries that PyTorch expects to the description of the GPU."""
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
    """Returns the distribution of the first package that pip has installed; None if there is none."""
    for name in (package + suffix for package in packages for suffix in ("", "-cu13", "-cu12")):
        try:
            return importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def installed(packages):
    """Returns the version of the first installed package; empty if none is installed."""
    found = distribution(packages)
    version = found.version if found else in_conda(packages)
    return [int(n) for n in version.split(".")[:3] if n.isdigit()]


def in_conda(packages):
    """Returns the version of the first installed conda package, from its file name-version-build.json."""
    for name in packages:
        for path in glob.glob(os.path.join(sys.prefix, "conda-meta", name + "-[0-9]*.json")):
            return os.path.basename(path)[len(name) + 1:].split("-")[0]
    return ""
