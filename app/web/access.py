"""Access: what every route is, declared in one table. A route that is not in it keeps the server from starting.

open    needs no token: health, and what it takes to sign in. The guard lets nothing else pass without one.
read    answers from what is here. Only these and open ones may be reached by GET.
change  changes what is stored.
work    queues a job, or keeps torch busy.
upload  the same, with files in the body: app.uploads counts them, all other bodies are small.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from starlette.routing import Mount


class Access(StrEnum):
    """See the module."""

    OPEN = "open"
    READ = "read"
    CHANGE = "change"
    WORK = "work"
    UPLOAD = "upload"


_READING = frozenset({Access.OPEN, Access.READ})
_CHANGING = frozenset({Access.OPEN, Access.CHANGE, Access.WORK, Access.UPLOAD})
_MAY = {"GET": _READING, "MOUNT": _READING}
"""What a method may be; all others are _CHANGING."""

STATIC = "/static"

_TABLE = """
open    GET     /healthz
open    GET     /readyz
open    GET     /sign-in
open    POST    /sign-in
open    MOUNT   /static

upload  POST    /api/v1/traces
upload  POST    /api/v1/traces/{trace_id}/again
upload  POST    /api/v1/checks
upload  POST    /traces
upload  POST    /traces/{trace_id}/again

work    POST    /api/v1/advice
work    POST    /checks
work    POST    /api/v1/regions/{region_id}/oracle
work    POST    /api/v1/validations
work    POST    /api/v1/validations/{validation_id}/landscape
work    POST    /device/ceilings
work    POST    /examples/{name}
work    POST    /region/oracle
work    POST    /regions
work    POST    /regions/preview
work    POST    /regions/{region_id}/oracle
work    POST    /validations
work    POST    /validations/{validation_id}/again
work    POST    /validations/{validation_id}/landscape

change  DELETE  /api/v1/traces/{trace_id}
change  POST    /api/v1/jobs/{job_id}/cancel
change  POST    /checks/{check_id}/cancel
change  POST    /traces/{trace_id}/cancel
change  POST    /traces/{trace_id}/delete
change  POST    /validations/{validation_id}/cancel
change  POST    /validations/{validation_id}/landscape/cancel

read    GET     /api/v1/checks
read    GET     /api/v1/checks/{check_id}
read    GET     /api/v1/checks/{check_id}.{suffix}
read    GET     /api/v1/device
read    GET     /api/v1/jobs/{job_id}
read    GET     /api/v1/jobs/{job_id}/events
read    GET     /api/v1/regions
read    GET     /api/v1/regions/{region_id}
read    GET     /api/v1/regions/{region_id}/devices
read    GET     /api/v1/regions/{region_id}/kernels/{kernel}
read    GET     /api/v1/regions/{region_id}/kinds
read    GET     /api/v1/traces
read    GET     /api/v1/traces/{trace_id}
read    GET     /api/v1/traces/{trace_id}/ranks
read    GET     /api/v1/validations
read    GET     /api/v1/validations/{validation_id}
read    GET     /api/v1/validations/{validation_id}/kinds
read    GET     /api/v1/validations/{validation_id}/kit.zip
read    GET     /api/v1/validations/{validation_id}/since
read    GET     /api/v1/validations/{validation_id}/landscape
read    GET     /
read    GET     /accuracy
read    GET     /accuracy.json
read    GET     /api
read    GET     /checks
read    GET     /checks.json
read    GET     /checks/{check_id}
read    GET     /checks/{check_id}.json
read    GET     /checks/{check_id}/progress
read    GET     /compare
read    GET     /compare.json
read    GET     /device
read    GET     /device.json
read    GET     /device/ceilings
read    GET     /device/state
read    GET     /device/state.json
read    GET     /history
read    GET     /history.json
read    GET     /host
read    GET     /learn
read    GET     /learn.json
read    GET     /learn/autotune
read    GET     /learn/decided
read    GET     /learn/decided.json
read    GET     /learn/decided/{kernel}/{listing}.txt
read    GET     /learn/program
read    GET     /learn/rule
read    GET     /learn/tiles
read    GET     /metrics
read    GET     /openapi.json
read    GET     /region
read    GET     /region.json
read    GET     /regions/{region_id}
read    GET     /regions/{region_id}.json
read    GET     /regions/{region_id}/advice
read    GET     /regions/{region_id}/devices
read    GET     /regions/{region_id}/devices.json
read    GET     /regions/{region_id}/kinds
read    GET     /regions/{region_id}/kinds.json
read    GET     /regions/{region_id}/kernels/{mode}/{kernel}
read    GET     /regions/{region_id}/kernels/{mode}/{kernel}.json
read    GET     /regions/{region_id}/kernels/{mode}/{kernel}/{listing}.txt
read    GET     /regions/{region_id}/replay.py
read    GET     /regions/{region_id}/report.html
read    GET     /regions/{region_id}/triton
read    GET     /regions/{region_id}/triton.json
read    GET     /regions/{region_id}/triton/machine
read    GET     /regions/{region_id}/triton/machine.json
read    GET     /regions/{region_id}/triton/{kernel}/{listing}.txt
read    GET     /traces/{trace_id}
read    GET     /traces/{trace_id}/reading
read    GET     /traces/{trace_id}.json
read    GET     /traces/{trace_id}/report.html
read    GET     /validations/{validation_id}
read    GET     /validations/{validation_id}.json
read    GET     /validations/{validation_id}/kinds
read    GET     /validations/{validation_id}/kinds.json
read    GET     /validations/{validation_id}/kit
read    GET     /validations/{validation_id}/kit.json
read    GET     /validations/{validation_id}/landscape
read    GET     /validations/{validation_id}/landscape.json
read    GET     /validations/{validation_id}/landscape/panel
read    GET     /validations/{validation_id}/landscape/progress
read    GET     /validations/{validation_id}/panel
read    GET     /validations/{validation_id}/progress
read    GET     /what-if
read    GET     /widget
read    GET     /widget/table
"""


class AccessError(Exception):
    """The table and the application's routes differ."""


def _read(table: str) -> dict[tuple[str, str], Access]:
    rows = (line.split() for line in table.splitlines() if line.strip())
    return {(method, path): Access(access) for access, method, path in rows}


ACCESS: dict[tuple[str, str], Access] = _read(_TABLE)
"""(method, path template) -> access."""

OPEN_PATHS = frozenset(path for (_, path), access in ACCESS.items() if access is Access.OPEN and path != STATIC)


def _pattern(templates: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(t)) for t in sorted(templates)))


_UPLOADS = _pattern(path for (_, path), access in ACCESS.items() if access is Access.UPLOAD)


def is_open(path: str) -> bool:
    """Whether a path needs no token."""
    return path in OPEN_PATHS or path.startswith(f"{STATIC}/")


def takes_files(path: str) -> bool:
    """Whether a body may be larger than BODY_BYTES here: app.uploads counts it."""
    return _UPLOADS.fullmatch(path) is not None


def routes_of(routes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """(method, path template) of every route and mount, those of included routers too. HEAD counts as its GET."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes_of(inner.routes)
        elif isinstance(route, Mount):
            yield "MOUNT", route.path
        else:
            yield from ((method, route.path) for method in sorted(route.methods - {"HEAD"}))


def audit(routes: Iterable[Any], access: dict[tuple[str, str], Access] = ACCESS) -> None:
    """Raise AccessError where a route declares no access, or another than its method may have."""
    there = list(routes_of(routes))
    wrong = [f"{m} {p} declares no access: add it to app/web/access.py" for m, p in there if (m, p) not in access]
    wrong += [f"{m} {p} is declared, and there is no such route" for m, p in access if (m, p) not in there]
    wrong += [f"{m} {p} is routed twice" for m, p in sorted({r for r in there if there.count(r) > 1})]
    for (method, path), kind in access.items():
        if kind not in _MAY.get(method, _CHANGING):
            wrong.append(f"{method} {path} cannot be {kind}")
        if kind is Access.OPEN and "{" in path:
            wrong.append(f"{path} is open, and open paths have no parameters")
    if wrong:
        raise AccessError("; ".join(wrong))
