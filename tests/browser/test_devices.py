"""A region on other devices, a step after following its advice and a kit that fits on a screen, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.archive import record_store
from profiler.hardware import DEVICES
from tests.browser.conftest import Watched
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

EXAMPLE = (ROOT / "app" / "examples" / "gemm_gelu_mask.txt").read_text(encoding="utf-8")
RECORD = next(r for r in record_store.records() if r["best"] == "triton:generated")


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("width", [1280, 390])
def test_devices_side_by_side_and_the_advice_for_one(open_page: Open, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900}).page
    page.goto("/")
    page.fill("#text", EXAMPLE)
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"), timeout=90_000)
    page.evaluate("window.stayed = true")
    page.get_by_role("link", name="Devices", exact=True).click()
    devices = page.locator("#devices")
    devices.get_by_role("button", name="Compare devices").click()
    expect(devices.locator("tbody tr")).to_have_count(len(DEVICES))
    devices.locator("select").select_option("NVIDIA A100")
    expect(devices.locator(".verdict")).to_contain_text("for NVIDIA A100")
    expect(devices.locator("tr[aria-current]")).to_contain_text("NVIDIA A100")
    assert page.evaluate("window.stayed") is True
    assert fits(page)


def test_devices_without_a_script(open_page: Open) -> None:
    page = open_page(java_script_enabled=False).page
    page.goto("/")
    page.fill("#text", EXAMPLE)
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"), timeout=90_000)
    page.get_by_role("link", name="Devices", exact=True).click()
    page.locator("#other-device").select_option("NVIDIA L4")
    page.get_by_role("button", name="Compare devices").click()
    page.wait_for_url(re.compile(r"/devices\?device=NVIDIA\+L4$"))
    expect(page.locator(".verdict")).to_contain_text("for NVIDIA L4")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_step_after_following_the_advice(open_page: Open, handrolled: Path, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900}).page
    page.goto("/")
    page.set_input_files("#file", handrolled)
    page.wait_for_url(re.compile(r"/traces/[a-z0-9]{26}$"), timeout=90_000)
    gain = page.locator("#gain")
    expect(gain).to_contain_text(re.compile("(This|All) changes?|Changes? [0-9]"), timeout=60_000)
    told = json.loads(page.request.get(f"{page.url}.json").text())["gain"]
    assert gain.get_by_role("heading", name="What the trace cannot tell").count() == bool(told["unknown"])
    held = told["all"]["step_time_us"]["mid"]
    expect(gain.locator("tbody tr").first).to_contain_text(f"{held / 1e3:.2f} ms")
    assert fits(page)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_kit_is_a_few_screens_and_each_file_can_be_copied(open_page: Open, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900}).page
    page.goto(f"/validations/{RECORD['id']}/kit")
    files = page.locator("details", has=page.locator("pre.listing"))
    assert files.count() >= 3
    for file in files.all():
        if file.get_attribute("open") is None:
            file.locator("summary").click()
        expect(file.get_by_role("button", name="Copy")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") < 5 * 900
    assert fits(page)
