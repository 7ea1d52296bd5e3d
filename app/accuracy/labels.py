"""What published figures said of a region before anybody measured it: tool, share of the step, objective.

labels.json holds tests/data/regions/regions.json by the hash of each region's text, so that the benchmark runs without
the tests. It is what the advice is compared with, and nothing that the advice may look at; only the share of the
step and the objective, which a user would give, go into the question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.archive.program_fingerprint import fingerprint

HELD = Path(__file__).resolve().parent / "labels.json"


@dataclass(frozen=True, slots=True)
class Label:
    """expected, accepted: tools of candidates. share_of_step: 0 to 1. objective: time or memory."""

    name: str
    expected: str
    accepted: tuple[str, ...]
    share_of_step: float
    objective: str


def key(text: str) -> str:
    """The hash that a label is held by: of the program with its sizes and layouts."""
    return fingerprint(text, "same")


@cache
def labels() -> Mapping[str, Label]:
    """key -> label."""
    held = json.loads(HELD.read_text())
    return {name: Label(**{**body, "accepted": tuple(body["accepted"])}) for name, body in held.items()}


def label_of(text: str) -> Label | None:
    """The label of a region's text; None where nothing was published."""
    return labels().get(key(text))
