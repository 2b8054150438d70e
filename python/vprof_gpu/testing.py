"""Assertions on the GPU memory of code, for tests without a GPU. Also a pytest plugin with the fixture assert_peak.

``assert_peak(train_step, gpu="t4", below="12GiB")`` calls the function in a new Python process on a simulated GPU.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import run
from .results import GIB, Run
from .watching import size

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import RunOptions


def assert_peak(
    function: Callable[[], Any], below: int | str | None = None, **options: Unpack[RunOptions]
) -> Run:
    """Fails if a function without arguments needs more than ``below`` on a simulated GPU, or does not fit it.

    Device bytes are compared: PyTorch's reserved bytes and the CUDA context. The function is imported by its file and
    name, so it must be at the top level of a module. It accepts the options of ``vprof run``. Returns the run.
    """
    where = f"{inspect.getsourcefile(function)}:{function.__qualname__}"
    if not function.__qualname__.isidentifier():
        raise ValueError(f"{where}: assert_peak takes functions at the top level of a module")
    settings: RunOptions = {"steps": "all", **options}
    needs = run([sys.executable, "-m", "vprof_gpu.testing", where, *sys.path], **settings)
    if needs.exit_code != 0:
        raise AssertionError(f"{where} ended with {needs.exit_code} on {needs.gpu}: run it under vprof run to see why")
    if not needs.fits:
        raise AssertionError(f"{where} runs out of memory on {needs.gpu}: {needs.device_bytes / GIB:.2f} GiB and more")
    limit = size(below) if isinstance(below, str) else below
    if limit is not None and needs.device_bytes > limit:
        raise AssertionError(
            f"{where} needs {needs.device_bytes / GIB:.2f} GiB on {needs.gpu}, more than "
            f"{below if isinstance(below, str) else f'{below} bytes'}")
    return needs


def pytest_configure(config: Any) -> None:
    """Registers the fixture assert_peak. Importing this module does not import pytest."""
    import pytest

    class Fixtures:
        @pytest.fixture(name="assert_peak")
        def peak(self) -> Callable[..., Run]:
            """The fixture: returns vprof_gpu.testing.assert_peak."""
            return assert_peak

    config.pluginmanager.register(Fixtures(), "vprof-gpu-fixtures")


def main(where: str, *path: str) -> None:
    """Calls the function of a file, with the module path of the test."""
    sys.path[:] = path
    file, _, name = where.rpartition(":")
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(file))[0], file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    getattr(module, name)()


if __name__ == "__main__":
    main(*sys.argv[1:])
