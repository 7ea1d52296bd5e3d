"""What the server says about itself: device, health, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app import submit
from app.web.answers import answer, errors
from app.web.metrics import exposition
from app.web.models import Device
from app.web.problems import Problem

router = APIRouter(tags=["server"])


@router.get("/api/v1/device", responses={200: {"model": Device}, **errors(503)})
def device(request: Request) -> Response:
    """The GPU that validations run on (null without one), software versions, and the table of known devices."""
    return answer(submit.device(request.app.state))


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> Response:
    """The process answers."""
    return answer({"status": "ok"})


@router.get("/readyz", responses=errors(503))
def readyz(request: Request) -> Response:
    """The database answers, the queue runs, and there is room for uploads."""
    state = request.app.state
    wrong = state.readiness()
    if wrong:
        raise Problem(503, "not-ready", "", "; ".join(wrong))
    return answer({"status": "ok", "advice_warm": state.service.warm.is_set()})


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Counters in Prometheus' text format."""
    return PlainTextResponse(exposition(request.app.state), media_type="text/plain; version=0.0.4; charset=utf-8")
