"""Advice in place, in a browser with the oracle on: the answer first, the oracle's after it, and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Watched, running

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]
TEXT = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
OTHER = "x: f32[64, 128]\ny = gelu(x) * 2 + 1\ny = y * y\nreturn y\n"
WRONG = "x: f32[64, 128]\ny = gelo(x)\nreturn y\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the oracle, in place of the session's."""
    with running(tmp_path_factory.mktemp("place"), TRITONWORTHY_ORACLE_TIMEOUT_S="60") as base:
        yield base


def test_advise_answers_in_place_then_the_oracle_does_and_back_is_the_form(open_page: Open) -> None:
    watched = open_page()
    page, watched.expected = watched.page, (422,)
    page.goto("/")
    page.evaluate("window.same = true")
    page.fill("#text", WRONG)
    page.get_by_role("button", name="Advise").click()
    expect(page.locator("#region-error")).to_contain_text("Line 2")
    expect(page.locator("#text")).to_have_value(WRONG)
    asked = []
    page.on(
        "request", lambda request: asked.append(f"{request.method} {request.url}") if request.method == "POST" else None
    )
    page.fill("#text", TEXT)
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url("**/regions/*")
    expect(page.locator("#verdict .verdict h2")).to_be_visible()
    expect(page).to_have_title(re.compile("Tritonworthy$"))
    expect(page.locator("#main h1")).to_be_focused()
    assert page.evaluate("window.same"), "no page was loaded"
    expect(page.locator("#oracle-asker")).to_have_count(0, timeout=60_000)
    assert [re.sub(r".*/", "", a) for a in asked] == ["regions", "oracle"]
    address = page.url
    page.go_back()
    expect(page.get_by_role("button", name="Advise")).to_be_visible()
    page.locator("#share_of_step").fill("0.002")
    expect(page.locator("#widget-answer")).to_contain_text("Leave it")
    page.goto(f"{address}#oracle")
    expect(page.locator("#oracle")).to_contain_text("2 launches → 1")
    expect(page.locator("#oracle")).to_contain_text("From Inductor")
    page.get_by_role("link", name="Cost", exact=True).click()
    expect(page.locator(".plot .drawn").first).to_be_attached()


def test_an_edit_takes_the_address_along_and_a_late_answer_to_the_old_text_is_dropped(open_page: Open) -> None:
    page = open_page().page
    page.goto("/")
    page.fill("#text", TEXT.replace("128", "136"))
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url("**/regions/*")
    page.get_by_role("link", name="Compiler").click()
    page.wait_for_url("**/regions/*?tab=compiler")
    page.fill("#text", OTHER)
    page.wait_for_url("**/region?text=*&tab=compiler")
    expect(page.locator("#oracle")).to_contain_text("4 launches → 1", timeout=60_000)
    page.reload()
    expect(page.locator("#text")).to_have_value(OTHER)
    expect(page.locator("#oracle")).to_contain_text("4 launches → 1")


def test_a_validation_begun_right_after_an_edit_shows_its_progress_and_stays(open_page: Open) -> None:
    """The click that leaves the field asks for the analysis too: its answer must not take the validation away."""
    page = open_page().page
    page.goto("/")
    page.fill("#text", TEXT.replace("128", "144"))
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url("**/regions/*")
    page.get_by_role("link", name="Compiler").click()
    page.wait_for_url("**/regions/*?tab=compiler")
    page.fill("#text", OTHER)
    with page.expect_response(re.compile("/regions/preview")):
        page.get_by_role("button", name="Validate").click()
        expect(page.locator("#evidence input[name=job]")).to_have_count(1)
    expect(page.locator("#oracle")).to_contain_text("From Inductor", timeout=60_000)
    expect(page.locator("#evidence input[name=job]")).to_have_count(1)
    expect(page.locator("#evidence")).to_contain_text("Unmeasured", timeout=90_000)
