"""Rows "XSS by kernel names" and "download headers": what a trace's names become in files that leave the server.

The pages themselves are driven in Chromium by tests/browser/test_attack.py, with the same names.
"""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import html5lib
import httpx
import pytest
from markdown_it import MarkdownIt

from tests.attacks.process import Process, running
from tests.browser.furnished import TRACE
from tests.browser.test_attack import ATTACKS, attacked

EVIL = 'x"; filename="evil.html\r\nX-Evil: 1\r\n\r\n<script>alert(1)\u202e日本.html'
FORMATS = ("html", "csv", "md", "sarif", "xml", "json")
RUNS = {"script", "iframe", "object", "embed", "form", "base", "link", "foreignObject", "animate", "set"}


@dataclass
class Hostile:
    """A server with a trace whose names are attacks, and what it exports."""

    server: Process
    trace: dict[str, Any]
    region: str
    check: str

    def get(self, path: str) -> httpx.Response:
        response = self.server.client.get(path)
        assert response.status_code == 200, (path, response.text[:300])
        return response

    def report(self, suffix: str) -> str:
        return self.get(f"/api/v1/checks/{self.check}.{suffix}").text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Hostile]:
    """The real server and the real reader."""
    body = json.dumps(attacked(data / "traces" / TRACE, all_names=False)).encode()
    with running(tmp_path_factory.mktemp("hostile")) as server:
        sent = server.client.post("/api/v1/traces", params={"wait": 60, "name": EVIL}, content=body)
        assert sent.status_code == 201, sent.text
        trace = sent.json()
        region = next(r["id"] for r in trace["regions"] if r["text"])
        check = server.client.post("/api/v1/checks?wait=60", json={"traces": [trace["id"]]}).json()["id"]
        yield Hostile(server, trace, region, check)


ADDRESSES = {"href", "src", "action", "formaction", "data", "poster", "srcset", "ping", "background"}


def nothing_runs(page: str) -> None:
    """The page, as a browser parses it, has no element that runs and no attribute that does."""
    tree = html5lib.parse(page, treebuilder="etree", namespaceHTMLElements=False)
    for element in tree.iter():
        name = str(element.tag).rpartition("}")[2]
        data_block = name == "script" and element.get("type") == "application/json"
        own = name in ("script", "link") and re.match(r"/static/", element.get("src") or element.get("href") or "")
        assert name not in RUNS - {"form"} or data_block or own, f"<{name}> {element.attrib}"
        for key, value in element.attrib.items():
            assert not str(key).startswith("on"), f"{key}={value}"
            if str(key).rpartition("}")[2] in ADDRESSES:
                assert not re.match(r"\s*(javascript|vbscript|data:text)", value, re.IGNORECASE), f"{key}={value}"
                assert "evil" not in urlsplit(value.strip()).netloc, f"{key}={value}"


def test_xss_by_kernel_names_in_pages(hostile: Hostile) -> None:
    trace = hostile.trace["id"]
    for path in (f"/traces/{trace}", f"/regions/{hostile.region}", f"/compare?a={trace}&b={trace}", "/history"):
        page = hostile.server.client.get(path, headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert "alert(" in page.text or path.startswith("/regions"), "the names are there, as text"
        nothing_runs(page.text)


def test_xss_by_kernel_names_in_standalone_html(hostile: Hostile) -> None:
    paths = (f"/traces/{hostile.trace['id']}/report.html", f"/regions/{hostile.region}/report.html")
    for page in (*(hostile.get(path).text for path in paths), hostile.report("html")):
        nothing_runs(page)
        assert not re.search(r"<script|\bhttp-equiv=.refresh", page)
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
        assert policy
        assert "default-src" in policy[1].replace("&#39;", "'")


def test_xss_by_kernel_names_in_markdown(hostile: Hostile) -> None:
    text = hostile.report("md")
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert not re.search(r"<(img|script|svg|a|iframe|b)\b", rendered)
    assert not re.search(r"(^|[^`\\\w])@\w", re.sub(r"`[^`\n]*`", "", text)), "somebody is mentioned"
    for line in text.splitlines():
        assert not line.startswith("|") or line.rstrip().endswith("|"), "a name breaks the table"


def test_xss_by_kernel_names_in_sarif(hostile: Hostile) -> None:
    answer = json.loads(hostile.report("sarif"))
    for run in answer["runs"]:
        for result in run["results"]:
            assert not re.search(r"\]\(|<\w", result["message"].get("text", "")), result["message"]
            for place in result.get("locations", ()):
                uri = place.get("physicalLocation", {}).get("artifactLocation", {}).get("uri", "")
                assert not re.match(r"(javascript|data|https?):", uri, re.IGNORECASE), uri


def test_xss_by_kernel_names_in_csv_starts_no_formula(hostile: Hostile) -> None:
    rows = list(csv.reader(io.StringIO(hostile.report("csv"))))
    assert len({len(row) for row in rows}) == 1
    cells = [cell for row in rows for cell in row]
    assert not [c for c in cells if c[:1] in tuple("=@+\t\r") or re.match(r"-[^\d]", c)]


def test_xss_by_kernel_names_in_junit_and_json(hostile: Hostile) -> None:
    assert ET.fromstring(hostile.report("xml")).tag in ("testsuite", "testsuites")
    text = hostile.report("json")
    assert json.loads(text)
    assert "\u202e" not in text


def test_the_attacks_did_reach_the_reports(hostile: Hostile) -> None:
    """Or the tests above hold nothing."""
    told = hostile.report("json") + hostile.get(f"/api/v1/regions/{hostile.region}").text + json.dumps(hostile.trace)
    assert sum(a[:8] in told or json.dumps(a)[1:9] in told for a in ATTACKS) >= 5


def test_download_headers_are_ours_whatever_the_name_says(hostile: Hostile) -> None:
    """One header of ASCII, a file name of plain characters, and no page of a user's data inline."""
    paths = [f"/traces/{hostile.trace['id']}/report.html", f"/regions/{hostile.region}/report.html",
             f"/regions/{hostile.region}/replay.py"]  # fmt: skip
    paths += [f"/api/v1/checks/{hostile.check}.{suffix}" for suffix in FORMATS]
    for path in paths:
        response = hostile.get(path)
        assert "x-evil" not in response.headers
        assert response.headers["x-content-type-options"] == "nosniff"
        told = response.headers["content-disposition"]
        assert told.isascii() and told.isprintable()
        message = Message()
        message["Content-Disposition"] = told
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}", message.get_filename() or ""), told
        assert told.count("filename=") == 1
        if "html" in response.headers["content-type"]:
            assert told.startswith("attachment"), "a page of a user's data opens on our origin"
