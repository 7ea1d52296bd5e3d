"""Pages of a region and of its validations: advice, costs, evidence; edit, validate, cancel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Form, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from app.errors import Problem
from app.requests import regions, revalidate
from app.requests.regression import compare_with_previous
from app.requests.state import state_of
from app.web.pages import landscapes, measured_devices
from app.web.pages.common import device_names, go, home_page, host_facts, missing, number, spot
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views import oracle as oracle_views
from app.web.views import recorded_landscape, whatif
from app.web.views import region as views

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

CARRIED_ORACLE_S = 2.0
"""The twin of a region that its address carries waits so long for the oracle, then it is answered without."""
SAID_BEFORE = 0.0
"""Pages wait for no oracle: they show the advice with what it has said before, and ask it from there."""
MOST_CARRIED = 6000
"""Characters of a text that an address may carry."""


def _workload(form: Mapping[str, str]) -> Json:
    """What the fields beside the text say about the region's use, as submit_region takes it."""
    return {
        "share_of_step": number(form.get("share_percent"), 0.01),
        "calls_per_step": number(form.get("calls_per_step")) or 1.0,
        "device": form.get("device") or None,
    }


@router.post("/regions")
@declare(Access.WORK)
def save_region(
    request: Request,
    text: Annotated[str, Form()] = "",
    share_percent: Annotated[str, Form()] = "",
    calls_per_step: Annotated[str, Form()] = "",
    device: Annotated[str, Form()] = "",
) -> Response:
    """Advise on a region and keep it: its page, for htmx in place, before the oracle is asked.

    A text that cannot be read comes back in its form, with the spot marked.
    """
    form = {"text": text, "share_percent": share_percent, "calls_per_step": calls_per_step, "device": device}
    asked = _workload(form) | ({"oracle_timeout_s": SAID_BEFORE} if is_fragment(request) else {})
    try:
        region = regions.submit_region(state_of(request), text, **asked)
    except Problem as problem:
        if is_fragment(request) or not problem.extra.get("line"):
            raise
        error = {"title": problem.title, "detail": problem.detail, **problem.extra, "spot": spot(problem)}
        return render("home.html", {**home_page(request, form), "error": error}, request=request, status=problem.status)
    path = f"/regions/{region['id']}"
    if not is_fragment(request):
        return go(request, path)
    headers = {"HX-Retarget": "#main", "HX-Reswap": "innerHTML show:window:top", "HX-Push-Url": path}
    return render("region_answer.html", _page(request, region), request=request, headers=headers)


@router.post("/regions/preview")
@declare(Access.WORK)
def preview_region(
    request: Request,
    text: Annotated[str, Form()] = "",
    share_percent: Annotated[str, Form()] = "",
    calls_per_step: Annotated[str, Form()] = "",
    device: Annotated[str, Form()] = "",
    region_id: Annotated[str, Form()] = "",
    job: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """The analysis of an edited text, kept nowhere; the page's address is then the one that carries it.

    Evidence stays only where the text is still the stored one, or that of the validation on the page, which is `job`.
    """
    form = {"text": text, "share_percent": share_percent, "calls_per_step": calls_per_step, "device": device}
    region = regions.preview_region(state_of(request), text, oracle_timeout_s=SAID_BEFORE, **_workload(form))
    shown = job[0] if job else ""
    context = _edit_context(request, form, region, region_id, shown) | {"job": shown}
    address = context["permalink"] if len(text) < MOST_CARRIED else None
    headers = {"HX-Replace-Url": address} if address else {}
    return render("partials/preview.html", context, request=request, headers=headers)


@router.post("/region/oracle")
@declare(Access.WORK)
def foresee_text(
    request: Request,
    text: Annotated[str, Form()] = "",
    share_percent: Annotated[str, Form()] = "",
    calls_per_step: Annotated[str, Form()] = "",
    device: Annotated[str, Form()] = "",
    region_id: Annotated[str, Form()] = "",
) -> Response:
    """Ask what torch.compile would make of an edited text: what its page does by itself. Nothing is kept."""
    form = {"text": text, "share_percent": share_percent, "calls_per_step": calls_per_step, "device": device}
    state, asked = state_of(request), _workload(form)
    before = regions.preview_region(state, text, oracle=False, **asked)
    region = regions.preview_region(state, text, **asked)
    context = _edit_context(request, form, region, region_id)
    if not is_fragment(request):
        return RedirectResponse(f"{_carrying(form)}&oracle=wait#oracle", 303)
    changed = before["advice"].get("alternatives") != region["advice"].get("alternatives")
    answered = {"advice_changed": changed, "oracle_asked": True}
    return render("partials/oracle_answer.html", context | answered, request=request)


def _edit_context(request: Request, form: Mapping[str, str], region: Json, region_id: str, job: str = "") -> Json:
    """Context of an edited text's analysis. region_id, job: the stored region that was edited and the validation that
    its page shows, "" for none."""
    stored = _find_unedited(request, region_id, form["text"])
    newest = _newest(request, stored) if stored else _validation_of(request, region, job)
    same = stored is not None and (stored["advice"] or {}).get("device") == region["advice"]["device"]
    evidence = _evidence(request, region, newest)
    return {
        **views.analysis(region, evidence.get("nearest") or newest),
        **evidence,
        **_landscape(request, region, newest, evidence.get("nearest")),
        "edited": stored is None,
        "permalink": f"/regions/{stored['id']}" if stored and same and _same_use(stored, region) else _carrying(form),
        "oracle_on": regions.oracle_is_on(state_of(request)),
        "machine_id": region_id if same and stored and stored.get("oracle") else None,
    }


def _same_use(stored: Json, region: Json) -> bool:
    """Whether the fields beside a text say the same as the stored region's: shares up to the form's digits."""
    shares = [r["share_of_step"] if r.get("share_of_step") is not None else math.inf for r in (stored, region)]
    return math.isclose(*shares, abs_tol=1e-5) and stored.get("calls_per_step") == region.get("calls_per_step")


def _carrying(form: Mapping[str, str]) -> str:
    """The address that carries a text and the fields beside it: works on any host."""
    return "/region?" + urlencode({name: value for name, value in form.items() if value.strip()}, quote_via=quote)


def _find_unedited(request: Request, region_id: str, text: str) -> Json | None:
    """The stored region of that id where the text is still its own."""
    stored: Json | None = state_of(request).store.region(region_id) if region_id else None
    return stored if stored is not None and text.strip() and text.split() == (stored["text"] or "").split() else None


def _validation_of(request: Request, region: Json, job: str) -> Json | None:
    """The validation of that id where it is of this very text."""
    found: Json | None = state_of(request).store.validation(job) if job else None
    return found if found is not None and found["region"].split() == region["text"].split() else None


def _newest(request: Request, region: Json) -> Json | None:
    """The newest validation of a stored region."""
    ids = region.get("validations") or ()
    found: Json | None = state_of(request).store.validation(ids[0]) if ids else None
    return found


def stored_region(request: Request, region_id: str) -> Json:
    """The region of that id; 404 where there is none."""
    region: Json | None = state_of(request).store.region(region_id)
    if region is None:
        raise missing("region")
    return region


@page_and_json(router, "/regions/{region_id}", Access.COMPUTE)
def region(request: Request, region_id: str) -> Response:
    """One region: advice, why, cost, what was measured here or elsewhere."""
    stored = stored_region(request, region_id)
    if wants_json(request):
        return JSONAnswer(stored)
    return render("region.html", _page(request, stored), request=request)


@router.get("/regions/{region_id}/advice")
@declare(Access.COMPUTE)
def advice(request: Request, region_id: str) -> Response:
    """The advice on a region whose page was opened before there was any; 204 while there is none yet."""
    found = stored_region(request, region_id)
    if not is_fragment(request):
        return RedirectResponse(f"/regions/{region_id}", 303)
    if _without_advice(request, found).get("awaited"):
        return Response(status_code=204)
    return render("partials/advice_came.html", _page(request, found), request=request)


def _page(request: Request, region: Json) -> Json:
    """Context of a stored region's page."""
    evidence = _evidence(request, region, newest := _newest(request, region))
    return {
        **_analysis_context(request, region, evidence.get("nearest") or newest),
        **evidence,
        **_landscape(request, region, newest, evidence.get("nearest")),
        **_around(request, region),
        **_without_advice(request, region),
        "permalink": f"/regions/{region['id']}",
    }


def _without_advice(request: Request, region: Json) -> Json:
    """awaited: its trace is still being read; no_advice: else why there is none. {} for a region with advice."""
    if region.get("advice"):
        return {}
    store = state_of(request).store
    trace: Json | None = store.trace_head((region.get("source") or {}).get("trace") or "")
    if trace is not None and trace["status"] == "reading":
        return {"awaited": True}
    of_this = next((n["message"] for n in region.get("notes") or ()), "")
    ended = f"Reading its trace ended before: {trace['error']['message']}" if trace and trace["error"] else ""
    return {"no_advice": of_this or ended or "There is no advice on this region."}


def _around(request: Request, region: Json) -> Json:
    """Context of the form beside a region's analysis."""
    share = region.get("share_of_step")
    form = {
        "share_percent": round(share * 100, 3) if share is not None else None,
        "calls_per_step": region.get("calls_per_step"),
        "device": (region.get("advice") or {}).get("device"),
    }
    return {"host": host_facts(request), "form": form, "device_names": device_names()}


# ------------------------------------------------------------------------------------ a region that its address carries


def _read_address(
    request: Request, text: str, share_percent: str, calls_per_step: str, device: str, oracle_timeout_s: float | None
) -> tuple[Json, Json]:
    """What the address says, and the region of it. Nothing is kept."""
    state = {"text": text, "share_percent": share_percent, "calls_per_step": calls_per_step, "device": device}
    state = {name: value for name, value in state.items() if value.strip()}
    region = regions.preview_region(
        state_of(request), text, oracle_timeout_s=oracle_timeout_s, **_workload({"share_percent": "", **state})
    )
    return state, region


@page_and_json(router, "/region", Access.COMPUTE)
def region_by_address(
    request: Request,
    text: str = "",
    share_percent: str = "",
    calls_per_step: str = "",
    device: str = "",
    *,
    oracle: str = "",
) -> Response:
    """A region whose text and fields stand in the address: a link that works on any host. A bad text is an error.

    As data it is the API's object without an id. oracle: "wait" for its answer, where no script asks for it.
    """
    if wants_json(request):
        return JSONAnswer(_read_address(request, text, share_percent, calls_per_step, device, CARRIED_ORACLE_S)[1])
    if not text.strip():
        return RedirectResponse("/", 303)
    wait_s = None if oracle == "wait" else SAID_BEFORE
    state, region = _read_address(request, text, share_percent, calls_per_step, device, wait_s)
    evidence = _evidence(request, region, None)
    context = {
        **views.analysis(region, evidence.get("nearest")),
        **evidence,
        **_landscape(request, region, None, evidence.get("nearest")),
        **_around(request, region),
        "edited": True,
        "oracle_on": regions.oracle_is_on(state_of(request)),
        "machine_id": None,
        "carried": state,
        "permalink": _carrying(state),
        "twin": "/region.json?" + urlencode(state, quote_via=quote),
    }
    return render("region.html", context, request=request)


@router.get("/what-if")
@declare(Access.READ)
def what_if(request: Request, of: str = "", faster: str = "", step_us: str = "", page: str = "") -> Response:
    """What a step gains, for the sliders; the page's address follows them."""
    share, times = _what_if_values(request)
    answer = whatif.answer(
        share if share is not None else whatif.UNKNOWN_SHARE, times if times is not None else 2.0, number(step_us)
    )
    headers = {}
    if page.startswith(("/regions/", "/region?")):
        joint = "&" if "?" in page else "?"
        headers["HX-Replace-Url"] = f"{quote(page, safe='/?&=%')}{joint}{urlencode({'of': of, 'faster': faster})}"
    return render("partials/whatif_answer.html", {"whatif": answer}, request=request, headers=headers)


def _what_if_values(request: Request) -> tuple[float | None, float | None]:
    """Where the what-if's sliders stand by the address: share of the step, times as fast; None where it is silent."""
    share, faster = number(request.query_params.get("of")), number(request.query_params.get("faster"))
    return (
        None if share is None else min(max(share, 0.0), 1.0),
        None if faster is None else min(max(faster, 1.0), whatif.MOST_FASTER),
    )


def _analysis_context(request: Request, region: Json, newest: Json | None) -> Json:
    """Context of a stored region's analysis."""
    on = regions.oracle_is_on(state_of(request))
    return {**views.analysis(region, newest), "oracle_on": on, "machine_id": region["id"] if on else None}


def evidence_of(request: Request, region: Json) -> Json:
    """What a stored region's page shows as evidence."""
    return _evidence(request, region, _newest(request, region))


def _evidence(request: Request, region: Json, newest: Json | None) -> Json:
    """The newest validation made here, and the archive's record of the same region where this host measured nothing."""
    context: Json = views.validation_summary(newest) if newest else {}
    running = newest is not None and newest["state"] in ("queued", "running")
    unmeasured = newest is None or newest.get("outcome") in (None, "unmeasured")
    if region["text"] and not running and unmeasured:
        recorded = regions.nearest_record(state_of(request), region["text"], newest["id"] if newest else None)
        if recorded is not None:
            found = views.validation_summary(recorded)
            context |= {
                "nearest": recorded,
                "nearest_chart": found["candidates_chart"],
                "nearest_rows": found["candidate_rows"],
            }
    evidence = context.get("nearest") or newest
    shown = views.evidence_charts(region, evidence, *_what_if_values(request)) if region.get("advice") else {}
    beside = measured_devices.section(request, region["text"]) if region["text"] else {}
    return context | shown | beside | {"compiled": oracle_views.measured_compilations(evidence)}


def _landscape(request: Request, region: Json, newest: Json | None, nearest: Json | None) -> Json:
    """The autotune landscape of the newest validation made here, else the nearest on record and how to make one."""
    own = landscapes.part(request, newest) if newest else {"landscape_gpu": bool(host_facts(request).get("gpu"))}
    if own.get("landscape") is not None:
        return own
    return own | recorded_landscape.section(region, nearest or newest)


# ----------------------------------------------------------------------------------------------------------- the oracle


@router.post("/regions/{region_id}/oracle")
@declare(Access.WORK)
def foresee(request: Request, region_id: str) -> Response:
    """Ask what torch.compile would make of a stored region: what the page of a region from a trace does by itself."""
    before = stored_region(request, region_id)
    found = regions.predict_region(state_of(request), region_id)
    if not is_fragment(request):
        return RedirectResponse(f"/regions/{region_id}#oracle", 303)
    old, new = ((region["advice"] or {}).get("alternatives") for region in (before, found))
    evidence = _evidence(request, found, newest := _newest(request, found))
    analysed = _analysis_context(request, found, evidence.get("nearest") or newest)
    context = {**analysed, **evidence, "advice_changed": old != new}
    return render("partials/oracle_answer.html", context, request=request, headers={"HX-Trigger": "oracle-answered"})


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
    found = regions.kernel_machine(state_of(request), region_id, mode, kernel)
    if wants_json(request):
        return JSONAnswer(found)
    context = {**oracle_views.machine(found), "region_name": stored_region(request, region_id)["name"], "charts": False}
    template = "partials/machine.html" if is_fragment(request) else "machine.html"
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
        oracle_timeout_s=SAID_BEFORE,
    )  # fmt: skip
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{job['id']}", 303)
    return render(
        "partials/job.html", {**_validation_context(request, job["id"]), "swapped": True}, request=request, status=202
    )


def _validation_context(request: Request, validation_id: str) -> Json:
    """Context of a validation with its region's evidence from elsewhere."""
    state = state_of(request)
    validation: Json | None = state.store.validation(validation_id) or regions.archive_record(state, validation_id)
    if validation is None:
        raise missing("validation")
    context = views.validation_summary(validation)
    if validation["state"] == "done" and not validation.get("archived"):
        context |= _evidence(request, {"text": validation["region"]}, validation)
    return context


@page_and_json(router, "/validations/{validation_id}", Access.COMPUTE)
def validation(request: Request, validation_id: str) -> Response:
    """One validation: while it runs, its progress; then everything that was measured."""
    context = _validation_context(request, validation_id)
    shown = context["validation"]
    if wants_json(request):
        return JSONAnswer(shown)
    name = shown.get("name") or "Validation"
    found = landscapes.part(request, shown)
    timed = shown["state"] == "done" and shown["device"] and not shown.get("archived")
    held = compare_with_previous(state_of(request), validation_id) if timed else None
    return render("validation.html", {**context, **found, "name": name, "since": held}, request=request)


@router.get("/validations/{validation_id}/panel")
@declare(Access.COMPUTE)
def validation_panel(request: Request, validation_id: str) -> Response:
    """Progress while it runs, the result once it stands: what the region page shows of a validation."""
    return render("partials/job.html", _validation_context(request, validation_id), request=request)


@router.get("/validations/{validation_id}/progress")
@declare(Access.READ)
def validation_progress(request: Request, validation_id: str) -> Response:
    """Only the bar and its line."""
    validation = state_of(request).store.validation(validation_id)
    if validation is None:
        raise missing("validation")
    template = "partials/progress_answer.html" if is_fragment(request) else "partials/progress.html"
    return render(template, {"validation": validation}, request=request)


@router.post("/validations/{validation_id}/again")
@declare(Access.WORK)
def validate_again(request: Request, validation_id: str) -> Response:
    """Queue the same once more, under an address of its own; a region's page follows it in place."""
    job = revalidate.validate_again(state_of(request), validation_id)
    if not is_fragment(request) or "/validations/" in request.headers.get("hx-current-url", ""):
        return go(request, f"/validations/{job['id']}")
    return render(
        "partials/job.html", {**_validation_context(request, job["id"]), "swapped": True}, request=request, status=202
    )


@router.post("/validations/{validation_id}/cancel")
@declare(Access.CHANGE)
def cancel_validation(request: Request, validation_id: str) -> Response:
    """Stop a queued or running validation."""
    if state_of(request).queue.cancel(validation_id) is None:
        raise missing("validation")
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{validation_id}", 303)
    return render("partials/job.html", _validation_context(request, validation_id), request=request)
