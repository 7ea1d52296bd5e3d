"""Another Python environment that Inductor is asked in: its torch and Triton, this package's own way of asking.

The environment needs torch, Triton, numpy and msgspec, and nothing of this project: the oracle's process finds
`profiler` in a folder that holds it alone, so that no other library of this environment comes before the other's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = Path(__file__).resolve().parent.parent
NEEDED = ("torch", "triton", "numpy", "msgspec")
LEAST_PYTHON = (3, 11)
INSPECT_S = 30.0

_INSPECT = f"""
import importlib.metadata, json, sys
versions = {{}}
for name in {NEEDED!r}:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps({{"versions": versions, "python": list(sys.version_info[:2])}}))
"""


class EnvironmentUnusableError(Exception):
    """An environment in which nobody can be asked, with the reason."""


@dataclass(frozen=True, slots=True)
class Environment:
    """interpreter: as it was named, for a virtual environment is known by its path. torch, triton: versions."""

    interpreter: Path
    torch: str
    triton: str


def inspect_environment(path: Path) -> Environment:
    """The environment of an interpreter, or of a virtual environment's folder; its torch is not imported.

    Raises EnvironmentUnusableError.
    """
    interpreter = path / "bin" / "python" if path.is_dir() else path
    if not interpreter.is_file():
        raise EnvironmentUnusableError(f"{path}: no Python interpreter, and no virtual environment's folder")
    command = [str(interpreter.absolute()), "-I", "-c", _INSPECT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSPECT_S, check=False)
        answer = json.loads(done.stdout)
        versions, python = answer["versions"], tuple(answer["python"])
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError, KeyError):
        raise EnvironmentUnusableError(f"{path}: it does not answer as Python does") from None
    if python < LEAST_PYTHON:
        raise EnvironmentUnusableError(f"{path}: Python {'.'.join(map(str, python))}, and at least 3.11 is needed")
    if missing := [name for name in NEEDED if name not in versions]:
        raise EnvironmentUnusableError(
            f"{path}: {' and '.join(missing)} {'are' if missing[1:] else 'is'} not installed"
        )
    return Environment(interpreter.absolute(), versions["torch"], versions["triton"])


@contextmanager
def package_folder() -> Iterator[Path]:
    """A folder for the other interpreter's path, with this package in it and nothing else."""
    with TemporaryDirectory(prefix="tritonworthy-") as folder:
        (Path(folder) / PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
        yield Path(folder)
