"""A line the size of a word: the newest values of a series. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

WIDE, HIGH, EDGE = 120.0, 28.0, 4.0
LEAST_SPAN = 0.04
"""Of the mean: the height stands for at least so much, or noise would look like news."""


def sparkline(values: Sequence[float], label: str) -> Markup:
    """The values from left to right as an <svg>, the last one marked. label: what it says to who does not see it."""
    if not values:
        return Markup("")
    middle = (min(values) + max(values)) / 2
    span = max(max(values) - min(values), LEAST_SPAN * abs(middle)) or 1.0

    def place(at: int) -> tuple[float, float]:
        across = EDGE + (WIDE - 2 * EDGE) * (at / (len(values) - 1) if len(values) > 1 else 1.0)
        return across, HIGH / 2 - (values[at] - middle) / span * (HIGH - 2 * EDGE)

    spots = [place(at) for at in range(len(values))]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    drawn = (
        '<svg class="spark" viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}" height="{:.0f}" role="img" aria-label="{}">'
        '<polyline points="{}"/><circle cx="{:.1f}" cy="{:.1f}" r="2.5"/></svg>'
    )
    return Markup(drawn).format(WIDE, HIGH, WIDE, HIGH, label, path, *spots[-1])
