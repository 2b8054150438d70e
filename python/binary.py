"""Adds the vprof binary to the wheel, as a script on the PATH.

`make wheel` sets the binary's path (VPROF_BINARY) and, for another operating system, the wheel's platform tag
(VPROF_PLATFORM). The package cannot be built in another way, since Python cannot compile vprof.
"""

import os
import pathlib
import platform
import re
import sys
import sysconfig
import zipfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, os.path.dirname(__file__))
from check_wheels import newest_glibc


def platform_of(binary):
    """Returns the platform tag of a binary that was built here. On Linux it depends on the glibc symbols (PEP 600); a
    static binary also runs with musl.
    """
    if platform.system() != "Linux":
        return re.sub(r"\W", "_", sysconfig.get_platform())
    machine = platform.machine()
    minor = newest_glibc(pathlib.Path(binary).read_bytes())
    if minor is None:
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    if minor <= 17:  # the only name that pip before 20.3 knows
        return f"manylinux_2_17_{machine}.manylinux2014_{machine}"
    return f"manylinux_2_{minor}_{machine}"


class BinaryHook(BuildHookInterface):
    def initialize(self, version, build_data):
        binary = os.environ.get("VPROF_BINARY")
        if version == "editable" or not binary:
            raise SystemExit(
                "vprof-gpu is installed from a wheel, since its command is written in Go: "
                "pip install vprof-gpu, or build the wheel from a clone of vprof with `make wheel`"
            )
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + (os.environ.get("VPROF_PLATFORM") or platform_of(binary))
        build_data["shared_scripts"] = {binary: "vprof" + pathlib.Path(binary).suffix}

    def finalize(self, version, build_data, artifact_path):
        """Compresses the wheel as far as zlib can, for which hatchling has no option."""
        with zipfile.ZipFile(artifact_path) as wheel:
            files = [(info, wheel.read(info)) for info in wheel.infolist()]
        with zipfile.ZipFile(artifact_path, "w") as wheel:
            for info, data in files:
                wheel.writestr(info, data, zipfile.ZIP_DEFLATED, compresslevel=9)
