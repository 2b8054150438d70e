"""Writes source/names.inc: the table of all functions of NVIDIA's libraries that a program may import.

    python3 names.py INCLUDE... -- OBJECT...

INCLUDE are folders with NVIDIA's public headers. OBJECT are PyTorch's shared objects, whose undefined symbols are added
if no header declares them. Rows of an existing table are kept, so that runs with several releases and CUDA versions add
up. A row has the function's name and its outputs, sizes or handles that the function writes through pointers. "3:8" is
eight bytes through argument 3, counted from 0 among the integer arguments. "5:4*6" is four bytes through argument 5 for
each of as many matrices as argument 6 states.
"""
import pathlib, re, subprocess, sys

TABLE = pathlib.Path(__file__).with_name("source") / "names.inc"
# Symbols exported as data, so they are not in the table.
DATA = {"nvshmem_selected_device_transport"}
PREFIX = r"(?:__cuda|cuda|cublas(?:Lt)?|cudnn|cufft(?:Xt)?|cusparse(?:Lt)?|cusolver|nccl|cupti|cuFile|nvml|nvrtc|nvshmem\w*|cu)[A-Z_a-z]\w*"
OUT_SIZES = {"size_t": 8, "int": 4, "unsigned": 4, "int64_t": 8, "uint64_t": 8, "int32_t": 4, "uint32_t": 4, "long long": 8}
# Functions over many matrices that report a status for each matrix on the device. Others write one status on the host.
OF_EACH = re.compile(r"(getrf|getri|matinv|potrf|syev|heev|gesvd)\w*Batched$")
FLOATS = {"float", "double", "cuComplex", "cuDoubleComplex", "cufftReal", "cufftDoubleReal"}


def text_of(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.h")):
        if any(part in ("cccl", "nv", "cooperative_groups", "nvtx3") for part in path.parts):
            continue
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(errors="replace"), flags=re.S)
        yield re.sub(r"\\\n", " ", text)


def type_sizes(text):
    """Returns the number of bytes written through a pointer to each typedef: 8 for a handle, 4 for an enumeration."""
    sizes = {name: 8 for name in re.findall(r"typedef\s+(?:const\s+)?(?:struct\s+)?\w+\s*\*\s*(\w+)(?:\s+\w+_DEPRECATED)?\s*;", text)}
    sizes |= {name: 4 for name in re.findall(r"typedef\s+enum\s*\w*\s*\{[^}]*\}\s*(\w+)(?:\s+\w+_DEPRECATED)?\s*;", text)}
    sizes |= {name: 4 for name in re.findall(r"typedef\s+(?:int|unsigned int|uint32_t)\s+(\w+)\s*;", text)}
    return sizes


def row(function, parameters, sizes):
    outs, slot, info, batch = [], 0, None, None
    for parameter in re.split(r",(?![^(]*\))", parameters):
        parameter = re.sub(r"\b(struct|enum|__dv|unsigned int|CUDNNWINAPI)\b(\([^)]*\))?", lambda m: "unsigned" if "unsigned" in m[0] else "", parameter).strip()
        name = re.match(r"(const\s+)?([\w ]+?)\s*(\*+)?\s*(?:const\s*)?(\w*)?\s*(\[\d*\])?(=.*)?$", parameter)
        if not name or parameter in ("", "void"):
            slot += 1
            continue
        const, base, stars = name[1], name[2].strip(), name[3] or ""
        if not stars and base in FLOATS:
            continue
        if stars == "**" and not const:
            outs.append((slot, 8))
        elif stars == "*" and not const and not name[5] and base in sizes:
            outs.append((slot, sizes[base]))
            info = slot if "info" in name[4].lower() else info
        batch = slot if name[4] == "batchSize" else batch
        slot += 2 if not stars and base == "dim3" else 1
    each = info if OF_EACH.search(function) else None
    return " ".join(f"{slot}:{size}" + (f"*{batch}" if slot == each else "") for slot, size in outs)


def declared(folders):
    text = "\n".join(part for folder in folders for part in text_of(folder))
    sizes = type_sizes(text) | OUT_SIZES
    return {name: row(name, parameters, sizes) for name, parameters in
            re.findall(r"[\w*]\s*[\s*](%s)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;" % PREFIX, text)}


def imported(objects):
    names = set()
    for path in objects:
        listing = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
        names |= {m for m in (line.split()[-1].split("@")[0] for line in listing.splitlines()) if re.fullmatch(PREFIX, m)}
    return names - DATA


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    rows = dict(re.findall(r'NAME\((\w+), "([^"]*)"\)', TABLE.read_text())) if TABLE.exists() else {}
    found = declared(sys.argv[1:split])
    rows |= found
    for name in imported(sys.argv[split + 1:]):
        rows.setdefault(name, "")
    TABLE.write_text("".join(f'NAME({name}, "{outs}")\n' for name, outs in sorted(rows.items())))
    print(len(rows), "names")


main()
