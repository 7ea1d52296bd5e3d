"""An atlas as a table for people: what it is of, and how far off each of its groups is."""

from __future__ import annotations

from collections.abc import Iterable

from app.atlas.atlas import Atlas

HEAD = (
    "group", "points", "of another device", "held out", "within 20 %", "median error", "worst tenth above",
    "inside the 80 % interval",
)  # fmt: skip


def as_table(atlas: Atlas, size: int) -> str:
    """Markdown: a sentence, and a row for each group. size: bytes of its file."""
    lines = [summary(atlas, size), "", _row(HEAD), _row(("---", *["---:"] * (len(HEAD) - 1)))]
    for name, group in atlas.groups.items():
        held, known = group.held_out, group.interpolation
        counts = (known.own, len(known.cold) - known.own, held.points)
        shares = (held.within_20, held.median, held.worst_tenth, held.inside_80)
        told = (f"{share:.0%}" if held.points else "–" for share in shares)
        lines.append(_row((name, *map(str, counts), *told)))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def summary(atlas: Atlas, size: int) -> str:
    """One sentence: what was measured, when, with what and under which conditions."""
    told = (
        f"**{atlas.device}**: {atlas.points:,} points, measured in {atlas.minutes:g} minutes on {atlas.date} with torch"
        f" {atlas.torch} and triton {atlas.triton}"
    )
    clocks = [
        f"{name} at {clock:.0f} MHz"
        for name, clock in (("processors", atlas.sm_clock_mhz), ("memory", atlas.memory_clock_mhz))
        if clock is not None
    ]
    if clocks:
        told += f", {' and '.join(clocks)}"
    if atlas.others:
        told += f", {atlas.others} other process{'es' if atlas.others > 1 else ''} on the GPU"
    return f"{told}; the file has {size / 1e6:.2f} MB."
