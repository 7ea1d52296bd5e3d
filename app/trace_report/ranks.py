"""Several ranks of one job, a trace file each -> the API's trace object of every rank, and the spread between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.companions import Companion
from profiler.trace.analyze.idle_breakdown import StepParts
from profiler.trace.analyze.ranks import RankSpread, rank_numbers, rank_spread
from profiler.trace.errors import TraceError

Json = dict[str, Any]


def report_ranks(paths: Sequence[Path], beside: Path | None = None, thresholds: Thresholds = DEFAULTS) -> Json:
    """`ranks`: the report of each file, by rank; `spread`. Raises what `trace_report.report` raises, with the file."""
    lender = Companion(beside, beside.name) if beside else None
    found = [_report(path, lender, thresholds) for path in paths]
    order = rank_numbers([r["name"] for r in found], [r["rank"] for r in found])
    ranks = [{**r, "rank": rank} for rank, r in sorted(zip(order, found, strict=True), key=lambda item: item[0])]
    return {"ranks": ranks, "spread": spread_json(ranks)}


def _report(path: Path, lender: Companion | None, thresholds: Thresholds) -> Json:
    from app.trace_report.report import report

    try:
        return report(path, path.name, beside=lender, thresholds=thresholds)
    except TraceError as error:
        raise TraceError(error.code, f"{path.name}: {error.message}", error.remedy) from error


def spread_json(traces: Iterable[Mapping[str, Any]]) -> Json | None:
    """The spread between reports that have a rank and their step's parts; None for fewer than two."""
    spread = rank_spread([(t["rank"], parts_of(t["step_parts"])) for t in traces if t.get("step_parts")])
    return None if spread is None else _json(spread)


def parts_of(figures: Mapping[str, Any]) -> StepParts:
    """`step_parts` of the API's trace, read back."""
    return StepParts(**{name: float(figures[name]) for name in StepParts.__slots__})


def _json(spread: RankSpread) -> Json:
    return {
        "ranks": [{name: getattr(rank, name) for name in rank.__slots__} for rank in spread.ranks],
        "slowest": spread.slowest,
        "spread": spread.spread,
        "waiting_share": spread.waiting_share,
    }


def spread_text(spread: Mapping[str, Any]) -> str:
    """A line for each rank and one for the spread."""
    lines = [
        f"rank {r['rank']}: step {r['wall_us'] / 1e3:.2f} ms, of it {r['own_us'] / 1e3:.2f} its own and "
        f"{r['communication_us'] / 1e3:.2f} in communication ({r['wait_us'] / 1e3:.2f} waiting for other ranks)"
        for r in spread["ranks"]
    ]
    last = f"slowest: rank {spread['slowest']}; own times are {spread['spread']:.1%} of a step apart; "
    return "\n".join([*lines, last + f"ranks wait {spread['waiting_share']:.1%} of the step for each other"])
