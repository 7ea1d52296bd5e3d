"""One column under construction: numbers appended batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from profiler.trace.model import NONE, Floats, Ints, Longs

Part = npt.NDArray[np.generic]


class Column:
    """Numbers of one kind; taking them empties it."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        # Ids nearly always fit 32 bits: half the memory until they are taken.
        self._narrow = np.dtype(np.int32) if self._dtype == np.int64 else self._dtype
        self._parts: list[Part] = []

    def extend(self, values: Callable[[], Iterable[float]], count: int) -> None:
        """Appends `count` values. They come from a call, because a column of ids may have to be walked twice.

        np.fromiter over a map takes half the time of np.array over a list.
        """
        try:
            part = np.fromiter(values(), self._narrow, count)
        except OverflowError:
            # Ids above 2^63 exist ("Comms Id" 10159970886766084423); none that joins events does.
            limit = np.iinfo(self._dtype).max
            part = np.fromiter((v if abs(v) <= limit else NONE for v in values()), self._dtype, count)
        self._parts.append(part)

    def append(self, part: Part) -> None:
        """Appends what another column gave as its `whole`."""
        self._parts.append(part)

    def whole(self) -> Part:
        """All of it, as narrow as it is kept; the column is empty afterwards."""
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self._narrow)

    def ints(self) -> Ints:
        return self.whole().astype(np.int32, copy=False)

    def longs(self, order: Longs | None = None) -> Longs:
        """As int64, in this order where one is given."""
        whole = self.whole()
        return (whole if order is None else whole[order]).astype(np.int64, copy=False)

    def floats(self) -> Floats:
        return self.whole().astype(np.float64, copy=False)

    def flags(self) -> npt.NDArray[np.bool_]:
        return self.whole().astype(np.bool_, copy=False)


def longs() -> Column:
    """A column of int64, kept as int32 while they fit."""
    return Column(np.int64)


def ints() -> Column:
    """A column of int32."""
    return Column(np.int32)


def floats() -> Column:
    """A column of float64."""
    return Column(np.float64)


def flags() -> Column:
    """A column of booleans."""
    return Column(np.bool_)
