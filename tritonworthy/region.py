"""A region as it is asked about: a text, and how the program uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a program in the region language (docs/region-language.md).

    shapes: sizes of the text's symbols in use, with their calls in a step: ({"N": 128, "calls": 3}, ...).
    calls_per_step: of a text without symbols.
    share_of_step: of the step's time, 0 to 1; step_time_us: of one step. None where they are not known.
    """

    text: str
    name: str = ""
    shapes: tuple[Mapping[str, float], ...] = ()
    calls_per_step: float = 1.0
    share_of_step: float | None = None
    step_time_us: float | None = None
