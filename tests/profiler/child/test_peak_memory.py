"""A program's peak memory is its own, and not that of what started it."""

from __future__ import annotations

import subprocess
import sys

from profiler.child.peak_memory import peak_bytes
from tests.conftest import ROOT

HELD = 300 * 1024 * 1024
ASK = "from profiler.child.peak_memory import peak_bytes\nprint(peak_bytes())"


def test_it_is_what_was_held_though_it_is_free_again() -> None:
    held = bytearray(b"\1") * HELD
    del held
    assert peak_bytes() >= HELD


def test_a_child_has_nothing_of_the_memory_of_what_started_it() -> None:
    starts = (
        f"import subprocess, sys\nheld = bytearray(b'\\1') * {HELD}\n"
        f"print(subprocess.run([sys.executable, '-c', {ASK!r}], preexec_fn=lambda: None, "
        "capture_output=True, text=True, check=True).stdout)"
    )
    told = subprocess.run([sys.executable, "-c", starts], capture_output=True, text=True, check=True, cwd=ROOT)
    assert 1024 * 1024 < int(told.stdout) < HELD / 2
