"""Which half of the regions a program belongs to: frozen by hash, so that what is tuned is not what is tested.

The hashes are those of `app.archive.program_fingerprint` at the level where neither names, spelling, layouts nor sizes
count: a program at other sizes, or measured again, is in the same half.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from app.archive.program_fingerprint import fingerprint

FROZEN = Path(__file__).resolve().parent / "split.json"

FIT, TEST = "fit", "test"
HALVES = (FIT, TEST)


def program(text: str) -> str:
    """16 hex digits of sha256 over the region's structure, sizes aside."""
    return fingerprint(text, "other-sizes")


@cache
def load_split() -> Mapping[str, str]:
    """program -> half, as committed: of the hashes in order, every second one was for the test."""
    known: dict[str, str] = json.loads(FROZEN.read_text())
    return known


def half(fingerprint: str) -> str:
    """The half of a program: as frozen; of one that came later, by the first bit of its hash."""
    return load_split().get(fingerprint) or HALVES[int(fingerprint[0], 16) >> 3]
