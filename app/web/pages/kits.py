"""The starter kit of a validation: a zip, and a page that shows what is in it."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from app.errors import not_found
from app.objects.record import ArchiveRecord, Validation
from app.requests import regions
from app.requests.kits import kit_of
from app.requests.state import state_of
from app.web.api.responses import Responses, errors
from app.web.pages.common import missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.codes import ADVICE, STORED
from app.web.server.json_response import JSONAnswer
from app.web.templating import render
from kernels.measure.model import is_users_kernel
from kernels.starter_kit.model import Kit

api = APIRouter(prefix="/api/v1", tags=["validations"])
pages = APIRouter(include_in_schema=False)

Candidate = Annotated[
    str | None, Query(max_length=64, description="A Triton candidate's name; by default the fastest that was right.")
]
ZIP: Responses = {
    200: {"content": {"application/zip": {}}, "description": "The kernel's file, replay.py, README.md, validation.json"}
}


def _find_validation(request: Request, validation_id: str) -> Validation | ArchiveRecord | None:
    state = state_of(request)
    return state.store.validation(validation_id) or regions.archive_record(state, validation_id)


@api.get(
    "/validations/{validation_id}/kit.zip", response_class=Response, responses={**ZIP, **errors(404, 422, 429, 503)}
)
@declare(Access.COMPUTE, codes=(STORED, ADVICE, {422: ("candidate-unknown",)}))
def kit_zip(request: Request, validation_id: str, candidate: Candidate = None) -> Response:
    """A kernel to download: one file that runs alone with its test and benchmark, and a replay of the region."""
    validation = _find_validation(request, validation_id)
    if validation is None:
        raise not_found("validation")
    kit = kit_of(state_of(request), validation, candidate)
    headers = {"Content-Disposition": f'attachment; filename="{kit.name}.zip"'}
    return Response(kit.archive(), media_type="application/zip", headers=headers)


class KitPage(TypedDict):
    """Context of kit.html. others: candidates that have a kit too."""

    validation: Validation | ArchiveRecord
    kit: Kit
    others: list[str]


def _page(request: Request, validation_id: str, candidate: str | None) -> KitPage:
    validation = _find_validation(request, validation_id)
    if validation is None:
        raise missing("validation")
    kit = kit_of(state_of(request), validation, candidate)
    right = [c["name"] for c in validation.get("candidates") or () if c["tool"] == "triton" and c["status"] in RIGHT]
    others = [n for n in right if n != kit.candidate and not is_users_kernel(n)]
    return {"validation": validation, "kit": kit, "others": others}


RIGHT = ("ok", "correct")
"""What became of a candidate that may be downloaded."""


@page_and_json(pages, "/validations/{validation_id}/kit", Access.COMPUTE)
def kit_page(request: Request, validation_id: str, candidate: Candidate = None) -> Response:
    """What is in the kit, and how to run it."""
    context = _page(request, validation_id, candidate)
    if wants_json(request):
        kit = context["kit"]
        return JSONAnswer({"name": kit.name, "candidate": kit.candidate, "why": kit.why, "files": dict(kit.files)})
    return render("kit.html", context, request=request)
