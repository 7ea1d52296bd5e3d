"""The reports as files to keep: sent to be saved, since this site's content policy forbids styles in a page."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.errors import Problem
from app.requests.archived_evidence import recorded_regions
from app.requests.state import state_of
from app.trace_report.by_record import advised_devices
from app.web.pages.common import find_region, missing
from app.web.pages.region.evidence import evidence_of
from app.web.pages.region.stored import trace_of
from app.web.server.access import Access, declare
from app.web.views.report import region_report, trace_report

router = APIRouter(include_in_schema=False)


@router.get("/traces/{trace_id}/report.html")
@declare(Access.COMPUTE)
def trace_file(request: Request, trace_id: str) -> Response:
    """A trace with the advice on all its regions. 404 where there is none; 409 while it is not ready."""
    store = state_of(request).store
    trace = store.trace(trace_id)
    if trace is None:
        raise missing("trace")
    if trace["status"] != "ready":
        raise Problem(409, "not-ready", "There is nothing to report yet", "The trace is being read, or it failed.")
    group = store.trace_group(trace.get("group"))
    state = state_of(request)
    recorded = recorded_regions(state, advised_devices(trace["regions"]))
    report = trace_report(trace, group, written=_now(), recorded=recorded, settings=state.settings.rule)
    return _file(trace["name"], report)


@router.get("/regions/{region_id}/report.html")
@declare(Access.COMPUTE)
def region_file(request: Request, region_id: str) -> Response:
    """A region with its advice and what was measured of it, here or elsewhere."""
    region = find_region(request, region_id)
    evidence = evidence_of(request, region)
    trace = trace_of(request, region)
    page = region_report(region, evidence.get("validation"), evidence.get("nearest"), written=_now(), trace=trace)
    return _file(region["name"], page)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _file(name: str, page: str) -> Response:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60] or "report"
    headers = {"Content-Disposition": f'attachment; filename="tritonworthy-{plain}.html"'}
    return Response(page, media_type="text/html", headers=headers)
