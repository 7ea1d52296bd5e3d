"""A short address, and the region's text with its form that it stands for."""

from __future__ import annotations

from typing_extensions import TypedDict


class LinkFields(TypedDict):
    """What an address is made of: the same fields have the same address."""

    region: str
    share_of_step: float | None
    calls_per_step: float
    device: str | None


class Link(LinkFields):
    """A stored one. path: of its page on this server, /r/ID. created_at: when it was asked for last."""

    id: str
    path: str
    created_at: str
