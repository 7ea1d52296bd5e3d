"""Each figure of a region's page that stands more than once has one value, and it is the API's."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.archive import record_store
from app.units import duration, factor, share
from tests.app.web.conftest import serving
from tests.conftest import ROOT

TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "app" / "examples").glob("*.txt")} | {
    "training": "x: bf16[8192, 4096].requires_grad\ny = gelu(x * 2)\nreturn y\n",
    "recorded": next(r for r in record_store.records() if r["name"].startswith("pointwise chain"))["region"],
}

FIGURE = re.compile(r'<data data-quantity="([^"]+)" value="([^"]+)">([^<]+)</data>')
SHOWN_AS = {"region_speedup": factor, "step_speedup": factor, "share_of_step": share}
"""Figures that are no times."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("figures"), budget_s=5) as server:
        server.client.headers["Accept"] = "text/html"
        yield server.client


def from_api(client: httpx.Client, path: str, page: str) -> dict[str, float]:
    """Name of a figure -> its value, by the API's objects alone: the region's and the record's that the page names."""
    region = client.get(f"{path}.json").json()
    advice = region["advice"]
    known = {f"predicted {a['candidate']}": a["time_us"]["mid"] for a in advice["alternatives"] if a["time_us"]}
    known |= {"floor_us": advice["floor_us"], "share_of_step": region["share_of_step"]}
    named = re.search(r'id="record".*?href="/validations/([^"]+)"', page, re.S)
    record: dict[str, Any] = client.get(f"/validations/{named[1]}.json").json() if named else {}
    wall = str(record.get("conditions", {}).get("decided_by", "")).startswith("wall")
    for candidate in record.get("candidates", ()):
        if candidate["status"] == "ok" and candidate["time_us"]:
            median = candidate["time_us"]["median"]
            known[f"measured {candidate['name']}"] = candidate["wall_us"] if wall else median
            known[f"device {candidate['name']}"] = median
    if "measured on " not in page.partition('id="options"')[0]:
        for name in ("region_speedup", "step_speedup"):
            if advice[name]:
                known[name] = advice[name]["mid"]
    return known


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_figure_has_one_value_on_all_of_the_page_and_it_is_the_apis(client: httpx.Client, name: str) -> None:
    form = {"text": TEXTS[name], "share_percent": "12", "device": "NVIDIA H200"}
    path = client.post("/regions", data=form).headers["location"]
    page = html.unescape(client.get(f"{path}?tab=all").text)
    values: defaultdict[str, set[float]] = defaultdict(set)
    words: defaultdict[str, set[str]] = defaultdict(set)
    for figure, value, text in FIGURE.findall(page):
        values[figure].add(float(value))
        words[figure].add(text)
        assert text == SHOWN_AS.get(figure, duration)(float(value)), figure
    assert len(values) > 8
    assert {figure: v for figure, v in values.items() if len(v) > 1} == {}
    assert {figure: w for figure, w in words.items() if len(w) > 1} == {}
    known = from_api(client, path, page)
    for figure, (value,) in values.items():
        if figure in known:
            assert value == pytest.approx(known[figure]), figure
    assert len(set(values) & set(known)) > 6
    # The first screen is of one kind: measured times, or predicted ones, never both.
    first = client.get(path).text
    kinds = {figure.split()[0] for figure, _, _ in FIGURE.findall(html.unescape(first)) if " " in figure}
    assert len(kinds) == 1
    before, after = (value for figure in ("now_us", "then_us") for value in values[figure])
    assert before in {v for f, (v,) in values.items() if f == f"{min(kinds)} eager"}
    assert after in {v for f, (v,) in values.items() if f.startswith(min(kinds))}
