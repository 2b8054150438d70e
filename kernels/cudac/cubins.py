"""Assembles the PTX modules to a cubin for each architecture.

Usage: cubins.py LIBRARY PTX OUTPUT

LIBRARY is the folder in which the wheel of wheels/ptxas-12.9.txt is installed, PTX the folder of sm_70.ptx and the
others. OUTPUT gets the cubins and usage.csv, which has the registers, stack and spills of each kernel. The same PTX
gives the same files.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

# A cubin also runs on later GPUs of its major number: 8.7 and 8.9 take that of 8.6,
# 10.3 that of 10.0, 12.1 that of 12.0.
ARCHITECTURES = (75, 80, 86, 90, 100, 120)
HEAD = "capability,kernel,registers,stack_bytes,spill_store_bytes,spill_load_bytes"
ENTRY = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.S,
)


def assemble(ptxas, ptx, arch):
    """Returns the cubin of an architecture, and its lines of usage.csv."""
    module = ptx / f"sm_{arch if arch < 80 else 80}.ptx"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "cubin"
        report = subprocess.run([ptxas, "-v", f"-arch=sm_{arch}", module, "-o", out], check=True, capture_output=True, text=True)
        rows = ENTRY.findall(report.stderr + report.stdout)
        lines = [f"{arch},{name},{registers},{stack},{stores},{loads}" for name, stack, stores, loads, registers in sorted(rows)]
        return out.read_bytes(), lines


def main():
    library, ptx, output = map(pathlib.Path, sys.argv[1:])
    ptxas = library / "nvidia/cuda_nvcc/bin/ptxas"
    ptxas.chmod(0o755)
    output.mkdir(parents=True, exist_ok=True)
    source = (ptx / "sm_80.ptx").read_text().split("\n", 1)[0].removeprefix("// ")
    table = [f"# {source}", HEAD]
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for arch, (cubin, lines) in zip(ARCHITECTURES, threads.map(lambda a: assemble(ptxas, ptx, a), ARCHITECTURES)):
            (output / f"sm_{arch}.cubin").write_bytes(cubin)
            table += lines
    (output / "usage.csv").write_text("\n".join(table) + "\n")


main()
