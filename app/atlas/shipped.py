"""Which atlas a device is priced by: the user's own, else the shipped one of the device, else the H200's, scaled."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from app.atlas import price, user_atlas
from app.atlas.atlas import Atlas, AtlasError, Price, file_name, read
from app.atlas.operation_items import operation_item
from app.atlas.user_atlas import UserAtlas
from profiler.hardware import DEVICES, Device, find_device
from profiler.region.graph.operation import Operation

SHIPPED = Path(__file__).resolve().parent / "devices"
REFERENCE = "nvidia-h200.json.gz"
"""Whose atlas stands in for a device that nobody measured."""
SECOND = "nvidia-h100.json.gz"
"""Whose stands in for the reference's, where it is asked how far off another's is."""

_latest: dict[Device, UserAtlas | None] = {}
"""The user's atlases as basis_of saw them last."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Basis:
    """What predictions for a device rest on.

    own: measured on such a device; else scaled by datasheets. users: by the user. refused: why an atlas of the user's
    is not what is used, "" where there is none.
    """

    atlas: Atlas
    own: bool
    users: bool = False
    refused: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever reads a prediction is told of it."""
        notes = []
        if self.refused:
            instead = "this device's shipped one" if self.own else f"that of {self.atlas.device}"
            notes.append(f"Your atlas is refused: {self.refused}. Predictions rest on {instead} instead.")
        if self.atlas.others:
            them = "another process was" if self.atlas.others == 1 else f"{self.atlas.others} other processes were"
            notes.append(
                f"While the atlas of {self.atlas.device} was measured {them} on its GPU: its times may be too long."
            )
        return tuple(notes)


@dataclass(frozen=True, eq=False)
class Launched:
    """A lowered region's operations in order. Compared by identity: pricing a region again and again is remembered."""

    operations: tuple[Operation, ...]


def basis_of(device: Device, scaled: bool = False) -> Basis | None:
    """None only where no atlas can be read at all. scaled: by another device's, whether or not there is its own."""
    if scaled:
        return scaled_basis(device)
    users = user_atlas.atlas_of(device)
    if _latest.setdefault(device, users) is not users:
        _latest[device] = users
        basis_on.cache_clear()  # what the atlas before was kept for is not asked again: it has tens of megabytes
        _prices.cache_clear()
    return basis_on(device, users)


@lru_cache(maxsize=64)
def basis_on(device: Device, users: UserAtlas | None) -> Basis | None:
    """The same where the user's own is this one."""
    if users is not None and users.atlas is not None:
        return Basis(users.atlas, True, users=True)
    refused = users.refused if users is not None else ""
    atlas = shipped_atlas(device)
    if atlas is not None:
        return Basis(atlas, True, refused=refused)
    reference = scaled_basis(device)
    return None if reference is None else replace(reference, refused=refused)


def scaled_basis(device: Device) -> Basis | None:
    """Another device's atlas: the reference's, for the reference itself the second's."""
    atlas = _read(SHIPPED / (SECOND if file_name(device) == REFERENCE else REFERENCE))
    return None if atlas is None else Basis(atlas, False)


def shipped_atlas(device: Device) -> Atlas | None:
    """The device's own among the shipped ones."""
    atlas = _read(SHIPPED / file_name(device))
    return atlas if atlas is not None and find_device(atlas.device) == device else None


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
    """Read all that is shipped and what the user has instead: before processes are forked that would each do
    so for themselves."""
    bases = {id(basis.atlas): basis for device in DEVICES if (basis := basis_of(device)) is not None}
    for basis in bases.values():
        for group in basis.atlas.groups.values():
            group.interpolation.prepare()


def prices_of(launched: Launched, device: Device, scaled: bool = False) -> dict[str, tuple[Price, float]]:
    """Operation -> (price, share of its inputs that is in L2), of those the atlas knows. scaled: see `basis_of`."""
    basis = basis_of(device, scaled)
    return {} if basis is None else _prices(launched, device, basis.atlas)


@lru_cache(maxsize=32)
def _prices(launched: Launched, device: Device, atlas: Atlas) -> dict[str, tuple[Price, float]]:
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
            alike[key] = atlas.price(item, device)
        if (known := alike[key]) is not None:
            prices[operation.name] = known, held
    return prices
