"""Short addresses of texts: stored where the text can be read, found again by id. Raises Problem."""

from __future__ import annotations

from app.errors import Problem, not_found
from app.objects.link import Link, LinkFields
from app.requests.regions import preview_region
from app.requests.state import ServerState
from app.storage import links


def submit_link(state: ServerState, fields: LinkFields) -> Link:
    """The address of a text and of how it is used. What cannot be advised on has none: its page would be an error.

    Forms send lines with a carriage return, and programs do not: it is the same text.
    """
    fields = {**fields, "region": fields["region"].replace("\r\n", "\n")}
    workload = {"share_of_step": fields["share_of_step"], "calls_per_step": fields["calls_per_step"]}
    preview_region(state, fields["region"], device=fields["device"], oracle=False, **workload)
    link = links.get(state.store.database, links.put(state.store.database, fields))
    assert link is not None  # stored just now
    return link


def find_link(state: ServerState, link_id: str) -> Link:
    """What an address stands for, or 404."""
    link = links.get(state.store.database, link_id)
    if link is None:
        raise not_found("link")
    return link


def stands_for(state: ServerState, path: str, text: str) -> bool:
    """Whether a page's path is the short address of this very text."""
    _, _, link_id = path.partition("/r/")
    link = links.get(state.store.database, link_id) if path.startswith("/r/") and link_id else None
    return link is not None and link["region"].split() == text.split()


def no_such_page(problem: Problem) -> Problem:
    """The same for who opened a short address that stands for nothing, in words."""
    detail = "It was never made on this server, was removed after its time, or was not copied whole."
    return Problem(problem.status, problem.code, "This short link leads to no text", detail)
