"""Kernels on the CPU, in Triton's interpreter: their own process, since it must be chosen before Triton is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FILES = sorted(str(p.relative_to(HERE / "interpreted")) for p in (HERE / "interpreted").rglob("test_*.py"))
LONGEST = "ops/test_operations.py"
GENERATED = [name for name in FILES if name.startswith("codegen/")]
OTHERS = [name for name in FILES if name != LONGEST and name not in GENERATED]
PARTS = [[LONGEST], GENERATED, OTHERS[::2], OTHERS[1::2]]
"""Files that share a process: importing torch and Triton takes longer than most of them."""


PART_S = 1700
"""For one process: 103 to 134 s with two busy loops on two cores, and over 280 s with more."""


@pytest.mark.timeout(PART_S + 100)
@pytest.mark.parametrize("names", PARTS, ids=["operations", "generated", "odd", "even"])
def test_kernels_in_the_interpreter(names: list[str], tmp_path: Path) -> None:
    plain = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}  # its answer is read below
    env = {**plain, "TRITON_INTERPRET": "1", "TRITONWORTHY_KERNEL_DIR": str(tmp_path / "kernels")}
    files = [str(HERE / "interpreted" / name) for name in names]
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command, cwd=HERE.parent.parent, env=env, capture_output=True, text=True, timeout=PART_S, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert [name for name in names if not re.search(rf"/{name} s*\.", done.stdout)] == [], "nothing of it passed"


def test_the_interpreted_tests_exist() -> None:
    assert len(FILES) >= 3
    assert sorted(name for part in PARTS for name in part) == FILES
