"""A region's text as it is edited: kept as a region, analysed while it is typed, asked of torch.compile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from app.errors import Problem
from app.objects.region import Region, RegionBody
from app.requests import regions
from app.requests.links import stands_for
from app.requests.state import state_of
from app.web.pages.common import (
    RegionFields,
    RegionForm,
    home_page,
    mark_place,
    problem_fragment,
    redirect,
)
from app.web.pages.region.address import carrying_address, open_tabs, read_workload, tab_address
from app.web.pages.region.evidence import (
    collect_evidence,
    device_of,
    find_unedited,
    find_validation,
    landscape_part,
    newest_validation,
)
from app.web.pages.region.stored import ANSWERED_BEFORE_S, analysis_here, page_context, trace_id_of, trace_of
from app.web.server.access import Access, declare
from app.web.templating import is_fragment, render
from app.web.views.region.region_page import Analysis
from app.web.views.validation_page import (
    AnyValidation,
)

router = APIRouter(include_in_schema=False)


@router.post("/regions")
@declare(Access.WORK)
def save_region(request: Request, form: RegionFields) -> Response:
    """Advise on a region and keep it: its page, for htmx in place, before the oracle is asked.

    A text that cannot be read comes back in its form, with the spot marked.
    """
    oracle = {"oracle_timeout_s": ANSWERED_BEFORE_S} if is_fragment(request) else {}
    try:
        region = regions.submit_region(state_of(request), form["text"], **read_workload(form), **oracle)
    except Problem as problem:
        if is_fragment(request) or not problem.extra.get("line"):
            raise
        error = {"title": problem.title, "detail": problem.detail, **problem.extra, "spot": mark_place(problem)}
        context = {**home_page(request, _region_form(form)), "error": error}
        return render("home.html", context, request=request, status=problem.status)
    path = f"/regions/{region['id']}"
    if not is_fragment(request):
        return redirect(request, path)
    headers = {"HX-Retarget": "#main", "HX-Reswap": "innerHTML show:window:top", "HX-Push-Url": path}
    return render("region_answer.html", page_context(request, region), request=request, headers=headers)


@router.post("/regions/preview")
@declare(Access.WORK)
def preview_region(
    request: Request,
    form: RegionFields,
    region_id: Annotated[str, Form()] = "",
    job: Annotated[list[str] | None, Form()] = None,
    tab: Annotated[str, Form()] = "",
) -> Response:
    """The analysis of an edited text, kept nowhere; the page's address is then the one that carries it.

    Evidence stays only where the text is still the stored one, or that of the validation on the page, which is `job`.
    """
    try:
        region = regions.preview_region(
            state_of(request), form["text"], oracle_timeout_s=ANSWERED_BEFORE_S, **read_workload(form)
        )
    except Problem as problem:
        if problem.status != 422 or not is_fragment(request):
            raise
        return problem_fragment(request, problem, typing=True)
    validation_id = job[0] if job else ""
    context = {**_edit_context(request, form, region, region_id, validation_id), "job": validation_id}
    tabs = open_tabs(context, tab, form["text"])
    short = stands_for(state_of(request), urlsplit(request.headers.get("hx-current-url", "")).path, form["text"])
    headers = {"HX-Replace-Url": tab_address(context, tabs)} if tabs["tab_base"] and not short else {}
    context |= tabs
    return render("partials/region/preview.html", context, request=request, headers=headers)


@router.post("/region/oracle")
@declare(Access.WORK)
def predict_text(
    request: Request,
    form: RegionFields,
    region_id: Annotated[str, Form()] = "",
    tab: Annotated[str, Form()] = "",
) -> Response:
    """Ask what torch.compile would make of an edited text: what its page does by itself. Nothing is kept."""
    region = regions.preview_region(state_of(request), form["text"], **read_workload(form))
    if not is_fragment(request):
        return RedirectResponse(f"{carrying_address(form)}&oracle=wait&tab=compiler#oracle", 303)
    context = _edit_context(request, form, region, region_id)
    answered = {**context, **open_tabs(context, tab, form["text"]), "oracle_asked": True}
    return render("partials/kernels/oracle_answer.html", answered, request=request)


def _region_form(fields: Mapping[str, str]) -> RegionForm:
    return {
        "text": fields["text"],
        "share_percent": fields["share_percent"],
        "calls_per_step": fields["calls_per_step"],
        "device": fields["device"],
    }


def _edit_context(
    request: Request, form: Mapping[str, str], region: RegionBody, region_id: str, job: str = ""
) -> dict[str, object]:
    """Context of an edited text's analysis. region_id, job: the stored region that was edited and the validation that
    its page shows, "" for none."""
    stored = find_unedited(request, region_id, form["text"])
    newest = newest_validation(request, stored) if stored else find_validation(request, region, job)
    same = stored is not None and device_of(stored) == device_of(region)
    original = stored or (state_of(request).store.region(region_id) if region_id else None)
    unchanged = stored if stored is not None and same and _has_same_use(stored, region) else None
    evidence = collect_evidence(request, region, newest)
    carried = carrying_address(form)
    return {
        **_edited_analysis(
            request,
            region,
            evidence.get("nearest") or newest,
            unchanged=unchanged,
            before=original if stored is None else None,
        ),
        **evidence,
        **landscape_part(request, region, newest, evidence.get("nearest")),
        "original": original,
        "edited": stored is None,
        "compares_code": stored is None and is_fragment(request),
        "permalink": f"/regions/{unchanged['id']}" if unchanged else carried,
        "oracle_on": regions.oracle_is_on(state_of(request)),
        "machine_id": region_id if same and stored and stored.get("oracle") else None,
    }


class EditedAnalysis(Analysis):
    """share_before_edit: the share is that of the text before its edit, as its trace has it."""

    share_before_edit: bool


def _edited_analysis(
    request: Request,
    region: RegionBody,
    evidence: AnyValidation | None,
    *,
    unchanged: Region | None,
    before: Region | None,
) -> EditedAnalysis:
    """The analysis of a form's text. unchanged: the stored region that it still is; before: the one that was edited.

    What a trace says of a region holds of no other text: the step after the advice is then left out.
    """
    if unchanged is not None:
        of_trace: RegionBody = {**region, "key": unchanged["key"]} if unchanged.get("key") else region
        return {**analysis_here(request, of_trace, evidence, trace_of(request, unchanged)), "share_before_edit": False}
    page = analysis_here(request, region, evidence)
    kept = (
        before is not None
        and trace_id_of(before) is not None
        and region.get("share_of_step") is not None
        and _has_same_share(before, region)
    )
    if kept and page["verdict"] is not None:
        page["verdict"] = {**page["verdict"], "step": None}
    return {**page, "share_before_edit": kept}


def _has_same_use(stored: Region, region: RegionBody) -> bool:
    """Whether a form's other fields say the same as the stored region's: shares up to the form's digits."""
    return _has_same_share(stored, region) and stored.get("calls_per_step") == region.get("calls_per_step")


def _has_same_share(stored: Region, region: RegionBody) -> bool:
    """Whether the shares are the same up to the form's digits."""
    one, other = (math.inf if (share := r.get("share_of_step")) is None else share for r in (stored, region))
    return math.isclose(one, other, abs_tol=1e-5)
