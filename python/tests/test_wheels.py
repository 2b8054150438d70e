"""Tests of the check of wheels before they are published."""

import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import check_wheels  # noqa: E402


def program(machine=62, symbols=(), dynamic=False):
    """Returns a minimal ELF file with the parts that the check reads."""
    header = bytearray(b"\x7fELF" + bytes(60))
    struct.pack_into("<H", header, 18, machine)
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HH", header, 54, 56, 2)
    segments = struct.pack("<I52x", 1) + struct.pack("<I52x", 3 if dynamic else 2)
    return bytes(header) + segments + b"".join(b"\0" + s.encode() for s in symbols) + b"\0"


def found(name, binary, size=100, without=""):
    files = {f"vprof_gpu-1.dist-info/licenses/{f}": b"" for f in ("LICENSE", "THIRD_PARTY_NOTICES")}
    files.update({f"vprof_gpu/{f}": b"" for f in ("py.typed", "SKILL.md")})
    files["vprof_gpu-1.data/scripts/vprof"] = binary
    return list(check_wheels.problems(name, size, {f: d for f, d in files.items() if not without or without not in f}))


class WheelTest(unittest.TestCase):
    OLD = "vprof_gpu-1-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"

    def test_symbols_are_as_old_as_the_name_says(self):
        self.assertEqual(found(self.OLD, program(symbols=["GLIBC_2.2.5", "GLIBC_2.17"], dynamic=True)), [])
        self.assertEqual(found(self.OLD, program(symbols=["GLIBC_2.2.5", "GLIBC_2.34"], dynamic=True)),
                         ["its binary needs glibc 2.34"])
        self.assertEqual(found(self.OLD.replace("2_17", "2_34"), program(symbols=["GLIBC_2.34"], dynamic=True)), [])

    def test_the_processor_is_that_of_the_name(self):
        self.assertEqual(found(self.OLD, program(machine=183)), ["its binary is not for x86_64"])
        self.assertEqual(found(self.OLD.replace("x86_64", "aarch64"), program(machine=183)), [])

    def test_a_wheel_for_musl_is_static(self):
        name = "vprof_gpu-1-py3-none-musllinux_1_1_x86_64.whl"
        self.assertEqual(found(name, program()), [])
        self.assertEqual(found(name, program(dynamic=True)), ["its binary needs a dynamic linker"])

    def test_notices_and_size(self):
        self.assertEqual(found(self.OLD, program(), without="NOTICES"), ["lacks licenses/THIRD_PARTY_NOTICES"])
        self.assertEqual(found(self.OLD, program(), size=24_000_001), ["has 24000001 bytes, more than 24000000"])
        self.assertEqual(found(self.OLD, program(), without="scripts"), ["lacks the binary"])
