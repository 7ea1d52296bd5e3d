"""How many lines of code each kernel with a file of its own is, for who takes it home: as `tools.records.own_lines`
counted."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

COUNTED = Path(__file__).resolve().parent / "kernel_line_counts.json"


@cache
def own_lines() -> dict[str, int]:
    """Candidate -> lines of code, without its test and its benchmark."""
    lines: dict[str, int] = json.loads(COUNTED.read_text(encoding="utf-8"))
    return lines
