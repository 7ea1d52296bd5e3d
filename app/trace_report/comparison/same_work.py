"""Whether two steps do the same work at all: else neither is faster than the other. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.trace import AnyTrace
from app.trace_report.comparison.pairing import Pair
from app.trace_report.comparison.serving import other_amount

NOT_THE_SAME = "not the same work"
LEAST_PAIRED = 0.5
"""Of both steps' time in regions, what must stand in pairs for them to be the same work. Two recordings of one model
among the tests' traces have 0.97 and more; so has much of two models, whose parts have the same names."""


def is_training(trace: AnyTrace) -> bool | None:
    """Whether its step has a backward pass or an optimizer; None where it was not told, as of traces of long ago."""
    if any(region.get("kind") == "optimizer" for region in trace.get("regions") or ()):
        return True
    backward_us = trace.get("backward_time_us")
    return None if backward_us is None else backward_us > 0.0


def why_not_the_same(left: AnyTrace, right: AnyTrace, pairs: Sequence[Pair], names: tuple[str, str]) -> str:
    """What tells that two steps do other work, in words; "" for nothing. pairs: of their parts."""
    trains = [is_training(t) for t in (left, right)]
    if None not in trains and trains[0] is not trains[1]:
        one, other = (names[trains.index(with_it)] for with_it in (True, False))
        return f"{NOT_THE_SAME}: {one} has a backward pass or an optimizer, {other} has none"
    if not any(trains):
        amount = other_amount(left.get("regions") or (), right.get("regions") or (), names)
        if amount:
            return f"{NOT_THE_SAME}: {amount}"
    share = paired_share(pairs)
    if share is not None and share < LEAST_PAIRED:
        return f"{NOT_THE_SAME}: only {share * 100:.0f} % of their regions' time is in parts that both have"
    return ""


def paired_share(pairs: Sequence[Pair]) -> float | None:
    """Of both steps' time in regions, what stands in pairs; None where there is none."""
    both, every = 0.0, 0.0
    for pair in pairs:
        time_us = sum(part.time_us for part in (*pair.a, *pair.b) if part.kind == "region")
        every += time_us
        both += time_us if pair.a and pair.b else 0.0
    return both / every if every else None
