"""What several pages share: redirects, numbers from forms, the start page's content."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from app.advice.widget_table import STEPS
from app.errors import Problem
from app.requests import regions
from app.requests.state import state_of
from app.web.pages.examples import DEFAULT_REGION, examples
from app.web.pages.widget import answer_context
from app.web.templating import is_fragment
from app.web.views import region
from app.web.views.labels import WIDGET_BOUNDS, WIDGET_KINDS, WIDGET_PRESETS, WIDGET_SLIDERS, recording
from profiler.hardware import DEVICES

Json = dict[str, Any]

FIRST_ANSWERS: Json = {"share_of_step": 0.15, "uniqueness": 0.5, "irregularity": 0.3, "bound": "", "kind": ""}
"""Where the widget's sliders stand on a first visit."""


def go(request: Request, url: str) -> Response:
    """303 for a plain form; for htmx a header that makes the browser go there."""
    if is_fragment(request):
        return Response(status_code=204, headers={"HX-Redirect": url, "Vary": "HX-Request"})
    return RedirectResponse(url, 303)


def missing(what: str) -> Problem:
    """404 in words."""
    return Problem(
        404, "not-found", f"There is no such {what}", "It may have been deleted, or the address is incomplete."
    )


def spot(problem: Problem) -> str:
    """The line of the region that the error is about, with the caret under it; "" where there is none."""
    return "\n".join(line[2:] for line in str(problem.extra.get("shown", "")).splitlines()[1:3] if line[:2] == "  ")


def number(text: str | None, scale: float = 1.0) -> float | None:
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


def _answers(query: Mapping[str, str]) -> Json:
    """The widget's answers from the address; values outside 0 to 1 are brought back in."""
    found = dict(FIRST_ANSWERS)
    for name in ("share_of_step", "uniqueness", "irregularity"):
        value = number(query.get(name))
        if value is not None:
            found[name] = min(max(value, 0.0), 1.0)
    for name, allowed in (("bound", WIDGET_BOUNDS), ("kind", WIDGET_KINDS)):
        if query.get(name) in dict(allowed):
            found[name] = query[name]
    return found


def widget_answer(request: Request) -> Json:
    """The widget's answers from the address, the advice on them, and the address again."""
    answers = _answers(request.query_params)
    asked = {**answers, "bound": answers["bound"] or None, "kind": answers["kind"] or None}
    widget = regions.advise_widget(state_of(request), **asked)
    return {
        "answers": answers,
        "widget": widget,
        "widget_query": urlencode({k: v for k, v in answers.items() if v != ""}),
        **answer_context(widget, asked["kind"], asked["bound"]),
    }


def host_facts(request: Request) -> Json:
    """What this host can measure on. The first page after a start does not wait for the probe: it asks again."""
    state = state_of(request)
    return regions.device(state) if state.host.probe.done() else {"gpu": None, "pending": True}


def device_names() -> list[str]:
    """The GPUs that estimates can be for."""
    return [device.name for device in DEVICES]


def home_page(request: Request, form: Json | None = None) -> Json:
    """Everything the start page shows; form: what stands in the fields of a region that came back."""
    known = examples()
    wanted = known.get(request.query_params.get("example") or DEFAULT_REGION)
    text = wanted.text if wanted and wanted.kind == "region" else known[DEFAULT_REGION].text
    return {
        **widget_answer(request),
        "host": host_facts(request),
        "examples": list(known.values()),
        "widget_sliders": WIDGET_SLIDERS,
        "widget_bounds": WIDGET_BOUNDS,
        "widget_kinds": WIDGET_KINDS,
        "widget_steps": STEPS,
        "widget_presets": [(title, urlencode(answers)) for title, answers in WIDGET_PRESETS],
        "device_names": device_names(),
        "form": form or {"text": text},
        "recent": region.recent_rows(state_of(request).store.recent(limit=8)),
        "recipe": recording(str(request.base_url).rstrip("/"), bool(state_of(request).settings.token)),
        "token_needed": bool(state_of(request).settings.token),
        "charts": False,
    }
