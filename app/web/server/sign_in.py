"""Sign-in for browsers, where the server has a token: it becomes a cookie that scripts cannot read."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from app.requests.state import state_of
from app.web.server.access import Access, declare
from app.web.server.security import COOKIE

router = APIRouter(include_in_schema=False)

WEEK_S = 7 * 24 * 3600


@router.post("/sign-in")
@declare(Access.OPEN)
def sign_in(
    request: Request, token: Annotated[str, Form(max_length=1000)] = "", next: Annotated[str, Form()] = "/"
) -> Response:
    """Check the token and keep it as a cookie; back to the form where it is wrong."""
    secret = state_of(request).settings.token
    if secret is None:
        return RedirectResponse("/", 303)
    if not hmac.compare_digest(token.strip().encode(), secret.get_secret_value().encode()):
        return RedirectResponse("/sign-in?failed=1", 303)
    response = RedirectResponse(_own_page(next), 303)
    response.set_cookie(
        COOKIE, token.strip(), max_age=WEEK_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
    return response


def _own_page(path: str) -> str:
    """The path where it is one of this site; "//host" and "/\\host" are other sites to a browser."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and len(path) < 2000
    return path if safe else "/"
