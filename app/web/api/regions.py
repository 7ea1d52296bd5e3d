"""/api/v1/regions and /api/v1/advice: what to do about a part of the step."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response

from app.errors import not_found
from app.objects.kernel import Kernel
from app.objects.region import AdviceAnswer, Region, RegionBody, RegionList
from app.requests import regions as submit
from app.requests.archived_evidence import by_record, by_records
from app.requests.state import state_of
from app.storage import history
from app.web.api.request_schemas import AdviceRequest, RenameRequest
from app.web.api.responses import JSON_ONLY, After, Limit, answer, answer_page, errors
from app.web.server import codes as api_codes
from app.web.server.access import Access, declare
from profiler.oracle.model import MODES

router = APIRouter(prefix="/api/v1", tags=["advice"])


@router.get("/regions", responses={200: {"model": RegionList}, **errors(422)})
@declare(Access.READ)
def regions(request: Request, limit: Limit = 50, after: After = None) -> Response:
    """Regions that were written down, newest first; their kernels without source."""
    page = state_of(request).store.region_list(limit, after)
    items = by_records(state_of(request), page["items"])
    return answer_page(request, {**page, "items": [submit.without_source(item) for item in items]})


@router.get("/regions/{region_id}", responses={200: {"model": Region}, **errors(404, 422, 429, 503)})
@declare(Access.COMPUTE, codes=(api_codes.STORED, api_codes.ADVICE))
def region(
    request: Request,
    region_id: str,
    device: Annotated[
        str | None, Query(max_length=200, description="Cost and advice on this device: predicted, or recorded there.")
    ] = None,
) -> Response:
    """One region, its advice by what was measured of the very program on the device, as its trace has it.

    `archive` is the recorded validation nearest to it, where this host has measured nothing.
    """
    state = state_of(request)
    stored = submit.region_on(state, region_id, device) if device else state.store.region(region_id)
    if stored is None:
        raise not_found("region")
    recorded = submit.nearest_record(state, stored["text"] or "") if not stored["validations"] else None
    body: Region = {**by_record(state, stored), "archive": recorded}
    return answer(body)


@router.patch(
    "/regions/{region_id}", dependencies=JSON_ONLY, responses={200: {"model": Region}, **errors(404, 413, 415, 422)}
)
@declare(Access.CHANGE)
def patch(request: Request, region_id: str, body: RenameRequest) -> Response:
    """Rename a region; what was written about it before keeps the old name. Nothing else of it can be changed."""
    store = state_of(request).store
    stored = store.region(region_id) if history.rename(store.database, "region", region_id, body.name) else None
    if stored is None:
        raise not_found("region")
    return answer(by_record(state_of(request), stored))


@router.post("/regions/{region_id}/oracle", responses={200: {"model": Region}, **errors(404, 409, 422, 429, 503)})
@declare(Access.WORK, codes=(api_codes.STORED, api_codes.ADVICE, api_codes.COMPILER, {409: ("trace-not-ready",)}))
def foresee(request: Request, region_id: str) -> Response:
    """Ask what torch.compile would make of a stored region; keep the answer and advise again with it.

    A region from a trace has an empty `oracle` until somebody asks. An answer that stands is not asked for again.
    """
    state = state_of(request)
    return answer(by_record(state, submit.predict_region(state, region_id)))


@router.get("/regions/{region_id}/kernels/{kernel}", responses={200: {"model": Kernel}, **errors(404, 422, 429, 503)})
@declare(Access.COMPUTE, codes=(api_codes.STORED, api_codes.ADVICE, api_codes.COMPILER))
def kernel(
    request: Request,
    region_id: str,
    kernel: str,
    mode: Annotated[str, Query(max_length=32, description="The prediction that has the kernel.")] = MODES[0],
) -> Response:
    """What Triton's compiler decides about one kernel of a stored region's `oracle`: registers, PTX, SASS, ...

    kernel: its name; NAME@STAGE where forward and backward have one of the same name.
    """
    return answer(submit.kernel_machine(state_of(request), region_id, mode, kernel))


@router.post(
    "/advice", dependencies=JSON_ONLY, responses={200: {"model": AdviceAnswer}, **errors(413, 415, 422, 429, 503)}
)
@declare(Access.WORK, codes=(api_codes.TEXT, api_codes.ADVICE))
def advice(request: Request, body: AdviceRequest) -> Response:
    """Advice at once, on a region's text or the widget's answers. Nothing is stored.

    For a region the answer also has what the region object has: `name`, `text`, `cost`, `shapes`, ...
    """
    state = state_of(request)
    if body.widget is not None:
        return answer(submit.advise_widget(state, **body.widget.model_dump()))
    assert body.region is not None
    advised = by_record(state, submit.preview_region(state, body.region, **workload(body)))
    recorded = submit.nearest_record(state, advised["text"] or "")
    answered: AdviceAnswer = {**flat_advice(advised), "archive": recorded}
    return answer(answered)


def workload(body: AdviceRequest) -> dict[str, Any]:
    """The keyword arguments of Executor.advise_region."""
    return {**body.model_dump(exclude={"region", "widget"}), "oracle": body.oracle == "auto"}


def flat_advice(region: RegionBody) -> AdviceAnswer:
    """The advice, with the region's own fields: one object says what to do and about what."""
    body = {**{k: v for k, v in region.items() if k != "advice"}, **(region["advice"] or {})}
    return cast("AdviceAnswer", body)
