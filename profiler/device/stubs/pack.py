"""Packs the folders of built libraries, the same bytes for the same libraries: pack.py FOLDER ARCHIVE."""
import bz2, io, pathlib, sys, tarfile

folder, out = pathlib.Path(sys.argv[1]), io.BytesIO()
with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        info = tarfile.TarInfo(path.relative_to(folder).as_posix())
        info.size, info.mode = path.stat().st_size, 0o755
        tar.addfile(info, io.BytesIO(path.read_bytes()))
pathlib.Path(sys.argv[2]).write_bytes(bz2.compress(out.getvalue(), 9))
