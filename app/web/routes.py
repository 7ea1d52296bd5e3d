"""The routes of the application: every router of the API, the pages, static files, and what they declare together."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.routing import Route

from app.web.api import checks, history, host, jobs, links, regions, traces
from app.web.pages import home, kits, landscapes, measured_devices, other_devices
from app.web.server import sign_in
from app.web.server.access import Access, declare
from app.web.server.assets import Assets
from app.web.server.contract import Contract, audit


def add_routes(app: FastAPI) -> Contract:
    """Add every route to an application that has none of its own but its description's.

    AccessError where one of them declares no access. /openapi.json has the operations in the order of the routers here.
    """
    for router in (
        traces.router,
        regions.router,
        links.router,
        jobs.router,
        host.router,
        other_devices.api,
        measured_devices.api,
        kits.api,
        landscapes.api,
        checks.router,
        history.router,
        sign_in.router,
        home.router,
    ):
        app.include_router(router)
    app.mount("/static", declare(Access.OPEN)(Assets()), name="static")
    for route in app.routes:
        if isinstance(route, Route) and route.path == app.openapi_url:
            declare(Access.READ)(route.endpoint)
    return audit(app.routes)
