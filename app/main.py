"""create_app: the parts put together. No logic here, and no CUDA in this process, ever."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

import app as package
from app.advisor import Advisor
from app.host import HostFacts
from app.jobs.checks import check_landscape, check_report, check_trace, check_validation
from app.jobs.ledger import Kind
from app.jobs.queue import Queue
from app.jobs.runner import Limits
from app.settings import Settings
from app.store import Store
from app.uploads import check_disk
from app.web import api_checks, api_host, api_jobs, api_regions, api_traces, devices, kits, landscapes, pages, sign_in
from app.web.assets import Assets
from app.web.metrics import Requests
from app.web.problems import Problem, from_http, from_validation
from app.web.security import BODY_BYTES, Guard
from profiler.oracle.cache import Cache
from profiler.oracle.process import Oracle

log = logging.getLogger("tritonworthy")

ROOT = Path(package.__file__).resolve().parent.parent


class Application(FastAPI):
    """FastAPI with the guard outside of everything, so that even a 500 carries its headers."""

    def build_middleware_stack(self) -> ASGIApp:
        settings: Settings = self.state.settings
        token = settings.token.get_secret_value() if settings.token else None
        inner = super().build_middleware_stack()
        guarded = Guard(inner, hosts=settings.hosts, token=token)
        return self.state.requests.around(guarded)  # type: ignore[no-any-return]


def create_app(settings: Settings | None = None) -> FastAPI:
    """The web application; settings come from the environment where none are given."""
    settings = settings or Settings()
    settings.make_folders()
    app = Application(
        title="Tritonworthy",
        summary="Should I write a Triton kernel for this? Advice from a profiler trace, proven by running it.",
        version=package.__version__,
        lifespan=_lifespan,
        # The interactive documentation would load its scripts from a CDN.
        docs_url=None,
        redoc_url=None,
        max_body_size=BODY_BYTES,
    )
    state = app.state
    state.settings = settings
    state.store = Store(settings.url)
    state.host = HostFacts()
    state.queue = make_queue(state.store, settings, state.host)
    oracle = Oracle(Cache(settings.oracle_dir)) if settings.oracle == "auto" else None
    state.service = Advisor(
        timeout_s=settings.advice_timeout_s, oracle=oracle, oracle_timeout_s=settings.oracle_timeout_s,
        thresholds=settings.rule,
    )  # fmt: skip
    state.requests = Requests()
    state.closing = threading.Event()
    state.readiness = lambda: _readiness(state)
    for router in (
        api_traces.router,
        api_regions.router,
        api_jobs.router,
        api_host.router,
        devices.api,
        kits.api,
        landscapes.api,
        api_checks.router,
        sign_in.router,
        pages.router,
    ):
        app.include_router(router)
    app.mount("/static", Assets(), name="static")
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_fault)
    return app


def make_queue(store: Store, settings: Settings, host: HostFacts) -> Queue:
    """The queue whose children are app.jobs.tasks."""

    def command(kind: Kind) -> list[str]:
        return [sys.executable, "-m", "app.jobs.tasks", kind, "{fd}"]

    thresholds = dataclasses.asdict(settings.rule)
    read = Limits(settings.read_timeout_s, settings.kill_grace_s, settings.read_memory_bytes)
    measure = Limits(settings.job_timeout_s, settings.kill_grace_s)
    both = Limits(settings.read_timeout_s + settings.job_timeout_s, settings.kill_grace_s)
    return Queue(
        store,
        command=command,
        limits={"read": read, "validate": measure, "landscape": measure, "check": both},
        checks={
            "read": check_trace,
            "validate": check_validation,
            "landscape": check_landscape,
            "check": check_report,
        },
        logs=settings.logs_dir,
        lease_s=settings.lease_s,
        cwd=ROOT,
        context=lambda: {**host.for_children(), "thresholds": thresholds},
        spare=lambda kind, told: kind == "validate" and settings.spare and told.get("host", {}).get("gpu") is not None,
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    state.host.start()
    state.service.start()
    state.queue.start()
    log.info("serving, data in %s, process %d", state.settings.data_dir, os.getpid())
    yield
    state.closing.set()
    state.queue.stop()
    state.service.stop()
    state.store.close()


def _readiness(state: Any) -> list[str]:
    """What keeps the server from working, in words; nothing when it is ready."""
    wrong = []
    try:
        state.store.job_state("")
    except Exception:
        log.exception("the database does not answer")
        wrong.append("the database does not answer")
    if not state.queue.alive:
        wrong.append("the queue does not run")
    try:
        check_disk(state.settings)
    except Problem as problem:
        wrong.append(problem.detail)
    return wrong


def _respond(request: Request, problem: Problem) -> Response:
    """As JSON for programs, as a page for people."""
    path = request.url.path
    wants_page = not path.startswith(("/api/", "/static/")) and "text/html" in request.headers.get("accept", "")
    if wants_page or request.headers.get("hx-request") == "true":
        response = pages.render_problem(request, problem)
        response.headers.update(problem.headers)
        return response
    return problem.response()


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _respond(request, error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _respond(request, from_http(error))


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _respond(request, from_validation(error))


async def _on_fault(request: Request, error: Exception) -> Response:
    """A fault of ours: the log has the traceback, the client a sentence."""
    problem = Problem(500, "internal", "", "Something went wrong here. The server's log has the details.")
    try:
        return _respond(request, problem)
    except Exception:
        # The page of the error may be what is broken.
        log.exception("the error page failed")
        return problem.response()
