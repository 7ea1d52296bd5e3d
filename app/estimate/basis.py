"""PredictionBasis: what the predicted times of a region rest on, and operation by operation why. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.atlas import price
from app.atlas.atlas import Atlas, Price
from app.atlas.describe import MeasuredPoint, measured_point, reasons
from app.atlas.shipped import basis_of
from app.estimate.eager_time import atlas_prices, operation_times
from app.estimate.facts import RegionFacts
from app.estimate.predict import goes_by_kernels
from app.estimate.rates import BEYOND, Rates
from app.units import amount, share
from profiler.hardware import Device
from profiler.oracle.model import FOREACH, TEMPLATE, Prediction
from profiler.region.graph.cost_model import OperationCost

Source = Literal["oracle", "rules"]

MOST_PARTS = 20
"""Of either way, the longest first."""
ALIKE = 0.8
"""Correlation from which on a measured point counts as near."""
SHORT_US = 1.0
"""What bytes and FLOPs take at the device's rates: below that, most of the time is the launch."""
TOLD_HELD = 0.1
"""Share of its reads in L2 from which on it is told."""


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """One operation, kernel or library call with its predicted time, and what that comes from.

    name: as in the region's cost, or as Inductor names its kernel. bytes_moved, flops: of all its launches, None where
    nobody could tell. because: "79.7 MB at 3.9 TB/s: strided by 4.1 kB". by_atlas: measured points gave the time, or
    most of it. nearest: the measured program that is most like it. correlation: with it, 0 to 1.
    """

    way: Literal["eager", "compile"]
    name: str
    launches: int
    time_us: float
    bytes_moved: float | None
    flops: float | None
    because: str
    by_atlas: bool
    nearest: MeasuredPoint | None = None
    correlation: float = 0.0


@dataclass(frozen=True, slots=True)
class PredictionBasis:
    """What a region's predicted times rest on, at its heaviest binding.

    device: they are for. atlas: that its times are read off; None where none could be read. own: measured on such a
    device; else scaled. range_factor: by how many times the ends of the ranges are as far away for that, in logarithms.
    eager_known: share of eager's time that the atlas said. fitted_on: devices of the rates by which all else is
    predicted; rates_factor: as range_factor, of ranges by these. prediction: whose kernels torch.compile's time is of;
    because: why those of our rules, "" where they are Inductor's. parts: of eager, then of torch.compile where Inductor
    told its kernels, the longest first.
    """

    device: Device
    atlas: Atlas | None
    own: bool
    range_factor: float
    eager_known: float
    fitted_on: tuple[str, ...]
    rates_factor: float
    prediction: Source
    because: str
    parts: tuple[ExplainedPart, ...]


def prediction_basis(
    facts: RegionFacts, device: Device, rates: Rates, answers: Sequence[Prediction] = ()
) -> PredictionBasis:
    """What `predict` goes by for these facts. answers: the oracle's, one a mode; () where it was not asked."""
    basis = basis_of(device, rates.scaled) if rates.atlas else None
    atlas = basis.atlas if basis is not None else None
    own = basis is not None and basis.own
    eager = _eager(facts, device, rates)
    by_kernels = goes_by_kernels(facts, rates)
    shown = [_explain_operation(part, atlas, device) for part in _longest(eager)]
    if by_kernels and facts.compiled_total is not None:
        compiled = sorted(facts.compiled_total.parts, key=lambda p: -p.time_us)[:MOST_PARTS]
        shown += [_explain_kernel(part, atlas, device) for part in compiled]
    total = sum(part.time_us for part in eager)
    known = sum(part.time_us for part in eager if part.price is not None)
    return PredictionBasis(
        device=device,
        atlas=atlas,
        own=own,
        range_factor=1.0 if own else BEYOND,
        eager_known=known / total if total else 0.0,
        fitted_on=rates.devices,
        rates_factor=1.0 if device.name in rates.devices else BEYOND,
        prediction="oracle" if by_kernels else "rules",
        because="" if by_kernels else why_rules(facts, device, rates, answers),
        parts=tuple(shown),
    )


class EagerPart(NamedTuple):
    """An operation that eager launches. held: share of its reads that is in L2."""

    cost: OperationCost
    time_us: float
    price: Price | None
    held: float


def _eager(facts: RegionFacts, device: Device, rates: Rates) -> list[EagerPart]:
    shape = facts.heaviest
    if shape is None:
        return []
    known, times = atlas_prices(shape, device, rates), operation_times(shape, device, rates)
    unknown: tuple[Price | None, float] = (None, 0.0)
    return [EagerPart(o, times[o.name], *known.get(o.name, unknown)) for o in shape.cost.operations if o.name in times]


def _longest(parts: Sequence[EagerPart]) -> list[EagerPart]:
    return sorted(parts, key=lambda part: -part.time_us)[:MOST_PARTS]


def why_rules(facts: RegionFacts, device: Device, rates: Rates, answers: Sequence[Prediction]) -> str:
    """Why torch.compile's time is by our fusion rules."""
    default = next((a for a in answers if a.mode == "default"), None)
    if default is None:
        return "Inductor was not asked"
    if default.unavailable:
        return f"Inductor could not answer: {default.unavailable}"
    basis = basis_of(device)
    if basis is None or not rates.atlas:
        return "there is no atlas to price Inductor's kernels by"
    if facts.compiled_total is not None:
        return f"measurements cover {share(facts.compiled_total.known)} of the time of Inductor's kernels and calls"
    kernel = price.first_unpriced(default, basis.atlas, device)
    words = UNMEASURED.get(kernel.kind, "of a kind") if kernel is not None else "of a kind"
    name = f"its kernel {kernel.name}" if kernel is not None else "a kernel"
    return f"Inductor answered, but {name} is {words} that was not measured"


UNMEASURED = {TEMPLATE: "a template's product", FOREACH: "a launch for many tensors"}


def _explain_operation(part: EagerPart, atlas: Atlas | None, device: Device) -> ExplainedPart:
    cost = part.cost
    held = [f"{share(part.held)} of its reads in L2"] if part.held >= TOLD_HELD else []
    if part.price is None:
        words = _work(cost.bytes_moved, "B", part.time_us, ["by rates, no such operation was measured"])
    else:
        words = _because(part.price, 1, part.time_us, held, device)
    return ExplainedPart(
        "eager", cost.name, cost.launches, part.time_us, cost.bytes_moved, cost.flops, words, part.price is not None,
        *_nearest(part.price, atlas),
    )  # fmt: skip


def _explain_kernel(part: price.Part, atlas: Atlas | None, device: Device) -> ExplainedPart:
    if part.price is None:
        words = "a call whose like was not measured: a guess from what it moves and computes"
        return ExplainedPart("compile", part.name, part.launches, part.time_us, None, None, words, False)
    item = part.price.item
    words = _because(part.price, part.launches, part.time_us, [], device)
    return ExplainedPart(
        "compile", part.name, part.launches, part.time_us, part.launches * item.bytes_moved,
        part.launches * item.flops or None, words, True, *_nearest(part.price, atlas),
    )  # fmt: skip


def _nearest(known: Price | None, atlas: Atlas | None) -> tuple[MeasuredPoint | None, float]:
    """The measured program that is most like it, and how much."""
    if known is None or atlas is None:
        return None, 0.0
    return measured_point(atlas, known.item.group, known.nearest), known.correlation


def _because(known: Price, launches: int, time_us: float, more: Sequence[str], device: Device) -> str:
    """By FLOPs where these take longer than the bytes at the device's rates."""
    item = known.item
    why = [*reasons(item), *more, *(["mostly the launch"] if item.floor_us(device) - 1.0 < SHORT_US else [])]
    if item.flops and item.flops / device.matmul_rate(item.dtype) > item.bytes_moved / device.copy_rate:
        return _work(launches * item.flops, "FLOP", time_us, why)
    return _work(launches * item.bytes_moved, "B", time_us, why)


def _work(work: float, unit: str, time_us: float, why: Sequence[str]) -> str:
    """79.7 MB at 3.90 TB/s: strided by 4.10 kB."""
    rate = f" at {amount(1e6 * work / time_us, unit + '/s')}" if work and time_us else ""
    return f"{amount(work, unit)}{rate}" + (f": {', '.join(why)}" if why else "")
