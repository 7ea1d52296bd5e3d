"""A region on every kind of GPU that it was measured on, side by side: page, part of a page, API."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from app.archive import by_device
from app.errors import not_found, without_text
from app.objects.record import ArchiveRecord, MeasuredDevice, MeasuredDevices, Validation
from app.objects.region import Region
from app.requests import regions
from app.requests.state import state_of
from app.web.api.responses import Responses, answer, errors
from app.web.charts.figure import Chart
from app.web.charts.measured_devices import Row, candidate_rows, speedup_chart
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render

api = APIRouter(prefix="/api/v1", tags=["validations"])
pages = APIRouter(include_in_schema=False)


Devices = Annotated[
    str, Query(max_length=500, description="Only on these, separated by commas: H200,MI300X.", alias="device")
]

ANSWERS: Responses = {200: {"model": MeasuredDevices}, **errors(404, 422)}


@api.get("/regions/{region_id}/measured-devices", responses=ANSWERS)
@api.get("/regions/{region_id}/kinds", responses=ANSWERS, deprecated=True)  # its old path
@declare(Access.COMPUTE, codes=({422: ("region-without-text",)},))
def of_region(request: Request, region_id: str, devices: Devices = "") -> Response:
    """The region's newest measurement on each kind of GPU, at its own sizes: of this server, or of the archive."""
    return answer(_compare(request, _region(request, region_id)[1], devices))


@api.get("/validations/{validation_id}/measured-devices", responses=ANSWERS)
@api.get("/validations/{validation_id}/kinds", responses=ANSWERS, deprecated=True)  # its old path
@declare(Access.COMPUTE)
def of_validation(request: Request, validation_id: str, devices: Devices = "") -> Response:
    """The same for what a validation measured: what was asked for on several kinds, side by side."""
    return answer(_compare(request, _validation(request, validation_id)["region"], devices))


@page_and_json(pages, "/regions/{region_id}/measured-devices", Access.COMPUTE)
@page_and_json(pages, "/regions/{region_id}/kinds", Access.COMPUTE)  # its old path
def region_page(request: Request, region_id: str, devices: Devices = "") -> Response:
    """The kinds side by side: a page, or for htmx the part of a page."""
    region, text = _region(request, region_id)
    return _page(request, text, region["name"], f"/regions/{region_id}", devices)


@page_and_json(pages, "/validations/{validation_id}/measured-devices", Access.COMPUTE)
@page_and_json(pages, "/validations/{validation_id}/kinds", Access.COMPUTE)  # its old path
def validation_page(request: Request, validation_id: str, devices: Devices = "") -> Response:
    """The same for what a validation measured."""
    validation = _validation(request, validation_id)
    name = validation.get("name") or "Validation"
    return _page(request, validation["region"], name, f"/validations/{validation_id}", devices)


class Section(TypedDict, total=False):
    """Context of partials/validation/measured_devices.html; {} where the region was measured on fewer than two devices.

    devices_summary: whether the advice differs between them, in words.
    """

    measured_devices: list[MeasuredDevice]
    devices_summary: str
    devices_rows: list[Row]
    devices_chart: Chart | None


def section(request: Request, text: str) -> Section:
    """A region's measurements side by side, of every device."""
    items = regions.measured_kinds(state_of(request), text)
    return _context(items) if len(items) > 1 else {}


def _names(devices: str) -> list[str]:
    return [name.strip() for name in devices.split(",") if name.strip()]


def _region(request: Request, region_id: str) -> tuple[Region, str]:
    """The region of that id, and its text."""
    region = state_of(request).store.region(region_id)
    if region is None:
        raise not_found("region")
    if not region["text"]:
        raise without_text()
    return region, region["text"]


def _validation(request: Request, validation_id: str) -> Validation | ArchiveRecord:
    state = state_of(request)
    validation = state.store.validation(validation_id) or regions.archive_record(state, validation_id)
    if validation is None:
        raise not_found("validation")
    return validation


def _compare(request: Request, text: str, devices: str) -> MeasuredDevices:
    items = regions.measured_kinds(state_of(request), text, _names(devices))
    return {"items": items, "said": by_device.disagreement(items)}


def _context(items: list[MeasuredDevice]) -> Section:
    return {
        "measured_devices": items,
        "devices_summary": by_device.disagreement(items),
        "devices_rows": candidate_rows(items),
        "devices_chart": speedup_chart(items),
    }


def _page(request: Request, text: str, name: str, back: str, devices: str) -> Response:
    comparison = _compare(request, text, devices)
    if wants_json(request):
        return JSONAnswer(comparison)
    context = {**_context(comparison["items"]), "name": name, "back": back}
    template = "partials/validation/measured_devices.html" if is_fragment(request) else "device/measured_devices.html"
    return render(template, context, request=request)
