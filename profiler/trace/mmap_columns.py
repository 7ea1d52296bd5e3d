"""Columns of long traces lie in unlinked temporary files, mapped into memory: only the part in use is resident.

The pages are shared with the file, so the system may write them out and take them back at any time. They go into the
folder of `tempfile` (TMPDIR); where that is in memory, or has no room left, a long trace takes memory instead.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt

from profiler.trace.model import NONE

LONG_ROWS = 400_000
"""Columns of more rows are mapped. All columns of that many operators take some 25 MB."""

PIECE_ROWS = 1 << 17
"""Rows that are worked on at once: one column and its temporaries take some MB."""

Array = npt.NDArray[np.generic]


def empty(count: int, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Room for a column: [count] of this type, not initialised."""
    dtype = np.dtype(dtype)
    if count > LONG_ROWS:
        try:
            with tempfile.TemporaryFile() as file:
                os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
                return map_numbers(file, count, dtype)
        except (OSError, AttributeError):  # no room, or a system without posix_fallocate
            pass
    return np.empty(count, dtype)


def map_numbers(file: IO[bytes], count: int, dtype: npt.DTypeLike) -> Array:
    """The first `count` numbers of a file; they stay after it is closed. Raises OSError."""
    dtype = np.dtype(dtype)
    return np.frombuffer(mmap.mmap(file.fileno(), count * dtype.itemsize), dtype)


def release(*arrays: Array) -> None:
    """Takes the pages of mapped columns out of this process's memory until they are read again."""
    for array in arrays:
        pages = _pages(array)
        if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
            pages.madvise(mmap.MADV_DONTNEED)


def _pages(array: Array) -> mmap.mmap | None:
    """The mapped file that an array is a view of; None for memory."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None


def pieces(count: int, *arrays: Array, rows: int = 0) -> Iterator[slice]:
    """Slices of so many rows (0: PIECE_ROWS) that cover [0, count); after each one the arrays are released."""
    rows = rows or PIECE_ROWS
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))
        release(*arrays)


def take(array: Array, order: Array, dtype: npt.DTypeLike | None = None) -> Array:
    """array[order], as this type: a constant stays one, a long column is mapped."""
    if not any(array.strides) and len(array):
        return np.broadcast_to(array[:1].astype(dtype or array.dtype)[0], len(order))
    out = empty(len(order), dtype or array.dtype)
    for at in pieces(len(order), array, order, out):
        out[at] = array[order[at]]
    return out


def look_up(array: Array, index: Array, otherwise: float) -> Array:
    """array[index]; `otherwise` where the index is NONE."""
    out = empty(len(index), array.dtype)
    for at in pieces(len(index), array, index, out):
        out[at] = np.where(index[at] != NONE, array[index[at]], otherwise) if len(array) else otherwise
    return out
