"""Fit: from a calibration's recorded points to the interpolations of an atlas. Needs torch; a minute on one core."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from app.atlas.atlas import MOST_POINTS, Atlas, Group, HeldOut
from app.atlas.interpolation import ALIKE, EIGHTY, JITTER, Floats, Interpolation, scale_of
from app.atlas.item import ANOTHER, Item
from app.atlas.kernel_items import kernel_item
from app.atlas.operation_items import UNPRICED, operation_item
from kernels.calibrate.points import Conditions, Point
from profiler.hardware import Device
from profiler.oracle.kernel_traits import read_traits
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import RegionError

EVENTS_US = 1.3
"""What two device events around one launch add to it, where the point does not say what they read around nothing: 1.25
µs on the hosts that were measured before points said it; on another host, with an H200 too, 2.82."""
FLUSHED_US = 0.8
"""So much less two events read around an operation of eager's behind a flush of L2 than around nothing, where the point
says what that is: 2.0 of 2.8 µs. Short ones of a host that read 2.8 and of one that read 1.25 have equal times then,
from L2 by what was read around nothing and from memory by this much less (median 3.5 and 2.7 µs without)."""
LEAST_US = 0.5
"""No launch counts as shorter."""
LEAST_DIFFERENCE = 0.15
"""Share of a program's time that its backward has to take for a difference to tell it."""
LEAST_POINTS = 20
"""Fewer make no group: its operations are priced by other rules."""
CHOOSING = 500
"""Points that the lengths are chosen on; all are interpolated between."""
STEPS = 80
FOLD = 4
"""One in so many programs is held out to tell the error."""
EXPECTED_LENGTH = 1.1
PULL = 0.02
"""Lengths are drawn to e^1.1 standard deviations, weakly: 40 numbers on 60 points would fit anything."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An item with its times in µs, without what the events add. program: that it is from. floor_us: on the device that
    it was measured on."""

    item: Item
    cold_us: float
    warm_us: float
    program: str
    floor_us: float


def items_of(points: Iterable[Point], device: Device) -> list[Measured]:
    """Eager programs of one operation, and every kernel of the compiled ones, as that device ran them."""
    measured = []
    for point in points:
        if "failed" in point:
            continue
        program = f"{point['family']} {point['number']}"
        for item, cold_us, warm_us in _alone(point) if point["mode"] == "eager" else _kernels(point):
            measured.append(Measured(item, cold_us, warm_us, program, item.floor_us(device)))
    return measured


def _kernels(point: Point) -> Iterator[tuple[Item, float, float]]:
    """(item, cold, warm) of each kernel that Inductor wrote; cold alone was measured."""
    for kernel in point.get("kernels", ()):
        item = kernel_item(read_traits(kernel["source"]), kernel["bytes_moved"])
        if item is not None and kernel["times_us"]:
            time_us = _net(kernel["times_us"][0], point)
            yield item, time_us, time_us


def _net(time_us: float, point: Point, flushed: bool = False) -> float:
    """Without what the events add on the host where the point was measured. flushed: behind a flush of L2."""
    added_us = EVENTS_US if "events_us" not in point else point["events_us"] - (FLUSHED_US if flushed else 0.0)
    return max(LEAST_US, time_us - added_us)


def _alone(point: Point) -> Iterator[tuple[Item, float, float]]:
    """Of a program that runs one operation, that one; of one that runs another for the gradients, the other, by the
    difference to the program without gradients. Nothing for others."""
    try:
        operations = [o for o in lower(parse(point["text"])).operations if o.kind not in UNPRICED]
    except RegionError:
        return
    forward = point.get("forward")
    if len(operations) != (1 if forward is None else 2):
        return
    item = operation_item(operations[-1])
    if item is None:
        return
    if forward is None:
        yield item, _net(point["cold_us"], point, flushed=True), _net(point["warm_us"], point)
        return
    cold_us, warm_us = point["cold_us"] - forward["cold_us"], point["warm_us"] - forward["warm_us"]
    if min(cold_us / point["cold_us"], warm_us / point["warm_us"]) >= LEAST_DIFFERENCE:
        yield item, max(LEAST_US, cold_us), max(LEAST_US, warm_us)


def _clock(mhz: float | None) -> float | None:
    """A recording may have whole MHz, which its atlas writes as it reads them again: with a point."""
    return None if mhz is None else float(mhz)


def fit_atlas(
    conditions: Conditions,
    points: Iterable[Point],
    device: Device,
    others: Sequence[tuple[Device, Iterable[Point]]] = (),
) -> Atlas:
    """The atlas of a device. The same points give the same atlas.

    others: points of devices of its architecture, which count as far as the measured times say that they are alike.
    """
    groups: dict[str, list[Measured]] = defaultdict(list)
    for one in items_of(points, device):
        groups[one.item.group].append(one)
    for other, theirs in others:
        for one in items_of(theirs, other):
            groups[one.item.group].append(replace(one, item=_marked(one.item)))
    fitted = {}
    for name, members in sorted(groups.items()):
        if len(members) < LEAST_POINTS:
            continue
        members = _at_most(members, MOST_POINTS)
        known = interpolate([m for m in members if not _held_out(m.program)])
        error = _error(known, [m for m in members if _held_out(m.program) and ANOTHER not in m.item.numbers])
        fitted[name] = Group(interpolate(members), error)
    return Atlas(
        device=conditions["device"], torch=conditions["torch"], triton=conditions["triton"], date=conditions["date"],
        minutes=conditions["minutes"], groups=fitted, sm_clock_mhz=_clock(conditions.get("sm_clock_mhz")),
        memory_clock_mhz=_clock(conditions.get("memory_clock_mhz")), others=conditions.get("others"),
    )  # fmt: skip


def _marked(item: Item) -> Item:
    """As a point of another device, which may differ from this one's by a factor."""
    return replace(item, numbers={**item.numbers, ANOTHER: 1.0})


def _at_most(members: list[Measured], most: int) -> list[Measured]:
    """As many as a file may have of a group, the device's own first, drawn by a hash of their programs."""

    def order(one: Measured) -> tuple[bool, bytes]:
        return ANOTHER in one.item.numbers, hashlib.sha256(f"kept {one.program}".encode()).digest()

    drawn = sorted(members, key=order)[:most]
    kept = {id(m) for m in drawn}
    return [m for m in members if id(m) in kept]


def _held_out(program: str) -> bool:
    return hashlib.sha256(program.encode()).digest()[0] % FOLD == 0


def _error(known: Interpolation, members: Sequence[Measured]) -> HeldOut:
    """How far the others' interpolation is from these."""
    off, inside = [], []
    for one in members:
        estimate = known.at(one.item.numbers)
        error = math.log(one.cold_us / one.floor_us) - estimate.cold
        off.append(abs(error))
        inside.append(abs(error) <= estimate.deviation * EIGHTY)
    if not off:
        return HeldOut(0, 0.0, 0.0, 0.0, 0.0)
    return HeldOut(
        points=len(off),
        within_20=float(np.mean(np.array(off) <= math.log(1.2))),
        median=float(np.expm1(np.median(off))),
        worst_tenth=float(np.expm1(np.quantile(off, 0.9))),
        inside_80=float(np.mean(inside)),
    )


def interpolate(members: Sequence[Measured]) -> Interpolation:
    """Lengths, height and noise by the largest likelihood of the measured times."""
    names = tuple(sorted({name for m in members for name in m.item.numbers}))
    described = np.array([[m.item.numbers.get(name, 0.0) for name in names] for m in members])
    varying = (described.std(0) > ALIKE) | np.array(["=" in name or name == ANOTHER for name in names])
    names = tuple(n for n, v in zip(names, varying, strict=True) if v)
    described = described[:, varying]
    floors = np.array([m.floor_us for m in members])
    cold = np.log(np.array([m.cold_us for m in members]) / floors)
    warm = np.log(np.array([m.warm_us for m in members]) / floors)
    lengths, height, noise = _chosen(described, cold)
    return Interpolation(names, described, cold, warm, lengths, height, noise)


def _chosen(described: Floats, values: Floats) -> tuple[Floats, float, float]:
    """(lengths, height, noise). By gradient descent on the negative logarithm of the likelihood, 80 steps."""
    order = np.random.RandomState(0).permutation(len(values))[:CHOOSING]
    middle, deviation = scale_of(described)
    placed = torch.tensor(((described - middle) / deviation)[order])
    wanted = torch.tensor((values - np.median(values))[order])
    numbers, one = placed.shape[1], torch.eye(len(order), dtype=torch.double)
    logs = torch.full((numbers + 2,), math.log(3.0), dtype=torch.double)
    logs[numbers], logs[numbers + 1] = math.log(0.3), math.log(0.1)
    logs.requires_grad_(True)
    descent = torch.optim.Adam([logs], lr=0.08)
    for _ in range(STEPS):
        descent.zero_grad()
        matrix = _covariance(placed, logs) + (torch.exp(2 * logs[-1]) + JITTER) * one
        root = torch.linalg.cholesky(matrix)
        weights = torch.cholesky_solve(wanted[:, None], root)[:, 0]
        unlikely = 0.5 * (wanted * weights).sum() + root.diagonal().log().sum()
        (unlikely + PULL * ((logs[:numbers] - EXPECTED_LENGTH) ** 2).sum()).backward()
        descent.step()
    result = logs.detach().exp().numpy()
    return result[:numbers], float(result[numbers]), float(result[numbers + 1])


def _covariance(placed: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    """As `interpolation.covariance`, differentiable."""
    scaled = placed / torch.exp(logs[:-2])
    squares = (scaled * scaled).sum(1)
    squares = squares[:, None] + squares[None] - 2 * scaled @ scaled.T
    distance = math.sqrt(3) * torch.sqrt(squares.clamp_min(1e-12))
    return torch.exp(2 * logs[-2]) * (1 + distance) * torch.exp(-distance)
