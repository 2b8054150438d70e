"""``python -m vprof_gpu`` runs the vprof command, for environments whose scripts are not on the PATH."""

import subprocess
import sys

from .command import VprofError, binary


def main() -> int:
    """Runs the command with this process's arguments and streams."""
    try:
        return subprocess.call([binary(), *sys.argv[1:]])
    except VprofError as missing:
        print(f"vprof: {missing}", file=sys.stderr)
        return missing.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
