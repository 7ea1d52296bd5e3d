"""What a region's page says first: the tool, from -> to, and one chart of candidates. Pure functions of API JSON.

Measured and predicted times are never rivals: where this very program was measured on the very device that the advice
is for, all of it is of that measurement; else all of it is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from app.advice.case import label_of
from app.advice.evidence import without_figures
from app.analysis.device_choice import without_choice
from app.objects.advice import Advice
from app.objects.common import Range
from app.objects.evidence import Figures
from app.objects.record import ArchiveRecord, Validation
from app.objects.region import RegionBody
from app.objects.trace import Trace, TraceBody
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.actions.of_region import own_action
from app.trace_report.by_record import MEASURED, by_measurement
from app.units import factor
from app.web.charts.timed import advised_candidate, candidate_rows, decided_by_wall, timed_options
from app.web.views.region.why import CriteriaOfTool, criteria_of, sentences

MOST_BARS = 7
"""Candidates in the chart; the evidence has every one."""
Basis = Literal["measured", "predicted"]


class Bar(TypedDict):
    """A candidate. time_us, low_us, high_us: of one call. faster: than what runs now; "" of that itself.

    excluded_by: why the rule does not let it compete. lines: to maintain.
    """

    name: str
    label: str
    look: str
    time_us: float
    low_us: float
    high_us: float
    faster: str
    excluded_by: str
    missing: bool
    advised: bool
    lines: int


class Section(TypedDict):
    """Context of partials/region/verdict/verdict.html and chart.html.

    advice: what is said, by the measurement where there is one; headline: its own without the figures. predicted: the
    advice before the measurement, which is record. now, then: bars of what runs now and of what is advised. left:
    candidates that the chart has no room for; end_us: where its axis ends. floor_us: None where wall times decide.
    step: how many times as fast following it makes the step, by the trace's action where there is one; step_predicted:
    that figure rests on the prediction although the region was measured. notes: the advice's; of a measurement, which
    names its device, none about whose figures a prediction has.
    """

    advice: Advice
    headline: str
    basis: Basis
    predicted: Advice | None
    record: Figures | None
    record_id: str
    device: str
    date: str
    by_wall: bool
    bars: list[Bar]
    left: int
    now: Bar | None
    then: Bar | None
    end_us: float
    floor_us: float | None
    step: Range | None
    step_predicted: bool
    notes: list[str]
    why: list[str]
    criteria: list[CriteriaOfTool]


def verdict_section(
    region: RegionBody,
    record: Validation | ArchiveRecord | None = None,
    settings: Thresholds = DEFAULTS,
    trace: Trace | TraceBody | None = None,
) -> Section | None:
    """What the page says first; None without advice. record: what was measured of the region, here or elsewhere.

    trace: that the region is of, and has its actions.
    """
    predicted = region.get("advice")
    if not predicted:
        return None
    advice, measured = by_measurement(region, predicted, record, settings)
    own = own_action(trace, region.get("key"), advice) if trace is not None else None
    by_wall = measured is not None and decided_by_wall(measured)
    bars = _measured_bars(advice, measured) if measured is not None else _predicted_bars(_unmixed(predicted, record))
    now = next((b for b in bars if b["name"] == "eager"), None)
    for bar in bars:
        if now is not None and bar is not now and bar["time_us"]:
            bar["faster"] = factor(now["time_us"] / bar["time_us"])
    then = next((b for b in bars if b["advised"]), None)
    basis: Basis = "measured" if measured is not None else "predicted"
    notes = advice.get("notes") or ()
    shown = _chosen_bars(bars)
    floor_us = None if by_wall else advice.get("floor_us") or (measured.get("floor_us") if measured else None)
    return {
        "advice": advice,
        "headline": without_figures(advice["headline"]),
        "basis": basis,
        "predicted": _before(predicted, record) if measured is not None else None,
        "record": measured,
        "record_id": str(measured.get("id") or "") if measured is not None else "",
        "device": (measured.get("device") if measured is not None else None) or advice.get("device") or "",
        "date": (measured.get("date") if measured is not None else None) or "",
        "by_wall": by_wall,
        "bars": shown,
        "left": len(bars) - len(shown),
        "notes": list(notes if measured is None else without_choice(notes)),
        "now": now,
        "then": then,
        "end_us": max([*(b["high_us"] for b in shown), floor_us or 0.0], default=0.0),
        "floor_us": floor_us,
        "step": own.speedup if own else advice.get("step_speedup"),
        "step_predicted": own is not None and basis == "measured" and not own.measured,
        "why": sentences(advice, bars, basis, settings),
        "criteria": criteria_of(advice),
    }


def _before(advice: Advice, record: Validation | ArchiveRecord | None) -> Advice | None:
    """What was predicted: by the advice itself, or by the one before it was issued again."""
    stands = advice.get("validation")
    if stands and stands.get("outcome") in MEASURED:
        return record.get("advice_before") if record is not None else None
    return advice


def _unmixed(advice: Advice, record: Validation | ArchiveRecord | None) -> Advice:
    """The advice with predicted times alone: issued again without a verdict, it has those that were measured, too."""
    before = record.get("advice_before") if record is not None and advice.get("validation") else None
    return before if before and before.get("alternatives") else advice


# ---------------------------------------------------------------------------------------------------------------- bars


def _bar(name: str, look: str, time: Range, advised: bool) -> Bar:
    return {
        "name": name, "label": label_of(name), "look": look, "time_us": time["mid"], "low_us": time["low"],
        "high_us": time["high"], "faster": "", "excluded_by": "", "missing": False, "advised": advised, "lines": 0,
    }  # fmt: skip


def _predicted_bars(advice: Advice) -> list[Bar]:
    """Every alternative with a predicted time, the fastest first."""
    advised = advised_candidate(advice)
    by_name = {a["candidate"]: a for a in advice.get("alternatives") or ()}
    bars = []
    for option in sorted(timed_options(advice), key=lambda o: o.mid_us):
        bar = _bar(option.name, option.look, option.time_us, option.candidate == advised)
        known = by_name.get(option.candidate)
        if known is not None and not option.admitted:
            bar["excluded_by"] = known.get("excluded_by") or known["note"] or "the rule"
        bar["missing"] = known is not None and "not installed" in known["note"]
        bar["lines"] = option.lines
        bars.append(bar)
    return bars


def _measured_bars(advice: Advice, record: Figures) -> list[Bar]:
    """Every candidate that was timed, the fastest first, by what decides."""
    advised = advised_candidate(advice)
    bars = []
    for row in candidate_rows(record):
        time = row["decided_us"]
        spread: Range = {"low": time["low"], "mid": time["median"], "high": time["high"]}
        look = "eager" if row["name"] == "eager" else row["tool"]
        bars.append(_bar(row["name"], look, spread, row["name"] == advised))
    return bars


def _chosen_bars(bars: Sequence[Bar]) -> list[Bar]:
    """Those with a place in the chart: what runs now, what is advised, then the fastest of each tool, then the rest.

    What the rule excludes has one only where it is faster than what is advised: else nobody asks about it.
    """
    then = next((b["time_us"] for b in bars if b["advised"]), 0.0)
    offered = [b for b in bars if not b["excluded_by"] or b["time_us"] < then]
    first: dict[str, int] = {}
    for place, bar in enumerate(offered):
        first.setdefault(bar["look"], place)
    order = sorted(
        range(len(offered)),
        key=lambda n: (
            not (offered[n]["advised"] or offered[n]["name"] == "eager"),
            first[offered[n]["look"]] != n,
            offered[n]["time_us"],
        ),
    )
    kept = sorted(order[:MOST_BARS])
    return [offered[n] for n in kept]
