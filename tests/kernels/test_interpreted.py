"""Kernels on the CPU, in Triton's interpreter: their own process, since it must be chosen before Triton is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FILES = sorted(p.name for p in (HERE / "interpreted").glob("test_*.py"))


@pytest.mark.parametrize("name", FILES)
def test_kernels_in_the_interpreter(name: str, tmp_path: Path) -> None:
    env = {**os.environ, "TRITON_INTERPRET": "1", "TRITONWORTHY_KERNEL_DIR": str(tmp_path / "kernels")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / "interpreted" / name)]
    done = subprocess.run(
        command, cwd=HERE.parent.parent, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_the_interpreted_tests_exist() -> None:
    assert len(FILES) >= 3
