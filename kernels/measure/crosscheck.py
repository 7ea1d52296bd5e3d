"""Times that contradict each other: what each clock saw of the same calls, fresh inputs against repeated ones. Pure.

All are medians over rounds, and the bounds leave room for a busy host: a candidate gains nothing within them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

LONGEST_DRAIN = 1.5  # back-to-back calls run warmer than cold ones, and slower under a power cap
DRAIN_SLACK_US = 20.0
CLOCKS_DIFFER = 1.5
CLOCK_SLACK_US = 10_000.0  # until the parent, on a busy host, reads what the child said
LEAST_REPEAT_SHARE = 0.4
REPEAT_SLACK_US = 10.0  # what a call takes longer on cold caches
MOST_BURST = 2.0
BURST_ROUNDS = 0.75  # of all: a host that stalls does so now and then


@dataclass(slots=True)
class Clocks:
    """One candidate at one binding, per round.

    times_us: device time of each cold call, in order; fresh: the numbers of those on inputs that no call before has
    seen; wall_us: host time of one back-to-back call; drain_us: the part of it after all were queued; span_us: the
    whole back-to-back loop by the parent's clock. None where not told.
    """

    times_us: list[list[float]] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)
    drain_us: Sequence[float | None] = field(default_factory=list)
    span_us: Sequence[float | None] = field(default_factory=list)
    fresh: Sequence[Sequence[int]] = field(default_factory=list)


def contradiction(clocks: Clocks) -> str:
    """What cannot be true of the times together, "" where nothing is wrong."""
    return _outlasted(clocks) or _other_clock(clocks) or _kept(clocks) or _burst(clocks)


def _outlasted(clocks: Clocks) -> str:
    """Work on another stream or put off: the calls' own events do not see it, the wait for all of them does."""
    drains = [d for d in clocks.drain_us if d is not None]
    if not drains:
        return ""
    drain, device = float(np.median(drains)), _device(clocks)
    if drain <= LONGEST_DRAIN * device + DRAIN_SLACK_US:
        return ""
    return f"the GPU worked on for {drain:.4g} µs a call, where the calls' own events show {device:.4g} µs"


def _other_clock(clocks: Clocks) -> str:
    """A clock that was replaced in the child: the parent's has seen more pass."""
    pairs = [
        (span, wall * len(times))
        for span, wall, times in zip(clocks.span_us, clocks.wall_us, clocks.times_us, strict=False)
        if span is not None
    ]
    if not pairs:
        return ""
    seen, claimed = (float(np.median(values)) for values in zip(*pairs, strict=True))
    if seen <= CLOCKS_DIFFER * claimed + CLOCK_SLACK_US:
        return ""
    return f"its clock counted {claimed:.4g} µs, where {seen:.4g} µs passed outside of its process"


def _kept(clocks: Clocks) -> str:
    """Results kept by what the inputs hold: a call on new contents computes, a later one on the same does not."""
    first: list[float] = []
    again: list[float] = []
    for times, numbers in zip(clocks.times_us, clocks.fresh, strict=False):
        new = set(numbers)
        for number, time_us in enumerate(times[1:], 1):  # the first of a turn meets cold caches of its own
            (first if number in new else again).append(time_us)
    if not first or not again:
        return ""
    fresh, repeated = float(np.median(first)), float(np.median(again))
    if repeated >= LEAST_REPEAT_SHARE * fresh - REPEAT_SLACK_US:
        return ""
    return f"{repeated:.4g} µs on inputs that it had seen, {fresh:.4g} µs on fresh ones: it keeps results"


def _burst(clocks: Clocks) -> str:
    """One call that works for those to come, whose inputs it has found: the mean has it, the median does not."""
    typical = _device(clocks)
    mean = float(np.median([np.mean(times) for times in clocks.times_us]))
    bursts = [np.mean(times) > MOST_BURST * np.median(times) + REPEAT_SLACK_US for times in clocks.times_us]
    if np.mean(bursts) < BURST_ROUNDS:
        return ""
    return f"single calls do the others' work: {mean:.4g} µs a call in the mean, {typical:.4g} µs in the median"


def _device(clocks: Clocks) -> float:
    return float(np.median([np.median(times) for times in clocks.times_us]))


def scatter(rounds: Sequence[float]) -> float:
    """Interquartile range of the rounds' times over their median."""
    low, middle, high = np.percentile(rounds, [25, 50, 75])
    return float((high - low) / middle)
