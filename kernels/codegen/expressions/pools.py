"""Windows over an image: pools and depthwise convolutions, each tap a load of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx

from kernels.codegen.expressions.values import Builder, Value
from kernels.codegen.index import ZERO, Index, Linear, Unsupported
from kernels.codegen.nodes import Arguments, base, computed, dtype_of, fake

MAX_TAPS = 64
"""Elements of a window that are written out one by one."""
PLACED = frozenset({"max_pool2d_with_indices", "max_pool3d_with_indices"})
"""Pools that give places as well."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window in each of the last dimensions. sizes: of the image there."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)


def each(given: Any, rank: int) -> tuple[int, ...]:
    """One number for every dimension, where the call may give one for all."""
    numbers = [given] if isinstance(given, int) else list(given)
    return tuple(numbers * rank if len(numbers) == 1 else numbers)


def window_of(a: Arguments, sizes: Sequence[int], kernel: Any) -> Window:
    """The window that a call describes. kernel: one size, or one for each of the last dimensions."""
    rank = len(sizes)
    steps = a.get("stride")
    kernel = each(kernel, rank)
    return Window(
        kernel,
        each(steps, rank) if steps not in (None, [], ()) else kernel,
        each(a.get("padding") or 0, rank),
        each(a.get("dilation") or 1, rank),
        tuple(sizes),
    )


def taps(b: Builder, window: Window, index: Index) -> Iterator[tuple[tuple[int, ...], Index, Value | None]]:
    """Each tap: its place in the window, the image's index there, and whether that is inside (None: always).

    index: of the result, in the windows' dimensions.
    """
    if window.taps > MAX_TAPS:
        raise Unsupported(f"a window of {window.taps} elements")
    for tap in itertools.product(*(range(k) for k in window.kernel)):
        inside: Value | None = None
        at: list[Linear] = []
        for d, step in enumerate(tap):
            spot = index[d].scaled(window.stride[d]) + Linear(step * window.dilation[d] - window.padding[d])
            at.append(spot)
            within = _within(b, spot, window.sizes[d])
            if within is not None:
                inside = within if inside is None else b.expression("{0} & {1}", "bool", inside, within, name="inside")
        yield tap, tuple(at), inside


def _within(b: Builder, spot: Linear, size: int) -> Value | None:
    """Whether a place is inside of a dimension; None where it always is."""
    least = spot.offset + sum(c * (b.domain.sizes[d] - 1) for d, c in spot.terms if c < 0)
    below, above = least < 0, spot.largest(b.domain) >= size
    if not below and not above:
        return None
    place = b.place(spot)
    low, high = b.number(0, place.dtype), b.number(size, place.dtype)
    if below and above:
        return b.expression("({0} >= {1}) & ({0} < {2})", "bool", place, low, high, name="within")
    if below:
        return b.expression("{0} >= {1}", "bool", place, low, name="within")
    return b.expression("{0} < {1}", "bool", place, high, name="within")


def largest(b: Builder, node: torch.fx.Node, a: Arguments, place: int, index: Index) -> Value:
    """max_pool: the largest element of each window, NaN where one is; or its place, the first of equal ones."""
    source = a["self"]
    rank = 2 if "2d" in base(node) else 3
    shape, dtype = tuple(fake(source).shape), dtype_of(fake(source))
    window = window_of(a, shape[-rank:], a["kernel_size"])
    lead, own = index[:-rank], index[-rank:]
    inner = computed(dtype)
    lowest = b.number(-math.inf if inner.startswith("f") else -(2**31), inner)
    best: Value | None = None
    at: Value | None = None
    for _, where, inside in taps(b, window, own):
        value = _read(b, source, (*lead, *where), inside)
        if inside is not None:
            value = b.expression("tl.where({0}, {1}, {2})", inner, inside, value, lowest, name="tap")
        if place:
            at = _place(b, window, where, inside, value, best, at)
        best = value if best is None else b.named(b.apply("maximum", dtype, best, value), "largest")
    assert best is not None
    return b.cast(at, "i64") if place and at is not None else best


def _place(
    b: Builder, window: Window, where: Index, inside: Value | None, value: Value, best: Value | None, at: Value | None
) -> Value:
    """The place of the largest element so far, -1 before any. best: the largest before this one."""
    step, total = 1, ZERO
    for spot, size in zip(reversed(where), reversed(window.sizes), strict=True):
        total = total + spot.scaled(step)
        step *= size
    here = b.position(total, "i32" if math.prod(window.sizes) < 2**31 else "i64")
    if best is None or at is None:
        if inside is None:
            return here
        return b.expression("tl.where({0}, {1}, {2})", here.dtype, inside, here, b.number(-1, here.dtype))
    test = "({0} > {1}) | ({0} != {0}) | ({2} < 0)" if value.dtype.startswith("f") else "({0} > {1}) | ({2} < 0)"
    take = b.expression(test, "bool", value, best, at, name="larger")
    if inside is not None:
        take = b.expression("{0} & {1}", "bool", take, inside, name="larger")
    return b.named(b.expression("tl.where({0}, {1}, {2})", here.dtype, take, here, at), "place")


def _read(b: Builder, source: torch.fx.Node, index: Index, inside: Value | None) -> Value:
    return b.value(source, index) if inside is None else b.guarded(inside, source, index)


def average(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """avg_pool: the mean of each window, by all of it or by what is inside."""
    source = a["self"]
    rank = next(r for r in (1, 2, 3) if f"{r}d" in base(node))
    shape, dtype = tuple(fake(source).shape), dtype_of(fake(source))
    window = window_of(a, shape[-rank:], a["kernel_size"])
    lead, own, inner = index[:-rank], index[-rank:], computed(dtype)
    total: Value | None = None
    for _, where, inside in taps(b, window, own):
        value = b.cast(_read(b, source, (*lead, *where), inside), inner)
        if inside is not None:
            value = b.expression("tl.where({0}, {1}, {2})", inner, inside, value, b.number(0, inner), name="tap")
        total = value if total is None else b.named(b.expression("{0} + {1}", inner, total, value), "total")
    assert total is not None
    if a.get("divisor_override"):
        return b.expression("{0} / {1}", inner, total, b.number(a["divisor_override"], inner))
    count = _counted(b, window, own, bool(a.get("count_include_pad", True)), inner)
    return b.expression("{0} / {1}", inner, total, count)


def _counted(b: Builder, window: Window, index: Index, padded: bool, dtype: str) -> Value:
    """How many elements of each window count: those inside the image, or inside image and padding."""
    result: Value | None = None
    fixed = 1
    for d, part in enumerate(index):
        pad = window.padding[d]
        first = part.scaled(window.stride[d]) + Linear(-pad)
        low, high = (-pad, window.sizes[d] + pad) if padded else (0, window.sizes[d])
        if first.offset >= low and first.largest(b.domain) + window.kernel[d] <= high:
            fixed *= window.kernel[d]
            continue
        spot = b.place(first)
        ends = b.expression(
            f"tl.minimum({{0}} + {window.kernel[d]}, {high}) - tl.maximum({{0}}, {low})", spot.dtype, spot
        )
        ends = b.named(b.cast(ends, dtype), "counted")
        result = ends if result is None else b.expression("{0} * {1}", dtype, result, ends)
    whole = b.number(fixed, dtype)
    if result is None:
        return whole
    return result if fixed == 1 else b.expression("{0} * {1}", dtype, result, whole)


def depthwise(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """A convolution of each channel by itself, in f32 at least."""
    if not is_depthwise(node, a):
        raise Unsupported("a convolution that sums over channels")
    source, weight = a["input"], a["weight"]
    shape, dtype = tuple(fake(source).shape), dtype_of(fake(node))
    rank = len(shape) - 2
    window = window_of(a, shape[2:], tuple(fake(weight).shape[2:]))
    inner = computed(dtype)
    total: Value | None = None
    for tap, where, inside in taps(b, window, index[2:]):
        value = b.cast(_read(b, source, (*index[:2], *where), inside), inner)
        factor = b.cast(b.value(weight, (index[1], ZERO, *(Linear(t) for t in tap))), inner)
        total = _added(b, inside, total, value, factor, inner)
    assert total is not None and rank == len(window.kernel)
    if a.get("bias") is not None:
        total = b.expression("{0} + {1}", inner, total, b.cast(b.value(a["bias"], (index[1],)), inner))
    return total


def _added(b: Builder, inside: Value | None, total: Value | None, value: Value, factor: Value, dtype: str) -> Value:
    """The sum with one tap more. inside: whether the tap is in the image, None where it always is.

    A tap in the border is left out, as eager's kernels do: as zero times an infinite weight it would be NaN. The choice
    is between sums, not between products, so that multiplying and adding stay one instruction.
    """
    if total is None:
        product = b.expression("{0} * {1}", dtype, value, factor)
        if inside is None:
            return product
        return b.expression("tl.where({0}, {1}, {2})", dtype, inside, product, b.number(0, dtype), name="total")
    added = b.expression("{0} + {1} * {2}", dtype, total, value, factor)
    if inside is not None:
        added = b.expression("tl.where({0}, {1}, {2})", dtype, inside, added, total)
    return b.named(added, "total")


def is_depthwise(node: torch.fx.Node, a: Arguments) -> bool:
    """Each channel of the result is one channel's, by a window small enough to be written out."""
    channels, weight = fake(a["input"]).shape[1], fake(a["weight"])
    return (
        base(node) == "convolution"
        and not a["transposed"]
        and a["groups"] == channels == weight.shape[0] == fake(node).shape[1]
        and weight.shape[1] == 1
        and channels > 1
        and math.prod(weight.shape[2:]) <= MAX_TAPS
    )
