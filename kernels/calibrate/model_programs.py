"""Calibration programs that models have: single operations and whole regions of the corpus's fit third, by number.

`python -m tools.corpus.model_operations` writes their file.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from random import Random

FILE = Path(__file__).resolve().parent / "model_operations.json.gz"


@cache
def texts(kind: str) -> tuple[str, ...]:
    """kind: operations or programs. In a fixed order, mixed."""
    known = list(json.loads(gzip.decompress(FILE.read_bytes()))[kind])
    Random(kind).shuffle(known)
    return tuple(known)


def draw(kind: str, number: int) -> str:
    """IndexError behind the last."""
    return texts(kind)[number]


FAMILIES = {"model_operation": "operations", "model_program": "programs"}
"""Family -> the kind of its texts. Each is measured once: they end, unlike those that are drawn."""
SHARES = {"model_operation": 40, "model_program": 12}
"""Of the points of their kind, until they end."""
