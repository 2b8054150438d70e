"""Checks vprof-gpu wheels, and programs of archives, before they are published: check_wheels.py FILE...

The platform in a wheel's name must match its binary: the processor, the newest glibc symbol of a manylinux wheel, no
dynamic linker in a musllinux wheel. A wheel has at most 24 MB and contains the package and the licenses of all linked
libraries. A Linux program in an archive must run with glibc 2.17.
"""

import os
import re
import struct
import sys
import zipfile

MOST = 24_000_000
OLDEST_GLIBC = 17
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine of ELF
INTERPRETER = 3  # p_type of the segment that names the dynamic linker


def segments(program):
    """Returns the segment types of a 64-bit ELF file."""
    offset, = struct.unpack_from("<Q", program, 32)
    size, number = struct.unpack_from("<HH", program, 54)
    return [struct.unpack_from("<I", program, offset + i * size)[0] for i in range(number)]


def newest_glibc(program):
    """Returns the minor version of the newest glibc symbol (GLIBC_2.N) that a program requires; None for a static
    program.
    """
    if INTERPRETER not in segments(program):
        return None
    # Names of symbol versions are in the dynamic string table, each between zero bytes.
    return max(map(int, re.findall(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)", program)), default=None)


def problems(name, size, files):
    """Yields the problems of a wheel, given its name, its size in bytes and its files by name."""
    program = next((data for file, data in files.items() if re.search(r"\.data/scripts/vprof(\.exe)?$", file)), None)
    if size > MOST:
        yield f"has {size} bytes, more than {MOST}"
    for part in ("licenses/LICENSE", "licenses/THIRD_PARTY_NOTICES", "vprof_gpu/py.typed", "vprof_gpu/SKILL.md"):
        if not any(file.endswith(part) for file in files):
            yield f"lacks {part}"
    if program is None:
        yield "lacks the binary"
        return
    linux = re.search(r"(manylinux|musllinux)_\d+_(\d+)_(x86_64|aarch64)", name)
    if not linux:
        return
    libc, minor, machine = linux.groups()
    if program[:4] != b"\x7fELF" or struct.unpack_from("<H", program, 18)[0] != MACHINES[machine]:
        yield f"its binary is not for {machine}"
    elif libc == "musllinux":
        if INTERPRETER in segments(program):
            yield "its binary needs a dynamic linker"
    elif (newest_glibc(program) or 0) > int(minor):
        yield f"its binary needs glibc 2.{newest_glibc(program)}"


def problems_of(path):
    """Returns the problems of a wheel or program."""
    with open(path, "rb") as raw:
        if not path.endswith(".whl"):
            minor = newest_glibc(raw.read()) or 0
            return [f"needs glibc 2.{minor}"] if minor > OLDEST_GLIBC else []
        with zipfile.ZipFile(raw) as opened:
            files = {file: opened.read(file) for file in opened.namelist()}
        return list(problems(path, raw.seek(0, 2), files))


def main(paths):
    failed = not paths
    for path in paths:
        found = problems_of(path)
        failed = failed or bool(found)
        print(f"{path}: {'; '.join(found) or f'{os.path.getsize(path)} bytes, as its name says'}")
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
