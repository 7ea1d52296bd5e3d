"""What 8-bit floating point leaves of a region's time: its large products by the atlas's f8 points, and the casts."""

from __future__ import annotations

from dataclasses import replace

from app.atlas.atlas import Price
from app.atlas.operation_items import operation_item
from app.atlas.price import between
from app.atlas.shipped import basis_of
from app.estimate.eager_time import operation_times
from app.estimate.facts import RegionFacts, ShapeFacts
from app.estimate.rates import FITTED
from app.objects.common import Range
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.model import ITEMSIZE

LEAST = 1024
"""Rows, columns and inner size of a product from which casting its operands is worth it: torchao's README has a gain
from about 1,024 in each on, and none below."""
SIXTEENS = 16
"""torch._scaled_mm wants inner and outer sizes that this divides."""
HALF = frozenset({"bf16", "f16"})
F8 = "f8e4m3"
HOPPER = 90
LAUNCH_US = 2.0
SCALES_A_ROW = {"low": 1.25, "mid": 1.1, "high": 1.0}
"""Products with a scale a row over those with one for all, which are what the atlas has. A guess."""
CASTS = {"low": (2.0, 0.6), "mid": (1.5, 0.8), "high": (1.0, 1.0)}
"""How often a cast reads its tensor, whose largest number of each row it needs first, and the share of the copy rate
that it reaches. A guess: one read where a row stays on the chip, two where it does not."""


def fp8_left(facts: RegionFacts, device: Device) -> Range | None:
    """Of the region's time, the share that is left where its large products of 16-bit numbers run in f8 with a scale a
    row, their operands cast before: low, middle and high share. None where it has no such product, or no f8 units.
    """
    shape = facts.heaviest
    basis = basis_of(device)
    if not has_f8(device) or shape is None or shape.launched is None or basis is None:
        return None
    times = operation_times(shape, device, FITTED)
    total = sum(times.values())
    trained = _is_trained(shape)
    ends: dict[str, float] = dict.fromkeys(CASTS, 0.0)
    for operation in shape.launched.operations:
        factors = large_factors(operation)
        if factors is None or operation.name not in times:
            continue
        item = operation_item(in_f8(operation, factors))
        price = basis.atlas.price(item, device) if item is not None else None
        if price is None:
            continue
        for end in ends:
            then = _then_us(price, factors, trained, device, end)
            ends[end] += max(0.0, times[operation.name] - then)
    if not total or not ends["high"]:
        return None
    low, mid, high = (min(1.0, 1.0 - ends[end] / total) for end in ("high", "mid", "low"))
    return {"low": low, "mid": mid, "high": high}


def has_f8(device: Device) -> bool:
    """NVIDIA's GPUs from Hopper on: with a scale a row, those before have no fast product."""
    architecture = device.arch.removeprefix("sm_")
    return device.f8_rate > device.bf16_rate > 0 and architecture.isdigit() and int(architecture) >= HOPPER


def large_factors(operation: Operation) -> tuple[Tensor, Tensor] | None:
    """Both matrices of a product that is large enough for f8, and divides; None of any other operation."""
    if operation.kind != op_kinds.GEMM or not operation.writes:
        return None
    matrices = [t for t in operation.reads if len(t.shape) == 2]
    result = max(operation.writes, key=lambda t: t.elements)
    if len(matrices) < 2 or len(result.shape) != 2 or not result.elements:
        return None
    first, second = matrices[-2:]
    sizes = (*result.shape, first.shape[1])
    if first.dtype not in HALF or second.dtype not in HALF or second.shape[0] != first.shape[1]:
        return None
    return (first, second) if all(s >= LEAST and s % SIXTEENS == 0 for s in sizes) else None


def in_f8(operation: Operation, factors: tuple[Tensor, Tensor]) -> Operation:
    """The same product as torch._scaled_mm takes it: the first matrix by rows, the second by columns, two scales."""
    (m, k), n = factors[0].shape, factors[1].shape[1]
    x = Tensor((m, k), (k, 1), F8, -1, m * k)
    w = Tensor((k, n), (1, k), F8, -2, k * n)
    scales = tuple(Tensor((), (), "f32", -3 - i, 4) for i in range(2))
    result = Tensor((m, n), (n, 1), "bf16", -5, 2 * m * n)
    return replace(
        operation, target="aten._scaled_mm.default", reads=(x, w, *scales), writes=(result,), flops=2 * m * n * k
    )


def _then_us(price: Price, factors: tuple[Tensor, Tensor], trained: bool, device: Device, end: str) -> float:
    """The product and the casts of its operands. A weight that is not trained is cast once and for all."""
    reads, reached = CASTS[end]
    cast = factors if trained else factors[:1]
    elements = sum(t.elements for t in cast)
    moved = elements * (reads * ITEMSIZE[factors[0].dtype] + ITEMSIZE[F8])
    casts_us = LAUNCH_US * len(cast) + 1e6 * moved / (device.copy_rate * reached)
    return SCALES_A_ROW[end] * between(price, 0.0) + casts_us


def _is_trained(shape: ShapeFacts) -> bool:
    """Its operations are a forward and what autograd adds, for which the text has no line."""
    return any(not o.line for o in shape.cost.operations)
