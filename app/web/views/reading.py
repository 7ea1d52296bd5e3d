"""How far the reading of a trace is, in words, for its page. Pure functions of `Store.reading`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from app.objects.trace import Trace, TraceBody, TraceProgress
from app.units import count

ADVISING = "advising-"
"""How a page's `state` begins once it shows the trace's parts; behind it the number of regions that have advice."""


class ReadingProgress(TypedDict):
    """Context of partials/trace/progress.html.

    state: what the page shows by this, so that an answer is needed only where it differs. words: the line on the page;
    said: the sentence that is read out, which changes only from phase to phase. fraction: None while nobody can tell.
    """

    state: str
    words: str
    said: str
    fraction: float | None


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
    if progress["status"] == "ready":
        words = f"Advice on {'all ' if advised == of > 1 else ''}{_count_of(advised, of)}"
        return {"state": "ready", "words": words, "said": f"The trace is read. {words}.", "fraction": 1.0}
    if progress["parts"]:
        said = f"The step and its {count(of, 'region')} are here; advice is coming."
        words = f"Advice on {_count_of(advised, of)}"
        return {"state": f"{ADVISING}{advised}", "words": words, "said": said, "fraction": advised / of if of else None}
    if ahead is not None:
        words = f"{count(ahead, 'trace')} before it" if ahead else "Next in line"
        return {"state": f"waiting-{ahead}", "words": words, "said": "Waiting for its turn.", "fraction": None}
    return {"state": "reading", "words": "Reading the trace…", "said": "Reading the trace.", "fraction": None}


def describe_trace_progress(trace: Trace | TraceBody) -> ReadingProgress:
    """The same for a trace with its regions."""
    status = status_of(trace)
    return describe_progress(
        {
            "status": "ready" if status == "ready" else "failed" if status == "failed" else "reading",
            "ahead": None,
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


def _count_of(advised: int, of: int) -> str:
    return count(of, "region") if advised == of else f"{advised} of {count(of, 'region')}"
