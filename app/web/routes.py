"""The routes of the application: every router of the API, the pages, static files, and what they declare together."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.routing import Route

from app.web import (
    api_checks,
    api_host,
    api_jobs,
    api_regions,
    api_traces,
    devices,
    kinds,
    kits,
    landscapes,
    pages,
    sign_in,
)
from app.web.access import Access, declare
from app.web.assets import Assets
from app.web.contract import Contract, audit


def add_routes(app: FastAPI) -> Contract:
    """Add every route to an application that has none of its own but its description's.

    AccessError where one of them declares no access. /openapi.json has the operations in the order of the routers here.
    """
    for router in (
        api_traces.router,
        api_regions.router,
        api_jobs.router,
        api_host.router,
        devices.api,
        kinds.api,
        kits.api,
        landscapes.api,
        api_checks.router,
        sign_in.router,
        pages.router,
    ):
        app.include_router(router)
    app.mount("/static", declare(Access.OPEN)(Assets()), name="static")
    for route in app.routes:
        if isinstance(route, Route) and route.path == app.openapi_url:
            declare(Access.READ)(route.endpoint)
    return audit(app.routes)
