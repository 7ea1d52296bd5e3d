"""Pages of a region and of its validations: advice, costs, evidence; edit, validate, cancel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, TypedDict
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from app.errors import Problem
from app.objects.device import Device
from app.objects.record import ArchiveRecord, Validation
from app.objects.region import Region, RegionBody
from app.objects.trace import Trace
from app.requests import regions, revalidate
from app.requests.links import stands_for
from app.requests.regression import compare_with_previous
from app.requests.state import state_of
from app.web.charts.figure import Chart
from app.web.charts.timed import CandidateRow
from app.web.pages import landscapes, measured_devices
from app.web.pages.common import (
    PendingHost,
    RegionFields,
    RegionForm,
    device_names,
    find_region,
    home_page,
    host_facts,
    mark_place,
    missing,
    parse_number,
    problem_fragment,
    redirect,
)
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.recorded_landscape import survey_section
from app.web.views.region import whatif
from app.web.views.region.compiled_kernels import machine_page
from app.web.views.region.region_page import Analysis, EvidenceCharts, analysis, evidence_charts
from app.web.views.region.region_tabs import TabsSection, tabs_section
from app.web.views.validation_page import (
    AnyValidation,
    CompiledMode,
    measured_compilations,
    summarize_validation,
)

router = APIRouter(include_in_schema=False)

CARRIED_ORACLE_S = 2.0
"""The JSON of a region that its address carries waits so long for the oracle, then it is answered without."""
ANSWERED_BEFORE_S = 0.0
"""Pages wait for no oracle: they show the advice with what it has answered before, and ask it from there."""
MOST_CARRIED = 6000
"""Characters of a text that an address may carry."""


class Workload(TypedDict):
    """How a region is used, as submit_region takes it. share_of_step: 0 to 1, None where it is not known."""

    share_of_step: float | None
    calls_per_step: float
    device: str | None


class Evidence(EvidenceCharts, measured_devices.Section, total=False):
    """Context of what was measured of a region: here (`validation`), else the archive's `nearest` record.

    compiled: what torch.compile's candidates launched.
    """

    validation: AnyValidation
    candidates_chart: Chart | None
    candidate_rows: list[CandidateRow]
    condition_rows: list[tuple[str, str]]
    condition_warnings: list[str]
    nearest: ArchiveRecord
    nearest_chart: Chart | None
    nearest_rows: list[CandidateRow]
    compiled: list[CompiledMode]


def read_workload(form: Mapping[str, str]) -> Workload:
    """What the form's other fields say about the region's use."""
    return {
        "share_of_step": parse_number(form.get("share_percent"), 0.01),
        "calls_per_step": parse_number(form.get("calls_per_step")) or 1.0,
        "device": form.get("device") or None,
    }


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
    return render("region_answer.html", _page(request, region), request=request, headers=headers)


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
    tabs = _tabs(context, tab, form["text"])
    short = stands_for(state_of(request), urlsplit(request.headers.get("hx-current-url", "")).path, form["text"])
    headers = {"HX-Replace-Url": _tab_address(context, tabs)} if tabs["tab_base"] and not short else {}
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
        return RedirectResponse(f"{_carrying_address(form)}&oracle=wait&tab=compiler#oracle", 303)
    context = _edit_context(request, form, region, region_id)
    answered = {**context, **_tabs(context, tab, form["text"]), "oracle_asked": True}
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
    stored = _find_unedited(request, region_id, form["text"])
    newest = _newest(request, stored) if stored else _find_validation(request, region, job)
    same = stored is not None and _device(stored) == _device(region)
    original = stored or (state_of(request).store.region(region_id) if region_id else None)
    unchanged = stored if stored is not None and same and _has_same_use(stored, region) else None
    evidence = _collect_evidence(request, region, newest)
    carried = _carrying_address(form)
    return {
        **_edited_analysis(
            request,
            region,
            evidence.get("nearest") or newest,
            unchanged=unchanged,
            before=original if stored is None else None,
        ),
        **evidence,
        **_landscape(request, region, newest, evidence.get("nearest")),
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
        return {**_analysis(request, of_trace, evidence, trace_of(request, unchanged)), "share_before_edit": False}
    page = _analysis(request, region, evidence)
    kept = (
        before is not None
        and trace_id_of(before) is not None
        and region.get("share_of_step") is not None
        and _has_same_share(before, region)
    )
    if kept and page["verdict"] is not None:
        page["verdict"] = {**page["verdict"], "step": None}
    return {**page, "share_before_edit": kept}


def _device(region: RegionBody) -> str | None:
    """The device that a region's advice is for."""
    advice = region.get("advice")
    return advice.get("device") if advice else None


def _has_same_use(stored: Region, region: RegionBody) -> bool:
    """Whether a form's other fields say the same as the stored region's: shares up to the form's digits."""
    return _has_same_share(stored, region) and stored.get("calls_per_step") == region.get("calls_per_step")


def _has_same_share(stored: Region, region: RegionBody) -> bool:
    """Whether the shares are the same up to the form's digits."""
    one, other = (math.inf if (share := r.get("share_of_step")) is None else share for r in (stored, region))
    return math.isclose(one, other, abs_tol=1e-5)


def _carrying_address(form: Mapping[str, str]) -> str:
    """The address that carries a text and the form's other fields: works on any host."""
    return "/region?" + urlencode({name: value for name, value in form.items() if value.strip()}, quote_via=quote)


def _find_unedited(request: Request, region_id: str, text: str) -> Region | None:
    """The stored region of that id where the text is still its own."""
    stored = state_of(request).store.region(region_id) if region_id else None
    return stored if stored is not None and text.strip() and text.split() == (stored["text"] or "").split() else None


def _find_validation(request: Request, region: RegionBody, job: str) -> Validation | None:
    """The validation of that id where it is of this very text."""
    validation = state_of(request).store.validation(job) if job else None
    same = validation is not None and validation["region"].split() == (region["text"] or "").split()
    return validation if same else None


def _newest(request: Request, region: Region) -> Validation | None:
    """The newest validation of a stored region."""
    ids = region.get("validations") or ()
    return state_of(request).store.validation(ids[0]) if ids else None


@page_and_json(router, "/regions/{region_id}", Access.COMPUTE)
def region(request: Request, region_id: str, *, tab: str = "") -> Response:
    """One region: verdict, code, one chart, why; the open tab, which htmx asks for alone."""
    stored = find_region(request, region_id)
    if wants_json(request):
        return JSONAnswer(stored)
    return _render_page(request, _page(request, stored, tab or _implied_tab(request)))


def _render_page(request: Request, context: Mapping[str, object]) -> Response:
    """The whole page, or for htmx the tab that it opens."""
    alone = is_fragment(request) and request.headers.get("hx-target") == "tab-panel"
    template = "partials/region/tab_answer.html" if alone else "region.html"
    return render(template, context, request=request, headers={"Vary": "HX-Request, HX-Target"})


def _implied_tab(request: Request) -> str:
    """The tab with the what-if's sliders, where the address says how they stand."""
    return "cost" if {"of", "faster"} & set(request.query_params) else ""


def _tabs(context: Mapping[str, object], tab: str, text: str = "") -> TabsSection:
    """The tabs, and which is open. text: an edited one may be too long for an address to carry."""
    fits = not context.get("edited") or len(text) < MOST_CARRIED
    return tabs_section(context, tab, str(context["permalink"]) if fits else "")


def _tab_address(context: Mapping[str, object], tabs: TabsSection) -> str:
    """The page's address with the tab that is open."""
    return f"{tabs['tab_base']}{tabs['tab']}" if tabs["tab"] else str(context["permalink"])


@router.get("/regions/{region_id}/advice")
@declare(Access.COMPUTE)
def advice(request: Request, region_id: str) -> Response:
    """The advice on a region whose page was opened before there was any; 204 while there is none yet."""
    region = find_region(request, region_id)
    if not is_fragment(request):
        return RedirectResponse(f"/regions/{region_id}", 303)
    region, without = _with_advice_state(request, region)
    if without.get("awaited"):
        return Response(status_code=204)
    tab = _shown_address(request).get("tab", "")
    return render("partials/region/preview.html", _page(request, region, tab), request=request)


def _page(request: Request, region: Region, tab: str = "") -> dict[str, object]:
    """Context of a stored region's page."""
    region, without = _with_advice_state(request, region)
    newest = _newest(request, region)
    evidence = _collect_evidence(request, region, newest)
    context: dict[str, object] = {
        **_stored_analysis(request, region, evidence.get("nearest") or newest),
        **evidence,
        **_landscape(request, region, newest, evidence.get("nearest")),
        **_form_context(request, region),
        **without,
        "permalink": f"/regions/{region['id']}",
    }
    return {**context, **_tabs(context, tab)}


class NoAdvice(TypedDict, total=False):
    """awaited: the region's trace is still being read; no_advice: else why there is none. {} for one with advice."""

    awaited: bool
    no_advice: str


def _with_advice_state(request: Request, region: Region) -> tuple[Region, NoAdvice]:
    """The region, and why there is no advice on it.

    It is read again where its trace is not being read any more: the last advice may have come between the two.
    """
    if region.get("advice"):
        return region, {}
    store = state_of(request).store
    source = region.get("source")
    trace = store.trace_head((source.get("trace") if source else None) or "")
    if trace is not None and trace["status"] == "reading":
        return region, {"awaited": True}
    region = find_region(request, region["id"])
    if region.get("advice"):
        return region, {}
    of_this = next((n["message"] for n in region.get("notes") or ()), "")
    ended = f"Reading its trace ended before: {trace['error']['message']}" if trace and trace["error"] else ""
    return region, {"no_advice": of_this or ended or "There is no advice on this region."}


class FormContext(TypedDict):
    """Context of the form of a region's page."""

    host: Device | PendingHost
    form: RegionForm
    device_names: list[str]


def _form_context(request: Request, region: RegionBody) -> FormContext:
    share = region.get("share_of_step")
    form: RegionForm = {
        "share_percent": round(share * 100, 3) if share is not None else None,
        "calls_per_step": region.get("calls_per_step"),
        "device": _device(region),
    }
    return {"host": host_facts(request), "form": form, "device_names": device_names()}


# ------------------------------------------------------------------------------------ a region that its address carries


def _read_carried(request: Request, fields: Mapping[str, str], oracle_timeout_s: float | None) -> RegionBody:
    """The region of the form's fields. Nothing is kept."""
    return regions.preview_region(
        state_of(request), fields["text"], oracle_timeout_s=oracle_timeout_s, **read_workload(fields)
    )


def carried_json(request: Request, fields: Mapping[str, str]) -> Response:
    """The API's object of a region that is stored nowhere, without an id. fields: the form's."""
    return JSONAnswer(_read_carried(request, fields, CARRIED_ORACLE_S))


def carried_page(
    request: Request, fields: Mapping[str, str], *, oracle: str, tab: str, permalink: str, json_address: str
) -> Response:
    """The page of a region that is stored nowhere. tab: that is open; permalink: of this page."""
    region = _read_carried(request, fields, None if oracle == "wait" else ANSWERED_BEFORE_S)
    evidence = _collect_evidence(request, region, None)
    context = {
        **_analysis(request, region, evidence.get("nearest")),
        **evidence,
        **_landscape(request, region, None, evidence.get("nearest")),
        **_form_context(request, region),
        "edited": True,
        "oracle_on": regions.oracle_is_on(state_of(request)),
        "machine_id": None,
        "carried": fields,
        "permalink": permalink,
        "json_address": json_address,
    }
    return _render_page(request, {**context, **_tabs(context, tab or _implied_tab(request), fields["text"])})


@page_and_json(router, "/region", Access.COMPUTE)
def region_by_address(
    request: Request,
    text: str = "",
    share_percent: str = "",
    calls_per_step: str = "",
    device: str = "",
    *,
    oracle: str = "",
    tab: str = "",
) -> Response:
    """A region whose text and fields stand in the address: a link that works on any host. A bad text is an error.

    As data it is the API's object without an id. oracle: "wait" for its answer, where no script asks for it.
    """
    given = {"text": text, "share_percent": share_percent, "calls_per_step": calls_per_step, "device": device}
    fields = {name: value for name, value in given.items() if value.strip()} | {"text": text}
    if wants_json(request):
        return carried_json(request, fields)
    if not text.strip():
        return RedirectResponse("/", 303)
    json_address = "/region.json?" + urlencode(fields, quote_via=quote)
    permalink = _carrying_address(fields)
    return carried_page(request, fields, oracle=oracle, tab=tab, permalink=permalink, json_address=json_address)


@router.get("/what-if")
@declare(Access.READ)
def what_if(request: Request, of: str = "", faster: str = "", step_us: str = "", page: str = "") -> Response:
    """What a step gains, for the sliders; the page's address follows them."""
    share, times = _what_if_values(request)
    answer = whatif.answer(
        share if share is not None else whatif.UNKNOWN_SHARE, times if times is not None else 2.0, parse_number(step_us)
    )
    headers = {}
    if page.startswith(("/regions/", "/region?", "/r/")):
        joint = "&" if "?" in page else "?"
        headers["HX-Replace-Url"] = f"{quote(page, safe='/?&=%')}{joint}{urlencode({'of': of, 'faster': faster})}"
    return render("partials/region/whatif_answer.html", {"whatif": answer}, request=request, headers=headers)


def _shown_address(request: Request) -> dict[str, str]:
    """The query of the page that asks for a part of itself; {} for a whole page."""
    return dict(parse_qsl(urlsplit(request.headers.get("hx-current-url", "")).query)) if is_fragment(request) else {}


def _what_if_values(request: Request) -> tuple[float | None, float | None]:
    """Where the what-if's sliders stand by the address: share of the step, times as fast; None where it is silent.

    A part of a page that is asked for has its page's address.
    """
    asked = {**_shown_address(request), **request.query_params}
    share, faster = parse_number(asked.get("of")), parse_number(asked.get("faster"))
    return (
        None if share is None else min(max(share, 0.0), 1.0),
        None if faster is None else min(max(faster, 1.0), whatif.MOST_FASTER),
    )


def _analysis(
    request: Request, region: RegionBody, evidence: AnyValidation | None, trace: Trace | None = None
) -> Analysis:
    """The analysis by this server's thresholds. trace: that the region is of."""
    return analysis(region, evidence, state_of(request).settings.rule, trace)


def trace_id_of(region: RegionBody) -> str | None:
    """The id of the trace that a region is of."""
    source = region.get("source")
    return source.get("trace") if source else None


def trace_of(request: Request, region: RegionBody) -> Trace | None:
    """The stored trace that a region is of, with its actions."""
    trace_id = trace_id_of(region)
    return state_of(request).store.trace(trace_id) if trace_id else None


def _stored_analysis(request: Request, region: Region, evidence: AnyValidation | None) -> dict[str, object]:
    """Context of a stored region's analysis."""
    on = regions.oracle_is_on(state_of(request))
    shown = _analysis(request, region, evidence, trace_of(request, region))
    return {**shown, "oracle_on": on, "machine_id": region["id"] if on else None}


def evidence_of(request: Request, region: Region) -> Evidence:
    """What a stored region's page shows as evidence."""
    return _collect_evidence(request, region, _newest(request, region))


def _collect_evidence(request: Request, region: RegionBody, newest: Validation | None) -> Evidence:
    """What was measured of a region, and predictions against it."""
    measured = _collect_measured(request, region["text"], newest, _device(region))
    if not region.get("advice"):
        return measured
    evidence = measured.get("nearest") or newest
    return {**measured, **evidence_charts(region, evidence, *_what_if_values(request), state_of(request).settings.rule)}


def _collect_measured(
    request: Request, text: str | None, newest: Validation | None, device: str | None = None
) -> Evidence:
    """The newest validation made here, and the archive's record of the same region where this host measured nothing.

    device: that the record should be of, None for this host's.
    """
    context: Evidence = {}
    if newest:
        measured = summarize_validation(newest)
        context["validation"] = measured["validation"]
        context["candidates_chart"] = measured["candidates_chart"]
        context["candidate_rows"] = measured["candidate_rows"]
        context["condition_rows"] = measured["condition_rows"]
        context["condition_warnings"] = measured["condition_warnings"]
    running = newest is not None and newest["state"] in ("queued", "running")
    unmeasured = newest is None or newest.get("outcome") in (None, "unmeasured")
    recorded = None
    if text and not running and unmeasured:
        recorded = regions.nearest_record(state_of(request), text, newest["id"] if newest else None, device)
    if recorded is not None:
        summary = summarize_validation(recorded)
        context["nearest"] = recorded
        context["nearest_chart"] = summary["candidates_chart"]
        context["nearest_rows"] = summary["candidate_rows"]
    if text:
        context = {**context, **measured_devices.section(request, text)}
    context["compiled"] = measured_compilations(recorded or newest)
    return context


def _landscape(
    request: Request, region: RegionBody, newest: Validation | None, nearest: ArchiveRecord | None
) -> Mapping[str, object]:
    """The autotune landscape of the newest validation made here, else the nearest on record and how to make one."""
    if newest is None:
        return {"landscape_gpu": bool(host_facts(request)["gpu"]), **survey_section(region, nearest)}
    own = landscapes.part(request, newest)
    if own.get("landscape") is not None:
        return own
    return {**own, **survey_section(region, nearest or newest)}


# ----------------------------------------------------------------------------------------------------------- the oracle


@router.post("/regions/{region_id}/oracle")
@declare(Access.WORK)
def predict(request: Request, region_id: str, tab: Annotated[str, Form()] = "") -> Response:
    """Ask what torch.compile would make of a stored region: what the page of a region from a trace does by itself."""
    find_region(request, region_id)
    region = regions.predict_region(state_of(request), region_id)
    if not is_fragment(request):
        return RedirectResponse(f"/regions/{region_id}?tab=compiler#oracle", 303)
    context = {**_page(request, region, tab), "oracle_asked": True}
    return render("partials/kernels/oracle_answer.html", context, request=request)


@router.get("/regions/{region_id}/kernels/{mode}/{kernel}/{listing}.txt")
@declare(Access.COMPUTE)
def listing(request: Request, region_id: str, mode: str, kernel: str, listing: str) -> Response:
    """One listing of a compiled kernel, whole: ttir, ttgir, llir, ptx, sass."""
    texts = regions.kernel_machine(state_of(request), region_id, mode, kernel)["machine"]["texts"]
    if listing not in texts:
        raise missing("listing")
    return PlainTextResponse(texts[listing])


@page_and_json(router, "/regions/{region_id}/kernels/{mode}/{kernel}", Access.COMPUTE)
def machine(request: Request, region_id: str, mode: str, kernel: str) -> Response:
    """What Triton's compiler decides about one of Inductor's kernels: a page, or for htmx the part under the kernel."""
    answer = regions.kernel_machine(state_of(request), region_id, mode, kernel)
    if wants_json(request):
        return JSONAnswer(answer)
    context = {**machine_page(answer), "region_name": find_region(request, region_id)["name"]}
    template = "partials/kernels/machine.html" if is_fragment(request) else "machine.html"
    return render(template, context, request=request)


# ---------------------------------------------------------------------------------------------------------- validations


@router.post("/validations")
@declare(Access.WORK)
def validate(
    request: Request,
    text: Annotated[str, Form()] = "",
    region_id: Annotated[str, Form()] = "",
    on: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Queue a validation: of the stored region where the text is still its own, else of the text as edited."""
    stored = _find_unedited(request, region_id, text)
    job, _ = regions.submit_validation(
        state_of(request), region=None if stored else text, region_id=stored["id"] if stored else None, device=on,
        oracle_timeout_s=ANSWERED_BEFORE_S,
    )  # fmt: skip
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{job['id']}", 303)
    return render(
        "partials/validation/job.html",
        {**_validation_context(request, job["id"]), "swapped": True},
        request=request,
        status=202,
    )


def _validation_of(request: Request, validation_id: str) -> AnyValidation:
    """The validation of that id, made here or recorded; 404 where there is none."""
    state = state_of(request)
    validation = state.store.validation(validation_id) or regions.archive_record(state, validation_id)
    if validation is None:
        raise missing("validation")
    return validation


def _validation_context(request: Request, validation_id: str) -> dict[str, object]:
    """Context of a validation with its region's evidence from elsewhere."""
    made_here = state_of(request).store.validation(validation_id)
    if made_here is not None and made_here["state"] == "done" and not made_here.get("archived"):
        return {**summarize_validation(made_here), **_collect_measured(request, made_here["region"], made_here)}
    return {**summarize_validation(_validation_of(request, validation_id))}


@page_and_json(router, "/validations/{validation_id}", Access.COMPUTE)
def validation(request: Request, validation_id: str) -> Response:
    """One validation: while it runs, its progress; then everything that was measured."""
    stored = _validation_of(request, validation_id)
    if wants_json(request):
        return JSONAnswer(stored)
    timed = stored["state"] == "done" and stored["device"] and not stored.get("archived")
    context = {
        **_validation_context(request, validation_id),
        **landscapes.part(request, stored),
        "name": stored.get("name") or "Validation",
        "regression": compare_with_previous(state_of(request), validation_id) if timed else None,
    }
    return render("validation.html", context, request=request)


@router.get("/validations/{validation_id}/panel")
@declare(Access.COMPUTE)
def validation_panel(request: Request, validation_id: str) -> Response:
    """Progress while it runs, the result once it stands: what the region page shows of a validation."""
    return render("partials/validation/job.html", _validation_context(request, validation_id), request=request)


@router.get("/validations/{validation_id}/progress")
@declare(Access.READ)
def validation_progress(request: Request, validation_id: str) -> Response:
    """Only the bar and its line."""
    validation = state_of(request).store.validation(validation_id)
    if validation is None:
        raise missing("validation")
    template = (
        "partials/validation/progress_answer.html" if is_fragment(request) else "partials/validation/progress.html"
    )
    return render(template, {"validation": validation}, request=request)


@router.post("/validations/{validation_id}/again")
@declare(Access.WORK)
def validate_again(request: Request, validation_id: str) -> Response:
    """Queue the same once more, under an address of its own; a region's page follows it in place."""
    job = revalidate.validate_again(state_of(request), validation_id)
    if not is_fragment(request) or "/validations/" in request.headers.get("hx-current-url", ""):
        return redirect(request, f"/validations/{job['id']}")
    return render(
        "partials/validation/job.html",
        {**_validation_context(request, job["id"]), "swapped": True},
        request=request,
        status=202,
    )


@router.post("/validations/{validation_id}/cancel")
@declare(Access.CHANGE)
def cancel_validation(request: Request, validation_id: str) -> Response:
    """Stop a queued or running validation."""
    if state_of(request).queue.cancel(validation_id) is None:
        raise missing("validation")
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{validation_id}", 303)
    return render("partials/validation/job.html", _validation_context(request, validation_id), request=request)
