"""An atlas as a table for people: what it is of, and how far off each of its groups is."""

from __future__ import annotations

from app.atlas.atlas import Atlas


def as_table(atlas: Atlas, size: int) -> str:
    """Markdown: a sentence, and a row for each group. size: bytes of its file."""
    lines = [
        summary(atlas, size),
        "",
        "| group | points | held out | within 20 % | median error | worst tenth above | inside the 80 % interval |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, group in atlas.groups.items():
        held = group.held_out
        lines.append(
            f"| {name} | {len(group.interpolation.cold)} | {held.points:g} | {held.within_20:.0%} | {held.median:.0%} |"
            f" {held.worst_tenth:.0%} | {held.inside_80:.0%} |"
        )
    return "\n".join(lines)


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
