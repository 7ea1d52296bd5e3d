"""/api/v1/regions and /api/v1/advice: what to do about a part of the step."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from app import submit
from app.web.answers import JSON_ONLY, After, Json, Limit, answer, errors
from app.web.models import Advice, AdviceRequest, Region, RegionList
from app.web.problems import not_found

router = APIRouter(prefix="/api/v1", tags=["advice"])


@router.get("/regions", responses={200: {"model": RegionList}, **errors(422)})
def regions(request: Request, limit: Limit = 50, after: After = None) -> Response:
    """Regions that were written down, newest first."""
    return answer(request.app.state.store.region_list(limit, after))


@router.get("/regions/{region_id}", responses={200: {"model": Region}, **errors(404)})
def region(request: Request, region_id: str) -> Response:
    """One region; `archive` is the recorded validation nearest to it, where this host has measured nothing."""
    found = request.app.state.store.region(region_id)
    if found is None:
        raise not_found("region")
    recorded = submit.archived(request.app.state, found["text"]) if not found["validations"] else None
    return answer(found | {"archive": recorded})


@router.post("/advice", dependencies=JSON_ONLY, responses={200: {"model": Advice}, **errors(413, 415, 422, 503)})
def advice(request: Request, body: AdviceRequest) -> Response:
    """Advice at once, on a region's text or the widget's answers. Nothing is stored.

    For a region the answer also has what the region object has: `name`, `text`, `cost`, `shapes`, ...
    """
    state = request.app.state
    if body.widget is not None:
        return answer(submit.advise_widget(state, **body.widget.model_dump()))
    assert body.region is not None
    found = submit.preview_region(state, body.region, **workload(body))
    recorded = submit.archived(state, found["text"])
    return answer(flat_advice(found) | {"archive": recorded})


def workload(body: AdviceRequest) -> dict[str, Any]:
    """The keyword arguments of service.advise_region."""
    return body.model_dump(exclude={"region", "widget", "oracle"})


def flat_advice(region: Json) -> Json:
    """The advice, with the region's own fields beside it: one object says what to do and about what."""
    return {**{k: v for k, v in region.items() if k != "advice"}, **region["advice"]}
