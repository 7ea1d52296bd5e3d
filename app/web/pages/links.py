"""Short addresses of a region's text: made by its form's button, opened as /r/ID."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from app.errors import Problem
from app.requests import links
from app.requests.state import state_of
from app.web.pages.common import RegionFields
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.pages.region.address import read_workload
from app.web.pages.region.carried import carried_json, carried_page
from app.web.server.access import Access, declare
from app.web.templating import is_fragment, render

router = APIRouter(include_in_schema=False)


@router.post("/links")
@declare(Access.WORK)
def shorten(request: Request, form: RegionFields) -> Response:
    """Keep what the form has under a short address: to its page, or for htmx the address to copy."""
    link = links.submit_link(state_of(request), {"region": form["text"], **read_workload(form)})
    if not is_fragment(request):
        return RedirectResponse(link["path"], 303)
    context = {"address": str(request.base_url).rstrip("/") + link["path"], "link": link}
    headers = {"HX-Replace-Url": link["path"]}
    return render("partials/region/short_link.html", context, request=request, headers=headers)


@page_and_json(router, "/r/{link_id}", Access.COMPUTE)
def open_link(request: Request, link_id: str, *, oracle: str = "", tab: str = "") -> Response:
    """The region of a short address, as the page of one that its address carries. oracle, tab: as there."""
    try:
        link = links.find_link(state_of(request), link_id)
    except Problem as problem:
        raise links.no_such_page(problem) from None
    share = link["share_of_step"]
    fields = {
        "text": link["region"],
        "share_percent": "" if share is None else f"{share * 100:.12g}",
        "calls_per_step": f"{link['calls_per_step']:.12g}",
        "device": link["device"] or "",
    }
    if wants_json(request):
        return carried_json(request, fields)
    json_address = f"{link['path']}.json"
    return carried_page(request, fields, oracle=oracle, tab=tab, permalink=link["path"], json_address=json_address)
