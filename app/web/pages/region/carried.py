"""The page of a region that is stored nowhere: its text and fields stand in the address."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from app.objects.region import RegionBody
from app.requests import regions
from app.requests.state import state_of
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.pages.region.address import carrying_address, implied_tab, open_tabs, read_workload
from app.web.pages.region.evidence import collect_evidence, landscape_part
from app.web.pages.region.stored import ANSWERED_BEFORE_S, analysis_here, form_context, render_page
from app.web.server.access import Access
from app.web.server.json_response import JSONAnswer

router = APIRouter(include_in_schema=False)

CARRIED_ORACLE_S = 2.0
"""The JSON of a region that its address carries waits so long for the oracle, then it is answered without."""


def _read_carried(request: Request, fields: Mapping[str, str], oracle_timeout_s: float | None) -> RegionBody:
    """The region of the form's fields. Nothing is kept."""
    return regions.preview_region(
        state_of(request), fields["text"], oracle_timeout_s=oracle_timeout_s, **read_workload(fields)
    )


def carried_json(request: Request, fields: Mapping[str, str]) -> Response:
    """The API's object of a region that is stored nowhere, without an id. fields: the form's."""
    return JSONAnswer(_read_carried(request, fields, CARRIED_ORACLE_S))


def carried_page(
    request: Request, fields: Mapping[str, str], *, oracle: str, tab: str, permalink: str, json_address: str
) -> Response:
    """The page of a region that is stored nowhere. tab: that is open; permalink: of this page."""
    region = _read_carried(request, fields, None if oracle == "wait" else ANSWERED_BEFORE_S)
    evidence = collect_evidence(request, region, None)
    context = {
        **analysis_here(request, region, evidence.get("nearest")),
        **evidence,
        **landscape_part(request, region, None, evidence.get("nearest")),
        **form_context(request, region),
        "edited": True,
        "oracle_on": regions.oracle_is_on(state_of(request)),
        "machine_id": None,
        "carried": fields,
        "permalink": permalink,
        "json_address": json_address,
    }
    return render_page(request, {**context, **open_tabs(context, tab or implied_tab(request), fields["text"])})


@page_and_json(router, "/region", Access.COMPUTE)
def region_by_address(
    request: Request,
    text: str = "",
    share_percent: str = "",
    calls_per_step: str = "",
    device: str = "",
    *,
    oracle: str = "",
    tab: str = "",
) -> Response:
    """A region whose text and fields stand in the address: a link that works on any host. A bad text is an error.

    As data it is the API's object without an id. oracle: "wait" for its answer, where no script asks for it.
    """
    given = {"text": text, "share_percent": share_percent, "calls_per_step": calls_per_step, "device": device}
    fields = {name: value for name, value in given.items() if value.strip()} | {"text": text}
    if wants_json(request):
        return carried_json(request, fields)
    if not text.strip():
        return RedirectResponse("/", 303)
    json_address = "/region.json?" + urlencode(fields, quote_via=quote)
    permalink = carrying_address(fields)
    return carried_page(request, fields, oracle=oracle, tab=tab, permalink=permalink, json_address=json_address)
