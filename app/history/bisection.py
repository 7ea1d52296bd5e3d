"""Which commits to try between a good and a bad one, in the order in which each halves what is left. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def bisection_order(between: Sequence[str], measured: Collection[str] = ()) -> list[str]:
    """between: after the good commit, up to the bad one, oldest first. Without those that were measured, and the last.

    First the middle one; then the middles of both halves, of which one will be needed; and so on.
    """
    left = [commit for commit in between[:-1] if commit not in measured]
    ranges = [(0, len(left))]
    order = []
    for low, high in ranges:
        if low >= high:
            continue
        middle = (low + high) // 2
        order.append(left[middle])
        ranges += [(low, middle), (middle + 1, high)]
    return order
