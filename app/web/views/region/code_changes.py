"""What an edit changed in generated code: Inductor's kernels and our own, before and after. Pure functions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Literal, TypedDict

from app.objects.region import RegionBody
from app.web.views.region.compiled_kernels import inductor_parts
from app.web.views.region.predicted_kernels import oracle_section
from kernels.kernel_listing_model import Own

MOST_LINES = 1500
"""Lines of a difference that a page shows."""

Change = Literal["added", "removed", "same", "place"]
"""place: where in the text the lines behind it stand."""

SIGNS: dict[str, Change] = {"+": "added", "-": "removed", "@": "place"}


class ChangedLine(TypedDict):
    """One line of a difference, with its sign in front."""

    change: Change
    text: str


class CodeChange(TypedDict):
    """One way's code. unknown: it was not written for both texts; left: lines that are not shown."""

    title: str
    unknown: bool
    added: int
    removed: int
    lines: list[ChangedLine]
    left: int


def inductor_code(region: RegionBody) -> str | None:
    """All that Inductor writes in its first mode, by kernel; None where it has not answered."""
    modes = oracle_section(region)["modes"]
    if not modes:
        return None
    calls = [f"# calls {e['name']}" for e in modes[0]["externs"]]
    return "\n\n".join([*(part.source for part in inductor_parts(modes[0])), *calls])


def own_code(own: Own) -> str:
    """Our code, with its call; why there is none where there is none."""
    return f"{own.call}\n\n{own.source}" if own.candidate else f"# {own.reason}"


def code_change(title: str, before: str | None, after: str | None) -> CodeChange:
    """What differs between two texts, three lines around each place. None: not known."""
    if before is None or after is None:
        return {"title": title, "unknown": True, "added": 0, "removed": 0, "lines": [], "left": 0}
    lines = list(_differences(before, after))
    return {
        "title": title,
        "unknown": False,
        "added": sum(line["change"] == "added" for line in lines),
        "removed": sum(line["change"] == "removed" for line in lines),
        "lines": lines[:MOST_LINES],
        "left": max(0, len(lines) - MOST_LINES),
    }


def _differences(before: str, after: str) -> Iterator[ChangedLine]:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    for number, line in enumerate(lines):
        if number >= 2:  # the first two name files
            yield {"change": SIGNS.get(line[:1], "same"), "text": line}
