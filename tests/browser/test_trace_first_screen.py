"""A trace's page as it is first seen: what stands on the first screen, how much there is of it, and its tabs."""

from __future__ import annotations

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

THREE = "gpt2_train_autocast_eager_stack.json.gz"
"""With more than three things to do."""
SEEN_BEFORE = {
    "handrolled_blocks_bf16_eager_stack.json.gz": (1519, 5314),
    "llama_train_bf16_eager.json.gz": (2001, 5730),
    THREE: (2629, 7461),
}
"""Words and height in px of the page at 1280 px when all of it stood below one another."""
LOOKS = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
BOTTOMS = """selector => [...document.querySelectorAll(selector)].map((e) => e.getBoundingClientRect().bottom)"""


@pytest.fixture(scope="module")
def traces(server: str, data: Path) -> dict[str, dict[str, Any]]:
    return {name: upload(server, data / "traces" / name) for name in SEEN_BEFORE}


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    return page


def open_panels(page: Page) -> list[str]:
    return [str(p.get_attribute("data-panel")) for p in page.locator(".panel").all() if p.is_visible()]


@pytest.mark.parametrize("look", LOOKS)
def test_the_first_screen_says_what_to_do(open_page: Open, traces: dict[str, dict[str, Any]], look: str) -> None:
    """At 1280 px all three and what each saves; on a phone the first two, with their calls."""
    page = opened(open_page(viewport=LOOKS[look]).page, f"/traces/{traces[THREE]['id']}")
    screen, wanted = LOOKS[look]["height"], {"desktop": 3, "phone": 2}[look]
    for part in ("#to-do h2", "#to-do .step-now", "#to-do > ol .line", "#to-do > ol .gain", "#to-do > ol pre"):
        bottoms = page.evaluate(BOTTOMS, part)
        need = 1 if part in ("#to-do h2", "#to-do .step-now") else wanted
        assert sum(bottom <= screen for bottom in bottoms) >= need, part
    if look == "desktop":
        assert page.evaluate(BOTTOMS, "#trace-tabs")[0] <= screen, "and that there is more below"


@pytest.mark.parametrize("name", SEEN_BEFORE)
def test_it_is_half_as_long_as_it_was(open_page: Open, traces: dict[str, dict[str, Any]], name: str) -> None:
    page = opened(open_page(viewport=LOOKS["desktop"]).page, f"/traces/{traces[name]['id']}")
    words = page.evaluate("document.querySelector('main').innerText.split(/\\s+/).filter(Boolean).length")
    height = page.evaluate("document.documentElement.scrollHeight")
    assert words <= SEEN_BEFORE[name][0] / 2
    assert height <= SEEN_BEFORE[name][1] / 2


def test_a_tab_has_an_address_and_back_leads_to_the_one_before(
    open_page: Open, traces: dict[str, dict[str, Any]]
) -> None:
    path = f"/traces/{traces[THREE]['id']}"
    page = opened(open_page(viewport=LOOKS["desktop"]).page, f"{path}?q=gemm")
    page.evaluate("window.same = true")
    assert open_panels(page) == ["regions"]
    page.get_by_role("tab", name="Where time goes").click()
    assert page.url.endswith(f"{path}?q=gemm&tab=where")
    assert open_panels(page) == ["where"]
    expect(page.locator("#advice .plot .bars").first).to_be_attached()
    page.get_by_role("tab", name="Notes").click()
    assert open_panels(page) == ["notes"]
    page.go_back()
    assert open_panels(page) == ["where"]
    page.go_back()
    assert open_panels(page) == ["regions"]
    assert page.evaluate("window.same"), "no page was loaded"
    fresh = opened(open_page().page, f"{path}?tab=notes")
    assert open_panels(fresh) == ["notes"]
    assert open_panels(opened(fresh, f"{path}?tab=nonsense")) == ["regions"]


@pytest.mark.parametrize("scripted", [True, False])
def test_an_address_of_a_part_opens_the_tab_that_it_stands_in(
    open_page: Open, traces: dict[str, dict[str, Any]], scripted: bool
) -> None:
    page = open_page(viewport=LOOKS["desktop"], java_script_enabled=scripted).page
    page.goto(f"/traces/{traces[THREE]['id']}#rests")
    expect(page.locator("#rests")).to_be_in_viewport()
    expect(page.locator("#trace-tabs")).to_be_in_viewport()
    if scripted:
        assert open_panels(page) == ["where"]
        page.goto(f"/traces/{traces[THREE]['id']}#regions")
        assert open_panels(page) == ["regions"]


def test_tabs_by_keyboard(open_page: Open, traces: dict[str, dict[str, Any]]) -> None:
    page = opened(open_page(viewport=LOOKS["desktop"]).page, f"/traces/{traces[THREE]['id']}")
    page.get_by_role("tab", name="Regions").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Timeline")).to_be_focused()
    assert open_panels(page) == ["timeline"]
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Notes")).to_be_focused()
    page.keyboard.press("ArrowRight")
    assert open_panels(page) == ["regions"], "behind the last comes the first"
    for name in ("Timeline", "Where time goes", "Notes"):
        page.get_by_role("tab", name=name).press("Enter")
        assert violations(page) == []


def test_the_bar_of_tabs_stays_while_a_tab_is_read(open_page: Open, traces: dict[str, dict[str, Any]]) -> None:
    page = opened(open_page(viewport=LOOKS["desktop"]).page, f"/traces/{traces[THREE]['id']}?tab=where")
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.locator("#trace-tabs")).to_be_in_viewport()
    page.get_by_role("tab", name="Notes").click()
    expect(page.locator("#trace-notes h2")).to_be_in_viewport()


def test_the_table_of_regions_is_taken_away_as_csv(
    open_page: Open, server: str, traces: dict[str, dict[str, Any]]
) -> None:
    page = opened(open_page().page, f"/traces/{traces[THREE]['id']}?q=gemm&sort=calls")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Calls")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    twin = answer(f"{server}/traces/{traces[THREE]['id']}.json?q=gemm&sort=calls")
    assert [line.rsplit(",", 1)[1] for line in lines[1:]] == [r["id"] for r in twin["regions"]]
    page.get_by_role("link", name="Time / step").click()
    page.wait_for_url("**?q=gemm&sort=time#regions")
