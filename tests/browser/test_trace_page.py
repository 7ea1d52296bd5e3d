"""The trace's page in a browser: filter and search, the timeline by mouse and keys, without a script, on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched
from tests.browser.furnished import answer, upload
from tests.browser.test_accessible import violations

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

DEEP = "gpt2_train_autocast_eager_stack.json.gz"
WIDE = "hta_nccl.json.gz"


@pytest.fixture(scope="module")
def trace(server: str, data: Path) -> dict[str, Any]:
    return upload(server, data / "traces" / DEEP)


def path(trace: dict[str, Any]) -> str:
    return f"/traces/{trace['id']}"


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Parts of this trace").locator(f"[data-tab={name}]").click()


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    return page


def rows(page: Page) -> list[str]:
    return [
        r.strip() for r in page.locator("#region-list > .scroll tbody th[scope=row] > a:first-child").all_inner_texts()
    ]


def test_filter_sort_and_search_change_the_list_and_the_address_and_nothing_else(
    open_page: Open, trace: dict[str, Any]
) -> None:
    page = opened(open_page().page, path(trace))
    page.evaluate("window.same = true")
    page.get_by_label("Name, module or kernel").fill("conv1d")
    expect(page.locator("#region-list")).to_contain_text("“conv1d”")
    assert page.url.endswith("?q=conv1d")
    assert rows(page)
    assert all("Conv1D" in t for t in page.locator("#region-list tbody tr").all_inner_texts())
    expect(page.get_by_label("Name, module or kernel")).to_be_focused()
    page.locator("#sort").select_option("time")
    page.wait_for_url(re.compile(r"q=conv1d&sort=time$"))
    page.get_by_label("Name, module or kernel").fill("")
    page.wait_for_url(re.compile(r"\?sort=time$"))
    page.locator("input[value=triton]").check()
    page.wait_for_url(re.compile(r"\?tool=triton&sort=time$"))
    wanted = [r for r in trace["regions"] if r["advice"]["tool"] == "triton"]
    expect(page.locator("#region-list")).to_contain_text(f"{len(wanted)} of {len(trace['regions'])} regions")
    assert len(rows(page)) == len(wanted)
    page.locator("#min_share").fill("50")
    expect(page.locator("#region-list")).to_contain_text("No region fits.")
    assert page.evaluate("window.same"), "no page was loaded"
    page.get_by_role("link", name="Without at least 50 % of the step").click()
    page.wait_for_url(re.compile(r"tool=triton&sort=time#regions$"))
    assert len(rows(page)) == len(wanted)


def test_leaving_a_field_that_was_answered_asks_for_nothing(open_page: Open, trace: dict[str, Any]) -> None:
    """Or the click that leaves it would race with the list's answer, whose controls are those of the old view."""
    page = opened(open_page().page, path(trace))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/traces/" in request.url else None)
    fields = {"Name, module or kernel": ("conv1d", "“conv1d”"), "At least, % of step": ("1", "at least 1 %")}
    for label, (text, chip) in fields.items():
        page.get_by_label(label).fill(text)
        expect(page.locator("#region-list .chip").filter(has_text=chip)).to_be_visible()
        before = len(asked)
        page.locator("h1").click()
        page.wait_for_timeout(600)
        assert asked[before:] == []
    page.locator("#sort").select_option("name")
    page.wait_for_url(re.compile("sort=name"))


def test_an_address_opens_the_same_list_in_a_fresh_browser_and_its_twin(
    open_page: Open, server: str, trace: dict[str, Any]
) -> None:
    query = "tool=skip&min_share=1&sort=name"
    page = opened(open_page().page, f"{path(trace)}?{query}")
    shown = rows(page)
    assert shown == sorted(shown, key=str.lower)
    twin = answer(f"{server}{path(trace)}.json?{query}")
    assert len(twin["regions"]) == len(shown)
    expect(page.locator("#sort")).to_have_value("name")
    expect(page.locator("input[value=skip]")).to_be_checked()


def test_the_mouse_on_the_timeline_says_what_runs_and_goes_there(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page(viewport={"width": 1280, "height": 900}).page, f"{path(trace)}?tab=timeline")
    data = json.loads(page.locator("[data-timeline]").get_attribute("data-timeline") or "")
    longest = max((s for lane in data["lanes"] for s in lane), key=lambda s: s[1])
    picture = page.locator("[data-lane='0'] svg")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    assert box
    start, end = data["window"]
    at = box["x"] + box["width"] * (longest[0] + longest[1] / 2 - start) / (end - start)
    page.mouse.move(at, box["y"] + box["height"] / 2)
    name, advice, href = data["owners"][str(longest[2])]
    expect(page.locator(".readout")).to_contain_text(name)
    expect(page.locator(".readout")).to_contain_text(advice)
    expect(page.locator(".readout a")).to_have_attribute("href", href)
    cursor = page.locator(".cursor").bounding_box()
    assert cursor
    assert abs(cursor["x"] - at) < 3
    gap = page.locator("[data-lane=gaps] svg").bounding_box()
    assert gap
    page.mouse.move(gap["x"] + 3, gap["y"] + gap["height"] / 2)
    expect(page.locator(".readout")).to_contain_text("GPU idle")
    page.mouse.click(at, box["y"] + box["height"] / 2)
    page.wait_for_url(re.compile(re.escape(href) + "$"))


def test_the_timeline_by_keyboard(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, f"{path(trace)}?tab=timeline")
    cursor = page.get_by_role("slider", name="Cursor on the timeline")
    cursor.focus()
    data = json.loads(page.locator("[data-timeline]").get_attribute("data-timeline") or "")
    first, second = data["lanes"][0][:2]
    expect(cursor).to_have_attribute("aria-valuetext", re.compile(re.escape(data["owners"][str(first[2])][0])))
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text(data["owners"][str(second[2])][0])
    assert float(cursor.get_attribute("aria-valuenow") or 0) == pytest.approx(second[0], abs=1)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".readout")).to_contain_text("GPU idle")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    last = data["lanes"][0][-1]
    assert float(cursor.get_attribute("aria-valuenow") or 0) == pytest.approx(last[0], abs=1)
    page.keyboard.press("Home")
    place = next(i for i, s in enumerate(data["lanes"][0]) if data["owners"][str(s[2])][2])
    for _ in range(place):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))


def test_zoom_is_an_address_and_keeps_focus_and_filter(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, f"{path(trace)}?tab=timeline&q=gemm")
    page.get_by_role("link", name="Zoom in").click()
    page.wait_for_url(re.compile(r"q=gemm&start=[0-9.]+&end=[0-9.]+$"))
    expect(page.get_by_role("link", name="Zoom in")).to_be_focused()
    expect(page.locator("#timeline header")).to_contain_text(" of ")
    # The filter's form knows of the view, and the view's links of the filter.
    tab(page, "regions")
    page.get_by_label("Name, module or kernel").fill("gelu")
    page.wait_for_url(re.compile(r"\?q=gelu&start="))
    tab(page, "timeline")
    page.get_by_role("link", name="Later").click()
    page.wait_for_url(re.compile(r"q=gelu&start="))
    tab(page, "regions")
    assert rows(page)
    assert all("GELU" in r for r in rows(page))
    tab(page, "timeline")
    page.get_by_role("link", name="Whole step").click()
    page.wait_for_url(re.compile(r"\?tab=timeline&q=gelu$"))


def test_a_box_leads_to_its_region_and_boxes_that_share_a_kernel_to_a_search(
    open_page: Open, trace: dict[str, Any]
) -> None:
    page = opened(open_page().page, f"{path(trace)}?tab=where")
    tile = page.locator(".treemap a.tile[href^='/regions/']").first
    href = tile.get_attribute("href") or ""
    assert href.split("/")[-1] in {r["id"] for r in trace["regions"]}
    search = page.locator(".treemap a.tile[href*='?q=']").first
    opened(page, search.get_attribute("href") or "")
    assert 1 < len(rows(page)) < len(trace["regions"])
    expect(page.locator("#region-list .chip")).to_have_count(1)


def test_all_of_it_without_a_script(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page(java_script_enabled=False).page, path(trace))
    expect(page.locator("#region-list")).to_be_visible()
    expect(page.locator("#timeline")).to_be_hidden()
    tab(page, "timeline")
    assert page.locator("#timeline .lane path").count() > 2
    expect(page.locator("#timeline .readout")).to_be_hidden()
    expect(page.locator("#timeline .cursor")).to_be_hidden()
    page.get_by_text("The longest stretches and gaps as tables").click()
    assert page.locator("#timeline table").count() == 2
    page.get_by_role("link", name="Zoom in").click()
    assert "start=" in page.url
    tab(page, "regions")
    page.get_by_label("Name, module or kernel").fill("gelu")
    page.get_by_role("button", name="Show").click()
    assert re.search(r"q=gelu", page.url)
    assert "start=" in page.url, "the timeline's view goes with the form"
    assert all("GELU" in r for r in rows(page))
    tab(page, "where")
    assert "q=gelu" in page.url, "and the filter with the tab"
    page.get_by_text("Modules as a table").click()
    expect(page.locator("#where table").first).to_be_visible()


def test_a_phone_has_it_all_within_its_width(open_page: Open, server: str, data: Path, trace: dict[str, Any]) -> None:
    wide = upload(server, data / "traces" / WIDE)
    page = open_page(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True).page
    for one in (trace, wide):
        for name in ("timeline", "notes", "regions", "where"):
            opened(page, f"{path(one)}?tab={name}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert violations(page) == []
        for tile in page.locator(".treemap").all():
            box = tile.bounding_box()
            assert box
            assert box["width"] >= 300
    opened(page, f"{path(wide)}?tab=timeline")
    lane = page.locator("[data-lane='0'] svg")
    lane.scroll_into_view_if_needed()
    lane.tap(position={"x": 60, "y": 10})
    expect(page.locator(".readout")).to_contain_text(" to ")
    assert page.url.endswith(f"{path(wide)}?tab=timeline"), "a finger asks, it does not leave"


def test_a_list_that_was_filtered_has_no_violation(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, f"{path(trace)}?q=gemm&tool=skip&min_share=1&start=1000&end=9000")
    assert violations(page) == []
    opened(page, f"{path(trace)}?q=nothing+of+the+kind")
    assert violations(page) == []


def test_an_upload_says_how_far_it_is_and_is_stopped(open_page: Open, tmp_path: Path) -> None:
    watched = open_page()
    page = watched.page
    opened(page, "/")
    (tmp_path / "large.json").write_bytes(b'{"traceEvents":[' + b" " * 30_000_000)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 1_000_000}
    session.send("Network.emulateNetworkConditions", slow)
    page.set_input_files("#file", tmp_path / "large.json")
    expect(page.locator("[data-upload-state]")).to_have_text(re.compile(r"^\d+ % of 30 MB sent$"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("[data-upload-state]")).to_have_text("Cancelled: nothing of it was kept.")
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    assert page.url.endswith("/")
    # htmx writes an abort to the console as an error; the reader asked for it.
    watched.errors[:] = [e for e in watched.errors if "abort" not in e.lower() and "htmx:afterRequest" not in e]
