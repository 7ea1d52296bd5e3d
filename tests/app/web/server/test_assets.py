"""What the browser gets: vendored files unchanged, nothing from another host, nothing inline, no unescaped text."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from app.web.templating import environment, ticks
from tests.conftest import ROOT

STATIC = ROOT / "static"
VENDOR = STATIC / "vendor"
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
OWN = [*TEMPLATES, *sorted(STATIC.glob("*.js")), STATIC / "app.css"]

LINKS_OUT = {"https://ui.perfetto.dev"}
"""Where a link that a reader follows may lead; such a link tells the other host nothing of this page."""

LOCK = json.loads((VENDOR / "LOCK.json").read_text())


@pytest.mark.parametrize("entry", LOCK, ids=lambda e: e["file"])
def test_vendored_files_are_the_ones_of_the_lock(entry: dict[str, str]) -> None:
    assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    assert (VENDOR / entry["licence_file"]).read_text().strip()
    assert entry["version"]
    assert entry["licence"] in {"MIT", "0BSD"}


def test_every_vendored_file_is_in_the_lock() -> None:
    known = {e["file"] for e in LOCK} | {e["licence_file"] for e in LOCK} | {"LOCK.json"}
    assert {p.name for p in VENDOR.iterdir()} == known


def test_only_vendored_files_are_large() -> None:
    large = [p for p in STATIC.rglob("*") if p.is_file() and p.stat().st_size > 500_000]
    assert [p.relative_to(STATIC).parts[0] for p in large] == ["vendor"]
    examples = ROOT / "app" / "examples"
    assert sum(p.stat().st_size for p in examples.iterdir()) < 600_000


def _without_a_link_out(anchor: re.Match[str]) -> str:
    """An anchor, "" for one that loads nothing: it leads where it may, by a reader's click alone."""
    to = re.search(r'\bhref="([^"]*)"', anchor[0])
    by_click_alone = 'rel="noopener noreferrer"' in anchor[0] and not re.search(r"\bhx-|\bping\b", anchor[0])
    return "" if to and to[1] in LINKS_OUT and by_click_alone else anchor[0]


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.name)
def test_pages_load_nothing_from_another_host(path: Path) -> None:
    text = re.sub(r"<a\b[^>]*>", _without_a_link_out, path.read_text())
    assert not re.findall(r"""(?:src|href|action|url)\s*[=(]\s*["']?(?:https?:)?//""", text)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates_have_nothing_that_the_content_policy_forbids(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", text), "inline script"
    assert "<style" not in text
    assert not re.search(r"\son[a-z]+\s*=", text), "inline handler"
    assert not re.search(r"hx-on|javascript:|\|\s*safe\b", text)


def test_every_template_compiles() -> None:
    for path in TEMPLATES:
        environment().get_template(str(path.relative_to(ROOT / "templates")))


def test_backticks_become_code_and_markup_stays_text() -> None:
    assert str(ticks("call `F.rms_norm` <b>")) == "call <code>F.rms_norm</code> &lt;b&gt;"
    assert "<script>" not in str(ticks("`<script>`"))


def test_own_script_is_small() -> None:
    assert len((STATIC / "app.js").read_text().splitlines()) < 220
