"""The widget in a browser: a slider is answered at once, by what the server would say; and without JavaScript."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from app.web.labels import WIDGET_PRESETS
from tests.browser.conftest import Watched

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

SLIDERS = {"share_of_step": 0.005, "uniqueness": 0.01, "irregularity": 0.01}
LIMIT_MS = 50.0

MOVE = """([name, value]) => new Promise((done) => {
  const slider = document.getElementById(name), answer = document.getElementById("widget-answer");
  const seen = () => answer.innerText.includes("Because") && answer.querySelector("svg .advised") !== null;
  slider.value = value;
  const started = performance.now();
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  const told = performance.now() - started, there = seen();
  requestAnimationFrame(() => setTimeout(() => done([told, performance.now() - started, there]), 0));
})"""


def ready(page: Page, query: str = "") -> None:
    """The page with its table of answers."""
    with page.expect_response("**/widget/table?*"):
        page.goto(f"/{query}")
    page.wait_for_function("document.readyState === 'complete'")


def moved(page: Page, name: str, value: float) -> tuple[float, float]:
    """Milliseconds until the answer is in the document, and in view. A move that something else on a busy machine may
    have held up is made again: the least of its times is what it takes."""
    told, painted = [], []
    for _ in range(30):
        in_dom, in_view, there = page.evaluate(MOVE, [name, str(value)])
        assert there
        told.append(in_dom)
        painted.append(in_view)
        if max(min(told), min(painted)) < LIMIT_MS:
            break
    return min(told), min(painted)


def answer_text(page: Page) -> str:
    return " ".join(page.locator("#widget-answer").evaluate("e => e.textContent").split())


def test_every_move_of_a_slider_is_answered_within_fifty_milliseconds(
    open_page: Open, record_property: Callable[[str, object], None]
) -> None:
    page = open_page().page
    ready(page)
    page.wait_for_timeout(300)
    chance = random.Random(7)
    told, painted = [], []
    for _ in range(50):
        name = chance.choice(list(SLIDERS))
        value = chance.choice([0.0, 0.005, 0.02, 0.3, 0.34, 0.5, 0.67, 0.9, chance.random()])
        in_dom, in_view = moved(page, name, value)
        told.append(in_dom)
        painted.append(in_view)
    figures = {
        "dom_ms": [statistics.median(told), max(told)], "painted_ms": [statistics.median(painted), max(painted)],
    }  # fmt: skip
    record_property("widget", json.dumps(figures))
    print(figures)
    assert max(told) < LIMIT_MS, figures
    assert statistics.median(painted) < LIMIT_MS, figures


def test_what_is_looked_up_is_what_the_server_answers(open_page: Open) -> None:
    watched = open_page()
    page = watched.page
    chance = random.Random(11)
    for kind, bound in (("", ""), ("gemm", "compute"), ("elementwise", "memory"), ("custom", "memory")):
        ready(page, f"?{urlencode({'kind': kind, 'bound': bound})}")
        page.wait_for_timeout(200)
        for _ in range(8):
            answers = {n: round(chance.randrange(round(1 / s) + 1) * s, 3) for n, s in SLIDERS.items()}
            if chance.random() < 0.3:
                answers["share_of_step"] = 0.005
            for name, value in answers.items():
                page.fill(f"#{name}", str(value))
            shown = answer_text(page)
            query = urlencode({**answers, "kind": kind, "bound": bound})
            server = page.request.get(f"/widget?{query}", headers={"HX-Request": "true"}).text()
            wanted = page.evaluate(
                "html => { const e = document.createElement('div'); e.innerHTML = html; return e.textContent; }", server
            )
            assert shown == " ".join(wanted.split()), answers


def test_a_moved_slider_asks_the_server_for_nothing(open_page: Open) -> None:
    page = open_page().page
    ready(page)
    page.wait_for_timeout(300)
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    for value in ("0.9", "0.1", "0.5"):
        page.fill("#uniqueness", value)
    page.wait_for_timeout(300)
    assert asked == []
    page.select_option("#kind", "attention")
    expect(page.locator("#widget-answer")).to_contain_text("attention")
    assert any("/widget/table?" in url for url in asked)


def test_without_the_table_the_server_is_asked(open_page: Open) -> None:
    watched = open_page()
    watched.expected = (503,)
    page = watched.page
    page.route("**/widget/table?*", lambda route: route.fulfill(status=503))
    page.goto("/")
    page.fill("#share_of_step", "0")
    expect(page.locator("#widget-answer .tool")).to_contain_text("Leave it")


def test_open_details_stay_open_while_a_slider_moves(open_page: Open) -> None:
    page = open_page().page
    ready(page)
    page.wait_for_timeout(300)
    page.locator("#widget-answer > div > details > summary").click()
    for value in ("0.9", "0.1"):
        page.fill("#uniqueness", value)
    expect(page.locator("#widget-answer > div > details[open]")).to_be_visible()
    expect(page.locator("#widget-answer td[data-because='library-covers']")).to_be_visible()


def test_presets_are_links_that_work_without_javascript(open_page: Open) -> None:
    page = open_page(java_script_enabled=False).page
    tools = []
    for title, _ in WIDGET_PRESETS:
        page.goto("/")
        page.locator(".presets a", has_text=title).click()
        tools.append(page.locator("#widget-answer .tool").first.inner_text())
        assert page.locator("#widget-answer svg g").count() >= 4
    wanted = ["Leave it", "Library", "torch.compile", "Library", "Leave it", "Triton"]
    assert [t.splitlines()[0] for t in tools] == wanted
