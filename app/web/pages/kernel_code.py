"""Our Triton for a region: next to Inductor's, and as the compiler makes it; the replay script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import PlainTextResponse, Response

from app.objects.record import ArchiveRecord, Validation
from app.objects.region import Region
from app.requests import kernel_code, regions
from app.requests.state import state_of
from app.web.pages.common import find_region, missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.region.code_changes import code_change, inductor_code, own_code
from app.web.views.region.compiled_kernels import columns, own_machine_page

if TYPE_CHECKING:
    from kernels.kernel_listing_model import Own

router = APIRouter(include_in_schema=False)

Candidate = Annotated[str | None, Query(max_length=64)]
Device = Annotated[str | None, Query(max_length=200)]


def _find_kernel(request: Request, region_id: str, candidate: str | None) -> tuple[Region, Own]:
    region = find_region(request, region_id)
    ids = region.get("validations") or ()
    newest = state_of(request).store.validation(ids[0]) if ids else None
    evidence: Validation | ArchiveRecord | None = newest
    if region["text"] and (newest is None or newest.get("outcome") in (None, "unmeasured")):
        recorded = regions.nearest_record(state_of(request), region["text"], newest["id"] if newest else None)
        if recorded is not None and recorded["archived"].get("match") != "other-sizes":
            evidence = recorded
    return region, kernel_code.own_of(state_of(request), region, candidate, evidence)


@router.post("/region/changes")
@declare(Access.WORK)
def changes(
    request: Request,
    text: Annotated[str, Form()] = "",
    before: Annotated[str, Form()] = "",
    device: Annotated[str, Form()] = "",
) -> Response:
    """What an edit changed in the code that Inductor and this app write.

    before: the text that the page was opened with. Inductor is not asked: its part is there where it has answered both.
    """
    if not before.strip() or before.split() == text.split():
        return Response(status_code=204)
    state = state_of(request)
    one, other = (regions.preview_region(state, t, device=device or None, oracle_timeout_s=0.0) for t in (before, text))
    ours = [own_code(kernel_code.own_of(state, region)) for region in (one, other)]
    context = {
        "changes": [
            code_change("torch.compile, by Inductor", inductor_code(one), inductor_code(other)),
            code_change("This app's Triton", *ours),
        ]
    }
    return render("partials/kernels/code_changes.html", context, request=request)


def _json_address(path: str, candidate: str | None) -> str:
    return path + (f"?candidate={quote(candidate, safe='')}" if candidate else "")


@page_and_json(router, "/regions/{region_id}/triton", Access.COMPUTE)
def own(request: Request, region_id: str, candidate: Candidate = None) -> Response:
    """Three columns of code: a page, or for htmx the part of the region's page."""
    region, kernel = _find_kernel(request, region_id, candidate)
    if wants_json(request):
        return JSONAnswer(kernel_code.to_json(kernel))
    json_address = _json_address(f"/regions/{region_id}/triton.json", candidate)
    context = {**columns(region, kernel), "json_address": json_address}
    return render(
        "partials/kernels/columns.html" if is_fragment(request) else "kernel_code.html", context, request=request
    )


@page_and_json(router, "/regions/{region_id}/triton/machine", Access.COMPUTE)
def machine(request: Request, region_id: str, candidate: Candidate = None, device: Device = None) -> Response:
    """What the compiler makes of our kernels, with every listing. Takes seconds the first time: a child compiles."""
    region, kernel = _find_kernel(request, region_id, candidate)
    answer = kernel_code.machines_of(state_of(request), region, kernel, device)
    if wants_json(request):
        return JSONAnswer(answer)
    context = {
        **own_machine_page(region, kernel, answer, f"/regions/{region_id}/triton"),
        "json_address": _json_address(f"/regions/{region_id}/triton/machine.json", kernel.candidate),
    }
    return render(
        "partials/kernels/own_machine.html" if is_fragment(request) else "kernel_code.html", context, request=request
    )


@router.get("/regions/{region_id}/triton/{kernel}/{listing}.txt")
@declare(Access.COMPUTE)
def listing(request: Request, region_id: str, kernel: str, listing: str, candidate: Candidate = None) -> Response:
    """One listing, whole: ttir, ttgir, llir, ptx, sass."""
    region, own_kernel = _find_kernel(request, region_id, candidate)
    machine = kernel_code.kernel_named(kernel_code.machines_of(state_of(request), region, own_kernel), kernel)
    if listing not in machine["texts"]:
        raise missing("listing")
    return PlainTextResponse(machine["texts"][listing])


@router.get("/regions/{region_id}/replay.py")
@declare(Access.COMPUTE)
def replay(request: Request, region_id: str) -> Response:
    """The region as a file that runs alone, with torch only: for a bug report."""
    region = state_of(request).store.region(region_id)
    if region is None or not region["text"]:
        raise missing("region with a text")
    shapes = [{**s["binding"], "calls": s["calls"]} for s in region.get("shapes") or () if s.get("binding")]
    script = state_of(request).service.replay_script(region["text"], shapes or None)
    headers = {"Content-Disposition": 'attachment; filename="replay.py"'}
    return PlainTextResponse(script, headers=headers)
