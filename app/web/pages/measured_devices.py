"""A region on every kind of GPU that it was measured on, side by side: page, part of a page, API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from app.archive import by_device
from app.errors import not_found, without_text
from app.objects.record import MeasuredDevices
from app.requests import regions
from app.requests.state import state_of
from app.web.api.responses import answer, errors
from app.web.charts import measured_devices
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render

api = APIRouter(prefix="/api/v1", tags=["validations"])
pages = APIRouter(include_in_schema=False)

Json = dict[str, Any]


Devices = Annotated[
    str, Query(max_length=500, description="Only on these, separated by commas: H200,MI300X.", alias="device")
]

ANSWERS: dict[int | str, Json] = {200: {"model": MeasuredDevices}, **errors(404, 422)}


@api.get("/regions/{region_id}/measured-devices", responses=ANSWERS)
@api.get("/regions/{region_id}/kinds", responses=ANSWERS, deprecated=True)  # its old path
@declare(Access.COMPUTE, codes=({422: ("region-without-text",)},))
def of_region(request: Request, region_id: str, devices: Devices = "") -> Response:
    """The region's newest measurement on each kind of GPU, at its own sizes: of this server, or of the archive."""
    return answer(_compare(request, _region(request, region_id)["text"], devices))


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
    region = _region(request, region_id)
    return _page(request, region["text"], region["name"], f"/regions/{region_id}", devices)


@page_and_json(pages, "/validations/{validation_id}/measured-devices", Access.COMPUTE)
@page_and_json(pages, "/validations/{validation_id}/kinds", Access.COMPUTE)  # its old path
def validation_page(request: Request, validation_id: str, devices: Devices = "") -> Response:
    """The same for what a validation measured."""
    found = _validation(request, validation_id)
    return _page(request, found["region"], found.get("name") or "Validation", f"/validations/{validation_id}", devices)


def section(request: Request, text: str) -> Json:
    """Context of partials/kinds.html; nothing where the region was measured on fewer than two kinds."""
    found = regions.measured_kinds(state_of(request), text)
    return _context(found) if len(found) > 1 else {}


def _names(devices: str) -> list[str]:
    return [name.strip() for name in devices.split(",") if name.strip()]


def _region(request: Request, region_id: str) -> Json:
    region: Json | None = state_of(request).store.region(region_id)
    if region is None:
        raise not_found("region")
    if not region["text"]:
        raise without_text()
    return region


def _validation(request: Request, validation_id: str) -> Json:
    state = state_of(request)
    found: Json | None = state.store.validation(validation_id) or regions.archive_record(state, validation_id)
    if found is None:
        raise not_found("validation")
    return found


def _compare(request: Request, text: str, devices: str) -> Json:
    items = regions.measured_kinds(state_of(request), text, _names(devices))
    return {"items": items, "said": by_device.disagreement(items)}


def _context(items: list[Json]) -> Json:
    return {
        "kinds": items,
        "kinds_said": by_device.disagreement(items),
        "kinds_rows": measured_devices.rows(items),
        "kinds_chart": measured_devices.chart_of(items),
    }


def _page(request: Request, text: str, name: str, back: str, devices: str) -> Response:
    found = _compare(request, text, devices)
    if wants_json(request):
        return JSONAnswer(found)
    context = {**_context(found["items"]), "name": name, "back": back}
    template = "partials/kinds.html" if is_fragment(request) else "kinds.html"
    return render(template, context, request=request)
