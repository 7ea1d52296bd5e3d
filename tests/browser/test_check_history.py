"""The history of checks in a real browser: from the list to the answer, with script and without, held to axe."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Watched
from tests.browser.furnished import answer
from tests.browser.test_accessible import LOOKS, violations
from tools.checks.check_api import sample_runs

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]


@pytest.fixture(scope="module", autouse=True)
def history(server: str) -> None:
    """A series that gets slower on main, one on another branch that moves to another device."""
    topic = [{**run, "id": f"t{n}", "branch": "topic"} for n, run in enumerate(sample_runs())]
    for run in topic[12:]:
        run["environment"] = {**run["environment"], "device": "NVIDIA A100"}
    answer(f"{server}/api/v1/history", json.dumps({"entries": [*sample_runs(), *topic]}).encode())


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_of_a_series_answers_and_leads_to_its_runs(open_page: Open, script: bool, width: int) -> None:
    page = open_page(java_script_enabled=script, viewport={"width": width, "height": 900}).page
    page.goto("/checks")
    page.get_by_role("link", name="History").last.click()
    page.locator("#branch").select_option("main")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="step").click()
    heading = page.get_by_role("heading", name="slower since")
    expect(heading).to_contain_text(sample_runs()[16]["commit"][:10])
    box = heading.bounding_box()
    assert box is not None and box["y"] + box["height"] < 900
    # The chart stands in the page as it comes; its numbers are a table below.
    expect(page.locator(".plot svg.drawn:visible")).to_have_count(1)
    page.get_by_text("The same numbers as a table").click()
    expect(page.locator("figure table tbody tr")).to_have_count(24)
    page.locator("#on").select_option(label="topic")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("NVIDIA H200 to NVIDIA A100")).to_be_visible()
    page.locator("#device").select_option("NVIDIA A100")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("NVIDIA H200 to NVIDIA A100")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_of_the_history_has_a_violation_or_scrolls_sideways(open_page: Open, server: str, look: str) -> None:
    page = open_page(**LOOKS[look]).page
    series = [f"/checks/history/{item['id']}" for item in answer(f"{server}/api/v1/history")["items"]]
    for path in ("/checks/history", "/checks/history?check=none", *series):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert violations(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
