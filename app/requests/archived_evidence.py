"""Which of many regions the archive has a measurement of, for the list of a trace's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.archive import nearness, record_store
from app.objects.record import ArchiveRecord
from app.objects.region import Region, RegionBody
from app.requests.state import ServerState
from app.storage import measurements


def advised_devices(regions: Iterable[Region | RegionBody]) -> dict[str, str | None]:
    """Text -> the device that its region's advice is for; None where it says none."""
    devices: dict[str, str | None] = {}
    for region in regions:
        advice, text = region.get("advice"), region.get("text")
        if text:
            devices[text] = (advice.get("device") if advice else None) or devices.get(text)
    return devices


def recorded_regions(state: ServerState, wanted: Mapping[str, str | None]) -> dict[str, ArchiveRecord]:
    """Text -> its nearest record, for those with one at the same sizes, as the region's own page chooses it.

    state: the app's. wanted: texts, each with the device that evidence is wanted for, None for this host's.
    """
    host = state.host.known()
    here, torch = (host.gpu, host.versions.get("torch")) if host else (None, None)
    files = record_store.records(state.settings.records_dir, record_store.FOLDER)
    records = (*measurements.records(state.store.database, list(wanted)), *files)
    chosen: dict[str, ArchiveRecord] = {}
    for text, device in wanted.items():
        nearest = nearness.choose(text, records, device or here, torch)
        if nearest is not None and nearest[1].match != "other-sizes":
            record, near, _ = nearest
            chosen[text] = {**record, "archived": {**record["archived"], "match": near.match}}
    return chosen
