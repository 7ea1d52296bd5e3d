"""The pages of checks in a real browser: made, mended, read and taken from, with script and without, held to axe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Dialog, expect

from tests.app.check.hostile_trace import write_hostile_trace
from tests.app.check.validators import VALIDATORS
from tests.browser.conftest import Watched
from tests.browser.furnished import answer, upload
from tests.browser.test_accessible import LOOKS, stops, violations
from tools.checks.check_api import sample_runs

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

CHECK = re.compile(r"/checks/[a-z0-9]{26}$")
CONFIG = """[check]
name = "nightly"
[assertions]
compile-fuses = { level = "error", min_share = 0.06 }
library = "warn"
regression = "warn"
"""


@pytest.fixture(scope="module")
def trace(server: str, handrolled: Path) -> str:
    return str(upload(server, handrolled)["id"])


@pytest.fixture(scope="module")
def check(server: str, trace: str) -> str:
    """The path of a check that failed, with a finding, a warning and something unmeasured."""
    body = {
        "traces": [trace], "baseline": trace,
        "check": {"name": "nightly"},
        "assertions": {"compile-fuses": ["error", {"min_share": 0.06}], "library": "warn", "regression": "warn"},
    }  # fmt: skip
    job = answer(f"{server}/api/v1/checks?wait=60", json.dumps(body).encode())
    assert job["result"]["counts"] == {"errors": 1, "warnings": 1, "unmeasured": 1}
    return f"/checks/{job['id']}"


@pytest.mark.parametrize("script", [True, False])
def test_a_check_is_made_by_the_form_and_a_mistake_in_it_is_mended_there(
    open_page: Open, trace: str, script: bool
) -> None:
    watched = open_page(java_script_enabled=script)
    watched.expected = (422,)
    page = watched.page
    page.goto("/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Checks").click()
    page.get_by_label("Trace", exact=True).select_option(trace)
    page.get_by_label("Baseline").select_option(trace)
    typed = CONFIG.replace("library", "libary").replace("nightly", f"script {script}".lower().replace(" ", "-"))
    page.get_by_label("tritonworthy.toml").fill(typed)
    page.get_by_role("button", name="Check", exact=True).click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("did you mean library?")
    expect(alert.locator("pre")).to_have_text('5: libary = "warn"')
    # What was typed and chosen stands there still.
    expect(page.get_by_label("tritonworthy.toml")).to_have_value(typed)
    expect(page.get_by_label("Baseline")).to_have_value(trace)
    page.get_by_label("tritonworthy.toml").fill(typed.replace("libary", "library"))
    page.get_by_role("button", name="Check", exact=True).click()
    page.wait_for_url(CHECK)
    expect(page.get_by_role("heading", level=2).first).to_have_text("An assertion does not hold", timeout=60_000)
    errors = page.get_by_role("region", name="Errors")
    expect(errors.locator("tbody tr")).to_have_count(1)
    expect(errors).to_contain_text("traces.py")
    errors.get_by_text("What to write").click()
    expect(errors.locator("pre")).to_contain_text("torch.compile")
    expect(page.get_by_role("region", name="Not measured")).to_contain_text("The baseline has one step")
    errors.get_by_role("link").first.click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))


def test_every_report_is_taken_from_the_page_and_valid(open_page: Open, check: str) -> None:
    watched = open_page()
    page = watched.page
    page.goto(check)
    suffixes = {"Markdown comment": "markdown", "SARIF": "sarif", "JUnit": "junit", "CSV": "csv", "HTML file": "html"}
    links = page.locator("#reports a")
    assert links.all_inner_texts() == list(suffixes)
    for link in links.all():
        found = page.request.get(str(link.get_attribute("href")))
        assert found.ok
        VALIDATORS[suffixes[link.inner_text()]](found.body().decode("utf-8"))
    with page.expect_download() as saved:
        page.get_by_role("link", name="HTML file").click()
    assert saved.value.suggested_filename.endswith(".html")
    twin = page.request.get(str(page.get_by_role("link", name="JSON", exact=True).get_attribute("href")))
    assert twin.json()["exit_code"] == 1


@pytest.mark.parametrize("look", LOOKS)
def test_the_pages_have_no_violation_and_fit(open_page: Open, check: str, look: str) -> None:
    page = open_page(**LOOKS[look]).page
    for path in ("/checks", check):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert violations(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


@pytest.mark.parametrize("which", ["list", "one"])
def test_the_keyboard_reaches_everything_in_order(open_page: Open, check: str, which: str) -> None:
    page = open_page().page
    page.goto("/checks" if which == "list" else check)
    page.wait_for_load_state("networkidle")
    found = stops(page)
    assert [s["place"] for s in found] == sorted(s["place"] for s in found)
    assert [s for s in found if not (s["ring"] and s["seen"])] == []
    names = [s["name"] for s in found]
    assert ("Check" if which == "list" else "SARIF") in names


def test_hostile_names_run_nothing_and_fit_a_phone(open_page: Open, server: str, tmp_path: Path) -> None:
    write_hostile_trace(tmp_path / "t.json.gz")
    hostile = upload(server, tmp_path / "t.json.gz")
    label = "x" * 90 + "</textarea><img src=x onerror=alert(1)>"
    body: dict[str, Any] = {"traces": [hostile["id"]], "assertions": {f"compile:{label}": "error", "library": "warn"}}
    job = answer(f"{server}/api/v1/checks?wait=60", json.dumps(body).encode())
    assert job["result"]["errors"]
    watched = open_page(viewport={"width": 390, "height": 844})
    page = watched.page

    def refuse(dialog: Dialog) -> None:
        watched.errors.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    for path in (f"/checks/{job['id']}", "/checks"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.locator("img[onerror], svg[onload], [onfocus]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


# ------------------------------------------------------------------------------------------------------------- history


@pytest.fixture(scope="module")
def history(server: str) -> None:
    """A series that gets slower on main, one on another branch that moves to another device."""
    topic = [{**run, "id": f"t{n}", "branch": "topic"} for n, run in enumerate(sample_runs())]
    for run in topic[12:]:
        run["environment"] = {**run["environment"], "device": "NVIDIA A100"}
    answer(f"{server}/api/v1/history", json.dumps({"entries": [*sample_runs(), *topic]}).encode())


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_of_a_series_answers_and_leads_to_its_runs(
    open_page: Open, history: None, script: bool, width: int
) -> None:
    page = open_page(java_script_enabled=script, viewport={"width": width, "height": 900}).page
    page.goto("/checks")
    page.get_by_role("link", name="History").last.click()
    page.locator("#branch").select_option("main")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="step").click()
    heading = page.get_by_role("heading", name="slower since")
    expect(heading).to_contain_text(sample_runs()[16]["commit"][:10])
    box = heading.bounding_box()
    assert box is not None and box["y"] + box["height"] < 900
    # The chart stands in the page as it comes; its numbers are a table below.
    expect(page.locator(".plot svg.drawn:visible")).to_have_count(1)
    page.get_by_text("The same numbers as a table").click()
    expect(page.locator("figure table tbody tr")).to_have_count(24)
    page.locator("#on").select_option(label="topic")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("NVIDIA H200 to NVIDIA A100")).to_be_visible()
    page.locator("#device").select_option("NVIDIA A100")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("NVIDIA H200 to NVIDIA A100")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_of_the_history_has_a_violation_or_scrolls_sideways(
    open_page: Open, server: str, history: None, look: str
) -> None:
    page = open_page(**LOOKS[look]).page
    series = [f"/checks/history/{item['id']}" for item in answer(f"{server}/api/v1/history")["items"]]
    for path in ("/checks/history", "/checks/history?check=none", *series):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert violations(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
