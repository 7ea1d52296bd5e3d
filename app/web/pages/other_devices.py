"""A region on other devices: every device of the table side by side, and the advice for one of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from app.objects.advice import RegionDevices
from app.requests import regions
from app.requests.state import state_of
from app.web.api.responses import answer, errors
from app.web.pages.common import device_names
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.codes import ADVICE, STORED
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.region.verdict import verdict_section
from profiler.hardware import find_device

api = APIRouter(prefix="/api/v1", tags=["advice"])
pages = APIRouter(include_in_schema=False)


Device = Annotated[str, Query(max_length=200, description="A device of the table, such as A100.")]


@api.get("/regions/{region_id}/devices", responses={200: {"model": RegionDevices}, **errors(404, 422, 429, 503)})
@declare(Access.COMPUTE, codes=(STORED, ADVICE))
def devices(request: Request, region_id: str) -> Response:
    """The region's advice on every device of the table, predicted; its own device's is the one that stands."""
    return answer({"items": regions.region_on_devices(state_of(request), region_id)})


@page_and_json(pages, "/regions/{region_id}/devices", Access.COMPUTE)
def devices_page(request: Request, region_id: str, *, device: Device = "") -> Response:
    """The devices side by side, with the advice for one where it is named: a page, or for htmx the part of a page."""
    state = state_of(request)
    rows = regions.region_on_devices(state, region_id)
    if wants_json(request):
        return JSONAnswer({"items": rows})
    region = regions.region_on(state, region_id, device) if device else state.store.region(region_id)
    chosen = find_device(device)
    context = {
        "region": region,
        "rows": rows,
        "chosen": chosen.name if chosen else "",
        "device_names": device_names(),
        "widened": [r["device"] for r in rows if not r["fitted"]],
        "verdict": verdict_section(region, None, state.settings.rule) if region and chosen else None,
    }
    return render(
        "partials/device/devices.html" if is_fragment(request) else "device/devices.html", context, request=request
    )
