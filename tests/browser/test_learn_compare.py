"""Learn, Compare, Device and History in Chromium: what a click changes, and the same as plain links and forms."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched
from tests.browser.test_region_parts import slide, write_down

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]


def upload(page: Page, path: Path) -> str:
    page.goto("/")
    page.set_input_files("#file", path)
    page.wait_for_url(re.compile(r"/traces/[a-z0-9]{26}$"))
    trace_id = page.url.rsplit("/", 1)[1]
    ask = "async id => (await (await fetch(`/api/v1/traces/${id}?wait=60`)).json()).status"
    assert page.evaluate(ask, trace_id) == "ready"
    return trace_id


def test_the_path_lights_up_for_the_answers_and_for_a_region(open_page: Open) -> None:
    page = open_page().page
    page.goto("/learn")
    expect(page.locator("#tree li")).to_have_count(8)
    slide(page, "#t-share_of_step", "0.005")
    expect(page.locator("#tree li.chosen")).to_have_count(1)
    expect(page.locator("#tree li.chosen")).to_contain_text("Could it matter at all?")
    expect(page.locator("#tree li.dim")).to_have_count(6)
    expect(page).to_have_url(re.compile(r"share_of_step=0\.005"))
    slide(page, "#t-share_of_step", "0.3")
    slide(page, "#t-uniqueness", "1")
    slide(page, "#t-irregularity", "0.8")
    page.select_option("#t-bound", "memory")
    page.select_option("#t-kind", "custom")
    expect(page.locator("#tree li.chosen .tool.triton").first).to_be_visible()
    fresh = open_page().page
    fresh.goto(page.url)
    expect(fresh.locator("#tree li.chosen .tool.triton").first).to_be_visible()
    write_down(page)
    page.get_by_role("link", name="On the decision tree").click()
    page.wait_for_url(re.compile(r"/learn\?region="))
    expect(page.locator("#tree")).to_contain_text("For the region")


def test_a_click_on_a_configuration_changes_its_code_and_its_time(open_page: Open) -> None:
    page = open_page().page
    page.goto("/learn")
    code = page.locator("#tuned .code pre")
    before = code.inner_text()
    time = page.locator("#tuned .two strong").first
    was = time.inner_text()
    page.evaluate("window.stayed = true")
    page.locator("#tuned tbody a").last.click()
    expect(code).not_to_have_text(before)
    expect(time).not_to_have_text(was)
    page.get_by_role("navigation", name="Kernel").get_by_role("link", name="Matrix product").click()
    expect(page.locator("#tuned .code pre")).to_contain_text("matmul_kernel[grid](")
    assert page.evaluate("window.stayed") is True
    expect(page).to_have_url(re.compile("case=matmul"))


def test_a_program_and_a_size_are_chosen(open_page: Open) -> None:
    page = open_page().page
    page.goto("/learn")
    page.get_by_role("link", name="Program 0").click()
    expect(page.locator("#program-life")).to_contain_text("all of its lanes are inside")
    assert not page.evaluate("Boolean(window.Plotly)"), "no chart of Plotly's has come into view"
    page.locator("#tile-traffic .plot").scroll_into_view_if_needed()
    expect(page.locator("#tile-traffic .main-svg").first).to_be_attached()
    page.get_by_role("link", name="8,192").click()
    expect(page.get_by_role("link", name="8,192")).to_have_attribute("aria-current", "true")
    page.locator("#tile-traffic .plot").scroll_into_view_if_needed()
    expect(page.locator("#tile-traffic .plot")).to_contain_text("275 GB")


def test_learn_without_javascript_on_a_phone(open_page: Open) -> None:
    page = open_page(java_script_enabled=False, viewport={"width": 390, "height": 844}, color_scheme="dark").page
    page.goto("/learn")
    page.get_by_role("link", name="Program 1").click()
    page.wait_for_url(re.compile(r"program=1#program$"))
    expect(page.locator("#program-life")).to_contain_text("1 × 4 and the next 3")
    page.locator("#tuned tbody a").first.click()
    page.wait_for_url(re.compile(r"config=0#autotune$"))
    page.get_by_role("button", name="Light the path for these answers").click()
    page.wait_for_url(re.compile(r"share_of_step="))
    expect(page.locator("#tree")).to_contain_text("For these answers")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_two_traces_are_compared(open_page: Open, data: Path) -> None:
    page = open_page().page
    one = upload(page, data / "traces" / "llama_prefill_bf16_eager.json.gz")
    other = upload(page, data / "traces" / "llama_prefill_bf16_compiled.json.gz")
    page.goto(f"/compare?a={one}")
    expect(page.locator("#traces-b")).to_have_value(other)
    expect(page.locator("form", has=page.locator("#traces-b"))).to_contain_text("the same model by its name")
    page.get_by_role("button", name="Compare traces").click()
    page.wait_for_url(re.compile(r"/compare\?a="))
    expect(page.get_by_role("heading", name="B takes 17 % less time")).to_be_visible()
    expect(page.locator("#verdict-of-two")).to_contain_text("Sure: every step of one is shorter: 2 steps and 2 steps")
    expect(page.locator("table.compared")).to_contain_text("RMSNorm by hand")
    expect(page.locator(".plot .drawn").first).to_be_attached()
    plain = open_page(java_script_enabled=False, viewport={"width": 390, "height": 844}).page
    plain.goto(page.url)
    expect(plain.locator("table.compared")).to_be_visible()
    assert plain.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("path", ["/learn", "/compare", "/device", "/history"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone(open_page: Open, path: str, scheme: str) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, color_scheme=scheme).page
    page.goto(path)
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_widgets_answer_leads_to_its_own_path(open_page: Open) -> None:
    page = open_page().page
    page.goto("/")
    slide(page, "#share_of_step", "0.005")
    link = page.locator("#widget-answer [data-tree]")
    expect(link).to_have_attribute("href", re.compile(r"share_of_step=0\.005"))
    link.click()
    page.wait_for_url(re.compile(r"/learn\?"))
    expect(page.locator("#tree li.chosen")).to_contain_text("Could it matter at all?")
