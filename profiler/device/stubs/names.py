"""Writes source/names.inc: the table of all functions of NVIDIA's libraries that a program may import.

    python3 names.py INCLUDE... -- OBJECT...

INCLUDE are folders with NVIDIA's public headers, OBJECT PyTorch's shared objects, whose
undefined names are added where no header declares them. Rows of the table that is there are kept, so
that the releases and CUDA versions of several runs add up. A row is the name and where the function
writes a size or a handle: "3:8" is eight bytes through the fourth argument in an integer register,
"5:4*6" four bytes for each of as many matrices as the seventh says.
"""
import pathlib, re, subprocess, sys

TABLE = pathlib.Path(__file__).with_name("source") / "names.inc"
# What is exported as data, and so not in the table.
DATA = {"nvshmem_selected_device_transport"}
PREFIX = r"(?:__cuda|cuda|cublas(?:Lt)?|cudnn|cufft(?:Xt)?|cusparse(?:Lt)?|cusolver|nccl|cupti|cuFile|nvml|nvrtc|nvshmem\w*|cu)[A-Z_a-z]\w*"
OUT_SIZES = {"size_t": 8, "int": 4, "unsigned": 4, "int64_t": 8, "uint64_t": 8, "int32_t": 4, "uint32_t": 4, "long long": 8}
# Functions of many matrices that say of each on the device whether it could be factorized. Others say it once, on the host.
OF_EACH = re.compile(r"(getrf|getri|matinv|potrf|syev|heev|gesvd)\w*Batched$")
FLOATS = {"float", "double", "cuComplex", "cuDoubleComplex", "cufftReal", "cufftDoubleReal"}


def text_of(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.h")):
        if any(part in ("cccl", "nv", "cooperative_groups", "nvtx3") for part in path.parts):
            continue
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(errors="replace"), flags=re.S)
        yield re.sub(r"\\\n", " ", text)


def type_sizes(text):
    """Returns what a pointer to each typedef writes: a handle 8 bytes, an enumeration 4."""
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
