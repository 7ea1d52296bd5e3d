"""Another environment's Inductor: how it is known, what it lacks, and that its process sees this package alone."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from profiler.hardware import find_device
from profiler.oracle.environment import EnvironmentUnusableError, inspect_environment, package_folder
from profiler.oracle.process import Oracle

REGION = "x: bf16[4096, 4096]\ny = gelu(x) * 2\nreturn y\n"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without a package."""
    folder = tmp_path_factory.mktemp("environments") / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def other(empty: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with this one's packages, but for what is installed from a checkout."""
    folder = tmp_path_factory.mktemp("environments") / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for entry in Path(torch.__file__).parent.parent.iterdir():
        if not entry.name.startswith("__editable__") and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    return folder


def test_a_virtual_environment_is_known_by_its_folder_and_by_its_interpreter(other: Path) -> None:
    by_folder, by_interpreter = inspect_environment(other), inspect_environment(other / "bin" / "python")
    assert by_folder == by_interpreter
    assert (by_folder.torch, by_folder.triton) == (metadata.version("torch"), metadata.version("triton"))
    assert by_folder.interpreter == other / "bin" / "python"


def test_what_an_environment_lacks_is_named(empty: Path) -> None:
    with pytest.raises(EnvironmentUnusableError, match="torch and triton and numpy and msgspec are not installed"):
        inspect_environment(empty)


def test_what_is_no_environment_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnusableError, match="no Python interpreter"):
        inspect_environment(tmp_path)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    with pytest.raises(EnvironmentUnusableError, match="does not answer as Python does"):
        inspect_environment(silent)


def test_the_folder_for_the_other_path_holds_this_package_and_nothing_else() -> None:
    with package_folder() as folder:
        assert [entry.name for entry in folder.iterdir()] == ["profiler"]
        assert (folder / "profiler" / "oracle" / "server.py").is_file()
    assert not folder.exists()


def test_it_answers_as_this_one_does_where_it_has_the_same_torch(other: Path) -> None:
    device = find_device("H200")
    assert device is not None
    with package_folder() as folder:
        there = Oracle(timeout_s=120.0, interpreter=other / "bin" / "python", packages=str(folder))
        here = Oracle(timeout_s=120.0)
        try:
            theirs, ours = (oracle.predict(REGION, device) for oracle in (there, here))
            child = there._child
            assert child is not None
            command = Path(f"/proc/{child.process.pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        finally:
            there.stop()
            here.stop()
    assert command == str(other / "bin" / "python")
    assert not theirs.unavailable
    assert [k.source for k in theirs.kernels] == [k.source for k in ours.kernels]
    assert theirs.torch == torch.__version__
