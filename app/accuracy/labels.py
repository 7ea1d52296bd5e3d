"""What published figures said of a region before anybody measured it: tool, share of the step, objective.

labels.json holds tests/data/regions/regions.json by the hash of each region's text, so that the benchmark runs without
the tests. It is what the advice is compared with, and nothing that the advice may look at; only the share of the
step and the objective, which a user would give, go into the question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from app.archive.likeness import likeness

HELD = Path(__file__).resolve().parent / "labels.json"

TOOLS: Mapping[str, str] = {"torch.compile": "compile", "library": "library", "triton": "triton", "skip": "eager"}
"""A label's word -> the tool of a Candidate."""


@dataclass(frozen=True, slots=True)
class Label:
    """expected, accepted: tools of candidates. share_of_step: 0 to 1. objective: time or memory."""

    name: str
    expected: str
    accepted: tuple[str, ...]
    share_of_step: float
    objective: str


def from_published(entry: Mapping[str, Any]) -> Label:
    """A label of one entry of regions.json. KeyError for a word that is no tool."""
    words = re.findall(r"torch\.compile|library|triton|skip", entry["accept"])
    objective = "memory" if entry["why"].startswith("memory objective") else "time"
    accepted = tuple(TOOLS[w] for w in dict.fromkeys(words))
    return Label(entry["name"], TOOLS[entry["expected"]], accepted, float(entry["share"]), objective)


def key(text: str) -> str:
    """The hash that a label is held by: of the program with its sizes and layouts."""
    return likeness(text, "same")


@cache
def labels() -> Mapping[str, Label]:
    """key -> label."""
    held = json.loads(HELD.read_text())
    return {name: Label(**{**body, "accepted": tuple(body["accepted"])}) for name, body in held.items()}


def label_of(text: str) -> Label | None:
    """The label of a region's text; None where nothing was published."""
    return labels().get(key(text))
