"""Packs files and folders into a reproducible tar archive: pack.py ARCHIVE.tar[.xz] PATH...

xz stores common parts of the files once: modules compiled from one source for several GPUs take a quarter of the bytes
that they take separately.
"""
import io, lzma, pathlib, sys, tarfile

out = io.BytesIO()
with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
    for root in map(pathlib.Path, sys.argv[2:]):
        for path in sorted(p for p in [root, *root.rglob("*")] if p.is_file()):
            info = tarfile.TarInfo(path.relative_to(root if root.is_dir() else root.parent).as_posix())
            info.size, info.mode = path.stat().st_size, 0o755
            tar.addfile(info, io.BytesIO(path.read_bytes()))


def compressed(data, lc, lp, pb):
    """Returns data in xz, with the bits of a byte's context: of the byte before, and of positions."""
    return lzma.compress(data, filters=[{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": lc, "lp": lp,
                                         "pb": pb}])


archive, data = pathlib.Path(sys.argv[1]), out.getvalue()
if archive.suffix == ".xz":  # what suits most files, text, and instructions of 16 bytes
    data = min((compressed(data, *bits) for bits in ((3, 0, 2), (4, 0, 0), (0, 4, 4))), key=len)
archive.write_bytes(data)
