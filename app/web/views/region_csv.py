"""The table of a trace's regions as CSV: the rows that the page lists, in its order, times in µs. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.objects.common import Range
from app.web.labels import TOOL_LABELS
from app.web.server.csv_response import Cell
from app.web.views.region_list import EVIDENCE, ListedRegion

COLUMNS = (
    "region", "module", "source", "advice", "calls_per_step", "time_us_per_step", "share_of_step",
    "region_speedup", "region_speedup_low", "region_speedup_high", "step_speedup", "saves_us_per_step", "evidence",
    "streams", "id",
)  # fmt: skip


def region_rows(regions: Iterable[ListedRegion]) -> Iterator[tuple[Cell, ...]]:
    """One row a region, as COLUMNS has it. None is a figure that is not known."""
    return map(_cells, regions)


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
