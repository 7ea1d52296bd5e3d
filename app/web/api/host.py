"""What the server says about itself: device, health, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app.errors import Problem
from app.objects.device import Device, Health, Ready
from app.requests import regions
from app.requests.state import state_of
from app.web.api.responses import answer, errors
from app.web.server.access import Access, declare
from app.web.server.state import web_state_of

router = APIRouter(tags=["server"])


@router.get("/api/v1/device", responses={200: {"model": Device}, **errors(503)})
@declare(Access.READ, codes=({503: ("host-unknown",)},))
def device(request: Request) -> Response:
    """The GPU that validations run on (null without one), software versions, and the table of known devices."""
    return answer(regions.device(state_of(request)))


@router.get("/healthz", responses={200: {"model": Health}})
@declare(Access.OPEN)
async def healthz() -> Response:
    """The process answers."""
    health: Health = {"status": "ok"}
    return answer(health)


@router.get("/readyz", responses={200: {"model": Ready}, **errors(503)})
@declare(Access.OPEN, codes=({503: ("not-ready",)},))
def readyz(request: Request) -> Response:
    """The database and the data folder can be written, the queue runs, there is room for uploads.

    `warnings` says what waits although the server is ready, such as measurements while the GPU is suspect.
    """
    state = web_state_of(request)
    health = state.health()
    if health.wrong:
        raise Problem(503, "not-ready", "", "; ".join(health.wrong), warnings=list(health.warnings))
    ready: Ready = {
        "status": "degraded" if health.warnings else "ok",
        "warnings": list(health.warnings),
        "advice_warm": state.service.warm,
    }
    return answer(ready)


@router.get("/metrics", response_class=PlainTextResponse)
@declare(Access.READ)
def metrics(request: Request) -> Response:
    """Counters in Prometheus' text format."""
    from app.web.server.metrics import CONTENT_TYPE, exposition

    return PlainTextResponse(exposition(web_state_of(request)), media_type=CONTENT_TYPE)
