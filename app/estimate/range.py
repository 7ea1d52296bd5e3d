"""Range: a predicted or measured figure with what it may be at least and at most."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.measure.model import INSIDE


@dataclass(frozen=True, slots=True)
class Range:
    """low <= mid <= high.

    tail: the mean over what low, mid and high say of it, where another outcome comes seldom and costs much: a
    configuration that torch.compile takes by chance (`app.atlas.chance`). 1 elsewhere. It decides and is not told.
    """

    low: float
    mid: float
    high: float
    tail: float = field(default=1.0, metadata={INSIDE: True})

    def times(self, factor: float) -> Range:
        """All of it so many times as long."""
        return Range(self.low * factor, self.mid * factor, self.high * factor, self.tail)
