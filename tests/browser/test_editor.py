"""The editor of a region's text: colours, completion, errors in place, answers of another text, linked lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched, running
from tests.browser.furnished import kept_region
from tests.browser.test_accessible import LOOKS, violations
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

EXAMPLE = (ROOT / "app" / "examples" / "gemm_gelu_mask.txt").read_text(encoding="utf-8")
LINES = EXAMPLE.rstrip().split("\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the oracle, in place of the session's: lines are linked with Inductor's kernels."""
    with running(tmp_path_factory.mktemp("editor"), TRITONWORTHY_ORACLE_TIMEOUT_S="60") as base:
        yield base


@pytest.fixture(scope="module")
def region(server: str) -> str:
    return kept_region(server, EXAMPLE)


def opened(page: Page, path: str) -> Page:
    """The page, with its editor there."""
    page.goto(path)
    page.locator("#text").scroll_into_view_if_needed()
    expect(page.locator(".cm-content")).to_be_visible()
    return page


def at_end_of(page: Page, line: int) -> None:
    """The cursor at the end of a line of the text."""
    page.locator(".cm-line").nth(line - 1).click()
    page.keyboard.press("End")


def test_the_text_has_its_colours_and_line_numbers(open_page: Open, region: str) -> None:
    page = opened(open_page().page, region)
    first = page.locator(".cm-line").first
    expect(first.locator(".r-defined")).to_have_text("x")
    expect(first.locator(".r-type")).to_have_text("bf16")
    expect(first.locator(".r-number")).to_have_text(["8192", "4096"])
    expect(page.locator(".cm-line", has_text="gelu").locator(".r-function")).to_have_text("gelu")
    expect(page.locator(".cm-line", has_text="return").locator(".r-keyword")).to_have_text("return")
    numbers = [int(n) for n in page.locator(".cm-lineNumbers .cm-gutterElement").all_inner_texts() if n]
    assert numbers[-len(LINES) :][0] >= 1 and {1, len(LINES)} <= set(numbers)
    look = "e => [getComputedStyle(e).color, getComputedStyle(e).fontFamily]"
    colour, family = first.locator(".r-type").evaluate(look)
    assert colour != first.evaluate(look)[0]
    assert "mono" in family


def test_the_editor_comes_only_when_its_field_comes_near(open_page: Open) -> None:
    watched = open_page(viewport={"width": 390, "height": 700})
    page = watched.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    page.wait_for_load_state("networkidle")
    assert not any("codemirror" in url or "vocabulary" in url for url in asked)
    page.locator("#region").scroll_into_view_if_needed()
    expect(page.locator(".cm-editor")).to_be_visible()
    assert sum("codemirror" in url for url in asked) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_names_of_the_language_and_of_the_text_are_completed(open_page: Open, region: str) -> None:
    watched = open_page()
    page = opened(watched.page, region)
    at_end_of(page, 8)
    page.keyboard.type("\nv = gel")
    offered = page.get_by_role("listbox").get_by_role("option")
    expect(offered.first).to_contain_text("gelu")
    expect(offered.first).to_contain_text("(input, approximate=...)")
    page.wait_for_timeout(150)  # CodeMirror takes no key for a list that opened within the last 75 ms
    page.keyboard.press("Tab")
    expect(page.locator(".cm-line").nth(8)).to_have_text("v = gelu")
    page.keyboard.type("(mas")
    expect(offered.first).to_contain_text("mask")
    page.wait_for_timeout(150)
    page.keyboard.press("Enter")
    page.keyboard.type(").ama")
    expect(offered.first).to_contain_text("amax(dim=..., keepdim=...)")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    at_end_of(page, 1)
    page.keyboard.type("\nc: f8")
    expect(offered).to_have_count(3)  # two with a mantissa, and the scales of blocks


def test_tab_leaves_the_editor_and_control_enter_asks(open_page: Open, region: str) -> None:
    page = opened(open_page().page, region)
    at_end_of(page, 2)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "share"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.classList.contains('cm-content')")
    with page.expect_response(re.compile("/regions/preview")) as answer:
        page.keyboard.press("Control+Enter")
    assert answer.value.ok
    home = opened(open_page().page, "/")
    home.locator(".cm-content").click()
    home.keyboard.press("Control+Enter")
    expect(home).to_have_url(re.compile("/regions/[a-z0-9]{26}"))


def test_an_error_is_underlined_where_it_is_and_the_old_advice_says_whose_it_is(open_page: Open, region: str) -> None:
    watched = open_page()
    page = opened(watched.page, region)
    verdict = page.locator("#verdict")
    at_end_of(page, 8)
    page.keyboard.type(" + nothing")
    expect(verdict).to_have_class(re.compile("stale"))
    wrong = page.locator(".r-wrong")
    expect(wrong).to_have_text("nothing")
    expect(page.locator(".cm-content")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#region-error")).to_contain_text("Line 8")
    expect(verdict).to_contain_text(f"This advice is for the text before your edit, where line 8 is {LINES[7]}")
    expect(verdict).not_to_have_attribute("aria-busy", "true")
    assert violations(page) == []
    page.get_by_role("button", name="Back to that text").click()
    expect(page.locator(".cm-line").nth(7)).to_have_text(LINES[7])
    expect(verdict).not_to_have_class(re.compile("stale"))
    expect(wrong).to_have_count(0)
    expect(page.locator(".cm-content")).to_have_attribute("aria-invalid", "false")


def test_the_answer_is_dim_from_the_first_letter_until_it_is_the_texts(open_page: Open, region: str) -> None:
    page = opened(open_page().page, region)
    verdict, panel = page.locator("#verdict"), page.locator("#tab-panel")
    assert verdict.get_attribute("aria-busy") is None
    at_end_of(page, 8)
    page.keyboard.press("Space")
    page.keyboard.type("*")
    dim = "e => e.classList.contains('stale') && e.getAttribute('aria-busy')"
    assert [part.evaluate(dim) for part in (verdict, panel)] == ["true", "true"]
    with page.expect_response(re.compile("/regions/preview")):
        page.keyboard.type(" 2")
    expect(verdict).not_to_have_class(re.compile("stale"))
    assert verdict.get_attribute("aria-busy") is None
    page.fill("#text", EXAMPLE.replace("gelu", "relu"))
    expect(page.locator("#region-name")).to_contain_text("ReLU")
    assert "ReLU" in page.title()
    expect(verdict).not_to_have_class(re.compile("stale"))
    page.select_option("#device", "NVIDIA L4")
    expect(verdict).to_have_class(re.compile("stale"))
    expect(verdict).to_contain_text(re.compile(r"predicted\s+for NVIDIA L4"))
    expect(verdict).not_to_have_class(re.compile("stale"))


def test_a_line_marks_the_kernels_that_compute_it_and_a_kernel_its_lines(open_page: Open, region: str) -> None:
    page = opened(open_page().page, f"{region}?tab=all")
    kernel = page.locator("#oracle li.kernel[data-lines='6 7 8']").first
    expect(kernel).to_be_attached()
    expect(page.locator("#columns .part").last).to_be_attached()
    page.locator(".cm-line").nth(6).hover()
    expect(kernel).to_have_class(re.compile("linked"))
    expect(page.locator("#columns .part.linked").first).to_be_attached()
    page.locator(".cm-line").nth(1).hover()
    expect(kernel).not_to_have_class(re.compile("linked"))
    kernel.locator("summary").focus()
    expect(page.locator(".cm-line.r-linked")).to_have_text(LINES[5:8])
    page.locator("#columns .part").last.focus()
    expect(page.locator("#columns span[data-lines='7'].linked")).to_have_count(1)
    at_end_of(page, 5)  # by the cursor, without a pointer over the text
    page.mouse.move(2, 2)
    page.keyboard.press("ArrowDown")
    expect(kernel).to_have_class(re.compile("linked"))


def test_after_an_edit_the_page_shows_what_changed_in_generated_code(open_page: Open, region: str) -> None:
    page = opened(open_page().page, f"{region}?tab=compiler")
    page.fill("#text", EXAMPLE.replace("gelu", "relu"))
    changed = page.locator("#code-changes .diff")
    expect(changed).to_have_count(2)
    expect(changed.first.locator(".removed", has_text="erf").first).to_be_visible()
    expect(changed.first.locator(".added", has_text="relu").first).to_be_visible()
    assert violations(page) == []
    page.fill("#text", EXAMPLE)
    expect(page.locator("#code-changes .diff")).to_have_count(0)


def test_a_short_link_is_made_in_place_and_opens_elsewhere(open_page: Open, region: str) -> None:
    page = opened(open_page().page, region)
    page.fill("#text", EXAMPLE.replace("gelu", "tanh"))
    page.get_by_role("button", name="Short link").click()
    address = page.locator("#short-link pre").inner_text()
    assert page.url == address
    fresh = open_page().page
    fresh.goto(address)
    assert "tanh" in fresh.locator("#text").input_value()
    watched = open_page()
    watched.expected = (404,)
    watched.page.goto("/r/aaaaaaaa")
    expect(watched.page.locator("h1")).to_have_text("This short link leads to no text")


def test_without_scripts_the_textarea_is_typed_into_and_sent(open_page: Open, region: str) -> None:
    watched = open_page(java_script_enabled=False)
    watched.expected = (422,)
    page = watched.page
    page.goto(region)
    area = page.locator("#text")
    assert area.bounding_box()["height"] > 100  # type: ignore[index]
    area.fill(EXAMPLE.replace("gelu", "relu"))
    page.get_by_role("button", name="Short link").click()
    assert re.search("/r/[0-9A-Za-z]{8}$", page.url)
    assert "relu" in page.locator("#text").input_value()
    page.goto("/")
    page.locator("#text").fill("x: f32[8]\ny = gelo(x)\nreturn y\n")
    page.get_by_role("button", name="Advise").click()
    expect(page.locator("#region-error")).to_contain_text("Line 2")


@pytest.mark.parametrize("look", sorted(LOOKS))
def test_the_editor_with_its_list_open_breaks_no_rule_of_accessibility(open_page: Open, region: str, look: str) -> None:
    watched = open_page(**LOOKS[look])
    page = opened(watched.page, region)
    at_end_of(page, 8)
    page.keyboard.type("\nv = so")
    expect(page.get_by_role("listbox")).to_be_visible()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
