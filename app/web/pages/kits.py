"""The starter kit of a validation: a zip, and a page that shows what is in it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from app.errors import not_found
from app.requests import regions
from app.requests.kits import kit_of
from app.requests.state import state_of
from app.web.api import codes as api_codes
from app.web.api.responses import errors
from app.web.pages.common import missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import render

api = APIRouter(prefix="/api/v1", tags=["validations"])
pages = APIRouter(include_in_schema=False)

Json = dict[str, Any]

Candidate = Annotated[
    str | None, Query(max_length=64, description="A Triton candidate's name; by default the fastest that was right.")
]
ZIP: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/zip": {}}, "description": "The kernel's file, replay.py, README.md, validation.json"}
}


def _validation(request: Request, validation_id: str) -> Json | None:
    state = state_of(request)
    found: Json | None = state.store.validation(validation_id) or regions.archive_record(state, validation_id)
    return found


@api.get(
    "/validations/{validation_id}/kit.zip", response_class=Response, responses={**ZIP, **errors(404, 422, 429, 503)}
)
@declare(Access.COMPUTE, codes=(api_codes.STORED, api_codes.ADVICE, {422: ("candidate-unknown",)}))
def kit_zip(request: Request, validation_id: str, candidate: Candidate = None) -> Response:
    """A kernel to download: one file that runs alone with its test and benchmark, and a replay of the region."""
    found = _validation(request, validation_id)
    if found is None:
        raise not_found("validation")
    kit = kit_of(state_of(request), found, candidate)
    headers = {"Content-Disposition": f'attachment; filename="{kit.name}.zip"'}
    return Response(kit.archive(), media_type="application/zip", headers=headers)


def _page(request: Request, validation_id: str, candidate: str | None) -> Json:
    found = _validation(request, validation_id)
    if found is None:
        raise missing("validation")
    kit = kit_of(state_of(request), found, candidate)
    others = [c["name"] for c in found.get("candidates") or () if c["tool"] == "triton" and c["status"] in RIGHT]
    return {"validation": found, "kit": kit, "others": [n for n in others if n != kit.candidate]}


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
