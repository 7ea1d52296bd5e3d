"""Which regions the archive has a measurement of, and their advice by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from app.archive import nearness, record_store
from app.objects.record import ArchiveRecord
from app.objects.region import Region, RegionBody
from app.requests.state import ServerState
from app.storage import measurements
from app.trace_report.by_record import advised_devices, regions_by_records

R = TypeVar("R", Region, RegionBody)


def recorded_regions(state: ServerState, wanted: Mapping[str, str | None]) -> dict[str, ArchiveRecord]:
    """Text -> its nearest record, for those with one at the same sizes, as the region's own page chooses it.

    state: the app's. wanted: texts, each with the device that evidence is wanted for, None for this host's.
    """
    host = state.host.known()
    here, torch = (host.gpu, host.versions.get("torch")) if host else (None, None)
    files = record_store.records(state.settings.records_dir, record_store.FOLDER)
    records = (*measurements.records(state.store.database, list(wanted)), *files)
    return nearness.nearest_of(wanted, records, here, torch)


def by_records(state: ServerState, regions: Sequence[R]) -> list[R]:
    """Regions with their advice by what the archive has of the same programs on the same device."""
    recorded = recorded_regions(state, advised_devices(regions))
    return regions_by_records(regions, recorded, state.settings.rule)


def by_record(state: ServerState, region: R) -> R:
    """`by_records` of one."""
    return by_records(state, [region])[0]
