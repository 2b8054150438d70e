"""Compiles kernels.cu to one PTX module per architecture with NVRTC.

Usage: compile.py LIBRARY OUTPUT

LIBRARY is the folder in which the wheel of wheels/nvrtc.txt is installed. OUTPUT gets sm_70.ptx and the others. The
same sources give the same PTX. Each file begins with the digest of its sources, by which a test detects stale files.
"""

import concurrent.futures
import ctypes
import hashlib
import pathlib
import sys

ARCHITECTURES = (70, 75, 80)
SOURCES = pathlib.Path(__file__).parent


def check(status):
    if status != 0:
        raise SystemExit(f"NVRTC: error {status}")


def text(nvrtc, program, what):
    size = ctypes.c_size_t()
    check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.value.decode()


def digest(files):
    """Returns the SHA-256 of names and contents, a NUL after each."""
    total = hashlib.sha256()
    for file in files:
        for part in (file.name.encode(), file.read_bytes()):
            total.update(part + b"\0")
    return total.hexdigest()


def compile(nvrtc, files, arch):
    """Returns the PTX of all kernels for an architecture."""
    main = SOURCES / "kernels.cu"
    headers = [f for f in files if f != main]
    program = ctypes.c_void_p()
    strings = ctypes.c_char_p * len(headers)
    check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program),
            main.read_bytes(),
            b"kernels.cu",
            len(headers),
            strings(*(h.read_bytes() for h in headers)),
            strings(*(h.name.encode() for h in headers)),
        )
    )
    options = [f"-arch=compute_{arch}".encode(), b"-default-device", b"-std=c++17"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = text(nvrtc, program, "ProgramLog").strip()
    if log:
        print(log, file=sys.stderr)
    check(status)
    return text(nvrtc, program, "PTX")


def main():
    library, output = map(pathlib.Path, sys.argv[1:])
    lib = library / "nvidia/cuda_nvrtc/lib"
    ctypes.CDLL(str(next(lib.glob("libnvrtc-builtins.so.*"))), ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(next(lib.glob("libnvrtc.so.*"))))
    output.mkdir(parents=True, exist_ok=True)
    files = sorted(f for f in SOURCES.iterdir() if f.suffix in (".cu", ".cuh"))
    with concurrent.futures.ThreadPoolExecutor() as threads:
        modules = threads.map(lambda arch: compile(nvrtc, files, arch), ARCHITECTURES)
        for arch, ptx in zip(ARCHITECTURES, modules):
            ptx = f"// Made from sources of SHA-256 {digest(files)}.\n{ptx}"
            (output / f"sm_{arch}.ptx").write_text(ptx)


main()
