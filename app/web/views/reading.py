"""How far the reading of a trace is, in words, for its page. Pure functions of `Store.reading`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

from app.objects.trace import Trace, TraceBody, TraceProgress
from app.units import count

ADVISING = "advising-"
"""How a page's `state` begins once it shows the trace's parts; behind it the number of regions that have advice."""

STAGES: Mapping[str, tuple[str, str]] = {
    "reading": ("Read the file", "Reading the file"),
    "regions": ("Cut the step into regions", "Cutting the step into regions"),
    "callers": ("Look up who called what", "Looking up who called what"),
    "parts": ("Account for the step's time", "Accounting for the step's time"),
    "advice": ("Advise on each region", "Advising"),
}
"""Stage of `app.trace_report.progress` -> what is done in it, as an item of a list and while it is under way."""


class StageRow(TypedDict):
    """A stage of the reading in the list of all."""

    words: str
    state: Literal["done", "now", "later"]


class ReadingProgress(TypedDict):
    """Context of partials/trace/reading/progress.html.

    state: what the page shows by this, so that an answer is needed only where it differs. words: the line on the page;
    said: the sentence that is read out, which changes only from phase to phase. percent: of the whole reading, None
    while nobody can tell; 100 only of what is read. stages: all of them, none of what is read.
    """

    state: str
    words: str
    said: str
    percent: int | None
    stages: list[StageRow]


def status_of(trace: Mapping[str, object]) -> str:
    """reading, ready or failed; ready for a trace that is built and not stored."""
    return str(trace.get("status") or "ready")


def has_parts(trace: Trace | TraceBody) -> bool:
    """Whether a trace's parts are known: its step, its regions and their times, with or without advice on them.

    What was known when reading failed, or was cancelled, stays.
    """
    return status_of(trace) == "ready" or trace["kernels"] is not None


def describe_progress(progress: TraceProgress) -> ReadingProgress:
    """How far the reading is, in words."""
    advised, of = len(progress["advised"]), progress["regions"]
    ahead = progress["ahead"]
    percent = _percent(progress["fraction"])
    if progress["status"] == "ready":
        words = f"Advice on {'all ' if advised == of > 1 else ''}{_count_of(advised, of)}"
        said = f"The trace is read. {words}."
        return {"state": "ready", "words": words, "said": said, "percent": 100, "stages": []}
    if progress["parts"]:
        said = f"The step and its {count(of, 'region')} are here; advice is coming."
        words = f"Advice on {_count_of(advised, of)}"
        return {
            "state": f"{ADVISING}{advised}", "words": words, "said": said, "percent": percent,
            "stages": _stage_rows("advice"),
        }  # fmt: skip
    if ahead is not None:
        words = f"{count(ahead, 'trace')} before it" if ahead else "Next in line"
        return {
            "state": f"waiting-{ahead}", "words": words, "said": "Waiting for its turn.", "percent": None,
            "stages": _stage_rows(None),
        }  # fmt: skip
    stage = progress["stage"]
    told = [*([stage] if stage in STAGES else []), *([] if percent is None else [str(percent)])]
    state = "-".join(["reading", *told])
    words = STAGES[stage][1] if stage in STAGES else "Reading the trace"
    return {
        "state": state, "words": words, "said": "Reading the trace.", "percent": percent, "stages": _stage_rows(stage),
    }  # fmt: skip


def describe_trace_progress(trace: Trace | TraceBody, fraction: float | None = None) -> ReadingProgress:
    """The same for a trace with its regions. fraction: what its reader said last."""
    status = status_of(trace)
    return describe_progress(
        {
            "status": "ready" if status == "ready" else "failed" if status == "failed" else "reading",
            "ahead": None,
            "stage": "",
            "fraction": fraction,
            "parts": has_parts(trace),
            "step_time_us": trace.get("step_time_us"),
            "regions": len(trace["regions"]),
            "advised": [place for place, region in enumerate(trace["regions"]) if region.get("advice")],
        }
    )


def newly_advised(waiting: Iterable[str], progress: TraceProgress) -> list[int]:
    """Of the positions that a page waits for advice on those where it has come. waiting: as the page's fields say."""
    places = {int(place) for place in waiting if place.isascii() and place.isdigit() and len(place) < 7}
    return sorted(places.intersection(progress["advised"]))


def _percent(fraction: float | None) -> int | None:
    """Whole per cent, rounded down; what is not read is never at 100."""
    return None if fraction is None else min(99, int(100 * fraction + 1e-6))


def _stage_rows(now: str | None) -> list[StageRow]:
    """All stages. now: which is under way; of one that is not known, the first; None for a trace that waits."""
    names = list(STAGES)
    at = -1 if now is None else names.index(now) if now in STAGES else 0
    return [
        {"words": STAGES[name][0], "state": "done" if place < at else "now" if place == at else "later"}
        for place, name in enumerate(names)
    ]


def _count_of(advised: int, of: int) -> str:
    return count(of, "region") if advised == of else f"{advised} of {count(of, 'region')}"
