"""Sizes and layouts for calibration programs: drawn as they occur in practice, seeded."""

from __future__ import annotations

import math
from random import Random

from profiler.region.model import ITEMSIZE

FLOATS = ("bf16", "f32", "f16")
WEIGHTS = (9, 8, 3)
"""How often each type occurs: about as in models of today."""

MOST_BYTES = 2**30
"""Of one tensor."""


def dtype(rng: Random) -> str:
    """A floating type, as often as models have it."""
    return rng.choices(FLOATS, WEIGHTS)[0]


def between(rng: Random, low: int, high: int) -> int:
    """Log-uniform; mostly a multiple of a power of two, as sizes of models are, sometimes any number."""
    value = max(low, min(high, round(2 ** rng.uniform(math.log2(low), math.log2(high)))))
    step = rng.choices((64, 8, 1, value), (5, 2, 2, 1))[0]
    if step == value:
        step = 2 ** round(math.log2(value)) if value > 1 else 1
    return max(low, min(high, max(1, round(value / step)) * step))


def elements(rng: Random, item: int, low: int = 2**10, most_bytes: int = MOST_BYTES) -> int:
    """Elements of a tensor, log-uniform: small ones tell of launches, middling ones of L2, large ones of memory."""
    return int(2 ** rng.uniform(math.log2(low), math.log2(most_bytes / item)))


def shape(rng: Random, kind: str, dims: int, low: int = 2**10, most_bytes: int = MOST_BYTES) -> tuple[int, ...]:
    """A shape of so many dimensions."""
    left = elements(rng, ITEMSIZE[kind], low, most_bytes)
    sizes: list[int] = []
    for position in range(dims - 1):
        share = rng.uniform(0.15, 0.85) if position == dims - 2 else rng.uniform(0.1, 0.5)
        size = between(rng, 1, max(1, min(2**20, round(left**share))))
        sizes.append(size)
        left = max(1, left // size)
    sizes.append(between(rng, 1, max(1, left)))
    if rng.random() < 0.4:
        rng.shuffle(sizes)
    return tuple(sizes)


def rows(rng: Random, kind: str, most_bytes: int = MOST_BYTES) -> tuple[int, int]:
    """(rows, columns): from few long rows to many short ones."""
    total = elements(rng, ITEMSIZE[kind], 2**12, most_bytes)
    columns = between(rng, 2, max(2, min(2**22, round(total ** rng.uniform(0.1, 1.0)))))
    return max(1, total // columns), columns


def text(sizes: tuple[int, ...]) -> str:
    """As the region language writes a shape."""
    return "[" + ", ".join(map(str, sizes)) + "]" if sizes else "[()]"


def declare(name: str, kind: str, sizes: tuple[int, ...], suffix: str = "") -> str:
    """The line of an input."""
    return f"{name}: {kind}{text(sizes)}{suffix}"


def layout(rng: Random, sizes: tuple[int, ...]) -> str:
    """Mostly contiguous; else permuted, or channels-last."""
    if len(sizes) == 4 and rng.random() < 0.25:
        return ".channels_last"
    if len(sizes) > 1 and rng.random() < 0.15:
        order = list(range(len(sizes)))
        rng.shuffle(order)
        strides, step = [0] * len(sizes), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= sizes[axis]
        return f".strides({', '.join(map(str, strides))})"
    return ""
