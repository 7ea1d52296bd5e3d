"""The pages that look something up: compare, accuracy, the API's calls, sign-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.accuracy.corpus.looks import load_development, load_looks
from app.accuracy.figures import load_committed
from app.objects.trace import Comparison, Trace, TraceSummary
from app.requests import regions
from app.requests.state import state_of
from app.trace_report.comparison.compare import compare_traces, step_headline
from app.web.api.examples import calls
from app.web.charts import accuracy, plotly
from app.web.charts.figure import Chart
from app.web.charts.trace_comparison import change_chart
from app.web.labels import Choice, trace_choices
from app.web.pages.common import missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import render
from app.web.views.corpus_accuracy import accuracy_answer, corpus_page
from app.web.views.likely_pair import likely_pair
from app.web.views.predicted_vs_measured import record_chart, record_rows, summarize_records
from app.web.views.validation_page import (
    AnyValidation,
    ValidationComparison,
    compare,
    select_options,
    validation_choices,
)

router = APIRouter(include_in_schema=False)

COMPARE_CHOICES = 100


def _list_validations(request: Request) -> list[AnyValidation]:
    """Validations of this host, newest first, then the archive's."""
    own = state_of(request).store.validations(limit=COMPARE_CHOICES)["items"]
    return [*own, *regions.archive_records(state_of(request))]


class ComparedValidations(TypedDict):
    """Context of compare.html for two validations."""

    comparison: ValidationComparison
    left: AnyValidation
    right: AnyValidation
    comparison_chart: Chart | None


class ComparedTraces(TypedDict):
    """Context of compare.html for two traces."""

    traces: Comparison
    left: Trace
    right: Trace
    traces_chart: Chart | None
    headline: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two that were compared. body: as the API has it; context: as the page shows it."""

    kind: Literal["traces", "validations"]
    body: Comparison | ValidationComparison
    context: ComparedTraces | ComparedValidations


class Offer(TypedDict):
    """Something that can be compared: what may be chosen, what stands chosen (`a`, `b`), and why that; "" for none."""

    name: str
    choices: list[Choice]
    picked: dict[str, str]
    because: str


def _compare(request: Request, a: str, b: str) -> Pair | None:
    """What /compare shows of two validations, or of two traces that were read; None for any other two."""
    store = state_of(request).store
    context: ComparedValidations | ComparedTraces
    validations = {v["id"]: v for v in _list_validations(request) if v.get("id")}
    if a in validations and b in validations:
        left, right = validations[a], validations[b]
        candidates = compare(left, right)
        context = {
            "comparison": candidates,
            "left": left,
            "right": right,
            "comparison_chart": plotly.comparison(left, right),
        }
        return Pair("validations", candidates, context)
    first, second = store.trace(a), store.trace(b)
    if first is None or first["status"] != "ready" or second is None or second["status"] != "ready":
        return None
    parts = compare_traces(first, second)
    context = {"traces": parts, "left": first, "right": second, "traces_chart": change_chart(parts),
               "headline": step_headline(parts)}  # fmt: skip
    return Pair("traces", parts, context)


@page_and_json(router, "/compare", Access.READ)
def compare_page(request: Request, a: str = "", b: str = "") -> Response:
    """Two traces, or two validations, side by side; 404 as data where the two are not of this host, or of two kinds."""
    compared = _compare(request, a, b)
    if wants_json(request):
        if compared is None:
            raise missing("pair of traces or of validations")
        return JSONAnswer({"kind": compared.kind, "a": a, "b": b, **compared.body})
    validations = validation_choices([v for v in _list_validations(request) if v.get("id")])
    traces = state_of(request).store.traces(limit=COMPARE_CHOICES)["items"]
    context = {
        "compared": [_offer_traces(traces, a, b), _offer("validations", validations, a, b)],
        "asked": bool(a and b),
        "json_address": "/compare.json?" + urlencode({"a": a, "b": b}),
        **(compared.context if compared else {}),
    }
    return render("compare.html", context, request=request)


def _offer(name: str, choices: list[Choice], a: str, b: str) -> Offer:
    ids = {c["id"] for c in choices}
    picked = select_options(choices, a if a in ids else "", b if b in ids else "")
    return {"name": name, "choices": choices, "picked": picked, "because": ""}


def _offer_traces(traces: list[TraceSummary], a: str, b: str) -> Offer:
    likely = likely_pair(traces, a, b)
    return {
        "name": "traces",
        "choices": trace_choices(traces),
        "picked": {"a": likely.a, "b": likely.b},
        "because": likely.because,
    }


@page_and_json(router, "/accuracy", Access.COMPUTE, json_access=Access.READ)
def accuracy_page(request: Request) -> Response:
    """How good the advice is, as committed: looks at the blind third, the development third, and the Archive as
    `tritonworthy accuracy --json` prints it; on the page then what was predicted when each record was made."""
    looks, development = load_looks(), load_development()
    if wants_json(request):
        return JSONAnswer(accuracy_answer(load_committed(), looks, development))
    measured = [v for v in _list_validations(request) if v.get("device") and v.get("candidates")]
    rows = record_rows(measured)
    context = {
        "rows": rows,
        "summary": summarize_records(measured),
        "accuracy_chart": record_chart(rows),
        **accuracy.accuracy_page(load_committed()),
        **corpus_page(looks, development),
    }
    return render("accuracy.html", context, request=request)


@router.get("/api")
@declare(Access.READ)
def api(request: Request) -> Response:
    """The calls, each with a curl command that can be copied and run."""
    settings = state_of(request).settings
    base = f"http://{settings.host}:{settings.port}"
    return render("api.html", {"calls": calls(base)}, request=request)


@router.get("/sign-in")
@declare(Access.OPEN)
def sign_in(request: Request, failed: int = 0, next: str = "/") -> Response:
    """Where a browser gives the server's token."""
    return render("sign_in.html", {"failed": bool(failed), "next": next}, request=request)
