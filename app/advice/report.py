"""Report: what following all the advice on a trace is worth, region by region and together. Pure functions of data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.advice.model import Advice, Range


@dataclass(frozen=True, slots=True)
class Item:
    """One region of a step with its advice. time_us: per step, all calls together; None where it was not observed."""

    name: str
    advice: Advice
    time_us: float | None


@dataclass(frozen=True, slots=True)
class Rest:
    """Time of the step that is in no region, with the name of what it is."""

    name: str
    time_us: float


@dataclass(frozen=True, slots=True)
class Row:
    """One region in the report. saved_us: per step, when the advice is followed; None without a prediction."""

    name: str
    tool: str
    mode: str
    headline: str
    time_us: float | None
    share_of_step: float | None
    saved_us: Range | None
    step_speedup: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """rows: by what following the advice saves. together: Amdahl's speed-up of the step when all advice is followed.

    shares: region or rest -> share of the step, the rest of the step under `IDLE`; they add up to 1 unless regions
    overlap on several streams.
    """

    step_time_us: float | None
    rows: tuple[Row, ...]
    saved_us: Range
    together: Range | None
    shares: tuple[tuple[str, float], ...]


IDLE = "GPU idle or outside regions"


def report(items: Iterable[Item], rests: Iterable[Rest] = (), step_time_us: float | None = None) -> Report:
    """Rank the regions of a step by what their advice saves. Times in µs."""
    kept = tuple(items)
    rows = sorted((_row(i, step_time_us) for i in kept), key=_order)
    saved = [r.saved_us for r in rows if r.saved_us is not None]
    total = Range(sum(s.low for s in saved), sum(s.mid for s in saved), sum(s.high for s in saved))
    return Report(step_time_us, tuple(rows), total, _together(total, step_time_us), _shares(kept, rests, step_time_us))


def _row(item: Item, step_time_us: float | None) -> Row:
    saved = saved_us(item)
    share = item.time_us / step_time_us if item.time_us is not None and step_time_us else None
    speedup = None
    if saved is not None and step_time_us and saved.mid < step_time_us:
        speedup = step_time_us / (step_time_us - saved.mid)
    advice = item.advice
    return Row(item.name, advice.tool, advice.mode, advice.headline, item.time_us, share, saved, speedup)


def saved_us(item: Item) -> Range | None:
    """µs per step that following the advice saves: time x (1 - 1 / speed-up); 0 for skip."""
    if item.time_us is None:
        return None
    if item.advice.tool == "skip":
        return Range(0.0, 0.0, 0.0)
    factor = item.advice.region_speedup
    if factor is None:
        return None
    low, mid, high = (item.time_us * (1 - 1 / f) if f > 0 else 0.0 for f in (factor.low, factor.mid, factor.high))
    return Range(low, mid, high)


def _order(row: Row) -> tuple[float, float, str]:
    saved = row.saved_us.mid if row.saved_us is not None else -1.0
    return -saved, -(row.time_us or 0.0), row.name


def _together(saved: Range, step_time_us: float | None) -> Range | None:
    if not step_time_us:
        return None
    low, mid, high = (
        step_time_us / max(step_time_us * 1e-3, step_time_us - s) for s in (saved.low, saved.mid, saved.high)
    )
    return Range(low, mid, high)


def _shares(
    items: tuple[Item, ...], rests: Iterable[Rest], step_time_us: float | None
) -> tuple[tuple[str, float], ...]:
    if not step_time_us:
        return ()
    found: dict[str, float] = {}
    for name, time_us in [*((i.name, i.time_us) for i in items), *((r.name, r.time_us) for r in rests)]:
        if time_us:
            found[name] = found.get(name, 0.0) + time_us / step_time_us
    left = 1.0 - sum(found.values())
    if left > 1e-9:
        found[IDLE] = left
    return tuple(sorted(found.items(), key=lambda p: -p[1]))
