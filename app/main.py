"""create_app: the parts put together. No logic here, and no CUDA in this process, ever."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

import app as package
from app.atlas import user_atlas
from app.errors import Problem
from app.jobs import worker_identity
from app.jobs.host import HostFacts
from app.jobs.local_runner import Limits, LocalRunner, clean_environment
from app.jobs.queue import Queue
from app.jobs.ray.join import join
from app.jobs.ray.runner import RayRunner
from app.jobs.result_checks import check_landscape, check_report, check_trace, check_validation
from app.objects.task import RegionLimits
from app.requests.archived_evidence import by_records
from app.requests.executor import WAITING_CAP, Executor
from app.requests.state import ServerState
from app.requests.trace_oracle import NICENESS, RETRIES, TraceOracle
from app.settings import Settings
from app.storage.damage import LostError
from app.storage.store import Store
from app.web.api.openapi import describe
from app.web.api.widget_fast_path import Quick
from app.web.pages import home
from app.web.routes import add_routes
from app.web.server.compression import Compressed
from app.web.server.etag import Conditional
from app.web.server.head import Head
from app.web.server.health import Health, describe_database_error
from app.web.server.limits import LimitHeaders
from app.web.server.memory import Trimmer
from app.web.server.problems import as_json, from_http, from_validation
from app.web.server.request_counts import Requests
from app.web.server.retention import Retention
from app.web.server.security import BODY_BYTES, Guard
from app.web.server.state import WebState
from app.web.warm import WarmPages
from kernels.host import Host
from profiler.child.process import FD, FORK, FORK_INTERPRETED
from profiler.child.template import Template
from profiler.oracle.cache import Cache
from profiler.oracle.process import Oracle

log = logging.getLogger("tritonworthy")

ROOT = Path(package.__file__).resolve().parent.parent


THREADS = 2 * WAITING_CAP + 8
"""That answer requests: those that wait for advice leave as many to others."""


class Application(FastAPI):
    """FastAPI with the guard outside of everything, so that even a 500 carries its headers."""

    def build_middleware_stack(self) -> ASGIApp:
        state = state_of_app(self)
        settings = state.settings
        token = settings.token.get_secret_value() if settings.token else None
        limited = LimitHeaders(super().build_middleware_stack(), state, state.contract)
        inner = Head(Compressed(Quick(Conditional(limited), state)))
        guarded = Guard(
            inner, state.contract, hosts=settings.hosts, token=token, requests_per_minute=settings.requests_per_minute,
            most_waiting=settings.client_queue_cap, body_s=settings.request_timeout_s,
            stopping=state.closing.is_set,
        )  # fmt: skip
        return state.requests.around(guarded)


def state_of_app(app: FastAPI) -> WebState:
    """The parts of an application, which are attributes of its `state`: create_app sets all of them."""
    return cast(WebState, app.state)


def create_app(settings: Settings | None = None, templates: Mapping[str, Template] | None = None) -> FastAPI:
    """The web application; settings come from the environment where none are given.

    templates: those that several servers of a process share, and that outlive them; by default a server has its own.
    """
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
    state = state_of_app(app)
    state.settings = settings
    state.store = Store(settings.url, settings.uploads_dir)
    state.host = HostFacts()
    state.fleet = make_runner(settings)
    owner = worker_identity.owner()
    state.templates = templates or make_templates(owner, settings.atlases_dir)
    state.owns_templates = templates is None
    state.store.by_records = partial(by_records, state)
    state.queue = make_queue(state.store, settings, state.host, state.fleet, owner, state.templates)
    template = state.templates[FORK]
    answers = Cache(settings.oracle_dir)
    oracle = Oracle(answers, template=template) if settings.oracle == "auto" else None
    state.service = Executor(
        template, limits=settings.advice_limits, size=settings.advice_processes, oracle=oracle,
        oracle_timeout_s=settings.oracle_timeout_s, thresholds=settings.rule,
        context=lambda: {**state.host.for_children(), "atlas_dir": str(settings.atlases_dir)},
        atlases=lambda: user_atlas.state_of(settings.atlases_dir),
        environment=lambda: {worker_identity.MARK: f"{owner}/answers"}, logs=settings.logs_dir,
    )  # fmt: skip
    state.trace_oracle = TraceOracle(
        state, lambda: Oracle(answers, template=template, niceness=NICENESS, retries=RETRIES)
    )
    state.queue.when_read = state.trace_oracle.ask
    state.requests = Requests()
    state.retention = Retention(state)
    state.memory = Trimmer()
    state.warm_pages = WarmPages(state)
    state.closing = threading.Event()
    state.health = Health(state)
    state.contract = add_routes(app)
    app.openapi = describe(app, state.contract)  # type: ignore[method-assign]
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(OperationalError, _on_database)
    app.add_exception_handler(Exception, _on_fault)
    return app


def make_runner(settings: Settings) -> RayRunner | None:
    """The fleet, where jobs run on one; FleetError where it cannot be reached."""
    if settings.runner == "local":
        return None
    assert settings.ray_token_file is not None
    return join(settings.ray_address, settings.ray_token_file, settings.fleet_lanes, settings.queue_timeout_s)


def make_templates(owner: str, atlases: Path | None = None) -> dict[str, Template]:
    """What the children of a server are forked from, by the first word of their commands. atlases: the user's, read
    before the first fork."""
    # One thread: a fork of a process with more can inherit a lock that another of them holds.
    environment = {**clean_environment(), worker_identity.MARK: f"{owner}/template", "OPENBLAS_NUM_THREADS": "1"}
    if atlases is not None:
        environment[user_atlas.VARIABLE] = str(atlases)
    interpreted = {**environment, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    return {
        FORK: Template("app.jobs.forked", cwd=ROOT, env=environment),
        FORK_INTERPRETED: Template("app.jobs.forked", cwd=ROOT, env=interpreted),
    }


MEASURES = frozenset({"validate", "landscape", "check", "health", "ceilings"})
"""Kinds of jobs that use the GPU where there is one: then in a process that has never been anything else."""


def make_queue(
    store: Store,
    settings: Settings,
    host: HostFacts,
    fleet: RayRunner | None,
    owner: str,
    templates: Mapping[str, Template],
) -> Queue:
    """The queue whose children do app.jobs.tasks: forked warm, or started where they measure, or on the fleet."""

    def command(kind: str) -> list[str]:
        known = host.known()
        if fleet is not None or (kind in MEASURES and (known is None or known.gpu is not None)):
            return [sys.executable, "-m", "app.jobs.tasks", kind, FD]
        if kind == "validate":
            return [FORK_INTERPRETED, kind, FD]
        return [FORK, "task", kind, FD]

    thresholds = dataclasses.asdict(settings.rule)
    most = settings.advice_limits
    atlases = str(settings.atlases_dir)
    per_region: RegionLimits = {
        "timeout_s": most.timeout_s,
        "grace_s": most.grace_s,
        "memory_bytes": most.memory_bytes,
        "cpu_s": most.cpu_s,
    }
    read = settings.read_limits
    measure = Limits(settings.job_timeout_s, settings.kill_grace_s)
    both = Limits(settings.read_timeout_s + settings.job_timeout_s, settings.kill_grace_s, read.memory_bytes)
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
        context=lambda: {
            **host.for_children(),
            "thresholds": thresholds,
            "region_limits": per_region,
            "atlas_dir": atlases,
        },
        spare=lambda kind, told: (
            kind == "validate" and settings.spare and (fleet is not None or told.get("host", {}).get("gpu") is not None)
        ),
        expected_gpu=lambda: found.gpu if fleet is None and (found := host.known()) else None,
        owner=owner,
        runner=fleet or LocalRunner(owner, templates),
        queue_timeout_s=settings.queue_timeout_s,
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = state_of_app(app)
    state.host.start()
    state.service.start()
    state.host.when_known(lambda host: state.templates[FORK_INTERPRETED].start() if _checks_here(state, host) else None)
    state.queue.start()
    state.trace_oracle.start()
    state.retention.start()
    state.memory.start()
    if state.settings.spare:
        state.warm_pages.start()
    to_thread.current_default_thread_limiter().total_tokens = THREADS
    _build_routes(app)
    log.info("serving, data in %s, process %d", state.settings.data_dir, os.getpid())
    yield
    state.closing.set()
    state.warm_pages.stop()
    state.memory.stop()
    state.retention.stop()
    state.trace_oracle.stop()
    state.queue.stop()
    state.service.stop()
    if state.owns_templates:
        for template in state.templates.values():
            template.stop()
    state.store.close()


def _build_routes(app: FastAPI) -> None:
    """FastAPI builds the routes of included routers when the first request is matched: 0.3 s and more, for which the
    event loop answers nobody. A path that is none of them goes by them all."""
    for route in app.routes:
        route.matches({"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": [], "app": app})


def _checks_here(state: ServerState, host: Host) -> bool:
    """Whether validations run on this host without a GPU: checked in Triton's interpreter, which takes a template."""
    return state.fleet is None and host.gpu is None and state.settings.spare


def _respond(request: Request, problem: Problem) -> Response:
    """As JSON for programs, as a page for people."""
    path = request.url.path
    wants_page = not path.startswith(("/api/", "/static/")) and "text/html" in request.headers.get("accept", "")
    if wants_page or request.headers.get("hx-request") == "true":
        response = home.render_problem(request, problem)
        response.headers.update(problem.headers)
        return response
    return as_json(problem)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _respond(request, error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = from_http(error)
    if problem.status == 405:
        problem.headers["Allow"] = ", ".join(_allowed(request))
    return _respond(request, problem)


def _allowed(request: Request) -> list[str]:
    """The methods of a path; Starlette names those of one of its routes."""
    routes = request.app.router.routes
    asked = [{**request.scope, "method": method} for method in ("DELETE", "GET", "PATCH", "POST", "PUT")]
    found = [s["method"] for s in asked if any(route.matches(s)[0] is Match.FULL for route in routes)]
    return sorted([*found, "HEAD"]) if "GET" in found else found


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _respond(request, from_validation(error))


async def _on_database(request: Request, error: Exception) -> Response:
    """The database is locked, read-only, full or gone: nothing was done, and the client may try again."""
    log.error("%s %s: %s", request.method, request.url.path, getattr(error, "orig", None) or error)
    means = describe_database_error(error)
    if isinstance(error, LostError):
        return _respond(request, Problem(503, error.problem_code, "", error.words, remedy=error.remedy))
    status, code = (507, "disk-full") if "disk is full" in means else (503, "storage-failed")
    detail = f"The database {means}. Nothing was changed; try again in a moment."
    return _respond(request, Problem(status, code, "", detail, headers={"Retry-After": "5"}))


async def _on_fault(request: Request, error: Exception) -> Response:
    """A fault of ours: the log has the traceback, the client a sentence."""
    problem = Problem(500, "internal", "", "Something went wrong here. The server's log has the details.")
    try:
        return _respond(request, problem)
    except Exception:
        # The page of the error may be what is broken.
        log.exception("the error page failed")
        return as_json(problem)
