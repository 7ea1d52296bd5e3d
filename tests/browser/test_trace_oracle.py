"""A trace's page while Inductor is asked about its regions: what comes, what stays where it is, and that it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.app.requests.test_trace_oracle import ASKED, CONTENT, Gate, upload
from tests.app.web.conftest import Serving, serving
from tests.app.web.streamed import until
from tests.browser.conftest import Watched
from tests.browser.test_accessible import violations

pytestmark = pytest.mark.browser

PLACES = """[...document.querySelectorAll("#region-filter, #region-list tbody tr, #regions, #trace-glance")]
  .map((e) => Math.round(e.getBoundingClientRect().top + window.scrollY))"""
"""Where parts of the page stand, from its top."""

Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("asking"), oracle="auto", advice_timeout_s=60) as app_server:
        until(lambda: app_server.client.get("/readyz").json()["advice_warm"])
        yield app_server


@pytest.fixture(scope="module")
def server(asking: Serving) -> str:
    """In place of the session's: this one asks Inductor when the test says so."""
    return asking.url


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, asking: Serving) -> Iterator[Gate]:
    made = Gate()
    made.patch(monkeypatch)
    yield made
    made.give(100)  # what a test left is not to wait for ever
    until(lambda: not asking.state.trace_oracle.waiting)


def shown(page: Page, number: int) -> None:
    expect(page.locator("#oracle-line")).to_contain_text(f"Inductor asked: {number} of the {ASKED} regions")


def test_answers_come_into_their_rows_and_the_asking_ends(open_page: Open, asking: Serving, gate: Gate) -> None:
    page = open_page(viewport={"width": 1280, "height": 900}).page
    page.goto(f"/traces/{upload(asking)['id']}")
    shown(page, 0)
    page.evaluate("window.same = true")
    marks = page.locator("#region-list small.by")
    expect(marks).to_have_count(0)
    page.get_by_label("Name, module or kernel").focus()
    page.wait_for_load_state("networkidle")
    places = page.evaluate(PLACES)
    gate.give()
    shown(page, 1)
    expect(marks).to_have_text(["by Inductor's kernels"])
    gate.give()
    shown(page, 2)
    expect(marks).to_have_count(2)
    assert page.evaluate(PLACES) == places, "nothing moves while answers come"
    expect(page.get_by_label("Name, module or kernel")).to_be_focused()
    gate.give(ASKED)
    shown(page, ASKED)
    expect(page.locator("#oracle-poll")).to_have_count(0)
    expect(marks).to_have_count(ASKED)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []
    assert page.evaluate("window.same")
    assert violations(page) == []


def test_a_list_that_is_filtered_by_advice_is_listed_again(open_page: Open, asking: Serving, gate: Gate) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, color_scheme="dark").page
    page.goto(f"/traces/{upload(asking)['id']}?tool=library")
    shown(page, 0)
    expect(page.locator("#region-list tbody tr")).to_have_count(1)
    gate.give(2)
    shown(page, 2)
    expect(page.locator("#region-list small.by")).to_have_count(1)
    expect(page.locator("#region-list .chip")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_it_follows_the_reading_on_the_same_page(open_page: Open, asking: Serving, gate: Gate) -> None:
    page = open_page().page
    answer = asking.client.post("/api/v1/traces?fresh=true", content=CONTENT)
    page.goto(f"/traces/{answer.json()['id']}")
    expect(page.locator("#reading-poll, #oracle-poll")).to_have_count(1)
    shown(page, 0)
    expect(page.locator("#reading-poll")).to_have_count(0)
    gate.give(ASKED)
    shown(page, ASKED)
    expect(page.locator("#oracle-poll")).to_have_count(0)


def test_without_javascript_a_reload_shows_what_is_there(open_page: Open, asking: Serving, gate: Gate) -> None:
    page = open_page(java_script_enabled=False).page
    trace_id = upload(asking)["id"]
    page.goto(f"/traces/{trace_id}")
    shown(page, 0)
    gate.give()
    until(lambda: asking.client.get(f"/api/v1/traces/{trace_id}").json()["oracle"]["answered"])
    page.reload()
    shown(page, 1)
    expect(page.locator("#region-list small.by")).to_have_count(1)
