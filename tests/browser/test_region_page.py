"""The region's page with the oracle on: everything that its address, its charts and its buttons promise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from app.archive import record_store
from tests.browser.conftest import Watched, running
from tests.browser.furnished import kept_region
from tests.browser.test_accessible import LOOKS, violations
from tests.browser.test_region_parts import slide
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]
Kept = Callable[[str], str]

EXAMPLE = (ROOT / "app" / "examples" / "gemm_gelu_mask.txt").read_text(encoding="utf-8")
ATTENTION = (ROOT / "app" / "examples" / "attention_by_hand.txt").read_text(encoding="utf-8")
"""Its check by Triton's interpreter takes long enough to be cancelled."""
RMS_NORM = (ROOT / "app" / "examples" / "rms_norm_by_hand.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the oracle, in place of the session's."""
    with running(tmp_path_factory.mktemp("region"), TRITONWORTHY_ORACLE_TIMEOUT_S="60") as base:
        yield base


@pytest.fixture(scope="module")
def kept(server: str) -> Kept:
    """The path of a region with this text; each is written down once."""
    known: dict[str, str] = {}

    def path(text: str) -> str:
        if text not in known:
            known[text] = kept_region(server, text)
        return known[text]

    return path


def edited(page: Page, text: str) -> None:
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", text)


def test_no_violation_where_the_oracle_answered_nor_on_a_kernels_own_page(open_page: Open, kept: Kept) -> None:
    page = open_page(**LOOKS["light"]).page
    region = kept(EXAMPLE)
    page.goto(f"{region}?tab=all")
    expect(page.locator("#oracle")).to_contain_text("4 launches → 2")
    expect(page.locator("#columns")).to_contain_text("@triton.jit", timeout=60_000)
    kernel = page.locator("#k-default-1").get_by_role("link", name=re.compile("What the compiler decides"))
    path = str(kernel.get_attribute("href"))
    for look in (LOOKS["light"], LOOKS["dark phone"]):
        shown = open_page(**look).page
        shown.goto(path, timeout=90_000)
        expect(shown.locator(".machine")).to_contain_text("Registers a thread")
        assert violations(shown) == [], look
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), look
        shown.goto(f"{region}?tab=all")
        shown.wait_for_load_state("networkidle")
        assert violations(shown) == [], look


@pytest.mark.parametrize(
    ("part", "tab"),
    [
        ("traffic", "cost"), ("roofline", "cost"), ("what-if", "cost"), ("oracle", "compiler"), ("code", "kernels"),
        ("landscape", "landscape"), ("criteria", "evidence"), ("devices", "devices"), ("k-default-1", "compiler"),
    ],
)  # fmt: skip
def test_a_link_to_a_part_opens_the_tab_that_holds_it(open_page: Open, kept: Kept, part: str, tab: str) -> None:
    page = open_page().page
    page.goto(kept(RMS_NORM))
    expect(page.locator("#oracle-asker")).to_have_count(0)  # Inductor has answered
    assert page.locator("#tab-panel").inner_text() == "", "no tab is opened unasked"
    page.goto(f"{kept(RMS_NORM)}#{part}")
    expect(page.locator(f"#{part}")).to_be_in_viewport()
    expect(page.locator("#region-tabs [aria-current]")).to_have_id(f"tab-{tab}")
    expect(page).to_have_url(re.compile(rf"\?tab={tab}#{part}$"))


def test_tabs_open_in_place_go_back_and_need_no_script(open_page: Open, kept: Kept) -> None:
    page = open_page().page
    page.goto(kept(RMS_NORM))
    page.evaluate("window.stayed = true")
    tab = page.get_by_role("navigation", name="Details").get_by_role("link", name="Cost")
    tab.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#traffic")).to_be_visible()
    expect(page.locator("#tab-cost")).to_be_focused()
    page.locator("#why").get_by_role("link", name=re.compile("All criteria")).click()
    expect(page.locator("#criteria")).to_be_in_viewport()
    expect(page.locator("#traffic")).to_have_count(0)
    assert page.evaluate("window.stayed") is True
    page.go_back()
    expect(page.locator("#traffic")).to_be_visible()
    plain = open_page(java_script_enabled=False).page
    plain.goto(kept(RMS_NORM))
    for name, part in (("Cost", "#traffic"), ("Evidence", "#criteria"), ("View all", "#devices")):
        plain.get_by_role("navigation", name="Details").get_by_role("link", name=name).click()
        expect(plain.locator(part)).to_be_visible()


@pytest.mark.parametrize("text", [EXAMPLE, ATTENTION, RMS_NORM])
def test_the_answer_fits_three_screens_and_comes_before_the_editor_on_a_phone(
    open_page: Open, kept: Kept, text: str
) -> None:
    page = open_page(viewport={"width": 1280, "height": 800}).page
    page.goto(kept(text))
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 800
    assert page.locator("script[src*=plotly]").count() == 0, "the first screen needs no chart library"
    phone = open_page(viewport={"width": 390, "height": 844}).page
    phone.goto(kept(text))
    boxes = [phone.locator(place).bounding_box() for place in ("#verdict .verdict h2", "#options", "#region-form")]
    tops = [box["y"] for box in boxes if box]
    assert tops == sorted(tops) and len(tops) == 3 and tops[0] < 844
    clipped = phone.evaluate(
        """() => Array.from(document.querySelectorAll("#verdict .code pre, #options th, #options td.n"))
          .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)"""
    )
    assert clipped == []


def test_the_nearest_landscape_marks_what_was_chosen_and_says_how_to_make_ones_own(open_page: Open, kept: Kept) -> None:
    page = open_page().page
    page.goto(f"{kept(EXAMPLE)}?tab=landscape")
    part = page.locator("#landscape")
    expect(part).to_contain_text("The nearest on record: triton:matmul_epilogue")
    expect(part).to_contain_text("from elsewhere: NVIDIA H200")
    part.locator(".plot").first.scroll_into_view_if_needed()
    expect(part.locator(".plot .hm").first).to_be_attached()
    expect(part.locator(".legend")).to_contain_text("chosen")
    part.get_by_text("The same numbers as a table").click()
    expect(part.locator("tr.best")).to_have_count(1)
    expect(part.locator("tr.best")).to_contain_text("chosen")
    part.get_by_text("Make one of this region").click()
    expect(part.locator(".code pre")).to_contain_text("tritonworthy landscape region.txt --candidate triton:")
    # Another region, another kernel; what its tuner tried as bars.
    edited(page, RMS_NORM)
    expect(part).to_contain_text("triton:rms_norm")
    expect(part.locator(".plot .bars rect").first).to_be_attached()


def test_parts_are_told_apart_without_colour(open_page: Open, kept: Kept) -> None:
    page = open_page().page
    page.goto(f"{kept(EXAMPLE)}?tab=cost")
    bars = page.locator("#cost .drawn.wide .bars rect")
    expect(bars.first).to_be_attached()
    fills = page.evaluate(
        """() => Array.from(document.querySelectorAll("#cost .drawn.wide .bars rect"))
          .map((e) => getComputedStyle(e).fill)"""
    )
    assert sum("url(" in f for f in fills) >= 3
    shapes = page.evaluate(
        """() => Array.from(document.querySelectorAll("#effort .drawn.wide .point"))
          .map((e) => e.tagName + (e.points ? e.points.length : ""))"""
    )
    assert len(set(shapes)) >= 3, "eager, torch.compile and Triton have one shape each"


def test_names_in_predicted_against_measured_are_whole_and_each_once(open_page: Open, kept: Kept) -> None:
    record = next(
        r for r in record_store.records() if sum(len(c["name"]) > 30 for c in r["candidates"] if c["time_us"]) > 1
    )
    page = open_page().page
    page.goto(f"{kept(record['region'])}?tab=evidence")
    part = page.locator("#foretold")
    names = part.locator(".drawn.wide .ytick text").all_text_contents()
    timed = [c for c in record["candidates"] if c["time_us"]]
    assert 1 < len(names) <= len(timed)
    assert len(set(names)) == len(names)
    assert not [n for n in names if re.search(r"\(\d\)$", n)]
    part.get_by_text("The same numbers as a table").click()
    assert len(names) == part.locator("tbody tr").count()


def test_a_mistake_is_shown_under_the_text_and_the_last_analysis_stays(open_page: Open, kept: Kept) -> None:
    watched = open_page()
    watched.expected = (422,)
    page = watched.page
    page.goto(kept(EXAMPLE))
    before = page.locator("#verdict .from-to").inner_text()
    edited(page, EXAMPLE.replace("gelu", "gelo"))
    error = page.locator("#region-error")
    expect(error).to_contain_text("gelo")
    marked, caret = error.locator("pre").inner_text().split("\n")[:2]
    assert marked[caret.index("^") :].startswith("gelo")
    assert page.locator("#verdict .from-to").inner_text() == before
    under = page.evaluate(
        """() => { const box = (s) => document.querySelector(s).getBoundingClientRect();
        const text = document.querySelector(".cm-editor") ? ".cm-editor" : "#text";
        return box("#region-error").top - box(text).bottom; }"""
    )
    assert 0 <= under < 24
    edited(page, EXAMPLE.replace("8192, 4096", "64, 4096").replace("8192, 16384", "64, 16384"))
    expect(error).to_be_empty()
    expect(page.locator("#verdict")).not_to_contain_text(before)


def test_a_permalink_holds_text_fields_and_sliders_in_a_fresh_browser(open_page: Open, kept: Kept) -> None:
    page = open_page().page
    page.goto(f"{kept(EXAMPLE)}?tab=cost")
    text = EXAMPLE.replace("gelu", "silu")
    edited(page, text)
    page.fill("#calls", "3")
    page.select_option("#device", "NVIDIA A100")
    page.get_by_role("button", name="Permalink").click()
    page.wait_for_url(re.compile(r"/region\?text="))
    page.wait_for_load_state("networkidle")
    slide(page, "#wi-faster", "2.5")
    expect(page).to_have_url(re.compile(r"faster=2\.5"))
    for options in ({}, {"java_script_enabled": False}):
        fresh = open_page(**options).page
        fresh.goto(page.url)
        assert fresh.locator("#text").input_value().split() == text.split()
        assert fresh.locator("#calls").input_value() == "3"
        assert fresh.locator("#share").input_value() == "12"
        assert fresh.locator("#device").input_value() == "NVIDIA A100"
        assert fresh.locator("#wi-faster").input_value() == "2.5"
        assert fresh.locator("#what-if-answer").inner_text() == page.locator("#what-if-answer").inner_text()
        # Its figure changes as soon as Inductor has answered, in one browser before the other.
        verdicts = [p.locator("#verdict .verdict h2").inner_text() for p in (fresh, page)]
        assert verdicts[0] == verdicts[1] != ""


def test_a_slider_that_was_moved_stays_when_inductor_has_answered(open_page: Open, kept: Kept) -> None:
    page = open_page().page
    asked: list[Route] = []
    page.route("**/oracle", lambda route: asked.append(route))
    page.goto(f"{kept(EXAMPLE)}?tab=cost")
    edited(page, EXAMPLE.replace("gelu", "relu").replace("16384", "8192"))
    expect(page.locator("#oracle-asker")).to_be_visible()
    slide(page, "#wi-faster", "1.75")
    expect(page.locator("#what-if-answer")).to_contain_text("1.75×")
    (waiting,) = asked
    waiting.continue_()
    expect(page.locator("#oracle-asker")).to_have_count(0)
    assert page.locator("#wi-faster").input_value() == "1.75"
    expect(page.locator("output[for=wi-faster]")).to_have_text("1.75×")
    expect(page.locator("#what-if-answer")).to_contain_text("1.75×")


def test_a_validation_is_followed_cancelled_and_run_again(open_page: Open, kept: Kept) -> None:
    page = open_page().page
    page.goto(kept(ATTENTION))
    page.evaluate("window.stayed = true")
    page.get_by_role("button", name="Validate").click()
    job = page.locator("#job")
    expect(job).to_contain_text(re.compile("Validating|Waiting for its turn"))
    expect(job.locator("progress")).to_be_visible()
    job.get_by_role("button", name="Cancel").click()
    expect(job).to_contain_text("Cancelled")
    expect(job).to_contain_text("run it again")
    job.get_by_role("button", name="Run it again").click()
    expect(job.locator("#job-state")).to_have_text("Validating", timeout=60_000)
    expect(job.locator("strong")).not_to_have_text(re.compile("queued|running"), timeout=60_000)  # a phase by name
    job.get_by_role("button", name="Cancel").click()
    expect(job).to_contain_text("Cancelled")
    assert page.evaluate("window.stayed") is True
    # Its own page has the button too, and follows it to the new validation's address.
    job.get_by_role("link", name="Its page").click()
    page.wait_for_url(re.compile(r"/validations/[a-z0-9]{26}$"))
    old = page.url
    page.get_by_role("button", name="Run it again").click()
    page.wait_for_url(lambda url: "/validations/" in url and url != old)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#job")).to_contain_text("Cancelled")
