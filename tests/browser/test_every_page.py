"""What every page has: a header that stays, a phone's menu, shortcuts, a way back from deleting, a shape on paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched
from tests.browser.furnished import RMS_NORM, TRACE, kept_region, upload

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]
PHONE = {"width": 390, "height": 844}
PAGES = ("Analyse", "History", "Checks", "Compare", "Device", "Accuracy", "Learn", "API")


@pytest.fixture(scope="module")
def trace(server: str, data: Path) -> str:
    return f"/traces/{upload(server, data / 'traces' / TRACE)['id']}"


def top_of(page: Page, selector: str) -> float:
    return float(page.locator(selector).evaluate("e => e.getBoundingClientRect().top"))


def test_the_header_stays_in_view_and_covers_no_heading_that_is_jumped_to(open_page: Open) -> None:
    page = open_page(viewport={"width": 1280, "height": 800}).page
    page.goto("/learn")
    page.get_by_role("navigation", name="On this page").get_by_role("link", name="The numbers").click()
    page.wait_for_function("window.scrollY > 500")
    assert top_of(page, ".top") == 0
    head = page.locator(".top").evaluate("e => e.getBoundingClientRect().bottom")
    assert top_of(page, "#numbers") >= head
    page.keyboard.press("Home")


def test_the_skip_link_comes_first_and_is_seen_above_the_header(open_page: Open) -> None:
    page = open_page().page
    page.goto("/history")
    page.keyboard.press("Tab")
    link = page.get_by_role("link", name="To the content")
    expect(link).to_be_focused()
    seen = link.evaluate(
        "e => { const b = e.getBoundingClientRect(); return document.elementFromPoint(b.x + 4, b.y + 4) === e; }"
    )
    assert seen
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")


@pytest.mark.parametrize("scripts", [True, False], ids=["", "without JavaScript"])
def test_a_phones_menu_has_every_page_and_nothing_scrolls_sideways(open_page: Open, scripts: bool) -> None:
    page = open_page(viewport=PHONE, java_script_enabled=scripts).page
    page.goto("/history")
    page.locator("details.menu > summary").click()
    menu = page.get_by_role("navigation", name="All pages")
    for name in PAGES:
        link = menu.get_by_role("link", name=name, exact=True)
        expect(link).to_be_visible()
        box = link.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
        assert box["height"] >= 40, "a finger's size"
    menu.get_by_role("link", name="Device").click()
    expect(page.get_by_role("heading", name="Device", level=1)).to_be_visible()


def test_the_menu_closes_by_escape_and_by_a_touch_elsewhere(open_page: Open) -> None:
    page = open_page(viewport=PHONE).page
    page.goto("/history")
    summary = page.locator("details.menu > summary")
    summary.click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("navigation", name="All pages")).to_be_hidden()
    expect(summary).to_be_focused()
    summary.click()
    page.mouse.click(195, 800)
    expect(page.get_by_role("navigation", name="All pages")).to_be_hidden()


def test_question_mark_lists_the_shortcuts_the_pages_own_too(open_page: Open) -> None:
    page = open_page().page
    page.goto("/history")
    page.evaluate(
        """() => { const b = document.createElement("button"); b.textContent = "+"; b.dataset.shortcut = "w";
        b.dataset.shortcutWhat = "zoom in";
        b.addEventListener("click", () => { window.zoomed = (window.zoomed || 0) + 1; });
        document.querySelector("main").append(b); }"""
    )
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    listed = dict(zip(dialog.locator("dt").all_text_contents(), dialog.locator("dd").all_text_contents(), strict=True))
    assert listed["?"] == "This list"
    assert listed["/"] == "Search on this page"
    assert listed["w"] == "zoom in"
    page.keyboard.press("w")
    assert page.evaluate("window.zoomed") is None, "nothing behind the dialog"
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("w")
    assert page.evaluate("window.zoomed") == 1


def test_a_slash_goes_to_the_search_and_no_shortcut_fires_while_typing(open_page: Open) -> None:
    page = open_page().page
    page.goto("/history")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search names and devices")
    expect(search).to_be_focused()
    page.keyboard.type("a/?b")
    expect(search).to_have_value("a/?b")
    assert page.get_by_role("dialog").count() == 0
    page.goto("/")
    page.locator("#share").focus()
    page.keyboard.press("?")
    assert page.get_by_role("dialog").count() == 0


def test_the_dialog_gives_the_focus_back(open_page: Open) -> None:
    page = open_page().page
    page.goto("/device")
    button = page.get_by_role("button", name="Keyboard shortcuts")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    assert "/" not in dialog.locator("dt").all_text_contents(), "there is no search here"
    dialog.get_by_role("button", name="Close").click()
    expect(button).to_be_focused()


@pytest.mark.parametrize("scripts", [True, False], ids=["", "without JavaScript"])
def test_a_deleted_trace_is_brought_back_by_its_button(open_page: Open, server: str, data: Path, scripts: bool) -> None:
    name = f"deleted {'with' if scripts else 'without'} scripts"
    watched = open_page(java_script_enabled=scripts)
    page = watched.page
    made = upload(server, data / "traces" / TRACE)
    page.goto("/history")
    row = page.locator(f"tr[id='{made['id']}']")
    row.locator("summary").click()
    row.get_by_role("textbox").fill(name)
    row.get_by_role("button", name="Rename").click()
    expect(row.get_by_role("link", name=name)).to_be_visible()
    row.locator("summary").click()
    row.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    note = page.locator("#undo")
    expect(note).to_contain_text(f"{name} is deleted")
    note.get_by_role("button").click()
    expect(page).to_have_url(re.compile(f"/traces/{made['id']}$"))
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def test_a_table_is_saved_as_the_page_shows_it(open_page: Open) -> None:
    page = open_page(accept_downloads=True).page
    page.goto("/device")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV: gpus").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()
    assert download.value.suggested_filename == "tritonworthy-gpus.csv"
    assert lines[0].startswith("Device,Arch,Memory")
    assert len(lines) - 1 == page.locator("#table tbody tr").count()


def test_links_are_copied_as_they_stand(open_page: Open, server: str) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"]).page
    page.goto("/history?q=norm")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == f"{server}/history?q=norm"
    page.goto("/?share_of_step=0.3")
    page.locator("#uniqueness").fill("0.9")
    expect(page.locator("#widget-answer [data-here]")).to_have_attribute("href", re.compile("uniqueness=0.9"))
    page.get_by_role("button", name="Copy the link to this answer").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"{server}/?") and "uniqueness=0.9" in copied and copied.endswith("#widget")


def test_on_paper_there_is_no_header_and_what_is_folded_is_read(open_page: Open, trace: str) -> None:
    page = open_page().page
    for path in ("/history", trace):
        page.goto(path)
        page.emulate_media(media="print")
        expect(page.locator(".top")).to_be_hidden()
        expect(page.locator(".foot")).to_be_hidden()
        assert page.locator("main button:visible, main form:visible").count() == 0
        page.emulate_media(media="screen")
    page.goto("/learn")
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
    page.emulate_media(media="print")
    hidden = page.evaluate(
        """() => Array.from(document.querySelectorAll("main details > p, main details > .scroll"))
        .filter((e) => getComputedStyle(e.parentElement).display !== "none" && !e.checkVisibility()).length"""
    )
    assert hidden == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_the_word_on_a_rows_button_stays_inside_of_it(open_page: Open, trace: str, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 800}).page
    page.goto("/history?kind=trace")
    page.locator(".row-menu summary").first.click()
    room = page.get_by_role("button", name="Rename").first.evaluate(
        "e => { const words = document.createRange(); words.selectNodeContents(e); "
        "return e.getBoundingClientRect().right - words.getBoundingClientRect().right; }"
    )
    assert room > 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("path", ["trace", "region", "/history"])
def test_a_pdf_is_made_of_it_on_few_sheets(open_page: Open, server: str, trace: str, path: str) -> None:
    page = open_page().page
    page.goto({"trace": trace, "region": kept_region(server, RMS_NORM)}.get(path, path))
    page.wait_for_load_state("networkidle")
    sheets = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert 1 <= sheets <= 25
