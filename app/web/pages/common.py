"""What several pages share: redirects, numbers from forms, the start page's content."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, NotRequired, TypedDict
from urllib.parse import urlencode

from fastapi import Depends, Form, Request
from fastapi.responses import RedirectResponse, Response

from app.advice.widget_table import STEPS
from app.errors import Problem
from app.objects.advice import Advice
from app.objects.device import Device
from app.objects.region import Region
from app.requests import regions
from app.requests.state import state_of
from app.storage.history import Wanted, find_entries
from app.web.labels import WIDGET_BOUNDS, WIDGET_KINDS, WIDGET_PRESETS, WIDGET_SLIDERS, recording_script
from app.web.pages.examples import DEFAULT_REGION, Example, examples
from app.web.pages.widget import AnswerContext, answer_context
from app.web.templating import is_fragment, render
from app.web.views.history import HistoryRow, history_rows
from profiler.hardware import DEVICES


class WidgetAnswers(TypedDict):
    """Where the widget stands: shares 0 to 1; bound, kind: "" where not known."""

    share_of_step: float
    uniqueness: float
    irregularity: float
    bound: str
    kind: str


class WidgetContext(AnswerContext):
    """Context of partials/home/widget.html. widget: the advice; widget_query: the answers as the address has them."""

    answers: WidgetAnswers
    widget: Advice
    widget_query: str


class PendingHost(TypedDict):
    """What stands for the host until it is probed."""

    gpu: None
    pending: bool


class RegionForm(TypedDict):
    """What stands in the fields of a region's form."""

    text: NotRequired[str]
    share_percent: NotRequired[str | float | None]
    calls_per_step: NotRequired[str | float | None]
    device: NotRequired[str | None]


def region_fields(
    text: Annotated[str, Form()] = "",
    share_percent: Annotated[str, Form()] = "",
    calls_per_step: Annotated[str, Form()] = "",
    device: Annotated[str, Form()] = "",
) -> dict[str, str]:
    """The fields of a region's form as they were sent, by their names."""
    return {"text": text, "share_percent": share_percent, "calls_per_step": calls_per_step, "device": device}


RegionFields = Annotated[dict[str, str], Depends(region_fields)]
"""Of an endpoint that takes a region's form."""


class HomePage(WidgetContext):
    """Context of home.html."""

    host: Device | PendingHost
    examples: list[Example]
    widget_sliders: tuple[tuple[str, str, str, str], ...]
    widget_bounds: tuple[tuple[str, str], ...]
    widget_kinds: tuple[tuple[str, str], ...]
    widget_steps: Mapping[str, float]
    widget_presets: list[tuple[str, str]]
    device_names: list[str]
    form: RegionForm
    recent: list[HistoryRow]
    recipe: str
    token_needed: bool


RECENT = 5
"""Rows of the start page's list."""

FIRST_ANSWERS: WidgetAnswers = {
    "share_of_step": 0.15, "uniqueness": 0.5, "irregularity": 0.3, "bound": "", "kind": "",
}  # fmt: skip
"""Where the widget's sliders stand on a first visit."""


def redirect(request: Request, url: str) -> Response:
    """303 for a plain form; for htmx a header that makes the browser go there."""
    if is_fragment(request):
        return Response(status_code=204, headers={"HX-Redirect": url, "Vary": "HX-Request"})
    return RedirectResponse(url, 303)


def missing(what: str) -> Problem:
    """404 in words."""
    return Problem(
        404, "not-found", f"There is no such {what}", "It may have been deleted, or the address is incomplete."
    )


def mark_place(problem: Problem) -> str:
    """The line of the region that the error is about, with the caret under it; "" where there is none."""
    return "\n".join(line[2:] for line in str(problem.extra.get("shown", "")).splitlines()[1:3] if line[:2] == "  ")


def problem_context(problem: Problem) -> dict[str, object]:
    """What a template says of a problem."""
    return {
        "status": problem.status,
        "code": problem.code,
        "title": problem.title,
        "detail": problem.detail,
        **problem.extra,
        "spot": mark_place(problem),
    }


def problem_fragment(request: Request, problem: Problem, *, typing: bool = False) -> Response:
    """A problem for htmx, shown where the form's answer goes, or below the text where it has a line of it.

    typing: of a text that is being typed, where mistakes are no faults: status 200, so that no console reports each,
    and the problem's status in the header Problem-Status.
    """
    body = problem_context(problem)
    headers = {"HX-Retarget": "#region-error", "HX-Reswap": "innerHTML"} if body.get("line") else {}
    if typing:
        headers["Problem-Status"] = str(problem.status)
    status = 200 if typing else problem.status
    return render("partials/problem.html", {"problem": body}, request=request, status=status, headers=headers)


def parse_number(text: str | None, scale: float = 1.0) -> float | None:
    """A number from a form field; None where it was left empty. Problem 422 where it is none."""
    if text is None or not text.strip():
        return None
    try:
        value = float(text.replace(",", ".")) * scale
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Problem(422, "invalid-request", "That is not a number", repr(text[:40]))
    return value


def _parse_answers(query: Mapping[str, str]) -> WidgetAnswers:
    """The widget's answers from the address; values outside 0 to 1 are brought back in."""

    def share(name: str, first: float) -> float:
        value = parse_number(query.get(name))
        return first if value is None else min(max(value, 0.0), 1.0)

    def choice(name: str, allowed: Iterable[tuple[str, str]], first: str) -> str:
        return query[name] if query.get(name) in dict(allowed) else first

    return {
        "share_of_step": share("share_of_step", FIRST_ANSWERS["share_of_step"]),
        "uniqueness": share("uniqueness", FIRST_ANSWERS["uniqueness"]),
        "irregularity": share("irregularity", FIRST_ANSWERS["irregularity"]),
        "bound": choice("bound", WIDGET_BOUNDS, FIRST_ANSWERS["bound"]),
        "kind": choice("kind", WIDGET_KINDS, FIRST_ANSWERS["kind"]),
    }


def find_region(request: Request, region_id: str) -> Region:
    """The stored region of that id; 404 where there is none."""
    region = state_of(request).store.region(region_id)
    if region is None:
        raise missing("region")
    return region


def widget_answer(request: Request) -> WidgetContext:
    """The widget's answers from the address, the advice on them, and the address again."""
    answers = _parse_answers(request.query_params)
    bound, kind = answers["bound"] or None, answers["kind"] or None
    widget = regions.advise_widget(
        state_of(request),
        share_of_step=answers["share_of_step"],
        uniqueness=answers["uniqueness"],
        irregularity=answers["irregularity"],
        bound=bound,
        kind=kind,
    )
    return {
        "answers": answers,
        "widget": widget,
        "widget_query": urlencode({k: v for k, v in answers.items() if v != ""}),
        **answer_context(widget, kind, bound),
    }


def host_facts(request: Request) -> Device | PendingHost:
    """What this host can measure on. The first page after a start does not wait for the probe: it asks again."""
    state = state_of(request)
    return regions.device(state) if state.host.probe.done() else {"gpu": None, "pending": True}


def device_names() -> list[str]:
    """The GPUs that estimates can be for."""
    return [device.name for device in DEVICES]


def home_page(request: Request, form: RegionForm | None = None) -> HomePage:
    """Everything the start page shows; form: what stands in the fields of a region that came back."""
    bundled = examples()
    example = bundled.get(request.query_params.get("example") or DEFAULT_REGION)
    text = example.text if example and example.kind == "region" else bundled[DEFAULT_REGION].text
    return {
        **widget_answer(request),
        "host": host_facts(request),
        "examples": list(bundled.values()),
        "widget_sliders": WIDGET_SLIDERS,
        "widget_bounds": WIDGET_BOUNDS,
        "widget_kinds": WIDGET_KINDS,
        "widget_steps": STEPS,
        "widget_presets": [(title, urlencode(answers)) for title, answers in WIDGET_PRESETS],
        "device_names": device_names(),
        "form": form or {"text": text},
        "recent": history_rows(find_entries(state_of(request).store, Wanted(), RECENT)["items"]),
        "recipe": recording_script(str(request.base_url).rstrip("/"), bool(state_of(request).settings.token)),
        "token_needed": bool(state_of(request).settings.token),
    }
