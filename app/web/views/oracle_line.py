"""How far Inductor has been asked about a trace, in words, for its page. Pure functions of the API's objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from app.objects.trace import AskedRegion, OracleProgress
from app.units import count, share


class OracleLine(TypedDict):
    """Context of partials/oracle/line.html. state: what the page shows by this, so that an answer is needed only
    where it differs."""

    state: str
    words: str


def describe_oracle(progress: OracleProgress | None) -> OracleLine | None:
    """The line on the page; None where nobody is asked about any of its regions."""
    if progress is None or not progress["asked"]:
        return None
    ended = progress["answered"] + progress["failed"]
    of = f"{count(progress['asked'], 'region')} with most time ({share(progress['of_time'])} of all regions')"
    words = f"Inductor asked: {ended} of the {of}"
    if not progress["done"]:
        words += "; figures may still change"
    if progress["failed"]:
        words += f"; for {progress['failed']} it has no answer"
    return {"state": f"{progress['answered']}-{progress['failed']}", "words": f"{words}."}


def is_asking(progress: OracleProgress | None) -> bool:
    """Whether answers are still to come."""
    return progress is not None and not progress["done"]


def newly_asked(awaited: Iterable[str], regions: Sequence[AskedRegion]) -> list[int]:
    """Of the places that a page waits for answers on those where one has come. awaited: as the page's fields say."""
    places = {int(place) for place in awaited if place.isascii() and place.isdigit() and len(place) < 7}
    return sorted(p for p in places if p < len(regions) and regions[p]["unavailable"] is not None)
