"""Several ranks of one job, a trace file each -> the API's trace object of every rank, and the spread between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from app.objects import trace as objects
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.companions import Companion
from app.units import share
from profiler.trace.analyze.idle_breakdown import StepParts
from profiler.trace.analyze.ranks import RankSpread, rank_numbers, rank_spread
from profiler.trace.errors import TraceError

if TYPE_CHECKING:
    from app.trace_report.report import Whole


class RankReports(TypedDict):
    """The report of each file, by rank, and the spread between them: None for fewer than two that have a step."""

    ranks: list[objects.TraceBody]
    spread: objects.RankSpread | None


def report_ranks(
    paths: Sequence[Path],
    companion: Path | None = None,
    thresholds: Thresholds = DEFAULTS,
    finish: Callable[[Whole], objects.TraceBody] = lambda whole: whole.trace,
) -> RankReports:
    """The reports of the ranks of one job. Raises what `trace_report.report` raises, with the file's name.

    finish: makes the trace of each report, such as with Inductor's answers.
    """
    lender = Companion(companion, companion.name) if companion else None
    reports = [finish(_report(path, lender, thresholds)) for path in paths]
    order = rank_numbers([r["name"] for r in reports], [r.get("rank") for r in reports])
    ranks: list[objects.TraceBody] = [
        {**report, "rank": rank} for rank, report in sorted(zip(order, reports, strict=True), key=lambda item: item[0])
    ]
    return {"ranks": ranks, "spread": spread_json(ranks)}


def _report(path: Path, lender: Companion | None, thresholds: Thresholds) -> Whole:
    from app.trace_report.report import whole_report

    try:
        return whole_report(path, path.name, companion=lender, thresholds=thresholds)
    except TraceError as error:
        raise TraceError(error.code, f"{path.name}: {error.message}", error.remedy) from error


def spread_json(traces: Iterable[objects.TraceFigures]) -> objects.RankSpread | None:
    """The spread between reports that have a rank and their step's parts; None for fewer than two."""
    spread = rank_spread([(rank_of(t), parts_of(parts)) for t in traces if (parts := t.get("step_parts"))])
    return None if spread is None else _json(spread)


def rank_of(trace: objects.TraceFigures) -> int:
    """The rank of a trace that has one."""
    rank = trace.get("rank")
    assert rank is not None
    return rank


def parts_of(figures: objects.StepParts) -> StepParts:
    """`step_parts` of the API's trace, read back."""
    return StepParts(
        wall_us=float(figures["wall_us"]),
        kernels_us=float(figures["kernels_us"]),
        communication_us=float(figures["communication_us"]),
        copies_us=float(figures["copies_us"]),
        idle_launch_us=float(figures["idle_launch_us"]),
        idle_host_us=float(figures["idle_host_us"]),
        idle_communication_us=float(figures["idle_communication_us"]),
        idle_device_us=float(figures["idle_device_us"]),
    )


def _json(spread: RankSpread) -> objects.RankSpread:
    return {
        "ranks": [
            {
                "rank": rank.rank,
                "wall_us": rank.wall_us,
                "own_us": rank.own_us,
                "communication_us": rank.communication_us,
                "wait_us": rank.wait_us,
            }
            for rank in spread.ranks
        ],
        "slowest": spread.slowest,
        "spread": spread.spread,
        "waiting_share": spread.waiting_share,
    }


def spread_text(spread: objects.RankSpread) -> str:
    """A line for each rank and one for the spread."""
    lines = [
        f"rank {r['rank']}: step {r['wall_us'] / 1e3:.2f} ms, of it {r['own_us'] / 1e3:.2f} its own and "
        f"{r['communication_us'] / 1e3:.2f} in communication ({r['wait_us'] / 1e3:.2f} waiting for other ranks)"
        for r in spread["ranks"]
    ]
    last = f"slowest: rank {spread['slowest']}; own times are {share(spread['spread'])} of a step apart; "
    return "\n".join([*lines, last + f"ranks wait {share(spread['waiting_share'])} of the step for each other"])
