"""A trace in Perfetto: a page from which the user opens it there, the stored file, and the shown step as a small one.

Perfetto takes a trace from the page that opened its window, so this one page lets its windows keep their opener.
"""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from app.objects.trace import Trace
from app.requests.state import state_of
from app.web.pages.common import missing
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.server.security import OPENER, OPENS_WINDOWS
from app.web.templating import render
from app.web.views.step_slice import step_slice
from app.web.views.trace.regions import region_names

router = APIRouter(include_in_schema=False)


@router.get("/traces/{trace_id}/perfetto")
@declare(Access.READ)
def perfetto(request: Request, trace_id: str) -> Response:
    """Where a trace is opened in Perfetto from: nothing is sent before the user asks for it."""
    trace = _find(request, trace_id)
    stored = _stored(request, trace_id)
    context = {
        "trace": trace,
        "kept_bytes": stored.stat().st_size if stored else None,
        "has_step": bool(trace.get("timeline")),
    }
    return render("perfetto.html", context, request=request, headers={OPENER: OPENS_WINDOWS})


@router.get("/traces/{trace_id}/perfetto/file")
@declare(Access.READ)
def stored_file(request: Request, trace_id: str) -> Response:
    """The trace's file as it was uploaded. 404 where the server has none."""
    trace = _find(request, trace_id)
    stored = _stored(request, trace_id)
    if stored is None:
        raise missing("file of this trace")
    name = _plain(trace["name"].rsplit("/", 1)[-1]) or "trace.json"
    return FileResponse(stored, media_type="application/octet-stream", filename=name)


@router.get("/traces/{trace_id}/perfetto/step")
@declare(Access.READ)
def step_file(request: Request, trace_id: str) -> Response:
    """The shown step as trace events. 404 for a trace without a timeline."""
    trace = _find(request, trace_id)
    events = step_slice(trace, region_names(trace))
    if events is None:
        raise missing("step of this trace")
    return JSONAnswer(events, headers={"Content-Disposition": 'attachment; filename="step.json"'})


def _find(request: Request, trace_id: str) -> Trace:
    trace = state_of(request).store.trace(trace_id)
    if trace is None:
        raise missing("trace")
    return trace


def _stored(request: Request, trace_id: str) -> Path | None:
    state = state_of(request)
    name = state.store.trace_file(trace_id)
    path = state.settings.uploads_dir / name if name else None
    return path if path is not None and path.is_file() else None


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-80:].strip(".-")
