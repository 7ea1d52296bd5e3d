"""The address of a region's page: what it carries, the tab that is open, where the what-if's sliders stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import Request

from app.web.pages.common import (
    parse_number,
)
from app.web.templating import is_fragment
from app.web.views.region import whatif
from app.web.views.region.region_tabs import TabsSection, tabs_section

MOST_CARRIED = 6000
"""Characters of a text that an address may carry."""


class Workload(TypedDict):
    """How a region is used, as submit_region takes it. share_of_step: 0 to 1, None where it is not known."""

    share_of_step: float | None
    calls_per_step: float
    device: str | None


def read_workload(form: Mapping[str, str]) -> Workload:
    """What the form's other fields say about the region's use."""
    return {
        "share_of_step": parse_number(form.get("share_percent"), 0.01),
        "calls_per_step": parse_number(form.get("calls_per_step")) or 1.0,
        "device": form.get("device") or None,
    }


def carrying_address(form: Mapping[str, str]) -> str:
    """The address that carries a text and the form's other fields: works on any host."""
    return "/region?" + urlencode({name: value for name, value in form.items() if value.strip()}, quote_via=quote)


def shown_address(request: Request) -> dict[str, str]:
    """The query of the page that asks for a part of itself; {} for a whole page."""
    return dict(parse_qsl(urlsplit(request.headers.get("hx-current-url", "")).query)) if is_fragment(request) else {}


def what_if_values(request: Request) -> tuple[float | None, float | None]:
    """Where the what-if's sliders stand by the address: share of the step, times as fast; None where it is silent.

    A part of a page that is asked for has its page's address.
    """
    asked = {**shown_address(request), **request.query_params}
    share, faster = parse_number(asked.get("of")), parse_number(asked.get("faster"))
    return (
        None if share is None else min(max(share, 0.0), 1.0),
        None if faster is None else min(max(faster, 1.0), whatif.MOST_FASTER),
    )


def implied_tab(request: Request) -> str:
    """The tab with the what-if's sliders, where the address says how they stand."""
    return "cost" if {"of", "faster"} & set(request.query_params) else ""


def open_tabs(context: Mapping[str, object], tab: str, text: str = "") -> TabsSection:
    """The tabs, and which is open. text: an edited one may be too long for an address to carry."""
    fits = not context.get("edited") or len(text) < MOST_CARRIED
    return tabs_section(context, tab, str(context["permalink"]) if fits else "")


def tab_address(context: Mapping[str, object], tabs: TabsSection) -> str:
    """The page's address with the tab that is open."""
    return f"{tabs['tab_base']}{tabs['tab']}" if tabs["tab"] else str(context["permalink"])
