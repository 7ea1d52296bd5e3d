"""The context of a stored region's page, and what it has in common with a region that is stored nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from fastapi import Request
from fastapi.responses import Response

from app.objects.device import Device
from app.objects.region import Region, RegionBody
from app.objects.trace import Trace
from app.requests import regions
from app.requests.state import state_of
from app.web.pages.common import (
    PendingHost,
    RegionForm,
    device_names,
    find_region,
    host_facts,
)
from app.web.pages.region.address import open_tabs
from app.web.pages.region.evidence import collect_evidence, device_of, landscape_part, newest_validation
from app.web.templating import is_fragment, render
from app.web.views.region.region_page import Analysis, analysis
from app.web.views.validation_page import (
    AnyValidation,
)

ANSWERED_BEFORE_S = 0.0
"""Pages wait for no oracle: they show the advice with what it has answered before, and ask it from there."""


def trace_id_of(region: RegionBody) -> str | None:
    """The id of the trace that a region is of."""
    source = region.get("source")
    return source.get("trace") if source else None


def trace_of(request: Request, region: RegionBody) -> Trace | None:
    """The stored trace that a region is of, with its actions."""
    trace_id = trace_id_of(region)
    return state_of(request).store.trace(trace_id) if trace_id else None


def analysis_here(
    request: Request, region: RegionBody, evidence: AnyValidation | None, trace: Trace | None = None
) -> Analysis:
    """The analysis by this server's thresholds. trace: that the region is of."""
    return analysis(region, evidence, state_of(request).settings.rule, trace)


def _stored_analysis(request: Request, region: Region, evidence: AnyValidation | None) -> dict[str, object]:
    """Context of a stored region's analysis."""
    on = regions.oracle_is_on(state_of(request))
    shown = analysis_here(request, region, evidence, trace_of(request, region))
    return {**shown, "oracle_on": on, "machine_id": region["id"] if on else None}


class NoAdvice(TypedDict, total=False):
    """awaited: the region's trace is still being read; no_advice: else why there is none. {} for one with advice."""

    awaited: bool
    no_advice: str


def with_advice_state(request: Request, region: Region) -> tuple[Region, NoAdvice]:
    """The region, and why there is no advice on it.

    It is read again where its trace is not being read any more: the last advice may have come between the two.
    """
    if region.get("advice"):
        return region, {}
    store = state_of(request).store
    source = region.get("source")
    trace = store.trace_head((source.get("trace") if source else None) or "")
    if trace is not None and trace["status"] == "reading":
        return region, {"awaited": True}
    region = find_region(request, region["id"])
    if region.get("advice"):
        return region, {}
    of_this = next((n["message"] for n in region.get("notes") or ()), "")
    ended = f"Reading its trace ended before: {trace['error']['message']}" if trace and trace["error"] else ""
    return region, {"no_advice": of_this or ended or "There is no advice on this region."}


class FormContext(TypedDict):
    """Context of the form of a region's page."""

    host: Device | PendingHost
    form: RegionForm
    device_names: list[str]


def form_context(request: Request, region: RegionBody) -> FormContext:
    """The form as a region has it: share, calls, device."""
    share = region.get("share_of_step")
    form: RegionForm = {
        "share_percent": round(share * 100, 3) if share is not None else None,
        "calls_per_step": region.get("calls_per_step"),
        "device": device_of(region),
    }
    return {"host": host_facts(request), "form": form, "device_names": device_names()}


def page_context(request: Request, region: Region, tab: str = "") -> dict[str, object]:
    """Context of a stored region's page."""
    region, without = with_advice_state(request, region)
    newest = newest_validation(request, region)
    evidence = collect_evidence(request, region, newest)
    context: dict[str, object] = {
        **_stored_analysis(request, region, evidence.get("nearest") or newest),
        **evidence,
        **landscape_part(request, region, newest, evidence.get("nearest")),
        **form_context(request, region),
        **without,
        "permalink": f"/regions/{region['id']}",
    }
    return {**context, **open_tabs(context, tab)}


def render_page(request: Request, context: Mapping[str, object]) -> Response:
    """The whole page, or for htmx the tab that it opens."""
    alone = is_fragment(request) and request.headers.get("hx-target") == "tab-panel"
    template = "partials/region/tab_answer.html" if alone else "region.html"
    return render(template, context, request=request, headers={"Vary": "HX-Request, HX-Target"})
