"""Which step figures of launches are of, told where a trace's steps differ: the next one may wait for others."""

from __future__ import annotations

from app.objects.trace import StepTimes
from app.units import count

DIFFERS = 1.2
"""How many times as long the upper quartile is as the lower (of few steps the longest as the shortest), from which
steps differ much."""


def which_step(times: StepTimes | None) -> str:
    """Of which step figures are, and how far the steps differ; "" where they are much alike, or one was measured."""
    if not times or times["count"] < 2:
        return ""
    of = times.get("of", "median")
    if of != "mean" and times["high_us"] < DIFFERS * times["low_us"]:  # a mean is of steps whose sizes differ
        return ""
    shown = {
        "median": f"the median of {count(times['count'], 'step')}",
        "mean": f"the mean of {count(times.get('steps', times['count']), 'step')}",
        "covered": "the step that the execution trace has",
        "one": "one step",
    }[of]
    ends = "half of them take" if times["count"] >= 4 else "they take"
    return f"of {shown}, which differ: {ends} {times['low_us'] / 1e3:.1f} to {times['high_us'] / 1e3:.1f} ms"
