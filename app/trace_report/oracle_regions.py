"""Which regions of a trace Inductor is asked about behind the first answer, and how far that is. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.objects.region import Region, RegionBody
from app.objects.trace import AskedRegion, OracleProgress

SHARE = 0.95
"""Of the time of a trace's regions, where nobody says otherwise: what is left is worth no question."""


@dataclass(frozen=True, slots=True)
class AskedText:
    """The regions of one text, which are one question. positions: in the trace's list; time_us: of all in a step."""

    text: str
    positions: tuple[int, ...]
    time_us: float


def asked_region(region: Region | RegionBody) -> AskedRegion:
    """Of a region what decides whether Inductor is asked about it."""
    first = next(iter(region["oracle"]), None)
    return {
        "text": region["text"] or "",
        "time_us": region["time_us_per_step"],
        "advised": region["advice"] is not None,
        "unavailable": None if first is None else first["unavailable"],
    }


def asked_texts(regions: Sequence[AskedRegion], share: float = SHARE) -> tuple[AskedText, ...]:
    """What Inductor is asked about, the heaviest first: texts until the regions looked at make up that share of all
    their time. A region without a text or without advice takes its part of the time, and nobody is asked about it."""
    total_us = _time_us(regions)
    reached_us = 0.0
    chosen: list[AskedText] = []
    for text, positions in _by_text(regions):
        if reached_us >= share * total_us:
            break
        time_us = _time_us([regions[p] for p in positions])
        reached_us += time_us
        if text and regions[positions[0]]["advised"]:
            chosen.append(AskedText(text, positions, time_us))
    return tuple(chosen)


def oracle_progress(regions: Sequence[AskedRegion], share: float = SHARE) -> OracleProgress:
    """How far Inductor has been asked about them."""
    texts = asked_texts(regions, share)
    answers = [[regions[p]["unavailable"] for p in text.positions] for text in texts]
    answered = sum(all(a == "" for a in answer) for answer in answers)
    failed = sum(None not in answer and any(answer) for answer in answers)
    total_us = _time_us(regions)
    return {
        "asked": len(texts),
        "answered": answered,
        "failed": failed,
        "of_time": sum(text.time_us for text in texts) / total_us if total_us else 0.0,
        "done": answered + failed == len(texts),
    }


def _by_text(regions: Sequence[AskedRegion]) -> list[tuple[str, tuple[int, ...]]]:
    """Texts with the positions of their regions, those that take most first; each region without one by itself."""
    positions: dict[tuple[str, int], list[int]] = {}
    for position, region in enumerate(regions):
        alone = not region["text"] or not region["advised"]
        positions.setdefault((region["text"], position if alone else -1), []).append(position)
    by_time = sorted(positions.items(), key=lambda item: -_time_us([regions[p] for p in item[1]]))
    return [(text, tuple(places)) for (text, _), places in by_time]


def _time_us(regions: Sequence[AskedRegion]) -> float:
    return sum(region["time_us"] or 0.0 for region in regions)
