"""A region's advice by what was measured of the very program on the very device, and a trace whose actions rest on it.

One computation: list, rows, the region's page, API, checks and reports take it from here. Pure functions of the API's
objects, but for `from_folders`, which reads the archive's files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from app.advice.evidence import reissue_json
from app.archive import nearness, record_store
from app.archive.schema import timed_candidates
from app.objects.advice import Advice
from app.objects.evidence import Evidence, Figures
from app.objects.record import ArchiveRecord, Validation, ValidationBody
from app.objects.region import AnyRegion, Region, RegionBody
from app.objects.trace import TraceBody
from app.thresholds import DEFAULTS, Thresholds, thresholds_in_force
from app.trace_report.speedup import with_actions
from profiler.hardware import find_device

MEASURED = frozenset({"confirmed", "overturned", "tie"})
"""Outcomes that speak of the advised candidate: with any other the prediction stands."""
MEASUREMENT = ValidationBody.__required_keys__ | ValidationBody.__optional_keys__

R = TypeVar("R", Region, RegionBody)


def is_of_this_device(region: AnyRegion, record: Figures | None) -> bool:
    """Whether a record is of the very program, at its sizes, on the device that the region's advice is for."""
    advice = region.get("advice")
    if record is None or not advice or not record.get("device"):
        return False
    archived = record.get("archived")
    match = archived.get("match", "same") if isinstance(archived, dict) else "same"
    device = find_device(advice.get("device"))
    return match == "same" and device is not None and find_device(record.get("device")) == device


def by_measurement(
    region: AnyRegion, advice: Advice, record: Validation | ArchiveRecord | None, settings: Thresholds
) -> tuple[Advice, Figures | None]:
    """The advice as the measurement has it, and that measurement; the advice itself and None where it speaks of none.

    A region that was measured on this server has its advice issued again already; a record is applied here.
    """
    stands = advice.get("validation")
    if stands and stands.get("outcome") in MEASURED:
        return advice, stands
    if record is None or not timed_candidates(record) or not is_of_this_device(region, record):
        return advice, None
    issued = reissue_json(advice, measurement_in(record), region.get("share_of_step"), settings)
    validation = issued.get("validation")
    if validation is None or validation.get("outcome") not in MEASURED:
        return advice, None
    return {**issued, "validation": _named(validation, record)}, record


def measurement_in(record: Validation | ArchiveRecord) -> ValidationBody:
    """What a record measured, as `reissue_json` takes it."""
    return cast("ValidationBody", {k: v for k, v in record.items() if k in MEASUREMENT})


def _named(validation: Evidence, record: Validation | ArchiveRecord) -> Evidence:
    """The evidence with the record that it is from; of what this server measured of the region itself, as it is."""
    archived, record_id = record.get("archived"), str(record.get("id") or "")
    if not archived:
        return validation
    return {**validation, "id": record_id, "archived": {**archived, "id": record_id}}


def advised_devices(regions: Iterable[AnyRegion]) -> dict[str, str | None]:
    """Text -> the device that its region's advice is for; None where it says none."""
    devices: dict[str, str | None] = {}
    for region in regions:
        advice, text = region.get("advice"), region.get("text")
        if text:
            devices[text] = (advice.get("device") if advice else None) or devices.get(text)
    return devices


def regions_by_records(
    regions: Sequence[R], recorded: Mapping[str, ArchiveRecord], settings: Thresholds = DEFAULTS
) -> list[R]:
    """The regions, with their advice by the records of their texts where these speak of it."""
    return [_by_record(region, recorded.get(region.get("text") or ""), settings) for region in regions]


def _by_record(region: R, record: ArchiveRecord | None, settings: Thresholds) -> R:
    advice = region.get("advice")
    if record is None or not advice:
        return region
    issued, _ = by_measurement(region, advice, record, settings)
    return region if issued is advice else cast("R", {**region, "advice": issued})


def from_folders(trace: TraceBody, folders: Sequence[Path], settings: Thresholds = DEFAULTS) -> TraceBody:
    """A trace by the archive's files: its regions' advice, its actions and what they gain. folders: of records."""
    if not folders:
        return trace
    wanted = advised_devices(trace["regions"])
    recorded = nearness.nearest_of(wanted, record_store.records(*folders))
    changed: TraceBody = {**trace, "regions": regions_by_records(trace["regions"], recorded, settings)}
    return changed if trace.get("gain") is None else with_actions(changed)


def by_archive(trace: TraceBody) -> TraceBody:
    """A trace by what the archive of this host has: the user's records and the shipped ones."""
    return from_folders(trace, _own_folders(), thresholds_in_force())


def region_by_archive(region: RegionBody) -> RegionBody:
    """A region of its own, likewise."""
    recorded = nearness.nearest_of(advised_devices([region]), record_store.records(*_own_folders()))
    return regions_by_records([region], recorded, thresholds_in_force())[0]


def _own_folders() -> tuple[Path, Path]:
    return record_store.user_folder(), record_store.FOLDER
