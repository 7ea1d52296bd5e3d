"""The pages that look something up: compare, history, device, accuracy, learn, the API's calls, sign-in."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from app import submit
from app.accuracy.figures import committed
from app.web import accuracy, accuracy_charts, charts, views
from app.web.calls import calls
from app.web.compare import compare
from app.web.examples import DEFAULT_REGION, examples
from app.web.learn import LADDER, LANGUAGE, RULE
from app.web.templating import render
from app.web.units import count
from profiler.hardware import DEFAULT_DEVICE, DEVICES

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

HISTORY_ROWS = 50
COMPARE_CHOICES = 100


def _known(request: Request) -> list[Json]:
    """Validations of this host, newest first, then the archive's."""
    own = request.app.state.store.validations(limit=COMPARE_CHOICES)["items"]
    return [*own, *submit.archive_records(request.app.state)]


@router.get("/compare")
def compare_page(request: Request, a: str = "", b: str = "") -> Response:
    """Two validations side by side."""
    known = {v["id"]: v for v in _known(request) if v.get("id")}
    choices = views.choices(list(known.values()))
    context: Json = {"choices": choices, "picked": views.picked(choices, a, b), "comparison": None}
    left, right = known.get(a), known.get(b)
    if left and right:
        found = compare(left, right)
        context |= {
            "comparison": found,
            "left": left,
            "right": right,
            "comparison_chart": charts.comparison(left, right),
        }
    return render("compare.html", context, request=request)


@router.get("/history")
def history(request: Request, kind: str = "", after: str = "") -> Response:
    """Everything that is kept, newest first; of one kind it can be paged."""
    store = request.app.state.store
    pages = {"trace": store.traces, "region": store.region_list, "validation": store.validations}
    following = None
    if kind in pages:
        page = pages[kind](limit=HISTORY_ROWS, after=after or None)
        items, following = [_entry(kind, item) for item in page["items"]], page["next"]
    else:
        kind, items = "", store.recent(limit=HISTORY_ROWS)
    context = {"recent": views.recent_rows(items), "kind": kind, "next": following, "charts": False}
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


@router.get("/device")
def device(request: Request) -> Response:
    """What this host can measure on, and the table behind the estimates."""
    context = {
        "host": submit.device(request.app.state),
        "devices": DEVICES,
        "default_device": DEFAULT_DEVICE,
        "charts": False,
    }
    return render("device.html", context, request=request)


@router.get("/accuracy")
def accuracy_page(request: Request) -> Response:
    """The benchmark of the advice as committed; then what was predicted when each record was made."""
    measured = [v for v in _known(request) if v.get("device") and v.get("candidates")]
    rows = accuracy.rows(measured)
    context = {"rows": rows, "summary": accuracy.summary(measured), "accuracy_chart": accuracy.scatter(rows)}
    return render("accuracy.html", context | accuracy_charts.context(committed()), request=request)


@router.get("/accuracy.json")
def accuracy_json() -> Response:
    """The page's twin: the benchmark's figures, as `tritonworthy accuracy --json` prints them."""
    return JSONResponse(committed())


@router.get("/learn")
def learn(request: Request) -> Response:
    """The rule as a list of decisions, and the ladder of tools on the example's own numbers."""
    example = examples()[DEFAULT_REGION]
    region = submit.preview_region(request.app.state, example.text)
    context = {
        **views.analysis(region),
        "rule": RULE,
        "ladder": LADDER,
        "language": LANGUAGE,
        "example": example,
        "recorded": submit.archived(request.app.state, example.text),
    }
    return render("learn.html", context, request=request)


@router.get("/api")
def api(request: Request) -> Response:
    """The calls, each with a curl command that can be copied and run."""
    settings = request.app.state.settings
    base = f"http://{settings.host}:{settings.port}"
    return render("api.html", {"calls": calls(base), "charts": False}, request=request)


@router.get("/sign-in")
def sign_in(request: Request, failed: int = 0, next: str = "/") -> Response:
    """Where a browser gives the server's token."""
    return render("sign_in.html", {"failed": bool(failed), "next": next, "charts": False}, request=request)
