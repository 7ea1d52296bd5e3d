"""Pages for people: the same data as the API, as HTML. Each works as a plain form; htmx swaps parts where it runs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from app import submit, submit_trace
from app.uploads import UNCOUNTED
from app.web.devices import pages as device_router
from app.web.examples import examples
from app.web.kinds import pages as kind_router
from app.web.kits import pages as kit_router
from app.web.landscapes import pages as landscape_router
from app.web.page_parts import go, home_page, missing, spot, widget_answer
from app.web.pages_checks import router as check_router
from app.web.pages_device import router as host_router
from app.web.pages_learn import router as learn_router
from app.web.pages_own import router as own_router
from app.web.pages_reference import router as reference_router
from app.web.pages_region import router as region_router
from app.web.pages_report import router as report_router
from app.web.pages_trace import router as trace_router
from app.web.problems import Problem
from app.web.templating import is_fragment, render
from app.web.widget import answer_table

router = APIRouter(include_in_schema=False)
router.include_router(check_router)
router.include_router(device_router)
router.include_router(kind_router)
router.include_router(kit_router)
router.include_router(landscape_router)
router.include_router(host_router)
router.include_router(learn_router)
router.include_router(own_router)
router.include_router(region_router)
router.include_router(report_router)
router.include_router(trace_router)
router.include_router(reference_router)


def render_problem(request: Request, problem: Problem) -> Response:
    """An error in the look of the page; a fragment where htmx asked, shown where the form's answer goes."""
    shown = {
        "status": problem.status,
        "code": problem.code,
        "title": problem.title,
        "detail": problem.detail,
        **problem.extra,
        "spot": spot(problem),
    }
    if is_fragment(request):
        headers = {"HX-Retarget": "#region-error", "HX-Reswap": "innerHTML"} if shown.get("line") else {}
        return render(
            "partials/problem.html", {"problem": shown}, request=request, status=problem.status, headers=headers
        )
    return render("error.html", {"problem": shown}, request=request, status=problem.status)


# ---------------------------------------------------------------------------------------------------------------- home


@router.get("/host")
def host(request: Request) -> Response:
    """The banner of the start page, once the host is known."""
    context = {"host": submit.device(request.app.state)}
    return render("partials/host.html", context, request=request)


@router.get("/")
def home(request: Request) -> Response:
    """The start page; the widget's answer is part of its address."""
    return render("home.html", home_page(request), request=request)


@router.get("/widget")
def widget(request: Request) -> Response:
    """The widget's answer alone for htmx; the whole page, at its own address, for everybody else."""
    if not is_fragment(request):
        return RedirectResponse(f"/?{request.url.query}#widget", 303)
    return render("partials/widget.html", widget_answer(request), request=request)


@router.get("/widget/table")
def widget_table(request: Request, bound: str = "", kind: str = "") -> Response:
    """Every answer of the widget for one bound and kind, for the page to look up as a slider moves."""
    return answer_table(request, bound, kind)


@router.post("/examples/{name}")
async def load_example(request: Request, name: str) -> Response:
    """Load a bundled example as if it had been uploaded or pasted."""
    example = examples().get(name)
    if example is None:
        raise missing("example")
    state = request.app.state
    if example.kind == "trace":
        trace = await run_in_threadpool(submit_trace.submit_file, state, example.path, example.title)
        return go(request, f"/traces/{trace['id']}")
    region = await run_in_threadpool(submit.submit_region, state, example.text)
    return go(request, f"/regions/{region['id']}")


# --------------------------------------------------------------------------------------------------------------- traces


@router.post("/traces", max_body_size=UNCOUNTED)
async def upload(request: Request, group: str | None = None) -> Response:
    """A trace by the form: to its page at once, which shows what is read of it, or why it cannot be.

    What cannot be taken at all stands under the drop zone; the page of a plain form says the same.
    """
    trace, _ = await submit_trace.submit_upload(request, request.app.state, group=group)
    return go(request, f"/traces/{trace['id']}")


@router.post("/traces/{trace_id}/again", max_body_size=UNCOUNTED)
async def again(request: Request, trace_id: str) -> Response:
    """The trace once more, with what the form has beside it."""
    trace = await submit_trace.submit_again(request, request.app.state, trace_id)
    return go(request, f"/traces/{trace['id']}")


@router.post("/traces/{trace_id}/delete")
def delete_trace(request: Request, trace_id: str) -> Response:
    """Forget a trace and its regions."""
    submit_trace.delete_trace(request.app.state, trace_id)
    return go(request, "/history")
