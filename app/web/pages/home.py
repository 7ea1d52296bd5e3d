"""Pages for people: the same data as the API, as HTML. Each works as a plain form; htmx swaps parts where it runs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from app.errors import Problem
from app.objects.job import DeletedTrace
from app.requests import regions, traces
from app.requests.state import state_of
from app.requests.uploads import UNCOUNTED
from app.storage import trash
from app.web import pages
from app.web.pages.common import home_page, missing, problem_context, problem_fragment, redirect, widget_answer
from app.web.pages.examples import examples
from app.web.pages.widget import answer_table
from app.web.server.access import Access, declare
from app.web.templating import is_fragment, render
from app.web.views.error_page import way_on


def page_routers() -> Iterator[APIRouter]:
    """The routers of every module below this folder: `pages` where it has a part of the API too, else `router`. A new
    page is a new module; nothing lists it."""
    for module in pkgutil.walk_packages(pages.__path__, f"{pages.__name__}."):
        if module.name != __name__:
            page = importlib.import_module(module.name)
            named = [getattr(page, name, None) for name in ("pages", "router")]
            yield from [r for r in named if isinstance(r, APIRouter)][:1]


router = APIRouter(include_in_schema=False)
for part in page_routers():
    router.include_router(part)


def render_problem(request: Request, problem: Problem) -> Response:
    """An error in the look of the page; a fragment where htmx asked, shown where the form's answer goes."""
    if is_fragment(request):
        return problem_fragment(request, problem)
    context = {
        "problem": problem_context(problem),
        "way": way_on(problem.status, problem.code),
        "undo": _deleted_here(request, problem),
    }
    return render("error.html", context, request=request, status=problem.status)


def _deleted_here(request: Request, problem: Problem) -> DeletedTrace | None:
    """The deleted trace whose page was asked for, while it can be brought back."""
    trace_id = request.path_params.get("trace_id") if problem.status == 404 else None
    if not trace_id:
        return None
    return next((row for row in trash.deleted(state_of(request).store.database) if row["id"] == trace_id), None)


# ---------------------------------------------------------------------------------------------------------------- home


@router.get("/host")
@declare(Access.READ)
def host(request: Request) -> Response:
    """The banner of the start page, once the host is known."""
    context = {"host": regions.device(state_of(request))}
    return render("partials/device/host.html", context, request=request)


@router.get("/")
@declare(Access.COMPUTE)
def home(request: Request) -> Response:
    """The start page; the widget's answer is part of its address."""
    return render("home.html", home_page(request), request=request)


@router.get("/widget")
@declare(Access.COMPUTE)
def widget(request: Request) -> Response:
    """The widget's answer alone for htmx; the whole page, at its own address, for everybody else."""
    if not is_fragment(request):
        return RedirectResponse(f"/?{request.url.query}#widget", 303)
    return render("partials/home/widget.html", widget_answer(request), request=request)


@router.get("/widget/table")
@declare(Access.COMPUTE)
def widget_table(request: Request, bound: str = "", kind: str = "") -> Response:
    """Every answer of the widget for one bound and kind, for the page to look up as a slider moves."""
    return answer_table(request, bound, kind)


@router.post("/examples/{name}")
@declare(Access.WORK)
async def load_example(request: Request, name: str) -> Response:
    """Load a bundled example as if it had been uploaded or pasted."""
    example = examples().get(name)
    if example is None:
        raise missing("example")
    state = state_of(request)
    if example.kind == "trace":
        trace = await run_in_threadpool(traces.submit_file, state, example.path, example.title)
        return redirect(request, f"/traces/{trace['id']}")
    region = await run_in_threadpool(regions.submit_region, state, example.text)
    return redirect(request, f"/regions/{region['id']}")


# --------------------------------------------------------------------------------------------------------------- traces


@router.post("/traces", max_body_size=UNCOUNTED)
@declare(Access.UPLOAD)
async def upload(request: Request, group: str | None = None) -> Response:
    """A trace by the form: to its page at once, which shows what is read of it, or why it cannot be.

    What cannot be taken at all stands under the drop zone; the page of a plain form says the same.
    """
    trace, _ = await traces.submit_upload(request, state_of(request), group=group)
    return redirect(request, f"/traces/{trace['id']}")


@router.post("/traces/{trace_id}/again", max_body_size=UNCOUNTED)
@declare(Access.UPLOAD)
async def again(request: Request, trace_id: str) -> Response:
    """The trace once more, with the files that the form has for it."""
    trace = await traces.submit_again(request, state_of(request), trace_id)
    return redirect(request, f"/traces/{trace['id']}")
