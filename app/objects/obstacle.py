"""What stands in torch.compile's way."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

Effect = Literal["break", "recompile", "opaque", "wait"]


class Obstacle(TypedDict):
    """Something that stops torch.compile, or makes it compile again: how often in a step, where, what to do about it.

    modules_count: how many there are; `modules` are the first of them. inside: of a region, within its own calls.
    within: how its place is known.
    """

    kind: str
    title: str
    effect: Effect
    does: str
    op: str
    calls_per_step: float
    modules: list[str]
    modules_count: int
    sources: list[str]
    operands: list[str]
    within: str
    because: str
    remedy: str
    inside: bool
