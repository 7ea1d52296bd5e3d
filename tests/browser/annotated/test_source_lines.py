"""Lines that the browser finds in a dropped file, against the lines that the same run had on its own stack."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import annotated
from tests.browser.conftest import Watched
from tests.browser.furnished import upload
from tests.browser.test_accessible import violations

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def trace(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("annotated") / "annotated.json"
    annotated.record(path)
    return upload(server, path)


def opened(page: Page, trace: dict[str, Any], text: str = "") -> Page:
    page.goto(f"/traces/{trace['id']}?tab=source")
    page.wait_for_load_state("networkidle")
    chosen = {"name": annotated.SAMPLE.name, "mimeType": "text/x-python", "buffer": (text or code()).encode()}
    page.locator("#source-files").set_input_files(chosen)
    expect(page.locator(".source-text")).to_be_visible()
    return page


def code() -> str:
    return Path(annotated.SAMPLE).read_text(encoding="utf-8")


def told(page: Page, text: str) -> dict[int, float]:
    """Own time by line as the page's parser has it, of the calls that the page carries."""
    boxes = [json.loads(b.get_attribute("data-source") or "") for b in page.locator("[data-source]").all()]
    calls = next(b["calls"] for b in boxes if b["file"].endswith(annotated.SAMPLE.name))
    lines = page.evaluate(
        "([t, c]) => sourceLines.linesOfCalls(sourceLines.parse(t), c).map((to) => to.line)", [text, calls]
    )
    sums: dict[int, float] = defaultdict(float)
    for call, line in zip(calls, lines, strict=True):
        if call[5]:
            sums[line] += call[7]
    return sums


def test_a_line_has_the_time_that_it_launched_and_no_line_has_anothers(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace)
    assert told(page, code()) == pytest.approx(annotated.true_lines())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("self.gate = nn.Linear(size, 2 * size)", "self.gate = make(size)"),
        ("        self.up = nn.Linear(size, 2 * size)\n", "        setattr(self, 'up', nn.Linear(size, 2 * size))\n"),
        ("x = x + residual", "x = [x + residual for _ in range(1)][0]"),
        ("return self.out(weights @ v)", "return self.out(weights.matmul(v)) if True else self.out(v)"),
    ],
)
def test_what_a_text_does_not_tell_stays_at_the_function(
    open_page: Open, trace: dict[str, Any], before: str, after: str
) -> None:
    page = opened(open_page().page, trace)
    text = code()
    assert before in text
    got, truth = told(page, text.replace(before, after)), annotated.true_lines()
    assert got[0] > 0
    assert all(us <= truth[line] + 0.01 for line, us in got.items() if line)


def test_the_margin_and_the_shares_say_what_is_told_and_nothing_is_sent(open_page: Open, trace: dict[str, Any]) -> None:
    page = open_page().page
    page.goto(f"/traces/{trace['id']}?tab=source")
    page.wait_for_load_state("networkidle")
    said = page.locator("[data-source-told]")
    expect(said).to_have_text("0 % to a line, 100 % to a function, 0 % to neither")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("#source-files").set_input_files(
        {"name": annotated.SAMPLE.name, "mimeType": "text/x-python", "buffer": code().encode()}
    )
    expect(said).to_have_text("100 % to a line, 0 % to a function, 0 % to neither")
    number = next(i for i, line in enumerate(code().splitlines(), 1) if "torch.rsqrt" in line)
    row = page.locator(".source-text tr", has=page.get_by_text(str(number), exact=True))
    expect(row.locator(".margin")).to_contain_text("120 µs")
    for start, words in (("return self.weight * x", " · likely"), ("gate = F.silu(", None)):
        number = next(i for i, line in enumerate(code().splitlines(), 1) if start in line)
        margin = page.locator(".source-text tr", has=page.get_by_text(str(number), exact=True)).locator(".margin")
        if words:
            expect(margin).to_contain_text(words)
        else:
            expect(margin).not_to_contain_text("likely")
    assert asked == []


@pytest.mark.parametrize(
    "look", [{"color_scheme": "light"}, {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}}]
)
def test_axe_has_nothing_against_lines_and_a_phone_scrolls_the_listing_alone(
    open_page: Open, trace: dict[str, Any], look: dict[str, Any]
) -> None:
    page = opened(open_page(**look).page, trace)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
