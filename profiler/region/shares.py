"""Which share of mining is done, told while it runs. Torch-free."""

from __future__ import annotations

from collections.abc import Callable

OnShare = Callable[[float], None]
"""Is told, again and again, which share of a piece of work is done: from 0 to 1."""

STEPS = 0.95
"""What is done of mining once every step is; the rest is for putting what is equal in them together."""
PARTED, INFERRED = 0.15, 0.8
"""What is done of a step once it is cut into parts, and once it is known where their operands are from; the rest is for
their texts."""


def untold(_: float) -> None:
    """Where nobody asks."""


def within(tell: OnShare, begin: float, end: float) -> OnShare:
    """Tells of a piece that is the whole from `begin` to `end`."""
    return lambda share: tell(begin + (end - begin) * share)
