"""The contract: what the routes of an application declare, collected; where one declares nothing, no server starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from starlette.routing import BaseRoute, Mount, Route

from app.objects.job import JobKind
from app.web.server.access import Access, Declaration, declaration_of
from app.web.server.codes import ANY

Endpoint = tuple[str, str]
"""Method and path template; "MOUNT" and the prefix of a mounted application."""

_READING = frozenset({Access.OPEN, Access.READ, Access.COMPUTE})
_CHANGING = frozenset({Access.OPEN, Access.CHANGE, Access.WORK, Access.UPLOAD})
_MAY = {"GET": _READING, "MOUNT": _READING}
"""What a method may be; all others are _CHANGING."""


class AccessError(Exception):
    """A route declares no access, or one that its method may not have."""


class Contract:
    """What every route of an application declares, and what that says of a path that is asked for.

    declarations: route -> what it declares; `audit` makes one of an application's routes.
    """

    def __init__(self, declarations: Mapping[Endpoint, Declaration]) -> None:
        self.declarations = declarations
        self.access: Mapping[Endpoint, Access] = {route: d.access for route, d in declarations.items()}
        self.open_paths = frozenset(path for _, path in self._declared(Access.OPEN, mounted=False))
        self._open_mounts = tuple(f"{path}/" for _, path in self._declared(Access.OPEN, mounted=True))
        self._computing = _pattern(path for _, path in self._declared(Access.COMPUTE))
        self._uploads = _pattern(path for _, path in self._declared(Access.UPLOAD))
        self._smaller = [
            (_pattern([path]), declaration.most_bytes)
            for (_, path), declaration in declarations.items()
            if declaration.most_bytes is not None
        ]
        self._queues = [
            (_pattern([path]), declaration.queues)
            for (method, path), declaration in declarations.items()
            if method == "POST" and declaration.queues is not None
        ]

    def _declared(self, access: Access, *, mounted: bool | None = None) -> Iterator[Endpoint]:
        for (method, path), declared in self.access.items():
            if declared is access and mounted in (None, method == "MOUNT"):
                yield method, path

    def computes(self, path: str) -> bool:
        """Whether a GET of this path makes the server work. A path of several routes is what any of them is."""
        return self._computing.fullmatch(path) is not None

    def is_open(self, path: str) -> bool:
        """Whether a path needs no token."""
        return path in self.open_paths or path.startswith(self._open_mounts)

    def takes_files(self, path: str) -> bool:
        """Whether a body may be larger than BODY_BYTES here: app.requests.uploads counts it."""
        return self._uploads.fullmatch(path) is not None

    def most_bytes(self, path: str) -> int | None:
        """The most that a body may have here where uploads of that path are held to less than the setting."""
        return next((most for pattern, most in self._smaller if pattern.fullmatch(path)), None)

    def queued_kind(self, path: str) -> JobKind | None:
        """The kind of job that a POST to the path queues, where its answer tells of the queue."""
        return next((kind for pattern, kind in self._queues if pattern.fullmatch(path)), None)

    def codes(self, method: str, path: str, status: int) -> tuple[str, ...]:
        """The codes that a problem of that status may have in the answer of the route of this path template."""
        return (*self.declarations[method, path].codes.get(status, ()), *ANY.get(status, ()))


def _pattern(templates: Iterable[str]) -> re.Pattern[str]:
    """Of the paths of these templates; of none where there are no templates."""
    paths = "|".join(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)) for template in sorted(templates))
    return re.compile(paths or "(?!)")


def _endpoints(routes: Iterable[BaseRoute]) -> Iterator[tuple[Endpoint, object]]:
    """Every route and mount with what answers it, those of included routers too. HEAD counts as its GET."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _endpoints(inner.routes)
        elif isinstance(route, Mount):
            yield ("MOUNT", route.path), route.app
        else:
            assert isinstance(route, Route), f"a {type(route).__name__} answers no HTTP"
            yield from (
                ((method, route.path), route.endpoint) for method in sorted((route.methods or set()) - {"HEAD"})
            )


def audit(routes: Iterable[BaseRoute]) -> Contract:
    """The contract of an application's routes. AccessError where one declares no access, or what it may not be."""
    endpoints = list(_endpoints(routes))
    declarations: dict[Endpoint, Declaration] = {}
    wrong = []
    for (method, path), endpoint in endpoints:
        declaration = declaration_of(endpoint)
        if declaration is None:
            wrong.append(f"{method} {path} declares no access: decorate it with app.web.server.access.declare")
            continue
        if (method, path) in declarations:
            wrong.append(f"{method} {path} is routed twice")
        if declaration.access not in _MAY.get(method, _CHANGING):
            wrong.append(f"{method} {path} cannot be {declaration.access}")
        if declaration.access is Access.OPEN and "{" in path:
            wrong.append(f"{path} is open, and open paths have no parameters")
        declarations[method, path] = declaration
    if wrong:
        raise AccessError("; ".join(wrong))
    return Contract(declarations)
