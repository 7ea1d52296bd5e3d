"""A page and its JSON by one view: what the page is made of, as data, at the page's address with `.json`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.web.server.access import Access, declare

SUFFIX = ".json"

View = TypeVar("View", bound=Callable[..., Response])


def page_and_json(
    router: APIRouter, path: str, access: Access, *, json_access: Access | None = None
) -> Callable[[View], View]:
    """Decorator of a view that answers GET `path` as a page and GET `path.json` as data; both are declared by it.

    The view asks `wants_json(request)` which of the two it is to be. Its keyword-only parameters are the page's alone:
    the JSON is answered without them. json_access: the JSON's, where its answer takes less than the page.
    """

    def add(view: View) -> View:
        # The JSON first: a page's path may end with a parameter, and that would take the suffix as well.
        router.get(path + SUFFIX)(declare(json_access or access)(_without_page_parameters(view)))
        router.get(path)(declare(access)(view))
        return view

    return add


def wants_json(request: Request) -> bool:
    """Whether the JSON of a page is asked for."""
    path: str = request.scope["path"]
    return path.endswith(SUFFIX)


def _without_page_parameters(view: Callable[..., Response]) -> Callable[..., Response]:
    @functools.wraps(view)
    def json_view(**parameters: Any) -> Response:
        return view(**parameters)

    signature = inspect.signature(view)
    shared = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    json_view.__signature__ = signature.replace(parameters=shared)  # type: ignore[attr-defined]
    return json_view
