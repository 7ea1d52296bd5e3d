"""The region's page in Chromium: sliders, columns, the compiler, the permalink; and all of it without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

TEXT = "x: bf16[4096, 1024]\nb: bf16[1024]\ny = gelu(x + b) * 2\nreturn y\n"


def write_down(page: Page, text: str = TEXT) -> str:
    page.goto("/")
    page.fill("#text", text)
    page.select_option("#device", "NVIDIA H200")
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))
    return page.url


def slide(page: Page, which: str, value: str) -> None:
    page.locator(which).evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", value
    )


def fits(page: Page, width: int) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth") <= width)


def test_sliders_move_the_bars_and_the_address_opens_the_same_elsewhere(open_page: Open) -> None:
    page = open_page().page
    page.goto(f"{write_down(page)}?tab=cost")
    slide(page, "#wi-share", "0.5")
    slide(page, "#wi-faster", "3")
    expect(page.locator("#what-if-answer")).to_contain_text("makes the step 1.50× as fast")
    expect(page.locator("output[for=wi-faster]")).to_have_text("3.00×")
    expect(page).to_have_url(re.compile(r"\?tab=cost&of=0\.5&faster=3$"))
    fresh = open_page().page
    fresh.goto(page.url)
    expect(fresh.locator("#what-if-answer")).to_contain_text("makes the step 1.50× as fast")
    assert fresh.locator("#wi-share").input_value() == "0.5"
    assert page.locator("h1").inner_text() == fresh.locator("h1").inner_text()


def test_three_columns_then_what_the_compiler_makes_of_ours(open_page: Open) -> None:
    page = open_page().page
    page.goto(f"{write_down(page)}?tab=kernels")
    columns = page.locator("#columns")
    expect(columns).to_contain_text("You wrote: PyTorch")
    expect(columns.locator("pre").last).to_contain_text("@triton.jit")
    page.evaluate("window.stayed = true")
    columns.get_by_role("link", name=re.compile("What the compiler makes of it")).click()
    machine = page.locator("#own-machine")
    expect(machine).to_contain_text("Registers a thread", timeout=90_000)
    for listing, words in (("ttir", "tt.load"), ("ttgir", "ttg."), ("ptx", ".entry"), ("sass", "EXIT")):
        machine.locator(f"#own-0-{listing} summary").click()
        expect(machine.locator(f"#own-0-{listing} pre")).to_contain_text(words)
    assert page.evaluate("window.stayed") is True
    assert fits(page, page.evaluate("window.innerWidth"))


def test_the_picture_follows_an_edit(open_page: Open) -> None:
    page = open_page().page
    page.goto(f"{write_down(page)}?tab=cost")
    expect(page.locator("#traffic")).to_contain_text("3 launches → 1")
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", TEXT.replace(" * 2", ""))
    expect(page.locator("#traffic")).to_contain_text("2 launches → 1")
    expect(page.locator("#traffic svg")).to_have_count(2)
    assert page.locator("#effort .plot .drawn").count() > 0


def test_the_permalink_button_makes_an_address_that_carries_the_edited_text(open_page: Open) -> None:
    page = open_page().page
    write_down(page)
    edited = TEXT.replace("gelu", "silu")
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", edited)
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#share", "12")
        page.locator("#share").blur()
    page.get_by_role("button", name="Permalink").click()
    page.wait_for_url(re.compile(r"/region\?text="))
    fresh = open_page(java_script_enabled=False).page
    fresh.goto(page.url)
    assert fresh.locator("#text").input_value().split() == edited.split()
    assert fresh.locator("#share").input_value() == "12"
    expect(fresh.locator(".verdict").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_javascript_on_a_phone(open_page: Open, scheme: str) -> None:
    page = open_page(
        java_script_enabled=False, viewport={"width": 390, "height": 844}, color_scheme=scheme
    ).page  # fmt: skip
    base = write_down(page)
    page.get_by_role("link", name="Cost", exact=True).click()
    expect(page.locator("#traffic svg").first).to_be_visible()
    page.goto(f"{base}?of=0.25&faster=2")
    expect(page.locator("#what-if-answer")).to_contain_text("1.14×")
    page.locator("#what-if").get_by_role("button", name="Work it out").click()
    page.wait_for_url(re.compile(r"of=0\.25&faster=2"))
    page.get_by_role("link", name="Kernels", exact=True).click()
    page.get_by_role("link", name="Show the three columns of code").click()
    expect(page.locator("#columns")).to_contain_text("@triton.jit")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("link", name=re.compile("What the compiler makes of it")).click(timeout=90_000)
    page.wait_for_url(re.compile(r"/triton/machine"), timeout=90_000)
    page.locator("#own-0-ptx summary").click()
    expect(page.locator("#own-0-ptx pre")).to_contain_text(".entry")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
