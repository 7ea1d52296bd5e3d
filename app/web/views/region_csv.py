"""The table of a trace's regions as CSV: the rows that the page lists, in its order, times in µs. Pure functions."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from app.objects.common import Range
from app.web.labels import TOOL_LABELS
from app.web.views.region_list import EVIDENCE, ListedRegion

COLUMNS = (
    "region", "module", "source", "advice", "calls_per_step", "time_us_per_step", "share_of_step",
    "region_speedup", "region_speedup_low", "region_speedup_high", "step_speedup", "saves_us_per_step", "evidence",
    "streams", "id",
)  # fmt: skip

Cell = str | float | None

RUNS = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins so is a formula to a spreadsheet; names of a trace are anybody's."""


def regions_csv(regions: Sequence[ListedRegion]) -> str:
    """One line a region, after a line of COLUMNS. An empty cell is a figure that is not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows([_harmless(cell) for cell in _cells(region)] for region in regions)
    return out.getvalue()


def _cells(region: ListedRegion) -> tuple[Cell, ...]:
    source, advice = region.get("source"), region.get("advice")
    helps = advice if advice and advice.get("tool") != "skip" else None
    speedup = helps["region_speedup"] if helps else None
    return (
        region.get("distinct_name") or region["name"],
        source.get("module") if source else "",
        source.get("line") if source else "",
        TOOL_LABELS.get(advice["tool"], advice["tool"]) if advice else "",
        region.get("calls_per_step"),
        region.get("time_us_per_step"),
        region.get("share_of_step"),
        *((speedup["mid"], speedup["low"], speedup["high"]) if speedup else (None, None, None)),
        _middle(region.get("step_speedup", helps["step_speedup"]) if helps else None),
        region.get("saves_us") or None,
        dict(EVIDENCE).get(region.get("level") or "", ""),
        " ".join(str(stream) for stream in region.get("streams") or ()),
        region.get("id"),
    )


def _middle(value: Range | None) -> float | None:
    return value["mid"] if value else None


def _harmless(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(RUNS) else cell
