"""A trace while it is read, in a browser: what comes, and what of a reader's is left alone by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.web.conftest import Serving, serving
from tests.app.web.streamed import Streamed, streamed
from tests.browser.conftest import Watched
from tests.browser.test_accessible import LOOKS, violations

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]
BROKEN = {"code": "trace-not-json", "message": "The file ends in the middle.", "remedy": "Copy it again."}


@pytest.fixture(scope="module")
def serving_parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("reading"), "parts") as app_server:
        yield app_server


@pytest.fixture(scope="module")
def server(serving_parts: Serving) -> str:
    """In place of the session's: this one's reader goes on when the test says so."""
    return serving_parts.url


@pytest.fixture
def begin(
    serving_parts: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[str, Streamed]]]:
    """The path of a trace whose reading has begun, and its stages."""
    begun: list[str] = []

    def one(error: dict[str, Any] | None = None) -> tuple[str, Streamed]:
        stages = streamed(tmp_path / f"stages{len(begun)}", error)
        monkeypatch.setenv("PARTS", str(stages.path))
        files = {"file": ("step.json", str(tmp_path).encode() + b"%d" % len(begun))}
        begun.append(serving_parts.client.post("/traces", files=files).headers["location"])
        return begun[-1], stages

    yield one
    for path in begun:
        serving_parts.state.queue.cancel(path.rsplit("/", 1)[1])


Begin = Callable[..., tuple[str, Streamed]]


def finish(stages: Streamed) -> None:
    for number in range(len(stages.regions) + 1):
        stages.give(number)
    stages.give("end")


def shown_parts(page: Page, path: str, stages: Streamed, tab: str = "regions") -> None:
    page.goto(f"{path}?tab={tab}")
    expect(page.locator("#reading-words")).to_contain_text("Reading the trace")
    stages.give(0)
    expect(page.locator("#reading-words")).to_contain_text(f"Advice on 0 of {len(stages.regions)} regions")


def test_what_a_reader_opened_typed_and_looks_at_stays_while_advice_comes(open_page: Open, begin: Begin) -> None:
    page = open_page(viewport={"width": 1280, "height": 900}).page
    path, stages = begin()
    shown_parts(page, path, stages)
    page.evaluate("window.same = true")
    page.locator("[data-tab=where]").click()
    page.locator("#step-time summary").click()
    page.locator("[data-tab=timeline]").click()
    page.locator("#timeline summary").click()
    page.locator("[data-tab=regions]").click()
    page.get_by_label("Name, module or kernel").fill("by hand")
    rows = page.locator("#region-list tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("Name, module or kernel").press("End")
    place = page.locator("#region-filter").bounding_box()
    for number in (1, 2, 3):
        stages.give(number)
    expect(page.locator("#reading-words")).to_contain_text(f"Advice on 3 of {len(stages.regions)} regions")
    # Of three regions with advice two are listed: their rows are filled where they stand.
    expect(rows.locator(".tool")).to_have_count(2)
    expect(rows.first).to_contain_text("measured: confirmed")
    assert page.locator("#region-filter").bounding_box() == place, "nothing has moved"
    expect(page.get_by_label("Name, module or kernel")).to_be_focused()
    page.keyboard.type(" ")
    finish(stages)
    expect(page.locator("#reading-words")).to_contain_text(f"Advice on all {len(stages.regions)} regions")
    expect(page.get_by_label("Name, module or kernel")).to_have_value("by hand ")
    expect(page.get_by_label("Name, module or kernel")).to_be_focused()
    expect(rows).to_have_count(2)
    for part in ("#step-time", "#timeline"):
        expect(page.locator(f"{part} details").first).to_have_attribute("open", "")
    assert page.evaluate("window.same"), "no page was loaded"


HEIGHTS = """() => [...document.querySelectorAll("#region-list tbody tr")].map(
  (row) => row.getBoundingClientRect().height)"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_row_grows_when_its_advice_comes(open_page: Open, begin: Begin, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900}).page
    path, stages = begin()
    shown_parts(page, path, stages)
    before = page.evaluate(HEIGHTS)
    for number in range(1, len(stages.regions) + 1):
        stages.give(number)
    expect(page.locator("#region-list input[name=waiting]")).to_have_count(0)
    assert page.evaluate(HEIGHTS) == pytest.approx(before, abs=0.5)


def test_the_end_settles_the_page_and_nothing_is_asked_any_more(open_page: Open, begin: Begin) -> None:
    page = open_page(viewport={"width": 1280, "height": 900}).page
    path, stages = begin()
    shown_parts(page, path, stages, "where")
    expect(page.locator("#gain")).to_contain_text("Advice is coming")
    said = page.locator("#reading-said")
    expect(said).to_have_text(f"The step and its {len(stages.regions)} regions are here; advice is coming.")
    page.evaluate(
        """() => { window.said = [];
          new MutationObserver(() => window.said.push(document.querySelector("#reading-said").textContent))
            .observe(document.querySelector("#reading-said"), { childList: true, subtree: true }); }"""
    )
    stages.give(1)
    expect(page.locator("#reading-words")).to_contain_text("Advice on 1 of")
    assert page.evaluate("window.said") == [], "each region is no news to be read out"
    finish(stages)
    expect(page.locator("#gain table")).to_be_visible()
    expect(page.locator("#advice .plot .bars").first).to_be_attached()
    page.locator(".trace-tabs [data-tab=timeline]").click()
    expect(page.locator("[data-timeline][data-ready]")).to_have_count(1)
    page.locator(".trace-tabs [data-tab=where]").click()
    for name in ("Report", "Check"):
        expect(page.locator("#trace-actions").get_by_role("link", name=name)).to_be_visible()
    expect(page.locator("[data-tab=where]")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#reading-poll")).to_have_count(0)
    expect(said).to_contain_text("The trace is read.")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # The filter's fields, which came anew, are listened to.
    page.locator("[data-tab=regions]").click()
    page.locator("input[value=library]").check()
    page.wait_for_url(re.compile(r"tool=library"))
    expect(page.locator("#region-list tbody tr")).to_have_count(
        sum(r["advice"]["tool"] == "library" for r in stages.regions)
    )
    assert [url for url in asked if "/reading" in url] == []


@pytest.mark.parametrize("look", list(LOOKS))
def test_no_violation_while_a_trace_is_read(open_page: Open, begin: Begin, look: str) -> None:
    page = open_page(**LOOKS[look]).page
    path, stages = begin()
    page.goto(path)
    expect(page.locator("#reading-words")).to_contain_text("Reading the trace")
    assert violations(page) == []
    stages.give(0)
    stages.give(1)
    expect(page.locator("#reading-words")).to_contain_text("Advice on 1 of")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finish(stages)
    expect(page.locator("#reading-words")).to_contain_text("Advice on all")
    assert violations(page) == []


def test_a_reading_that_fails_says_so_where_its_parts_stood(open_page: Open, begin: Begin) -> None:
    page = open_page().page
    path, stages = begin(error=BROKEN)
    shown_parts(page, path, stages)
    finish(stages)
    error = page.locator("#trace-body > .note.error").first
    expect(error).to_contain_text(str(BROKEN["message"]))
    expect(error).to_contain_text("What was read until then is below.")
    expect(page.locator("#reading-poll")).to_have_count(0)
    expect(page.locator("#region-list")).to_be_visible()
    expect(page.locator("#trace-actions").get_by_role("link", name="Compare")).to_have_count(0)


def test_the_page_of_a_region_is_filled_when_its_advice_comes(open_page: Open, begin: Begin) -> None:
    page = open_page().page
    path, stages = begin()
    shown_parts(page, path, stages)
    page.locator("#region-list tbody a").first.click()
    expect(page.locator("#verdict")).to_contain_text("Advice is coming")
    page.evaluate("window.same = true")
    stages.give(1)
    expect(page.locator("#verdict .verdict")).to_contain_text("measured on NVIDIA H200")
    expect(page.get_by_role("navigation", name="Details")).to_contain_text("Evidence")
    expect(page.locator("#why")).to_be_visible()
    assert page.evaluate("window.same")


def test_an_upload_goes_to_its_page_before_anything_is_read(open_page: Open, begin: Begin, tmp_path: Path) -> None:
    page = open_page().page
    begin()
    file = tmp_path / "mine.json"
    file.write_text("{}")
    page.goto("/")
    page.locator("#file").set_input_files(file)
    page.wait_for_url("**/traces/*")
    expect(page.get_by_role("heading", name="mine.json")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#trace-body .note")).to_contain_text("cancelled")
