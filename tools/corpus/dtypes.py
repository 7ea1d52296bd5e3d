"""What a program's numbers are, and in which shares programs of each type are wanted: as they are in practice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from profiler.region.language.text import parse
from profiler.region.model import FLOATING, ITEMSIZE

AUTOCAST = "autocast"

SHARES: Mapping[str, float] = {"bf16": 0.5, "f16": 0.1, "f32": 0.3, AUTOCAST: 0.1}
"""Of types that are not here: none are wanted, and few come."""


@lru_cache(maxsize=16384)
def main_dtype(text: str) -> str:
    """The floating type that most bytes of the inputs are of; of all inputs, where none is floating."""
    region = parse(text)
    sizes: Counter[str] = Counter()
    for item in region.inputs:
        count = ITEMSIZE[item.dtype]
        for size in item.shape:
            count *= size if isinstance(size, int) else region.bindings[0][size]
        sizes[item.dtype] += count
    floating = {d: n for d, n in sizes.items() if d in FLOATING}
    return max(sorted((floating or sizes).items()), key=lambda pair: pair[1])[0]
