"""One column under construction: numbers appended batch by batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from profiler.trace.mmap_columns import LONG_ROWS, empty, map_numbers, pieces, take
from profiler.trace.model import NONE, Floats, Ints, Longs

Part = npt.NDArray[np.generic]


class Column:
    """Numbers of one kind; taking them empties it. A long one is kept in a file (see mmap_columns)."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        # Ids nearly always fit 32 bits: half the memory until they are taken.
        self._narrow = np.dtype(np.int32) if self._dtype == np.int64 else self._dtype
        self._reset()

    def _reset(self) -> None:
        self._parts: list[Part] = []
        self._waiting = 0  # numbers in the parts
        self._file: IO[bytes] | None = None
        self._written = 0  # numbers in the file, all of _kind
        self._kind = self._narrow
        self._repeated: tuple[int, int] | None = None  # an id that is everywhere the same (often NONE), and how often

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

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
        self.append(part)

    def append(self, part: Part) -> None:
        """Appends what another column gave from `drain`."""
        if not len(part):
            return
        if self._dtype == np.int64 and not self._waiting and not self._written:
            value, count = self._repeated or (int(part[0]), 0)
            if (part == value).all():
                self._repeated = value, count + len(part)
                return
            self._unfold()
        self._parts.append(part)
        self._waiting += len(part)
        if self._waiting > LONG_ROWS:
            self._write()

    def _unfold(self) -> None:
        """The constant so far as numbers."""
        if self._repeated is not None:
            value, count = self._repeated
            self._repeated = None
            self._parts.append(self._constant(value, count))
            self._waiting += count

    def _constant(self, value: int, count: int) -> Part:
        """`count` times the value, in the memory of one."""
        return np.broadcast_to(np.array(value, self._dtype if abs(value) >> 31 else self._narrow), count)

    def _write(self) -> None:
        """Moves the parts to the file; where that fails they stay."""
        parts = self._join()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed with the column)
                self._kind = parts.dtype
            elif parts.dtype.itemsize > self._kind.itemsize:
                parts = np.concatenate((map_numbers(self._file, self._written, self._kind), parts))
                self._written, self._kind = 0, parts.dtype
            data = memoryview(parts.astype(self._kind, copy=False).data).cast("B")
            self._file.seek(self._written * self._kind.itemsize)
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._parts, self._waiting = [parts], len(parts)
            return
        self._written += len(parts)
        self._parts, self._waiting = [], 0

    def _join(self) -> Part:
        parts = self._parts
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self._narrow)

    def drain(self) -> Part:
        """All of it, as narrow as it is kept; the column is empty afterwards."""
        if self._repeated is not None:
            value, count = self._repeated
            self._reset()
            return self._constant(value, count)
        if self._written and self._waiting:
            self._write()
        numbers = self._join()
        if self._file is not None and self._written:
            in_file = map_numbers(self._file, self._written, self._kind)
            numbers = np.concatenate((in_file, numbers)) if self._waiting else in_file
        if self._file is not None:
            self._file.close()
        self._reset()
        return numbers

    def ints(self) -> Ints:
        return self.drain().astype(np.int32, copy=False)

    def longs(self, order: Longs | None = None) -> Longs:
        """As int64, in this order where one is given."""
        whole = self.drain()
        if order is None and len(whole) and not any(whole.strides):
            return np.broadcast_to(np.int64(whole[0]), len(whole))
        if order is not None:
            return cast("Longs", take(whole, order, np.int64))
        if whole.dtype == np.int64:
            return cast("Longs", whole)
        wide = empty(len(whole), np.int64)
        for at in pieces(len(whole), whole, wide):
            wide[at] = whole[at]
        return cast("Longs", wide)

    def floats(self) -> Floats:
        return self.drain().astype(np.float64, copy=False)

    def flags(self) -> npt.NDArray[np.bool_]:
        return self.drain().astype(np.bool_, copy=False)


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
