"""The HTML report of a check, opened from disk in a real browser: hostile names run nothing and load nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.app.check.hostile_trace import write_hostile_trace
from tests.browser.conftest import WATCH
from tests.conftest import ROOT

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """check.html of a trace whose names are hostile."""
    folder = tmp_path_factory.mktemp("check")
    write_hostile_trace(folder / "t.json.gz")
    (folder / "tritonworthy.toml").write_text(
        '[assertions]\ncompile = "error"\nlibrary = "warn"\nregression = "warn"\n'
    )
    command = [sys.executable, "-m", "app.cli", "check", str(folder / "t.json.gz"), "--format", "html",
               "--out", str(folder), "--config", str(folder / "tritonworthy.toml")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 1, done.stderr
    return folder / "check.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_opens_offline_and_runs_nothing(chromium: Browser, report: Path, width: int) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, offline=True)
    page: Page = context.new_page()
    seen: list[str] = []
    asked: list[Request] = []
    page.add_init_script(WATCH)
    page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda request: asked.append(request))
    page.goto(report.as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("Tritonworthy: An assertion does not hold")
    expect(page.locator("h2")).to_contain_text(["What was checked", "Errors"])
    assert page.locator("table").nth(1).locator("tbody tr").count() > 0
    page.locator("summary").first.click()
    expect(page.locator("details[open] pre")).to_have_count(1)
    assert seen == []
    assert page.evaluate("window.violations") == []
    assert [r.url for r in asked] == [report.as_uri()]
    assert page.locator("script, img, svg, iframe, a, form, link").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
