"""What goes with a trace, in a real browser: chosen before it is sent, mended after an error, and without a script."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Watched
from tests.profiler.trace.analyze.test_ranks import rank_file

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

TRACE_PAGE = re.compile(r"/traces/[a-z0-9]{26}$")
GRAPH, EAGER = "handrolled_blocks_bf16_cudagraph.json.gz", "handrolled_blocks_bf16_eager.json.gz"
SHORT = "tl_h100_bert_small.json.gz"


def test_a_wrong_trace_beside_is_said_on_the_page_and_mended_there(open_page: Open, data: Path) -> None:
    page = open_page().page
    page.goto("/")
    page.get_by_text("More: companion trace").click()
    page.set_input_files("#file", data / "traces" / GRAPH)
    expect(page.locator("[data-upload-state]")).to_have_text(f"Chosen: {GRAPH}")
    page.set_input_files("#companion", data / "traces" / SHORT)
    assert page.url.endswith("/"), "nothing is sent while there is more to choose"
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url(TRACE_PAGE)
    expect(page.locator("#trace-body .note").first).to_contain_text(SHORT)
    expect(page.locator("#trace-body .note").first).to_have_class("note error")
    first = page.url

    page.get_by_role("link", name="Read it again with other files").click()
    expect(page.locator("[data-tab=notes]")).to_have_attribute("aria-selected", "true")
    page.get_by_text("Add an execution trace").click()
    page.set_input_files("#companion", data / "traces" / EAGER)
    page.get_by_role("button", name="Read again").click()
    page.wait_for_url(lambda url: url != first and TRACE_PAGE.search(url) is not None)
    expect(page.get_by_role("heading", name="Regions", exact=True)).to_be_visible()
    page.locator("[data-tab=notes]").click()
    expect(page.get_by_text(f"Given with it: the trace {EAGER}.")).to_be_visible()
    expect(page.locator("#trace-body .note.error")).to_have_count(0)


def test_a_refused_upload_keeps_what_was_chosen_beside_it(open_page: Open, data: Path, tmp_path: Path) -> None:
    watched = open_page()
    watched.expected = (422,)
    page = watched.page
    (tmp_path / "no.json").write_text("")  # what is no trace has a page that says so
    page.goto("/")
    page.get_by_text("More: companion trace").click()
    page.set_input_files("#file", tmp_path / "no.json")
    page.set_input_files("#companion", data / "traces" / SHORT)
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#upload-answer .note.error")).to_be_visible()
    assert page.evaluate("document.getElementById('companion').files[0].name") == SHORT
    expect(page.locator("[data-upload-state]")).to_have_text("Chosen: no.json")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ranks_by_a_plain_form_on_a_phone(open_page: Open, tmp_path: Path, scheme: str) -> None:
    page = open_page(java_script_enabled=False, viewport={"width": 390, "height": 844}, color_scheme=scheme).page
    page.goto("/")
    page.get_by_text("More: companion trace").click()
    page.set_input_files("#file", [rank_file(tmp_path, rank, us) for rank, us in ((0, 600.0), (1, 880.0))])
    page.fill("#group", f"job {scheme}")
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url(TRACE_PAGE)
    ranks = page.locator("#ranks")
    for _ in range(60):
        if ranks.count():
            break
        page.wait_for_timeout(500)
        page.reload()
    expect(ranks.locator("tbody tr")).to_have_count(2)
    expect(ranks).to_contain_text("Rank 1 is slowest")
    page.locator("[data-tab=notes]").click()
    page.get_by_text("Add an execution trace").click()
    expect(page.locator("#group")).to_have_value(f"job {scheme}")
    box = page.locator("#again").bounding_box()
    assert box
    assert box["x"] + box["width"] <= 390
