"""What the editor of a region's text asks for: the language's names."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.requests.state import state_of
from app.web.server.access import Access, declare
from app.web.server.assets import KEPT_FOR_EVER
from app.web.server.json_response import JSONAnswer
from app.web.server.vocabulary_version import PATH, vocabulary_version

router = APIRouter(include_in_schema=False)


@router.get(PATH)
@declare(Access.COMPUTE)
def vocabulary(request: Request, v: str = "") -> Response:
    """Every name of the language with its arguments; kept by the browser for as long as its address stays."""
    caching = KEPT_FOR_EVER if v == vocabulary_version() else "no-cache"
    return JSONAnswer(state_of(request).service.vocabulary(), headers={"Cache-Control": caching})
