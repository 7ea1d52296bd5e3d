"""The pages that look something up: compare, history, accuracy, the API's calls, sign-in."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.accuracy.figures import load_committed
from app.requests import regions
from app.requests.state import state_of
from app.trace_report.compare import compare_traces
from app.units import count
from app.web.api.examples import calls
from app.web.charts import accuracy as accuracy_charts
from app.web.charts import plotly
from app.web.charts.trace_comparison import changes
from app.web.pages.common import missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import render
from app.web.views import accuracy, region
from app.web.views.compare import compare

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

HISTORY_ROWS = 50
COMPARE_CHOICES = 100


def _list_validations(request: Request) -> list[Json]:
    """Validations of this host, newest first, then the archive's."""
    own = state_of(request).store.validations(limit=COMPARE_CHOICES)["items"]
    return [*own, *regions.archive_records(state_of(request))]


def _compare(request: Request, a: str, b: str) -> Json:
    """What /compare shows of two validations, or of two traces that were read; {} where they are not two of a kind."""
    store = state_of(request).store
    known = {v["id"]: v for v in _list_validations(request) if v.get("id")}
    if a in known and b in known:
        left, right = known[a], known[b]
        return {
            "comparison": compare(left, right),
            "left": left,
            "right": right,
            "comparison_chart": plotly.comparison(left, right),
        }
    first, second = store.trace(a), store.trace(b)
    if first is None or first["status"] != "ready" or second is None or second["status"] != "ready":
        return {}
    found = compare_traces(first, second)
    return {"traces": found, "left": first, "right": second, "traces_chart": changes(found)}


@page_and_json(router, "/compare", Access.READ)
def compare_page(request: Request, a: str = "", b: str = "") -> Response:
    """Two traces, or two validations, side by side; 404 as data where the two are not of this host, or of two kinds."""
    compared = _compare(request, a, b)
    if wants_json(request):
        if not compared:
            raise missing("pair of traces or of validations")
        kind = "traces" if "traces" in compared else "validations"
        body = compared["traces"] if kind == "traces" else compared["comparison"]
        return JSONAnswer({"kind": kind, "a": a, "b": b, **body})
    choices = region.choices([v for v in _list_validations(request) if v.get("id")])
    kept = state_of(request).store.traces(limit=COMPARE_CHOICES)["items"]
    traces = [
        {"id": t["id"], "label": f"{t['name']} · {t['device'] or 'no GPU named'} · {region.when(t['created_at'])}"}
        for t in kept
        if t["status"] == "ready"
    ]
    context: Json = {"kinds": [_kind("traces", traces, a, b), _kind("validations", choices, a, b)], **_pair(a, b)}
    return render("compare.html", context | compared, request=request)


def _kind(name: str, choices: list[dict[str, str]], a: str, b: str) -> Json:
    ids = {c["id"] for c in choices}
    own = [i if i in ids else "" for i in (a, b)]
    return {"name": name, "choices": choices, "picked": region.select_options(choices, *own)}


def _pair(a: str, b: str) -> Json:
    return {"asked": bool(a and b), "twin": "/compare.json?" + urlencode({"a": a, "b": b})}


def _history(request: Request, kind: str, after: str) -> tuple[str, list[Json], str | None]:
    """The kind that is shown, its entries, and where the next page begins."""
    store = state_of(request).store
    pages = {"trace": store.traces, "region": store.region_list, "validation": store.validations}
    following = None
    if kind in pages:
        page = pages[kind](limit=HISTORY_ROWS, after=after or None)
        items, following = [_entry(kind, item) for item in page["items"]], page["next"]
    else:
        kind, items = "", store.recent(limit=HISTORY_ROWS)
    return kind, items, following


@page_and_json(router, "/history", Access.READ)
def history(request: Request, kind: str = "", after: str = "") -> Response:
    """Everything that is kept, newest first; of one kind it can be paged."""
    kind, items, following = _history(request, kind, after)
    if wants_json(request):
        return JSONAnswer({"items": items, "next": following})
    context: Json = {"recent": region.recent_rows(items), "kind": kind, "next": following, "charts": False}
    context["twin"] = "/history.json" + (f"?kind={kind}" if kind else "")
    return render("history.html", context, request=request)


def _entry(kind: str, item: Json) -> Json:
    """One row of a list in the form of store.recent()."""
    if kind == "trace":
        status, summary = (
            item["status"],
            (item.get("error") or {}).get("message") or count(item.get("kernels") or 0, "kernel"),
        )
    elif kind == "region":
        status, summary = "ready", (item.get("advice") or {}).get("headline", "")
    else:
        status, summary = item.get("outcome") or item["state"], item.get("reason") or ""
    return {
        "kind": kind,
        "id": item["id"],
        "name": item.get("name") or kind,
        "status": status,
        "summary": summary,
        "created_at": item["created_at"],
    }


@page_and_json(router, "/accuracy", Access.COMPUTE, json_access=Access.READ)
def accuracy_page(request: Request) -> Response:
    """The benchmark of the advice as committed, as `tritonworthy accuracy --json` prints it; on the page then what was
    predicted when each record was made."""
    if wants_json(request):
        return JSONAnswer(load_committed())
    measured = [v for v in _list_validations(request) if v.get("device") and v.get("candidates")]
    rows = accuracy.rows(measured)
    context = {"rows": rows, "summary": accuracy.summary(measured), "accuracy_chart": accuracy.scatter(rows)}
    return render("accuracy.html", context | accuracy_charts.context(load_committed()), request=request)


@router.get("/api")
@declare(Access.READ)
def api(request: Request) -> Response:
    """The calls, each with a curl command that can be copied and run."""
    settings = state_of(request).settings
    base = f"http://{settings.host}:{settings.port}"
    return render("api.html", {"calls": calls(base), "charts": False}, request=request)


@router.get("/sign-in")
@declare(Access.OPEN)
def sign_in(request: Request, failed: int = 0, next: str = "/") -> Response:
    """Where a browser gives the server's token."""
    return render("sign_in.html", {"failed": bool(failed), "next": next, "charts": False}, request=request)
