"""What a region's page shows as measured: the validation made here, the nearest record, the landscape."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request

from app.objects.record import ArchiveRecord, Validation
from app.objects.region import Region, RegionBody
from app.requests import regions
from app.requests.state import state_of
from app.web.charts.figure import Chart
from app.web.charts.timed import CandidateRow
from app.web.pages import landscapes, measured_devices
from app.web.pages.common import (
    host_facts,
)
from app.web.pages.region.address import what_if_values
from app.web.views.recorded_landscape import survey_section
from app.web.views.region.region_page import EvidenceCharts, evidence_charts
from app.web.views.validation_page import (
    AnyValidation,
    CompiledMode,
    measured_compilations,
    summarize_validation,
)


class Evidence(EvidenceCharts, measured_devices.Section, total=False):
    """Context of what was measured of a region: here (`validation`), else the archive's `nearest` record.

    compiled: what torch.compile's candidates launched.
    """

    validation: AnyValidation
    candidates_chart: Chart | None
    candidate_rows: list[CandidateRow]
    condition_rows: list[tuple[str, str]]
    condition_warnings: list[str]
    nearest: ArchiveRecord
    nearest_chart: Chart | None
    nearest_rows: list[CandidateRow]
    compiled: list[CompiledMode]


def device_of(region: RegionBody) -> str | None:
    """The device that a region's advice is for."""
    advice = region.get("advice")
    return advice.get("device") if advice else None


def find_unedited(request: Request, region_id: str, text: str) -> Region | None:
    """The stored region of that id where the text is still its own."""
    stored = state_of(request).store.region(region_id) if region_id else None
    return stored if stored is not None and text.strip() and text.split() == (stored["text"] or "").split() else None


def find_validation(request: Request, region: RegionBody, job: str) -> Validation | None:
    """The validation of that id where it is of this very text."""
    validation = state_of(request).store.validation(job) if job else None
    same = validation is not None and validation["region"].split() == (region["text"] or "").split()
    return validation if same else None


def newest_validation(request: Request, region: Region) -> Validation | None:
    """The newest validation of a stored region."""
    ids = region.get("validations") or ()
    return state_of(request).store.validation(ids[0]) if ids else None


def evidence_of(request: Request, region: Region) -> Evidence:
    """What a stored region's page shows as evidence."""
    return collect_evidence(request, region, newest_validation(request, region))


def collect_evidence(request: Request, region: RegionBody, newest: Validation | None) -> Evidence:
    """What was measured of a region, and predictions against it."""
    measured = collect_measured(request, region["text"], newest, device_of(region))
    if not region.get("advice"):
        return measured
    evidence = measured.get("nearest") or newest
    return {**measured, **evidence_charts(region, evidence, *what_if_values(request), state_of(request).settings.rule)}


def collect_measured(
    request: Request, text: str | None, newest: Validation | None, device: str | None = None
) -> Evidence:
    """The newest validation made here, and the archive's record of the same region where this host measured nothing.

    device: that the record should be of, None for this host's.
    """
    context: Evidence = {}
    if newest:
        measured = summarize_validation(newest)
        context["validation"] = measured["validation"]
        context["candidates_chart"] = measured["candidates_chart"]
        context["candidate_rows"] = measured["candidate_rows"]
        context["condition_rows"] = measured["condition_rows"]
        context["condition_warnings"] = measured["condition_warnings"]
    running = newest is not None and newest["state"] in ("queued", "running")
    unmeasured = newest is None or newest.get("outcome") in (None, "unmeasured")
    recorded = None
    if text and not running and unmeasured:
        recorded = regions.nearest_record(state_of(request), text, newest["id"] if newest else None, device)
    if recorded is not None:
        summary = summarize_validation(recorded)
        context["nearest"] = recorded
        context["nearest_chart"] = summary["candidates_chart"]
        context["nearest_rows"] = summary["candidate_rows"]
    if text:
        context = {**context, **measured_devices.section(request, text)}
    context["compiled"] = measured_compilations(recorded or newest)
    return context


def landscape_part(
    request: Request, region: RegionBody, newest: Validation | None, nearest: ArchiveRecord | None
) -> Mapping[str, object]:
    """The autotune landscape of the newest validation made here, else the nearest on record and how to make one."""
    if newest is None:
        return {"landscape_gpu": bool(host_facts(request)["gpu"]), **survey_section(region, nearest)}
    own = landscapes.part(request, newest)
    if own.get("landscape") is not None:
        return own
    return {**own, **survey_section(region, nearest or newest)}
