"""How far the reading of a trace is, in words, for its page. Pure functions of `Store.reading`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.units import count

Json = Mapping[str, Any]


def has_parts(trace: Json) -> bool:
    """Whether a trace's parts are known: its step, its regions and their times, with or without advice on them.

    What was known when reading failed, or was cancelled, stays.
    """
    return trace["status"] == "ready" or trace["kernels"] is not None


def progress(now: Json) -> dict[str, Any]:
    """Context of partials/trace_progress.html.

    state: what the page shows by this, so that an answer is needed only where it differs. words: the line on the page;
    said: the sentence that is read out, which changes only from phase to phase. fraction: None while nobody can tell.
    """
    advised, of = len(now["advised"]), now["regions"]
    if now["status"] == "ready":
        words = f"Advice on {'all ' if advised == of > 1 else ''}{_of(advised, of)}"
        return {"state": "ready", "words": words, "said": f"The trace is read. {words}.", "fraction": 1.0}
    if now["parts"]:
        said = f"The step and its {count(of, 'region')} are here; advice is coming."
        words = f"Advice on {_of(advised, of)}"
        return {"state": f"advising-{advised}", "words": words, "said": said, "fraction": advised / of if of else None}
    if now["ahead"] is not None:
        words = f"{count(now['ahead'], 'trace')} before it" if now["ahead"] else "Next in line"
        return {"state": f"waiting-{now['ahead']}", "words": words, "said": "Waiting for its turn.", "fraction": None}
    return {"state": "reading", "words": "Reading the trace…", "said": "Reading the trace.", "fraction": None}


def progress_of(trace: Json) -> dict[str, Any]:
    """The same for a trace with its regions."""
    advised = [place for place, region in enumerate(trace["regions"]) if region.get("advice")]
    now = {"status": trace["status"], "ahead": None, "parts": has_parts(trace), "regions": len(trace["regions"])}
    return progress({**now, "advised": advised})


def come(asked: Iterable[str], now: Json) -> list[int]:
    """The positions that a page waits for advice on, of those where it has come. asked: as the page's fields say."""
    wanted = {int(place) for place in asked if place.isascii() and place.isdigit() and len(place) < 7}
    return sorted(wanted.intersection(now["advised"]))


def _of(advised: int, of: int) -> str:
    return count(of, "region") if advised == of else f"{advised} of {count(of, 'region')}"
