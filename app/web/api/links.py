"""/api/v1/links: short addresses of texts."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.objects.link import Link, LinkFields
from app.requests import links
from app.requests.state import state_of
from app.web.api.request_schemas import LinkRequest
from app.web.api.responses import JSON_ONLY, answer, errors
from app.web.server import codes as api_codes
from app.web.server.access import Access, declare

router = APIRouter(prefix="/api/v1", tags=["advice"])


@router.post("/links", dependencies=JSON_ONLY, responses={200: {"model": Link}, **errors(413, 415, 422, 429, 503)})
@declare(Access.WORK, codes=(api_codes.TEXT, api_codes.ADVICE))
def shorten(request: Request, body: LinkRequest) -> Response:
    """A short address of a region's text: its page is at `path`. The same text with the same fields has the same one.

    It is kept as long as regions that are written down. A text that cannot be read has none.
    """
    fields: LinkFields = {
        "region": body.region, "share_of_step": body.share_of_step, "calls_per_step": body.calls_per_step,
        "device": body.device,
    }  # fmt: skip
    return answer(links.submit_link(state_of(request), fields))


@router.get("/links/{link_id}", responses={200: {"model": Link}, **errors(404)})
@declare(Access.READ)
def link(request: Request, link_id: str) -> Response:
    """What a short address stands for."""
    return answer(links.find_link(state_of(request), link_id))
