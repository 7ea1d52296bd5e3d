"""A step on its page: which it is, what its time is made of, what it takes after all changes. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from app.objects.common import Range
from app.objects.trace import GainTotal, GainUnknown, Graph, Pace, StepOf
from app.trace_report.actions.listed import followed_words
from app.trace_report.actions.of_step import which_step
from app.trace_report.launches_left import list_names
from app.units import duration
from app.web.views.trace.regions import AnyTrace
from profiler.trace.analyze.idle_breakdown import PAUSE_US

PartField = Literal[
    "kernels_us",
    "communication_us",
    "copies_us",
    "idle_launch_us",
    "idle_host_us",
    "idle_communication_us",
    "idle_device_us",
]


class StepPart(TypedDict):
    """A part of a step's wall time. field: of step_parts; kind: the class of its colour; when: time counts as it."""

    field: PartField
    name: str
    kind: str
    time_us: float
    share: float
    when: str


class StepSection(TypedDict, total=False):
    """Context of the step's part of partials/trace/body.html; {} for traces stored before there was one.

    resource, because: the bottleneck and how it is known; times: which step the figures are of and its spread, in a
    line; step_name: the step, in a word or two.
    """

    part_rows: list[StepPart]
    resource: str | None
    because: str
    times: str
    step_name: str
    step_source: str
    graphs: list[Graph]
    pause: str


class SpeedupRow(TypedDict):
    """The step after following some advice. listed: the advice, in words."""

    name: str
    step_time_us: Range
    speedup: Range
    saved_us: Range
    idle_us: float
    advice: list[str]
    listed: str


class SpeedupSection(TypedDict, total=False):
    """Context of partials/trace/where/speedup.html: a row for all that are followed and one for the best three; {}
    where nothing is known. of_which: of which step it is, where the trace's steps differ much."""

    of_which: str
    rows: list[SpeedupRow]
    unknown: list[GainUnknown]
    pace: Pace | None
    wall_us: float


PARTS: tuple[tuple[PartField, str, str, str], ...] = (
    ("kernels_us", "Compute kernels", "compute", "the union of their intervals"),
    ("communication_us", "Communication, not hidden", "communication", "it runs and no compute kernel does"),
    ("copies_us", "Exposed memcpy and memset", "copies", "nothing else runs"),
    ("idle_launch_us", "Idle: waiting for launches", "launch", "the host issues kernels more slowly than the GPU runs"),
    (
        "idle_host_us",
        "Idle: waiting for the host",
        "host",
        f"a synchronising call, or more than {PAUSE_US:.0f} µs without an operation or a launch; or no work follows",
    ),
    (
        "idle_communication_us",
        "Idle: waiting for communication",
        "wait",
        "between queued work and a collective, or the host stands in one",
    ),
    ("idle_device_us", "Idle: queued, not started", "queue", "launched before, the GPU was not ready"),
)
"""Field of step_parts, its name, its colour's class, when time counts as it."""


RESOURCES = {
    "gpu": "GPU kernels",
    "launches": "kernel launches",
    "host": "the host",
    "communication": "communication",
    "copies": "copies and sets",
    "queue": "the GPU's queue",
}


STEP_NAMES: Mapping[StepOf, str] = {
    "one": "Step", "median": "Median step", "mean": "Mean step", "covered": "One step",
}  # fmt: skip


MEAN_OF_TWO = ": the mean of the two in the middle"


OTHER_STEP: Mapping[StepOf, str] = {
    "one": "one step",
    "mean": "the mean of {steps} steps, whose sizes differ",
    "covered": "the step that the execution trace has",
}
"""Of the step that figures are of where it is not the median, what it is."""


SOURCES: Mapping[str, str] = {
    "profiler": "marked by the profiler",
    "annotation": "an annotation that repeats",
    "repetition": "found by the repetition of kernels",
    "window": "the whole recording as one step",
}


def step_section(trace: AnyTrace) -> StepSection:
    """What the step's wall time is made of; {} for traces stored before that was."""
    parts = trace.get("step_parts")
    if not parts or not parts["wall_us"]:
        return {}
    wall = parts["wall_us"]
    rows: list[StepPart] = [
        {
            "field": field,
            "name": name,
            "kind": kind,
            "time_us": parts[field],
            "share": parts[field] / wall,
            "when": when,
        }
        for field, name, kind, when in PARTS
        if parts[field] > 0.0
    ]
    return {
        "part_rows": rows,
        **_bottleneck(trace),
        "times": _describe_times(trace),
        "step_name": _name_step(trace),
        "step_source": SOURCES.get(trace.get("step_source") or "", ""),
        "graphs": trace.get("graphs") or [],
        "pause": f"{PAUSE_US:.0f} µs",
    }


class Bottleneck(TypedDict):
    """What the step waits for; None where it is not told."""

    resource: str | None
    because: str


def _bottleneck(trace: AnyTrace) -> Bottleneck:
    """None where all that there is to do is to record the step anew: what was recorded has no figures to go by."""
    critical, made = trace.get("critical"), trace.get("actions")
    if not critical:
        return {"resource": None, "because": ""}
    if made and all(action["tool"] == "record" for action in made):
        return {"resource": "not known", "because": "what was recorded is no whole step: its times say nothing of one"}
    return {"resource": RESOURCES.get(critical["resource"], critical["resource"]), "because": critical["because"]}


def speedup_section(trace: AnyTrace) -> SpeedupSection:
    """The step after following the advice; {} where nothing is known. One row where both are the same advice."""
    gain, parts = trace.get("gain"), trace.get("step_parts")
    if not gain or not parts:
        return {}
    best, whole = gain["top"], gain["all"]
    together = followed_words(trace)
    rows = [_speedup_row(together[:1].upper() + together[1:], whole)] if whole else []
    if whole and best and len(best["advice"]) < len(whole["advice"]):
        rows.append(_speedup_row(f"Only the {len(best['advice'])} that save most", best))
    return {
        "rows": rows, "unknown": gain["unknown"], "pace": trace.get("pace"), "wall_us": parts["wall_us"],
        "of_which": which_step(trace.get("step_times")),
    }  # fmt: skip


def _speedup_row(name: str, total: GainTotal) -> SpeedupRow:
    return {"name": name, **total, "listed": list_names(total["advice"])}


def _describe_times(trace: AnyTrace) -> str:
    """Which step the figures are of, with its spread and how many steps were measured, in one line."""
    times = trace.get("step_times")
    if not times:
        return ""
    shown, of = duration(trace.get("step_time_us")), times.get("of", "median")
    if times["count"] == 1:
        text = f"{shown}, one step measured"
    else:
        spread = "quartiles" if times["count"] >= 4 else "shortest and longest"
        around = f"{spread} {duration(times['low_us'])} and {duration(times['high_us'])}"
        middle = f"the median of {times['count']} steps"
        if of == "median":
            two = "" if times["count"] % 2 else ": the mean of both" if times["count"] == 2 else MEAN_OF_TWO
            text = f"{shown}, {middle}{two} ({around})"
        else:
            what = OTHER_STEP[of].format(steps=times.get("steps", 1))
            text = f"{shown}, {what}; {middle} is {duration(times['median_us'])} ({around})"
    left = times["left_out"]
    phase = trace.get("phase")
    other = ", or another phase" if phase and phase["told_by"] == "annotations" else ""
    return f"{text}; {left} left out (warm-up{other}, or without kernels)" if left else text


def _name_step(trace: AnyTrace) -> str:
    """What the step is called whose time is told."""
    times = trace.get("step_times")
    return STEP_NAMES[times.get("of", "median")] if times and times["count"] > 1 else "Step"
