"""The tabs of a trace's page: those that there is something for, one open, each with an address."""

from __future__ import annotations

from app.web.views.region_list import TAB_NAMES, View
from app.web.views.trace_tabs import NEEDS, trace_tabs

WHOLE: dict[str, object] = {"timeline": {"step": "1"}, "flames": [1], "source_missing": "no stacks"}


def names(view: View, shown: dict[str, object]) -> list[tuple[str, bool]]:
    return [(tab["name"], tab["open"]) for tab in trace_tabs(view, shown, {}, lambda name: f"?tab={name}")]


def test_a_tab_without_contents_is_none() -> None:
    assert [name for name, _ in names(View(), WHOLE)] == list(TAB_NAMES)
    assert [name for name, _ in names(View(), {})] == [name for name in TAB_NAMES if name not in NEEDS]


def test_one_is_open_and_the_first_where_the_asked_for_is_not_there() -> None:
    assert [name for name, is_open in names(View(tab="timeline"), WHOLE) if is_open] == ["timeline"]
    assert [name for name, is_open in names(View(tab="timeline"), {}) if is_open] == ["regions"]


def test_counts_and_addresses_stand_with_their_tab() -> None:
    tabs = {t["name"]: t for t in trace_tabs(View(), {}, {"notes": "2"}, lambda name: f"?tab={name}")}
    assert (tabs["notes"]["count"], tabs["regions"]["count"]) == ("2", "")
    assert tabs["where"]["href"] == "?tab=where"
