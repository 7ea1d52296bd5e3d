"""Our Triton for a region: beside the region and Inductor's, as the compiler makes it; the replay script."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response

from app.requests import kernel_code, regions
from app.requests.state import state_of
from app.web.pages.common import missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views import compiled_kernels

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

Candidate = Annotated[str | None, Query(max_length=64)]
Device = Annotated[str | None, Query(max_length=200)]


def _find_kernel(request: Request, region_id: str, candidate: str | None) -> tuple[Json, Any]:
    store = state_of(request).store
    region: Json | None = store.region(region_id)
    if region is None:
        raise missing("region")
    ids = region.get("validations") or ()
    evidence: Json | None = store.validation(ids[0]) if ids else None
    if region.get("text") and (evidence is None or evidence.get("outcome") in (None, "unmeasured")):
        own = evidence["id"] if evidence else None
        recorded = regions.nearest_record(state_of(request), region["text"], own)
        same = recorded is not None and recorded["archived"]["match"] != "other-sizes"
        evidence = recorded if same else evidence
    return region, kernel_code.own_of(state_of(request), region, candidate, evidence)


def _twin(path: str, candidate: str | None) -> str:
    return path + (f"?candidate={quote(candidate, safe='')}" if candidate else "")


@page_and_json(router, "/regions/{region_id}/triton", Access.COMPUTE)
def own(request: Request, region_id: str, candidate: Candidate = None) -> Response:
    """Three columns of code: a page, or for htmx the part of the region's page."""
    region, found = _find_kernel(request, region_id, candidate)
    if wants_json(request):
        return JSONAnswer(kernel_code.to_json(found))
    context = {**compiled_kernels.columns(region, found), "charts": False}
    context["twin"] = _twin(f"/regions/{region_id}/triton.json", candidate)
    return render("partials/columns.html" if is_fragment(request) else "own.html", context, request=request)


@page_and_json(router, "/regions/{region_id}/triton/machine", Access.COMPUTE)
def machine(request: Request, region_id: str, candidate: Candidate = None, device: Device = None) -> Response:
    """What the compiler makes of our kernels, with every listing. Takes seconds the first time: a child compiles."""
    region, found = _find_kernel(request, region_id, candidate)
    answer = kernel_code.machines_of(state_of(request), region, found, device)
    if wants_json(request):
        return JSONAnswer(answer)
    context = {
        **compiled_kernels.machine_code_context(region, found, answer, f"/regions/{region_id}/triton"),
        "charts": False,
    }
    context["twin"] = _twin(f"/regions/{region_id}/triton/machine.json", found.candidate)
    return render("partials/own_machine.html" if is_fragment(request) else "own.html", context, request=request)


@router.get("/regions/{region_id}/triton/{kernel}/{listing}.txt")
@declare(Access.COMPUTE)
def listing(request: Request, region_id: str, kernel: str, listing: str, candidate: Candidate = None) -> Response:
    """One listing, whole: ttir, ttgir, llir, ptx, sass."""
    region, found = _find_kernel(request, region_id, candidate)
    made = kernel_code.kernel_named(kernel_code.machines_of(state_of(request), region, found), kernel)
    if listing not in made["texts"]:
        raise missing("listing")
    return PlainTextResponse(made["texts"][listing])


@router.get("/regions/{region_id}/replay.py")
@declare(Access.COMPUTE)
def replay(request: Request, region_id: str) -> Response:
    """The region as a file that runs alone, with torch only: for a bug report."""
    region: Json | None = state_of(request).store.region(region_id)
    if region is None or not region.get("text"):
        raise missing("region with a text")
    shapes = [{**s["binding"], "calls": s["calls"]} for s in region.get("shapes") or () if s.get("binding")]
    script = state_of(request).service.replay_script(region["text"], shapes or None)
    headers = {"Content-Disposition": 'attachment; filename="replay.py"'}
    return PlainTextResponse(script, headers=headers)
