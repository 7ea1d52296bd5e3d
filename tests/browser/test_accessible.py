"""Every page held to axe, in light, dark and on a phone; and all of it by keyboard alone, with nothing that moves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched
from tests.browser.furnished import furnish

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

VENDOR = Path(__file__).with_name("vendor")

AXE = (VENDOR / "axe.min.js").read_text(encoding="utf-8")

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "reduced_motion": "reduce"},
    "dark phone": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""Of the rules that hold everywhere, those on colours: all others judge the same page, light or dark."""

MOVING = """() => Array.from(document.querySelectorAll("main *, header *")).filter((e) => {
  const s = getComputedStyle(e);
  return s.scrollBehavior === "smooth" || s.animationName !== "none"
    || s.transitionDuration.split(", ").some((d) => parseFloat(d) > 0);
}).filter((e) => !e.closest(".plot")).map((e) => e.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def paths(server: str, data: Path) -> dict[str, str]:
    return furnish(server, data)


def violations(page: Page, only: dict[str, Any] | None = None) -> list[str]:
    """What axe holds against the page, with everything that folds opened. only: the rules, all where None."""
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    if page.evaluate("window.axe === undefined"):
        page.evaluate(AXE)
    options = {"preload": False, "resultTypes": ["violations"], **({"runOnly": only} if only else {})}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [f"{v['id']}: {n['target']} {n['failureSummary']}" for v in found["violations"] for n in v["nodes"]]


def test_axe_is_the_one_of_the_lock() -> None:
    for entry in json.loads((VENDOR / "LOCK.json").read_text(encoding="utf-8")):
        assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
        assert "Mozilla Public License" in (VENDOR / entry["licence_file"]).read_text(encoding="utf-8")
        assert f"v{entry['version']}" in AXE[:200]


def test_axe_would_say_so(open_page: Open) -> None:
    page = open_page().page
    page.goto("/history")
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"/static/favicon.svg\"><input>')"
    )
    page.evaluate("document.querySelector('h1').style.color = '#ccc'")
    rules = {line.split(":")[0] for line in violations(page)}
    assert {"image-alt", "label", "color-contrast"} <= rules
    assert {line.split(":")[0] for line in violations(page, COLOURS)} == {"color-contrast"}


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_has_a_violation_or_moves_by_itself(open_page: Open, paths: dict[str, str], look: str) -> None:
    """Each page is opened once a look; the desktop's turns dark while it is open. No page animates, so that whoever
    asked for less motion has it."""
    watched = open_page(**LOOKS[look])
    watched.expected = (404,)
    page = watched.page
    found = {}
    for name, path in paths.items():
        page.goto(path)
        page.wait_for_load_state("networkidle")
        if look == "light":
            assert page.evaluate("document.getAnimations().length") == 0, path
            assert page.evaluate(MOVING) == [], path
        found[name] = violations(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        if look == "light":
            light = page.evaluate("getComputedStyle(document.body).backgroundColor")
            page.emulate_media(color_scheme="dark")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light, name
            found[f"{name}, dark"] = violations(page, COLOURS)
            page.emulate_media(color_scheme="light")
    assert {name: lines for name, lines in found.items() if lines} == {}


# What has the focus: where it stands in the page, whether a ring or its drop zone's border shows it, how large it is.
FOCUSED = """
() => {
  const e = document.activeElement, style = getComputedStyle(e), zone = e.closest(".drop"), shown = zone || e;
  const box = shown.getBoundingClientRect();
  return {
    place: Array.from(document.querySelectorAll("*")).indexOf(e), tag: e.tagName, id: e.id,
    name: (e.textContent || e.getAttribute("aria-label") || "").trim().slice(0, 40),
    label: e.getAttribute("aria-label"),
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2
      || zone !== null && getComputedStyle(zone).borderColor !== window.resting,
    seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0,
  };
}
"""


def stops(page: Page) -> list[dict[str, Any]]:
    """Everything that Tab reaches from the top of the page to its end."""
    page.evaluate("window.resting = (z => z && getComputedStyle(z).borderColor)(document.querySelector('.drop'))")
    collected: list[dict[str, Any]] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop["tag"] == "BODY" or (collected and stop["place"] == collected[0]["place"]):
            return collected
        collected.append(stop)
    raise AssertionError(f"Tab is caught: {collected[-3:]}")


WALKED_ALONE = ("home", "trace", "region", "region, all tabs", "validation", "compare traces", "learn", "api")
"""Pages with most to reach: a test each."""


@pytest.mark.parametrize("name", WALKED_ALONE)
def test_tab_goes_through_the_page_in_order_and_is_always_seen(
    open_page: Open, paths: dict[str, str], name: str
) -> None:
    walk(open_page().page, paths[name])


def test_tab_goes_through_every_other_page_too(open_page: Open, paths: dict[str, str]) -> None:
    watched = open_page()
    watched.expected = (404,)
    tabs = ("regions", "timeline", "flame", "source", "time", "notes")
    others = {name: path for name, path in paths.items() if name not in WALKED_ALONE}
    for path in (*others.values(), *(f"{paths['trace']}?tab={tab}" for tab in tabs)):
        walk(watched.page, path)


def walk(page: Page, path: str) -> None:
    """From the page's top to its end by Tab: in order, every stop seen, whatever a mouse can use among them."""
    page.goto(path.partition("#")[0])  # an address that points into the page begins there
    page.wait_for_load_state("networkidle")
    if page.locator("#text").count():  # its editor comes when it is near, and is what is reached then
        page.locator("#text").scroll_into_view_if_needed()
        expect(page.locator(".cm-content")).to_be_visible()
    page.evaluate("""async () => {
      for (let at = 0; at < document.body.scrollHeight; at += 400) {
        scrollTo(0, at);
        await new Promise(requestAnimationFrame);
      }
      scrollTo(0, 0);
    }""")
    page.wait_for_load_state("networkidle")  # what comes when it is near is there, and places stay
    found = stops(page)
    assert found[0]["name"] == "To the content", path
    assert [s["place"] for s in found] == sorted(s["place"] for s in found), path
    assert [s for s in found if not (s["ring"] and s["seen"])] == [], path
    # Whatever a mouse can use is among them; a flame graph's frames are one stop, and arrows go within it.
    reached = {s["place"] for s in found}
    for place, shown in page.evaluate(
        """() => { const all = Array.from(document.querySelectorAll("*"));
        return all.filter((e) => e.matches("a[href], button, input:not([type=hidden]), select, textarea, summary")
          && e.checkVisibility() && !e.disabled && !e.matches("[aria-hidden=true], .icicle a"))
          .map((e) => [all.indexOf(e), e.outerHTML.slice(0, 80)]); }"""
    ):
        assert place in reached, (path, shown)


def tab_to(page: Page, wanted: Callable[[dict[str, Any]], bool]) -> None:
    for _ in range(200):
        page.keyboard.press("Tab")
        if wanted(page.evaluate(FOCUSED)):
            return
    raise AssertionError("Tab does not lead there")


def test_the_job_by_keyboard_alone(open_page: Open) -> None:
    page = open_page(viewport={"width": 1280, "height": 900}).page
    page.goto("/")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#main$"))
    # The sliders, by arrows and to their end; the answer follows.
    tab_to(page, lambda s: s["id"] == "share_of_step")
    page.keyboard.press("Home")
    expect(page.locator("output[for=share_of_step]")).to_have_text("0 %")
    expect(page.locator("#widget-answer .tool").first).to_contain_text("Leave it")
    page.keyboard.press("End")
    tab_to(page, lambda s: s["id"] == "uniqueness")
    page.keyboard.press("End")
    tab_to(page, lambda s: s["id"] == "irregularity")
    page.keyboard.press("End")
    tab_to(page, lambda s: s["id"] == "bound")
    page.keyboard.type("Memory")
    tab_to(page, lambda s: s["id"] == "kind")
    page.keyboard.type("something")
    expect(page.locator("#widget-answer .tool").first).to_contain_text("Triton")
    # A region is written, and Tab leaves the field that it is written in.
    tab_to(page, lambda s: s["id"] == "text" or s["label"] == "Region")
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n")
    tab_to(page, lambda s: s["name"] == "Advise")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))
    page.wait_for_load_state("networkidle")
    # What folds opens and closes; the theme switches.
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab_to(page, lambda s: s["id"] == "theme")
    page.keyboard.press("Enter")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    tab_to(page, lambda s: s["id"] == "tab-cost")
    page.keyboard.press("Enter")
    expect(page.locator("#what-if")).to_be_visible()
    tab_to(page, lambda s: s["tag"] == "SUMMARY")
    folded = page.evaluate_handle("document.activeElement.parentElement")
    opened = folded.evaluate("d => d.open")
    page.keyboard.press("Enter")
    assert folded.evaluate("d => d.open") is not opened
    page.keyboard.press("Space")
    assert folded.evaluate("d => d.open") is opened
    tab_to(page, lambda s: s["id"] == "wi-faster")
    before = page.locator("#what-if-answer").inner_text()
    page.keyboard.press("End")
    expect(page.locator("#what-if-answer")).not_to_have_text(before)
