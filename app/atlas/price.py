"""Prices: µs on the device of operations behind each other, and of the kernels and calls that Inductor makes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from app.atlas.atlas import Atlas, Price
from app.atlas.chance import DEVIATION, TAIL, chosen_by_chance
from app.atlas.item import Item
from app.atlas.kernel_items import kernel_item
from app.atlas.operation_items import site_item
from profiler.hardware import Device
from profiler.oracle.model import OracleKernel, Prediction
from profiler.region.graph.operation import Tensor

CALL_US = 2.0
"""What a timed call takes besides its kernels: the device's events, and the first launch behind them.

Compiled programs of the H200's recording with 1 to 9 kernels took 2.2 µs and their kernels' times less 1.4 µs each.
"""
HELD = 0.5
"""Of L2: what was read or written within so many of its bytes is still there."""
UNDESCRIBED_US = 2.0
"""A call that nobody could describe: a launch."""
UNREACHED = 1.5
"""Over its floor what a call takes whose like was not measured: attention's backward, an fft. A guess."""
UNKNOWN_DEVIATION = 0.4
"""Of a total of which the atlas says nothing. A guess: `Total.known` keeps it from being told."""


@dataclass(frozen=True, slots=True)
class Part:
    """One operation, kernel or library call with its time in µs for all of its launches. deviation: see `Price`;
    None where the atlas has no points like it and other rules gave the time. price: of one launch. tail: its mean over
    what time and deviation say of it, as `app.estimate.range.Range` has it."""

    name: str
    time_us: float
    deviation: float | None
    price: Price | None = None
    launches: int = 1
    tail: float = 1.0


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of parts, each behind the other."""

    parts: tuple[Part, ...]

    @property
    def time_us(self) -> float:
        return CALL_US + sum(p.time_us for p in self.parts)

    @property
    def known(self) -> float:
        """Share of the time that the atlas said."""
        total = sum(p.time_us for p in self.parts)
        return sum(p.time_us for p in self.parts if p.deviation is not None) / total if total else 0.0

    @property
    def tail(self) -> float:
        """Of the sum, as of each part."""
        total = sum(p.time_us for p in self.parts)
        return sum(p.time_us * p.tail for p in self.parts) / total if total else 1.0

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of the sum, where half of what each part is off by is common to all.

        Parts of one region are alike, and so are their errors; independent ones would cancel out in a long sum.
        """
        known = [(p.time_us, p.deviation) for p in self.parts if p.deviation is not None]
        total = sum(t for t, _ in known)
        if not total:
            return UNKNOWN_DEVIATION
        together = sum(t * d for t, d in known) / total
        independent = math.sqrt(sum((t * d) ** 2 for t, d in known)) / total
        return math.sqrt(0.5 * together**2 + 0.5 * independent**2)


def compiled(prediction: Prediction, atlas: Atlas, device: Device) -> Total | None:
    """The kernels and calls of one answer of the oracle.

    None where one of its kernels is a template: max-autotune's own products are not in the atlas.
    """
    parts = []
    for kernel in prediction.kernels:
        item = kernel_item(kernel.traits, kernel.bytes_moved)
        price = atlas.price(item, device) if item is not None else None
        if price is None:
            return None
        parts.append(_generated(kernel, price))
    for extern in prediction.externs:
        items = [site_item(extern.name, site) for site in extern.sites] or [None] * extern.calls
        parts += [_call(extern.name, item, atlas, device) for item in items]
    return Total(tuple(parts))


def _generated(kernel: OracleKernel, price: Price) -> Part:
    """One that Inductor wrote, whichever configuration it takes."""
    time_us, deviation = kernel.calls * price.cold_us, price.deviation
    if not chosen_by_chance(kernel.traits):
        return Part(kernel.name, time_us, deviation, price, kernel.calls)
    return Part(kernel.name, time_us, math.hypot(deviation, DEVIATION), price, kernel.calls, TAIL)


def first_unpriced(prediction: Prediction, atlas: Atlas, device: Device) -> OracleKernel | None:
    """The kernel for which `compiled` says nothing of an answer; None where it says something."""
    for kernel in prediction.kernels:
        item = kernel_item(kernel.traits, kernel.bytes_moved)
        if item is None or atlas.price(item, device) is None:
            return kernel
    return None


def _call(name: str, item: Item | None, atlas: Atlas, device: Device) -> Part:
    if item is None:
        return Part(name, UNDESCRIBED_US, None)
    price = atlas.price(item, device)
    if price is None:
        return Part(name, UNREACHED * item.floor_us(device), None)
    warm = 0.5 if item.bytes_moved < HELD * device.l2_bytes else 0.0  # what feeds it was mostly written just before
    return Part(name, between(price, warm), price.deviation, price)


def between(price: Price, warm: float) -> float:
    """µs where that share of the inputs is in L2."""
    return price.warm_us * warm + price.cold_us * (1 - warm)


class Cache:
    """Which tensors were used last, by storage. L2 keeps what was used within its size."""

    def __init__(self, held_bytes: float) -> None:
        self.held_bytes = held_bytes
        self.passed = 0.0
        self.used: dict[int, float] = {}

    def share_held(self, tensors: Iterable[Tensor]) -> float:
        """Share of their bytes that is still there."""
        read = list(tensors)
        total = sum(t.bytes for t in read)
        held = sum(
            t.bytes for t in read if t.storage in self.used and self.passed - self.used[t.storage] <= self.held_bytes
        )
        return held / total if total else 0.0

    def touch(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.passed += tensor.bytes
            self.used[tensor.storage] = self.passed - tensor.bytes
