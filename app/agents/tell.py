"""How far a question is, as it is told."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[float, str], None]
"""Is told the share that is done, 0 to 1, and what is being done."""


def part_of(tell: Tell, begun: float, share: float) -> Tell:
    """What tells of a part of the work that begins at `begun` of it and is that share of it."""
    return lambda fraction, words: tell(begun + share * fraction, words)
