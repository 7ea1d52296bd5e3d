"""The page /accuracy and the charts of the benchmark, on the committed figures and on made ones."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.accuracy import drawing, table
from app.accuracy.corpus.document import NO_LOOK
from app.accuracy.corpus.looks import load_development, load_looks
from app.accuracy.figures import load_committed
from app.web.charts import accuracy as accuracy_charts
from tests.app.web.conftest import serving

Json = dict[str, Any]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("accuracy")) as server:
        server.client.headers["Accept"] = "text/html"
        yield server.client


def test_the_page_shows_every_policy_and_every_record_as_tables(client: httpx.Client) -> None:
    page = client.get("/accuracy").text
    held = load_committed()
    for name in held["policies"]:
        assert f'<th scope="row">{name}</th>' in page
    for row in table.regions(held)[1:]:
        assert f"<td>{row[1]}</td>" in page
    for claim in held["claims"]:
        assert claim["claim"] in page
    assert page.count('<svg class="drawn wide"') >= 3


def test_the_twin_is_what_is_committed(client: httpx.Client) -> None:
    answer = client.get("/accuracy.json").json()
    assert answer.pop("blind") == list(reversed(load_looks()))
    assert answer.pop("development") == load_development()
    assert answer == load_committed()


def test_blind_figures_lead_the_page_and_the_archives_are_called_in_sample(client: httpx.Client) -> None:
    page = client.get("/accuracy").text
    places = [page.index(f"<h2>{title}") for title in ("Blind test", "Development third", "In-sample")]
    assert places == sorted(places)
    assert page.index("In-sample") < page.index("Targets and results")
    if not load_looks():
        assert NO_LOOK in page


def test_the_page_is_there_in_300_ms(client: httpx.Client) -> None:
    client.get("/accuracy")  # imports Plotly
    spans = []
    for _ in range(5):
        started = time.process_time()
        client.get("/accuracy")
        spans.append(time.process_time() - started)
    assert min(spans) < 0.3


def test_the_calibration_chart_has_each_candidate_once_and_the_advised_filled() -> None:
    held = load_committed()
    chart = accuracy_charts.calibration_chart(held)
    assert chart is not None
    marks = [t for t in chart["figure"]["data"] if t["mode"] == "markers"]
    assert sum(len(t["x"]) for t in marks) == sum(len(s["calibration"]) for s in held["scores"])
    filled = sum(len(t["x"]) for t in marks if not t["marker"]["symbol"].endswith("-open"))
    assert filled == sum(s["predicted"] is not None for s in held["scores"])
    assert chart["figure"]["layout"]["xaxis"]["type"] == chart["figure"]["layout"]["yaxis"]["type"] == "log"


def test_the_band_is_where_predictions_are_20_per_cent_off() -> None:
    chart = accuracy_charts.calibration_chart(load_committed())
    assert chart is not None
    lines = [t for t in chart["figure"]["data"] if t["mode"] == "lines"]
    assert sorted(round(x / y, 6) for t in lines for x, y in zip(t["x"], t["y"], strict=True)) == [
        0.8, 0.8, 1.0, 1.0, 1.2, 1.2,
    ]  # fmt: skip


def test_the_distribution_rises_to_all_regions_at_the_worst_regret() -> None:
    held = load_committed()
    chart = accuracy_charts.distribution_chart(held)
    assert chart is not None
    advice = chart["figure"]["data"][0]
    assert advice["y"][-1] == 1 and advice["y"][0] == 0
    assert advice["x"][-2] == held["advice"]["all"]["regret_worst"]
    worst = {row["name"]: row["at"][-1] for row in accuracy_charts.quantile_rows(held)}
    assert worst["always eager"] == held["policies"]["always eager"]["all"]["regret_worst"]


def test_names_of_regions_are_never_markup() -> None:
    held: Json = deepcopy(load_committed())
    for score in held["scores"]:
        score["name"] = "<b>&x</b>"
    for text in (drawing.calibration(held["scores"]), drawing.regrets(held["scores"])):
        root = ElementTree.fromstring(text)
        assert not [e for e in root.iter() if e.tag.endswith("}b")]
    assert "<b>" not in json.dumps(accuracy_charts.regret_chart(held)) + json.dumps(
        accuracy_charts.calibration_chart(held)
    )


def test_charts_of_nothing_are_none_and_drawings_say_so() -> None:
    empty: Json = {"scores": [], "policies": {}}
    assert accuracy_charts.calibration_chart(empty) is None
    assert accuracy_charts.regret_chart(empty) is None
    assert accuracy_charts.distribution_chart(empty) is None
    assert "No region scored yet" in drawing.regrets([])


def test_marks_on_an_axis_keep_apart() -> None:
    assert drawing.marks((1, 1.03, 1.1, 2, 5), 1, 10) == [1, 2, 5]
    assert drawing.marks((1, 1.03, 1.1), 1, 1.15) == [1, 1.03, 1.1]


def test_the_drawings_stay_in_their_frame() -> None:
    for text in (drawing.calibration(load_committed()["scores"]), drawing.regrets(load_committed()["scores"])):
        root = ElementTree.fromstring(text)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for item in root.iter():
            if item.tag.endswith("circle"):
                assert 0 <= float(item.attrib["cx"]) <= width and 0 <= float(item.attrib["cy"]) <= height
            if item.tag.endswith("rect"):
                assert float(item.attrib.get("x", 0)) + float(item.attrib["width"]) <= width


def test_docs_name_no_place_of_this_machine() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "accuracy.md").read_text()
    assert "/tmp" not in text and "/work" not in text
