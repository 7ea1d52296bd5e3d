"""The tabs of a trace's page: which there are, which is open, and the address of each. Pure functions of data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from app.web.views.region_list import TAB_NAMES, View

NEEDS = {"timeline": ("timeline",), "flame": ("flames",), "source": ("source_files", "source_missing")}
"""Tabs that are there only where the page's context has one of these."""


class Tab(TypedDict):
    """A tab. count: what it holds, in words, "" for nothing to count."""

    name: str
    label: str
    count: str
    href: str
    open: bool


def trace_tabs(
    view: View, shown: Mapping[str, object], counts: Mapping[str, str], address: Callable[[str], str]
) -> list[Tab]:
    """The tabs in their order. Where one is asked for that this trace has nothing for, the first opens.

    shown: the page's context; counts: by tab; address: of the page with a tab open.
    """
    names = [name for name in TAB_NAMES if name not in NEEDS or any(shown.get(key) for key in NEEDS[name])]
    chosen = view.tab if view.tab in names else names[0]
    return [
        {
            "name": name,
            "label": TAB_NAMES[name],
            "count": counts.get(name, ""),
            "href": address(name),
            "open": name == chosen,
        }
        for name in names
    ]
