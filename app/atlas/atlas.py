"""Atlas: one device's interpolations, and the file that holds them."""

from __future__ import annotations

import gzip
import json
import math
import os
import stat
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from app.atlas.interpolation import Floats, Interpolation
from app.atlas.item import Item
from app.atlas.kernel_items import BROADER
from profiler.hardware import Device

SCHEMA = 2
"""Of the factors over the floor that a file holds: 2 since floors know lanes and what is serial (`app.atlas.item`)."""
SUFFIX = ".json.gz"
TOLD = ("sm_clock_mhz", "memory_clock_mhz", "others")
"""Fields that a file has where the host told them."""
MOST_BYTES = 64 * 2**20
"""Of an unpacked file: a shipped one has 3 MB."""
MOST_POINTS = 4_000
"""Of a group: its covariance takes 128 MB then."""
DIGITS = 5
"""Significant figures of every number in the file; a measured time has three that mean something."""


class AtlasError(ValueError):
    """A file that is no atlas, with what is wrong."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How near interpolations come to programs that they were not made with.

    points: how many. within_20: share of them whose predicted time is within 20 % of the measured. median, worst_tenth:
    of |predicted over measured| - 1, and what the worst tenth exceeds. inside_80: share inside their 80 % intervals.
    """

    points: int
    within_20: float
    median: float
    worst_tenth: float
    inside_80: float


@dataclass(frozen=True, slots=True)
class Group:
    """One group's interpolation over all of its points, and the error of one over three quarters of them."""

    interpolation: Interpolation
    held_out: HeldOut


@dataclass(frozen=True, slots=True)
class Price:
    """µs on the device, launched behind another kernel. cold: inputs from memory; warm: inputs in L2, where they fit.

    deviation: standard deviation of the logarithm of either. item: what it is the price of. nearest, correlation: the
    number of the measured point of its group that is most like it, and how much, as `Estimate` has them.
    """

    cold_us: float
    warm_us: float
    deviation: float
    item: Item
    nearest: int
    correlation: float


@dataclass(frozen=True, eq=False)
class Atlas:
    """What one device was measured to do. device: as torch names it. date: ISO. minutes: that the measuring took.

    sm_clock_mhz, memory_clock_mhz: medians while it was measured. others: the most processes of others that were on the
    GPU at once. None of them where the host did not tell. Compared by identity: what was priced by it is remembered.
    """

    device: str
    torch: str
    triton: str
    date: str
    minutes: float
    groups: Mapping[str, Group]
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    others: int | None = None

    @property
    def points(self) -> int:
        """Of all groups, those that were measured on the device itself."""
        return sum(group.interpolation.own for group in self.groups.values())

    def price(self, item: Item, device: Device) -> Price | None:
        """None where nothing like it was measured. device: may be another than the atlas's own: then its floor
        is scaled by that one's rates, and the factor over the floor is this one's."""
        group = self.groups.get(item.group)
        if group is None and item.group in BROADER:
            item = replace(item, group=BROADER[item.group])
            group = self.groups.get(item.group)
        if group is None or not group.interpolation.covers(item.numbers):
            return None
        floor, estimate = item.floor_us(device), group.interpolation.at(item.numbers)
        cold_us, warm_us = (significant(floor * math.exp(of), 6) for of in (estimate.cold, estimate.warm))
        deviation = significant(estimate.deviation, 4)
        return Price(cold_us, warm_us, deviation, item, estimate.nearest, significant(estimate.correlation, 4))


def file_name(device: Device) -> str:
    """NVIDIA H200 -> nvidia-h200.json.gz."""
    return "-".join(device.name.lower().split()) + SUFFIX


def write(path: Path, atlas: Atlas) -> None:
    """The same bytes for the same atlas; whole or not at all."""
    told = {name: getattr(atlas, name) for name in TOLD if getattr(atlas, name) is not None}
    body = {
        "schema": SCHEMA, "device": atlas.device, "torch": atlas.torch, "triton": atlas.triton, "date": atlas.date,
        "minutes": atlas.minutes, **told, "groups": {n: _to_json(g) for n, g in sorted(atlas.groups.items())},
    }  # fmt: skip
    text = json.dumps(body, separators=(",", ":"))
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    written.replace(path)


def read(path: Path) -> Atlas:
    """AtlasError for a file that is damaged, too large or of another program, with what is wrong."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise AtlasError(f"{path.name} is no file")
        if state.st_size > MOST_BYTES:
            raise AtlasError(f"{path.name} is larger than an atlas can be, {MOST_BYTES >> 20} MiB")
        with gzip.open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as fault:
        raise AtlasError(f"{path.name} cannot be read as an atlas: {fault.strerror or fault}") from None
    except (EOFError, zlib.error) as fault:
        raise AtlasError(f"{path.name} is damaged: {fault}") from None
    if len(text) > MOST_BYTES:
        raise AtlasError(f"{path.name} is larger than an atlas can be, {MOST_BYTES >> 20} MiB unpacked")
    try:
        body = json.loads(text)
    except MemoryError:
        raise AtlasError(f"{path.name} is larger than there is memory for") from None
    except (ValueError, RecursionError) as fault:
        raise AtlasError(f"{path.name} is not JSON: {str(fault)[:100]}") from None
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise AtlasError(f"{path.name} is no atlas of schema {SCHEMA}")
    try:
        told = {name: float(body[name]) for name in TOLD if name in body}
        if not all(0 <= value < math.inf for value in told.values()):
            raise ValueError("a clock or a count is no number")
        return Atlas(
            device=_text(body["device"]), torch=_text(body["torch"]), triton=_text(body["triton"]),
            date=_text(body["date"]), minutes=float(body["minutes"]),
            groups={_text(n): _from_json(n, g) for n, g in body["groups"].items()},
            sm_clock_mhz=told.get("sm_clock_mhz"), memory_clock_mhz=told.get("memory_clock_mhz"),
            others=int(told["others"]) if "others" in told else None,
        )  # fmt: skip
    except MemoryError:
        raise AtlasError(f"{path.name} is larger than there is memory for") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as fault:
        raise AtlasError(f"{path.name} is no whole atlas: {type(fault).__name__} {str(fault)[:200]}") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise TypeError("a name is a printable text of at most 200 characters")
    return value


def _to_json(group: Group) -> dict[str, Any]:
    known = group.interpolation
    return {
        "names": list(known.names), "lengths": _rounded(known.lengths), "height": _round(known.height),
        "noise": _round(known.noise), "points": [_rounded(row) for row in known.points],
        "cold": _rounded(known.cold), "warm": None if (known.warm == known.cold).all() else _rounded(known.warm),
        "held_out": {k: _round(v) for k, v in asdict(group.held_out).items()},
    }  # fmt: skip


def _from_json(name: str, body: Mapping[str, Any]) -> Group:
    names = tuple(_text(n) for n in body["names"])
    points, cold = _array(body["points"]), _array(body["cold"])
    warm = cold if body["warm"] is None else _array(body["warm"])
    lengths, height, noise = _array(body["lengths"]), float(body["height"]), float(body["noise"])
    count = len(cold)
    if not 2 <= count <= MOST_POINTS:
        raise ValueError(f"the group {name!r} has {count} points")
    if points.shape != (count, len(names)) or warm.shape != cold.shape or lengths.shape != (len(names),):
        raise ValueError(f"the group {name!r} has tables of sizes that do not belong together")
    if not (lengths > 0).all() or not height > 0 or not noise > 0 or not math.isfinite(height + noise):
        raise ValueError(f"the group {name!r} has a length that is not positive")
    told = {k: float(v) for k, v in body["held_out"].items()}
    held = HeldOut(int(told.pop("points")), **told)
    return Group(Interpolation(names, points, cold, warm, lengths, height, noise), held)


def _array(values: object) -> Floats:
    array = np.array(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return array


def _rounded(values: Floats) -> list[float]:
    return [_round(float(v)) for v in values]


def significant(value: float, digits: int) -> float:
    """To so many figures. BLAS adds up in another order where it has other threads: the last bits are not the same."""
    return float(f"{value:.{digits}g}")


def _round(value: float) -> float:
    rounded = significant(value, DIGITS)
    return int(rounded) if rounded.is_integer() else rounded
