"""Item: one operation or kernel that a price is asked for, described by numbers. Pure data; torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler.hardware import Device

ANOTHER = "another device"
"""The number of a point that was measured on another device of the architecture, 1 there: it may differ by a factor."""


@dataclass(frozen=True, slots=True)
class Item:
    """What the atlas is asked. group: items of one group are compared with each other, "eager reduction".

    numbers: by name, on scales on which a step means about as much everywhere: logarithms to the base of 2 of sizes. A
    name with "=" is a category: 1 for its members. bytes_moved: fewest that it has to read and write. flops, dtype: of
    matrix products, attention and convolutions, 0 for everything else. lanes: what the vector units execute, in
    multiply-adds of one element. serial_us: of what runs one behind another whatever the device's width, a row by one
    processor.
    """

    group: str
    bytes_moved: float
    numbers: Mapping[str, float] = field(default_factory=dict)
    flops: float = 0.0
    dtype: str = "f32"
    lanes: float = 0.0
    serial_us: float = 0.0

    def floor_us(self, device: Device) -> float:
        """No shorter than its bytes take at the device's copy rate, its FLOPs at its matrix units' rate, its lanes at
        half of its vector units' (a multiply-add is two FLOPs) and what is serial; plus 1 µs.

        Where both matter they overlap in part: the root of the sum of squares. The rest is the atlas's to say.
        """
        moved = 1e6 * self.bytes_moved / device.copy_rate
        computed = 1e6 * self.flops / device.matmul_rate(self.dtype) if self.flops else 0.0
        executed = 2e6 * self.lanes / device.f32_rate if self.lanes else 0.0
        return math.hypot(moved, computed, executed, self.serial_us) + 1.0


def log2(value: float | int | None) -> float:
    """Logarithm to the base of 2 of a size; -1 for nothing."""
    return math.log2(value) if value and value > 0 else -1.0


def alignment(size: int, most: int = 7) -> int:
    """How often 2 divides a size, `most` at most: vector loads and tiles depend on it."""
    return most if size <= 0 else min(most, (size & -size).bit_length() - 1)
