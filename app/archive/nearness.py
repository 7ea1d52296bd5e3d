"""Which record is evidence for a region on another host, and how near it is. Pure functions of texts and names.

Only records of the same program count (`fingerprint`: the same operations, connections and dtypes). Of two, nearer is,
in this order: the same sizes and layout, then another layout, then other sizes; the same device; the closest sizes; the
device whose rates are closest; the host's version of torch, else the newest; the newest triton; the newest day and
time; the id.

Distance of two sets of sizes, over inputs paired by what they are in the program:
    |log2(bytes of the inputs / bytes of the others)| + mean over all dimensions of |log2(size / size)|
A doubled batch of a plain chain is 1 (bytes) + the share of dimensions that doubled. Outputs follow from the inputs.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from app.archive.program_fingerprint import LEVELS, fingerprint, roles
from app.objects.evidence import Figures, Match
from app.objects.record import ArchiveRecord
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE, RegionError

FARTHEST = 16.0
"""A record whose inputs have more than this times the bytes, or less than 1/16, says nothing about this region."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """One binding: every input's shape, in an order that two like programs share, and the bytes of all inputs."""

    shapes: tuple[tuple[int, ...], ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Near:
    """How near a record is. distance: mean over the region's bindings, each to the record's closest one.

    bytes_ratio: the record's bytes over the region's where they are farthest apart. device_gap: |log2| of the memory
    rates plus that of the matrix rates; 0 for the same device, infinite where one is not in the table.
    """

    match: Match
    distance: float
    bytes_ratio: float
    same_device: bool | None  # None where no device is asked about
    device_gap: float
    torch_rank: (
        int  # 0 the host's torch, 1 its release in another build, 2 another; 2 for all where none is asked about
    )

    @property
    def place(self) -> tuple[float, ...]:
        """Sorts by evidence; what is equal in this differs in software and day only."""
        return LEVELS.index(self.match), self.same_device is False, self.distance, self.device_gap


@lru_cache(maxsize=4096)
def sizes(text: str) -> tuple[Sizes, ...]:
    """The bindings of a region's text. RegionError for one that cannot be read."""
    by_role = roles(text)
    bindings = []
    for binding in parse(text).bindings:
        shapes = [(role, tuple(binding.get(str(s), s) for s in i.shape), i.dtype) for role, i in by_role]
        ordered = sorted((role, tuple(int(s) for s in shape), ITEMSIZE[dtype]) for role, shape, dtype in shapes)
        bindings.append(Sizes(tuple(o[1] for o in ordered), sum(math.prod(o[1]) * o[2] for o in ordered)))
    return tuple(bindings)


def distance(one: Sizes, other: Sizes) -> float:
    """0 for equal sizes; infinite for inputs of other ranks, which like programs do not have."""
    if [len(s) for s in one.shapes] != [len(s) for s in other.shapes]:
        return math.inf
    pairs = [p for a, b in zip(one.shapes, other.shapes, strict=True) for p in zip(a, b, strict=True)]
    each = math.fsum(_distance(a, b) for a, b in pairs) / len(pairs) if pairs else 0.0
    return _distance(one.bytes, other.bytes) + each


def fit(wanted: str, recorded: str) -> tuple[float, float]:
    """(distance, bytes ratio) of two like texts: see Near. RegionError for a text that cannot be read."""
    there = sizes(recorded)
    pairs = [(one, min(there, key=lambda other: distance(one, other))) for one in sizes(wanted)]
    ratios = [max(1, other.bytes) / max(1, one.bytes) for one, other in pairs]
    mean = math.fsum(distance(one, other) for one, other in pairs) / len(pairs)
    return mean, max(ratios, key=lambda r: abs(math.log2(r)))


def near(text: str, record: ArchiveRecord, device: str | None = None, torch: str | None = None) -> Near | None:
    """How near a record is to a region on a device under a torch; None where it is no evidence for it."""
    match = next((level for level in LEVELS if fingerprint(text, level) == fingerprint(record["region"], level)), None)
    if match is None:
        return None
    try:
        apart, ratio = fit(text, record["region"])
    except RegionError:  # texts that nobody can read are alike only when they are one text
        apart, ratio = 0.0, 1.0
    if not 1 / FARTHEST <= ratio <= FARTHEST or math.isinf(apart):
        return None
    same = None if device is None else same_device(device, str(record.get("device")))
    gap = device_gap(device, str(record.get("device"))) if same is False else 0.0
    return Near(match, apart, ratio, same, gap, _torch_rank(torch, software(record, "torch")))


def order(record: ArchiveRecord, nearness: Near) -> tuple[Any, ...]:
    """The key that sorts records from nearest to farthest; ends with the id, so that no two are equal."""
    versions = (_newest(software(record, "torch")), _newest(software(record, "triton")))
    day = (-_day(record), -_made_at(record))
    return (*nearness.place, nearness.torch_rank, *versions, *day, str(record.get("id", "")))


def choose(
    text: str, records: Sequence[ArchiveRecord], device: str | None = None, torch: str | None = None
) -> tuple[ArchiveRecord, Near, tuple[ArchiveRecord, ...]] | None:
    """The nearest record, how near, and the others as near but for software and day. None where none is evidence."""
    known = [(r, n) for r in records if (n := near(text, r, device, torch)) is not None]
    if not known:
        return None
    known.sort(key=lambda pair: order(*pair))
    best, nearness = known[0]
    return best, nearness, tuple(r for r, n in known[1:] if n.place == nearness.place)


def nearest_of(
    wanted: Mapping[str, str | None], records: Sequence[ArchiveRecord], here: str | None = None,
    torch: str | None = None,
) -> dict[str, ArchiveRecord]:  # fmt: skip
    """Text -> its nearest record, for those with one at the same sizes. wanted: texts, each with the device that
    evidence is wanted for, None for `here`."""
    chosen: dict[str, ArchiveRecord] = {}
    for text, device in wanted.items():
        nearest = choose(text, records, device or here, torch)
        if nearest is not None and nearest[1].match != "other-sizes":
            record, how_near, _ = nearest
            chosen[text] = {**record, "archived": {**record["archived"], "match": how_near.match}}
    return chosen


def same_device(one: str, other: str) -> bool:
    """Whether two names mean one kind of device."""
    a, b = find_device(one), find_device(other)
    return a is b if a is not None or b is not None else one.strip().lower() == other.strip().lower()


def device_gap(one: str | None, other: str | None) -> float:
    """|log2| of the memory rates plus that of the 16-bit matrix rates (datasheets); infinite for an unknown device."""
    a, b = find_device(one), find_device(other)
    if a is None or b is None:
        return math.inf
    matrix = _distance(a.bf16_rate or a.f16_rate, b.bf16_rate or b.f16_rate)
    return _distance(a.memory_rate, b.memory_rate) + matrix


def software(record: Figures, name: str) -> str:
    """A version that the record tells; "" where it does not."""
    return str((record.get("software") or {}).get(name) or "")


def version(text: str) -> tuple[int, int, int, int]:
    """Sorts versions: release, then whether final. "2.11.0+cu130" is (2, 11, 0, 1), "2.12.0a0+git" (2, 12, 0, 0)."""
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(.*)", text.strip())
    if match is None:
        return -1, 0, 0, 0
    first, second, third, rest = match.groups()
    early = re.match(r"\.?(a|b|rc|dev)", rest) is not None
    return int(first), int(second or 0), int(third or 0), int(not early)


def _newest(text: str) -> tuple[int, ...]:
    return tuple(-part for part in version(text))


def _torch_rank(host: str | None, recorded: str) -> int:
    if not host:
        return 2
    return 0 if host == recorded else 1 if recorded and version(host) == version(recorded) else 2


def _day(record: ArchiveRecord) -> int:
    try:
        return datetime.date.fromisoformat(str(record.get("date"))).toordinal()
    except ValueError:
        return 0


def _made_at(record: ArchiveRecord) -> float:
    """When in that day, where it is known: Unix time; 0 for a file of the archive."""
    try:
        return datetime.datetime.fromisoformat(str(record.get("created_at"))).timestamp()
    except ValueError:
        return 0.0


def _distance(one: float, other: float) -> float:
    less, more = sorted((max(1.0, one), max(1.0, other)))
    return math.log2(more / less)  # not |log2(one / other)|, which rounds otherwise than |log2(other / one)|
