"""The trace's tools in a browser: the timeline by keys, wheel and search, the flame graph, the source, Perfetto."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Watched
from tests.browser.furnished import TRACE, answer, upload
from tests.browser.test_accessible import violations
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}
SOURCE = """\
class Block(torch.nn.Module):
    def norm(self, x, w): return x * torch.rsqrt(x.pow(2).mean(-1)) * w
    def forward(self, x):
        return self.norm(x, self.w)


def secret_of_the_user():
    return 1
"""


@pytest.fixture(scope="module")
def trace(server: str, data: Path) -> dict[str, Any]:
    return upload(server, data / "traces" / TRACE)


def opened(page: Page, trace: dict[str, Any], part: str = "timeline") -> Page:
    page.goto(f"/traces/{trace['id']}?tab={part}")
    page.wait_for_load_state("networkidle")
    page.locator(f"#{part}").scroll_into_view_if_needed()
    return page


def window(page: Page) -> tuple[float, float]:
    start, end = json.loads(page.locator("[data-timeline]").get_attribute("data-timeline") or "")["window"]
    return start, end


def test_a_tools_script_comes_once_with_its_tab_and_not_before(open_page: Open, trace: dict[str, Any]) -> None:
    page = open_page().page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2].partition("?")[0]))
    page.goto(f"/traces/{trace['id']}")
    page.wait_for_load_state("networkidle")
    assert not {"timeline.js", "flame.js", "source.js"} & set(asked)
    for _ in range(2):
        page.locator("[data-tab=timeline]").click()
        expect(page.get_by_role("slider", name="Cursor on the timeline")).to_be_visible()
        page.locator("[data-tab=flame]").click()
        expect(page.locator("[data-flame-said]:visible")).to_have_count(1)
    assert sorted(name for name in asked if name in ("timeline.js", "flame.js", "source.js")) == [
        "flame.js",
        "timeline.js",
    ]


# -------------------------------------------------------------------------------------------------------- the timeline


def test_the_keys_work_as_soon_as_the_tab_is_open_and_are_in_the_list(open_page: Open, trace: dict[str, Any]) -> None:
    page = open_page().page
    page.goto(f"/traces/{trace['id']}?tab=timeline")
    expect(page.locator("[data-timeline][data-ready]")).to_have_count(1)
    page.mouse.move(0, 0)
    _, wall = window(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Timeline: zoom in")
    page.keyboard.press("w")
    page.keyboard.press("Escape")
    assert "start=" not in page.url, "a key that is pressed in the list is none of the timeline"
    # The list that was closed has the focus until the next frame is drawn.
    page.locator("dialog.keys button").dispatch_event("keydown", {"key": "w"})
    page.wait_for_url(re.compile(r"start=[0-9.]+&end=[0-9.]+"))
    start, end = window(page)
    assert end - start == pytest.approx(wall / 2, rel=0.01)


def test_w_s_a_and_d_zoom_and_move_about_the_cursor_and_keep_it(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace)
    cursor = page.get_by_role("slider", name="Cursor on the timeline")
    _, wall = window(page)
    cursor.focus()
    page.keyboard.press("End")
    at = float(cursor.get_attribute("aria-valuenow") or 0)
    page.keyboard.press("w")
    page.wait_for_url(re.compile(r"[?&]start=[0-9.]+&end=[0-9.]+(&|$)"))
    expect(cursor).to_be_focused()
    start, end = window(page)
    assert end - start == pytest.approx(wall / 2, rel=0.01) and start <= at <= end
    page.keyboard.press("a")
    expect(page.locator("[data-timeline]")).not_to_have_attribute("data-timeline", re.compile(rf'"window":\[{start},'))
    page.wait_for_function(
        "s => JSON.parse(document.querySelector('[data-timeline]').dataset.timeline).window[0] < s", arg=start
    )
    moved = window(page)
    assert moved[1] - moved[0] == pytest.approx(end - start, rel=0.01)
    page.keyboard.press("d")
    page.wait_for_function(
        "s => JSON.parse(document.querySelector('[data-timeline]').dataset.timeline).window[0] > s", arg=moved[0]
    )
    page.keyboard.press("s")
    page.wait_for_url(re.compile(r"/traces/[a-z0-9]{26}(\?tab=timeline)?$"))
    assert window(page)[1] == wall


def test_letters_in_a_field_are_text_and_not_views(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace)
    page.get_by_label("Find a kernel or region on the timeline").press_sequentially("wasd")
    page.wait_for_timeout(400)
    assert "start=" not in page.url


def test_the_wheel_with_ctrl_zooms_where_the_mouse_is_and_without_it_scrolls(
    open_page: Open, trace: dict[str, Any]
) -> None:
    page = opened(open_page(viewport={"width": 1280, "height": 900}).page, trace)
    _, wall = window(page)
    box = page.locator("[data-lane='0'] svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 10)
    page.mouse.wheel(0, 40)
    page.wait_for_timeout(300)
    assert "start=" not in page.url
    box = page.locator("[data-lane='0'] svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 10)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -240)
    page.keyboard.up("Control")
    page.wait_for_url(re.compile(r"[?&]start="))
    start, end = window(page)
    assert end - start < 0.5 * wall and (0.75 * wall - start) / (end - start) == pytest.approx(0.75, abs=0.02)


def test_search_counts_marks_and_goes_from_match_to_match(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace)
    data = json.loads(page.locator("[data-timeline]").get_attribute("data-timeline") or "")
    wanted = [
        s for lane in data["lanes"] for s in lane
        if "rmsnorm" in data["owners"][str(s[2])][0].lower() or "rmsnorm" in data["names"].get(str(s[4]), "").lower()
    ]  # fmt: skip
    field = page.get_by_label("Find a kernel or region on the timeline")
    field.fill("RMSNorm")
    expect(page.locator("[data-timeline-hits]")).to_have_text(f"{len(wanted)} in this view")
    assert len(wanted) > 2 and page.locator("#timeline path.hit").count() == 1
    field.press("Enter")
    cursor = page.get_by_role("slider", name="Cursor on the timeline")
    first = float(cursor.get_attribute("aria-valuenow") or 0)
    page.get_by_role("button", name="Next match").click()
    expect(page.locator("[data-timeline-hits]")).to_have_text(f"2 of {len(wanted)}")
    assert float(cursor.get_attribute("aria-valuenow") or 0) > first
    page.get_by_role("button", name="Previous match").click()
    page.get_by_role("button", name="Previous match").click()
    expect(page.locator("[data-timeline-hits]")).to_have_text(f"{len(wanted)} of {len(wanted)}")
    page.get_by_role("link", name="Zoom in").click()
    expect(page.locator("[data-timeline-hits]")).to_contain_text("in this view")
    expect(page.get_by_label("Find a kernel or region on the timeline")).to_have_value("RMSNorm")
    page.get_by_label("Find a kernel or region on the timeline").fill("no kernel has this")
    expect(page.locator("[data-timeline-hits]")).to_have_text("none in this view")
    expect(page.get_by_role("button", name="Next match")).to_be_disabled()


def test_no_label_of_the_axis_sticks_out_on_a_phone(open_page: Open, server: str, data: Path) -> None:
    long = upload(server, data / "traces" / "hta_alexnet.json.gz")
    page = opened(open_page(**PHONE).page, long)
    edge = page.locator("#timeline .axis").evaluate("a => a.getBoundingClientRect().right")
    labels = page.locator("#timeline .axis > span").evaluate_all(
        "all => all.filter(s => s.offsetParent).map(s => s.getBoundingClientRect().right)"
    )
    assert labels and max(labels) <= edge


# ----------------------------------------------------------------------------------------------------- the flame graph


def test_a_frame_zooms_by_click_and_the_button_leads_back(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace, "flame")
    frame = page.locator("[data-flame=modules] .frame:not(.leaf)").nth(1)
    whole = frame.bounding_box()
    box = page.locator("[data-flame=modules] [data-flame-box]").bounding_box()
    assert whole and box and whole["width"] < 0.95 * box["width"]
    frame.click(position={"x": 5, "y": 5})
    zoomed = frame.bounding_box()
    assert zoomed and zoomed["width"] == pytest.approx(box["width"], rel=0.02)
    page.get_by_role("button", name="Zoom out").click()
    again = frame.bounding_box()
    assert again and again["width"] == pytest.approx(whole["width"], rel=0.02)
    expect(page.get_by_role("button", name="Zoom out")).to_be_disabled()


def test_the_flame_graph_by_keyboard_and_its_search(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace, "flame")
    page.get_by_role("button", name="By Python function").click()
    expect(page.locator("[data-flame=modules]")).to_be_hidden()
    box = page.get_by_role("group", name="By Python function: flame graph")
    box.focus()
    said = page.locator("[data-flame=functions] [data-flame-said]")
    expect(said).to_contain_text("100 %")
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    expect(said.locator("a")).to_have_attribute("href", re.compile("^/regions/"))
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Zoom out")).to_be_enabled()
    page.keyboard.press("Escape")
    page.get_by_label("Find in the flame graph").fill("norm")
    expect(said).to_contain_text(re.compile(r"\d+ of \d+ frames, [0-9.]+ % of the kernel time"))
    hits = page.locator("[data-flame=functions] .frame.hit title").all_text_contents()
    assert hits and all("norm" in title.lower() for title in hits)
    box.focus()
    page.keyboard.press("Home")
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("o")
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))


def test_both_pictures_and_their_tables_stand_without_a_script(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page(java_script_enabled=False).page, trace, "flame")
    assert page.locator("#flame .icicle:visible").count() == 2
    expect(page.locator("#flame .flame-tools")).to_be_hidden()
    page.locator("#flame summary").first.click()
    expect(page.locator("#flame table").first).to_contain_text("Linear")
    expect(page.locator("#source table").first).to_contain_text("norm")
    expect(page.locator("[data-source-drop]")).to_be_hidden()


# ---------------------------------------------------------------------------------------------------------- the source


def source_text() -> str:
    """A file whose functions begin where the trace has them: norm at line 108, forward at 109."""
    return "# padding\n" * 106 + SOURCE


def test_a_chosen_file_is_shown_with_its_times_and_never_sent(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace, "source")
    bodies: list[str] = []
    page.on("request", lambda request: bodies.append(f"{request.method} {request.url} {request.post_data or ''}"))
    text = source_text()
    page.locator("#source-files").set_input_files(
        {"name": "traces.py", "mimeType": "text/x-python", "buffer": text.encode()}
    )
    expect(page.locator("[data-source-said]")).to_contain_text("traces.py")
    listing = page.locator(".source-text")
    expect(listing).to_contain_text("secret_of_the_user")
    row = listing.locator("tr", has=page.get_by_text("108", exact=True))
    assert "first" in (row.get_attribute("class") or "")
    expect(row.locator(".margin")).to_contain_text(re.compile(r"RMSNorm by hand \([0-9.]+ (ms|µs)\)"))
    body = listing.locator("tr", has=page.get_by_text("110", exact=True))
    assert "look" in (body.get_attribute("class") or "") and body.locator(".margin").inner_text() == ""
    beyond = listing.locator("tr", has=page.get_by_text("secret_of_the_user"))
    assert "look" not in (beyond.get_attribute("class") or "")
    page.wait_for_timeout(500)
    assert bodies == []
    stored = answer(f"{open_page().base}/api/v1/traces/{trace['id']}")
    assert "secret_of_the_user" not in json.dumps(stored)


def test_another_version_and_an_unknown_file_are_said_to_be_so(open_page: Open, trace: dict[str, Any]) -> None:
    page = opened(open_page().page, trace, "source")
    page.locator("#source-files").set_input_files(
        {"name": "traces.py", "mimeType": "text/x-python", "buffer": b"x = 1\n" * 200}
    )
    expect(page.locator("[data-source-said]")).to_contain_text("another version")
    page.locator("#source-files").set_input_files(
        {"name": "other.py", "mimeType": "text/x-python", "buffer": b"<img src=x onerror=alert(1)>"}
    )
    expect(page.locator("[data-source-said]")).to_contain_text("other.py: no function of it is in this trace.")
    page.locator("#source-files").set_input_files(
        {"name": "traces.py", "mimeType": "text/x-python", "buffer": b"<img src=x>\n" * 120}
    )
    expect(page.locator(".source-text")).to_contain_text("<img src=x>")
    assert page.locator(".source-text img").count() == 0


def test_axe_has_nothing_against_a_file_shown_and_a_graph_zoomed(open_page: Open, trace: dict[str, Any]) -> None:
    for look in ({"color_scheme": "light"}, {"color_scheme": "dark", **PHONE}):
        page = opened(open_page(**look).page, trace, "source")
        page.locator("#source-files").set_input_files(
            {"name": "traces.py", "mimeType": "text/x-python", "buffer": source_text().encode()}
        )
        expect(page.locator(".source-text")).to_be_visible()
        assert violations(page) == []
        page.locator("[data-tab=flame]").click()
        page.locator("[data-flame=modules] .frame:not(.leaf)").nth(1).click(position={"x": 5, "y": 5})
        page.get_by_label("Find in the flame graph").fill("norm")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# ------------------------------------------------------------------------------------------------------------ Perfetto

STAND_IN = """<title>stand-in</title><script>
window.got = null;
addEventListener("message", async (event) => {
  if (event.data === "PING") { event.source.postMessage("PONG", "*"); return; }
  const { title, buffer } = event.data.perfetto;
  window.got = { origin: event.origin, title, bytes: buffer.byteLength, first: new Uint8Array(buffer)[0] };
});
</script>"""


def test_perfettos_window_is_handed_the_file_and_nobody_else(
    chromium: Browser, server: str, data: Path, trace: dict[str, Any], tmp_path: Path
) -> None:
    """A page in Perfetto's place answers as its documentation says; all other hosts are refused."""
    context = chromium.new_context(base_url=server)
    asked: list[str] = []
    context.route(
        re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: (asked.append(route.request.url), route.abort())[1]
    )
    context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(content_type="text/html", body=STAND_IN))
    page = context.new_page()
    page.goto(f"/traces/{trace['id']}?tab=timeline")
    page.get_by_role("link", name="Perfetto").click()
    page.wait_for_url(re.compile("/perfetto$"))
    assert asked == []
    size = (data / "traces" / TRACE).stat().st_size
    for button, bytes_, first in (("Open the whole trace", size, 0x1F), ("Open the shown step", None, ord("{"))):
        with page.expect_popup() as popup:
            page.get_by_role("button", name=button).click()
        expect(page.locator("[data-perfetto-said]")).to_have_text("Handed to Perfetto.")
        popup.value.wait_for_function("window.got !== null")
        got = popup.value.evaluate("window.got")
        assert (got["origin"], got["first"]) == (server, first) and bytes_ in (None, got["bytes"])
        popup.value.close()
    own = tmp_path / "own.json"
    own.write_text('{"traceEvents": []}')
    with page.expect_popup() as popup:
        page.locator("#perfetto-file").set_input_files(own)
    popup.value.wait_for_function("window.got !== null")
    assert popup.value.evaluate("window.got.title") == "own.json"
    assert asked == []
    context.close()


def test_every_file_of_the_tools_is_ours() -> None:
    for name in ("timeline.js", "flame.js", "source.js", "perfetto.js"):
        text = (ROOT / "static" / name).read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[^\"'\s]+", text))
        assert addresses <= {"https://ui.perfetto.dev", "http://www.w3.org/2000/svg"}, name
        assert "innerHTML" not in text
