"""The tabs of a region's page: what each holds, and which of them a region has. Data and pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

ALL = "all"
"""In an address: every tab, one under the other."""


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab. holds: ids of its parts, so that a link to one opens it; one that ends in - is a prefix of ids."""

    key: str
    name: str
    holds: tuple[str, ...]

    @property
    def template(self) -> str:
        """What it shows."""
        return f"partials/region/tabs/{self.key}.html"


TABS = (
    Tab("cost", "Cost", (
        "cost", "traffic", "operations", "rests-on", "roofline", "effort", "what-if", "what-if-answer",
    )),
    Tab("compiler", "Compiler", ("oracle", "k-")),
    Tab("kernels", "Kernels", ("code", "columns", "own-")),
    Tab("landscape", "Landscape", ("landscape",)),
    Tab("evidence", "Evidence", ("alternatives", "foretold", "criteria", "would-change", "record")),
    Tab("devices", "Devices", ("devices", "kinds")),
)  # fmt: skip


class TabsSection(TypedDict):
    """Context of partials/region/tabs.html. tab: the open one's key, "" for none; shown: those whose contents are on
    the page. tab_base: the address that a key is put behind; "" where the text is too long for one.
    """

    tabs: list[Tab]
    tab: str
    shown: list[Tab]
    tab_base: str


def tabs_section(context: Mapping[str, object], asked: str, address: str) -> TabsSection:
    """The tabs of a page with this context. asked: a key, or ALL; address: of the page, "" for none."""
    there = [tab for tab in TABS if _has(tab.key, context)]
    keys = {tab.key for tab in there}
    tab = asked if asked in keys or asked == ALL else ""
    joint = "&" if "?" in address else "?"
    return {
        "tabs": there,
        "tab": tab,
        "shown": [t for t in there if tab in (t.key, ALL)],
        "tab_base": f"{address}{joint}tab=" if address else "",
    }


def _has(key: str, context: Mapping[str, object]) -> bool:
    region = context.get("region")
    body = region if isinstance(region, Mapping) else {}
    kept = bool(body.get("id") and body.get("text"))
    return {
        "cost": bool(body.get("cost") or context.get("whatif")),
        "compiler": bool(body.get("cost")),
        "kernels": kept,
        "landscape": bool(context.get("survey_candidate") or context.get("landscape")),
        "evidence": bool(body.get("advice")),
        "devices": bool(kept or context.get("measured_devices")),
    }[key]
