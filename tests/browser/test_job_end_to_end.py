"""The whole job in a real browser: upload, read the advice, validate; and the same without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

POINTWISE = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"

MARKS = ".drawn .point, .drawn .bars rect, .drawn polyline, .main-svg .point, .main-svg .points path"
"""Of charts that the server draws, and of those that Plotly does."""


def drawn(page: Page) -> None:
    """Every visible chart has marks, and none offers to upload itself."""
    charts = page.locator(".plot:visible")
    assert charts.count() > 0
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator(MARKS).first).to_be_attached()
    assert page.locator(".modebar-btn").count() == 0


def upload(page: Page, path: Path) -> None:
    page.goto("/")
    page.set_input_files("#file", path)
    page.wait_for_url(re.compile(r"/traces/[a-z0-9]{26}$"))
    expect(page.get_by_role("heading", name="Regions", exact=True)).to_be_visible()


def test_upload_read_validate(open_page: Open, handrolled: Path) -> None:
    page = open_page().page
    upload(page, handrolled)
    expect(page.locator("#trace-glance")).to_contain_text("136 kernels")
    names = page.locator("#region-list tbody th a").all_inner_texts()
    text = " ".join(names).lower()
    assert "rmsnorm" in text
    assert "attention" in text
    assert "gelu" in text
    page.locator("#to-where").click()
    expect(page.locator("#tab-where")).to_be_visible()
    drawn(page)
    page.locator("#to-notes").click()
    expect(page.locator("#tab-notes")).to_contain_text("Kernels matched to operators: 100 %")
    page.locator("#to-regions").click()

    page.locator("#region-list tbody th a", has_text=re.compile("RMSNorm", re.I)).first.click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))
    expect(page.locator(".verdict")).to_be_visible()
    page.get_by_role("link", name="Cost", exact=True).click()
    expect(page.locator("#roofline .plot")).to_be_visible()
    drawn(page)

    page.get_by_role("button", name="Validate").click()
    expect(page.locator("#job")).to_be_visible()
    result = page.locator("#validation-result")
    expect(result).to_be_visible(timeout=80_000)
    expect(result.locator("h2")).to_have_text(re.compile("Confirmed|Overturned|Tie|Unmeasured"))
    assert "/regions/" in page.url, "the result came into the page by itself"
    page.reload()
    expect(page.locator("#validation-result")).to_be_visible()
    page.locator("#validation-result").get_by_role("link", name="View all").click()
    expect(page.get_by_role("heading", name="How it was measured")).to_be_visible()


def test_widget_answers_without_a_page_load(open_page: Open) -> None:
    page = open_page().page
    page.goto("/")
    page.evaluate("window.stayed = true")
    answer = page.locator("#widget-answer")

    for name, value in {"share_of_step": "0.002", "uniqueness": "0.95", "irregularity": "0.9"}.items():
        page.fill(f"#{name}", value)
    expect(answer.locator(".tool")).to_contain_text("Leave it")
    page.fill("#share_of_step", "0.3")
    page.select_option("#bound", "memory")
    page.select_option("#kind", "custom")
    expect(answer.locator(".tool")).to_contain_text("Triton")
    assert page.evaluate("window.stayed") is True
    address = answer.get_by_role("link", name="Link to this answer")
    expect(address).to_have_attribute("href", re.compile("bound=memory.*kind=custom"))
    link = address.get_attribute("href")
    assert link
    page.goto(link)
    expect(answer.locator(".tool")).to_contain_text("Triton")
    assert page.locator("#uniqueness").input_value() == "0.95"


def test_a_pasted_region_and_the_caret_under_its_mistake(open_page: Open) -> None:
    watched = open_page()
    watched.expected = (422,)
    page = watched.page
    page.goto("/")
    page.fill("#text", POINTWISE.replace("gelu", "gelo"))
    page.get_by_role("button", name="Advise").click()
    error = page.locator("#region-error")
    expect(error).to_contain_text("gelo")
    expect(error.locator("pre")).to_contain_text("^^^^")
    expect(error).to_contain_text("gelu")

    page.fill("#text", POINTWISE)
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))
    page.get_by_role("link", name="Cost", exact=True).click()
    expect(page.locator("#roofline .plot")).to_be_visible()
    drawn(page)

    # Editing costs again, in place; a mistake leaves the last analysis and says where it is.
    page.evaluate("window.stayed = true")
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", POINTWISE.replace("y = gelu(x) * 2", "y = gelu(x) * 2 + x"))
    expect(page.locator("#tab-panel")).to_contain_text("+")
    drawn(page)
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", POINTWISE.replace("return y", "return q"))
    expect(error).to_contain_text("q")
    expect(page.locator("#operations table")).to_be_visible()
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", POINTWISE)
    expect(error).to_be_empty()
    assert page.evaluate("window.stayed") is True


def test_a_file_that_is_no_trace_has_a_page_that_says_so(open_page: Open, tmp_path: Path) -> None:
    page = open_page().page
    path = tmp_path / "letter.json"
    path.write_text("Dear profiler,")
    page.goto("/")
    page.set_input_files("#file", path)
    expect(page.locator(".note.error")).to_contain_text("JSON")
    page.get_by_role("link", name="Upload another").click()
    expect(page.get_by_role("heading", name="Should I write a Triton kernel for this?")).to_be_visible()


@pytest.mark.parametrize("path", ["/compare", "/history", "/device", "/accuracy", "/learn", "/api", "/no-such-page"])
def test_every_page_is_whole(open_page: Open, path: str) -> None:
    watched = open_page()
    watched.expected = (404,)
    page = watched.page
    page.goto(path)
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_phone_width_and_dark_theme(open_page: Open) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, color_scheme="dark").page
    page.goto("/learn")
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    tick = page.locator(".plot .ytick text").first.evaluate("e => getComputedStyle(e).fill")
    assert tick == page.evaluate("getComputedStyle(document.body).color")


def test_without_javascript(open_page: Open, handrolled: Path) -> None:
    page = open_page(java_script_enabled=False).page
    page.goto("/")
    page.set_input_files("#file", handrolled)
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url(re.compile(r"/traces/"))
    expect(page.locator("#region-list tbody th a").first).to_be_visible(timeout=30_000)

    page.goto("/?share_of_step=0.002&uniqueness=0.9&irregularity=0.9")
    expect(page.locator("#widget-answer .tool")).to_contain_text("Leave it")

    page.fill("#text", POINTWISE)
    page.get_by_role("button", name="Advise").click()
    expect(page.locator(".verdict")).to_be_visible()
    # Numbers without charts: every chart has its table.
    assert page.locator("figure.chart").count() == page.locator("figure.chart details table").count()
    page.get_by_role("button", name="Validate").click()
    page.wait_for_url(re.compile(r"/validations/"))
    expect(page.locator("#validation-result")).to_be_visible(timeout=80_000)


def test_names_with_markup_stay_text(open_page: Open, tmp_path: Path) -> None:
    """A trace whose every name is markup: shown as it is, nothing runs."""
    evil = "</script><img src=x onerror=alert(1)><a href=javascript:alert(2)>k</a>"
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000},
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::gelu",
            "pid": 1,
            "tid": 1,
            "ts": 10,
            "dur": 100,
            "args": {"External id": 1, "Input Dims": [[64, 64]], "Input type": ["float"]},
        },
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 20,
            "dur": 5,
            "args": {"correlation": 7},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": evil,
            "pid": 0,
            "tid": 7,
            "ts": 30,
            "dur": 500,
            "args": {"correlation": 7, "device": 0, "stream": 7},
        },
    ]
    import json

    path = tmp_path / (evil.replace("/", "") + ".json")
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    page = open_page().page
    dialogs: list[str] = []
    page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss()))
    upload_any(page, path)
    expect(page.locator("h1")).to_contain_text("onerror=alert(1)")
    assert page.locator("h1 img, h1 a, .plot a").count() == 0
    assert dialogs == []


def upload_any(page: Page, path: Path) -> None:
    page.goto("/")
    page.set_input_files("#file", path)
    page.wait_for_url(re.compile(r"/traces/[a-z0-9]{26}$"))
    page.wait_for_load_state("networkidle")
