"""The tabs of a region's page: every part has one, and a region has those that there is something for."""

from __future__ import annotations

import re
from typing import Any

from app.web.templating import TEMPLATES
from app.web.views.region.region_tabs import ALL, TABS, tabs_section

KEPT: dict[str, Any] = {
    "region": {"id": "a", "text": "x", "cost": {"kernels": []}, "advice": {"tool": "skip"}},
    "survey_candidate": "triton:x",
}


def keys(context: dict[str, Any]) -> list[str]:
    return [tab.key for tab in tabs_section(context, "", "/regions/a")["tabs"]]


def test_a_region_has_the_tabs_that_there_is_something_for() -> None:
    assert keys(KEPT) == [tab.key for tab in TABS]
    assert keys({"region": {"text": "x", "cost": {}, "advice": {"tool": "skip"}}}) == ["evidence"]
    assert keys({"region": {"id": "a", "text": ""}}) == []


def test_the_open_tab_stands_in_the_address_and_one_that_is_none_opens_nothing() -> None:
    assert tabs_section(KEPT, "cost", "/regions/a")["tab_base"] == "/regions/a?tab="
    assert tabs_section(KEPT, "cost", "/region?text=x")["tab_base"] == "/region?text=x&tab="
    assert [t.key for t in tabs_section(KEPT, "cost", "/regions/a")["shown"]] == ["cost"]
    assert len(tabs_section(KEPT, ALL, "/regions/a")["shown"]) == len(TABS)
    for none in ("", "nothing", "../cost"):
        section = tabs_section(KEPT, none, "/regions/a")
        assert (section["tab"], section["shown"]) == ("", [])


def test_every_part_that_a_tab_says_it_holds_is_in_its_templates() -> None:
    """A link to a part opens the tab that holds it: by these names."""
    folder = TEMPLATES / "partials"
    everything = "".join(p.read_text(encoding="utf-8") for p in folder.rglob("*.html"))
    for tab in TABS:
        assert (TEMPLATES / tab.template).exists()
        for name in tab.holds:
            assert re.search(rf'id="{re.escape(name)}', everything), name
