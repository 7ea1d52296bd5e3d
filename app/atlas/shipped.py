"""Which atlas a device is priced by: its own where there is one, else the nearest shipped one, scaled."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from app.atlas import price
from app.atlas.atlas import Atlas, AtlasError, Price, read
from app.atlas.operation_items import operation_item
from profiler.hardware import Device, find_device
from profiler.region.graph.operation import Operation

SHIPPED = Path(__file__).resolve().parent / "devices"
REFERENCE = "nvidia-h200"
"""Whose atlas stands in for a device that nobody measured."""
SECOND = "nvidia-h100"
"""Whose stands in for the reference's, where it is asked how far off another's is."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Basis:
    """What predictions for a device rest on. own: measured on such a device; else scaled by datasheets."""

    atlas: Atlas
    own: bool


@dataclass(frozen=True, eq=False)
class Launched:
    """A lowered region's operations in order. Compared by identity: pricing a region again and again is remembered."""

    operations: tuple[Operation, ...]


def file_name(device: Device) -> str:
    """NVIDIA H200 -> nvidia-h200."""
    return "-".join(device.name.lower().split())


@lru_cache(maxsize=64)
def basis_of(device: Device, scaled: bool = False) -> Basis | None:
    """None only where no atlas can be read at all. scaled: by another device's, whether or not there is its own."""
    name = file_name(device)
    atlas = None if scaled else _read(SHIPPED / f"{name}.json.gz")
    if atlas is not None and find_device(atlas.device) == device:
        return Basis(atlas, True)
    reference = _read(SHIPPED / f"{SECOND if scaled and name == REFERENCE else REFERENCE}.json.gz")
    return None if reference is None else Basis(reference, False)


@lru_cache(maxsize=16)
def _read(path: Path) -> Atlas | None:
    if not path.is_file():
        return None
    try:
        return read(path)
    except AtlasError as fault:
        log.warning("%s; another atlas is used", fault)
        return None


def warm() -> None:
    """Read and solve all that is shipped: before processes are forked that would each do so for themselves."""
    for path in SHIPPED.glob("*.json.gz"):
        atlas = _read(path)
        for group in atlas.groups.values() if atlas is not None else ():
            group.interpolation.solve()


@lru_cache(maxsize=32)
def prices_of(launched: Launched, device: Device, scaled: bool = False) -> dict[str, tuple[Price, float]]:
    """Operation -> (price, share of its inputs that is in L2), of those the atlas knows. scaled: see `basis_of`."""
    basis = basis_of(device, scaled)
    if basis is None:
        return {}
    cache = price.Cache(device.l2_bytes * price.HELD)
    prices = {}
    alike: dict[tuple[object, ...], Price | None] = {}  # a model's layers are the same over and over
    for operation in launched.operations:
        held = cache.share_held(operation.reads)
        cache.touch((*operation.reads, *operation.writes))
        item = operation_item(operation)
        if item is None:
            continue
        key = (item.group, item.bytes_moved, item.flops, *item.numbers.items())
        if key not in alike:
            alike[key] = basis.atlas.price(item, device)
        if (known := alike[key]) is not None:
            prices[operation.name] = known, held
    return prices
