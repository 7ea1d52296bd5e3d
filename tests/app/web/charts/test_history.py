"""The chart of a check's history and its small lines: what is marked and where, and nothing is cut off."""

from __future__ import annotations

import html
import re

import pytest

from app.objects.history import HistoryChange, HistoryPoint
from app.web.charts.figure import Chart
from app.web.charts.history import Axis, Boundary, series_chart
from app.web.charts.sparkline import HIGH, WIDE, sparkline
from app.web.charts.svg import NARROW, can_draw, drawing
from app.web.charts.svg import WIDE as WIDE_CHART
from tests.app.web.charts.test_svg import labels

KEY = {"check": "nightly", "branch": "main", "subject": "step", "metric": "time"}


def point(
    at: int, value: float, *, segment: int = 0, level: float | None = 4000.0, outlier: bool = False
) -> HistoryPoint:
    environment = {"device": "H200", "software": {"torch": "2.13.0"}, "method": ""}
    run = {"id": f"r{at}", "at": f"2026-11-{at + 1:02}T00:00:00.000000Z", "commit": f"{at:040}", "dirty": False,
           "environment": environment}  # fmt: skip
    bounds = (None, None) if level is None else (level * 0.99, level * 1.01)
    return {"run": run, "value": value, "samples": 5, "spread": 0.01, "segment": segment, "outlier": outlier,
            "level": level, "low": bounds[0], "high": bounds[1]}  # type: ignore[typeddict-item]  # fmt: skip


def change(before: HistoryPoint, after: HistoryPoint, cause: str) -> HistoryChange:
    ratio = after["value"] / before["value"]
    return {"key": KEY, "before": before["run"], "after": after["run"], "cause": cause, "confidence": 0.99,
            "ratio": {"low": ratio * 0.99, "mid": ratio, "high": ratio * 1.01}, "because": "", "commits_between": [],
            "also": [], "how_to_separate": ""}  # type: ignore[return-value,typeddict-item]  # fmt: skip


POINTS = [
    *(point(n, 4000.0 + n) for n in range(6)),
    point(6, 4500.0, outlier=True),
    *(point(n, 4400.0 + n, level=4400.0) for n in range(7, 14)),
    *(point(n, 3000.0 + n, segment=1, level=None) for n in range(14, 20)),
]
CHANGES = [change(POINTS[5], POINTS[7], "regression"), change(POINTS[13], POINTS[14], "software")]
MS = Axis("time, ms", 1e3)


def drawn(boundaries: list[Boundary] | None = None, names: list[str] | None = None) -> Chart:
    given = [Boundary(14, "2026-11-15", "A", "torch 2.13.0 to 2.14.0")] if boundaries is None else boundaries
    figure = series_chart(POINTS, CHANGES, given, names or [f"run {n}" for n in range(len(POINTS))], MS)
    assert figure is not None
    return figure


def traces(figure: Chart, name: str) -> list[dict[str, list[float]]]:
    return [trace for trace in figure["figure"]["data"] if trace["name"] == name]


def test_every_run_is_one_mark_and_a_change_has_its_causes_shape() -> None:
    marks = [t for t in drawn()["figure"]["data"] if t["mode"] == "markers"]
    places = sorted(x for trace in marks for x in trace["x"])
    assert places == list(range(len(POINTS)))
    shapes = {t["name"]: (t["x"], t["marker"]["symbol"]) for t in marks if t["name"] != "run"}
    assert shapes == {
        "run that stands alone": ([6], "circle-open"),
        "worse: the commit": ([7], "triangle-up"),
        "changed with the software": ([14], "diamond"),
    }


def test_the_band_and_the_level_are_drawn_where_they_are_known_alone() -> None:
    levels = [(t["x"], t["y"][0]) for t in traces(drawn(), "level")]
    assert levels == [([-0.5, 6.5], 4.0), ([6.5, 13.5], 4.4)]
    bands = traces(drawn(), "noise between runs")
    assert [(min(t["y"]), max(t["y"])) for t in bands] == [
        (pytest.approx(3.96), pytest.approx(4.04)), (pytest.approx(4.356), pytest.approx(4.444))
    ]  # fmt: skip


def test_an_environments_line_stands_before_its_first_run_with_words_where_they_fit() -> None:
    layout = drawn()["figure"]["layout"]
    assert [shape["x0"] for shape in layout["shapes"]] == [13.5]
    assert layout["annotations"][0]["text"] == "A"  # 6 of 20 runs are no room on a phone
    early = drawn([Boundary(2, "2026-11-03", "A", "torch 2.13.0 to 2.14.0")])
    assert early["figure"]["layout"]["annotations"][0]["text"] == "A: torch 2.13.0 to 2.14.0"


@pytest.mark.parametrize("width", [WIDE_CHART, NARROW])
def test_no_label_is_cut_off(width: float) -> None:
    figure = drawn()
    assert can_draw(figure)
    told = list(labels(str(drawing(figure, "t", width))))
    assert {"A", "time, ms"} <= {text for _, _, text in told} | {"time, ms"}
    assert [t for t in told if t[0] < -1 or t[1] > width + 1] == []


def test_what_a_mark_says_is_text() -> None:
    names = ["<script>alert(1)</script>", *("x" * 300 for _ in POINTS[1:])]
    svg = str(drawing(drawn(names=names), "t"))
    assert "<script" not in svg
    assert "<script>alert(1)</script>" in html.unescape(svg)


def test_no_runs_are_no_chart_and_one_is_a_chart() -> None:
    assert series_chart([], [], [], [], MS) is None
    one = series_chart([point(0, 5.0, level=None)], [], [], ["one"], Axis("", 1.0))
    assert one is not None and "<circle" in str(drawing(one, "t"))


def test_a_small_line_stays_within_its_box_and_noise_is_flat() -> None:
    def heights(values: list[float]) -> list[float]:
        spots = re.search(r'points="([^"]+)"', str(sparkline(values, "l")))
        assert spots
        places = [tuple(map(float, spot.split(","))) for spot in spots[1].split()]
        assert all(0 <= x <= WIDE and 0 <= y <= HIGH for x, y in places)
        return [y for _, y in places]

    up = heights([1.0, 1.0, 2.0])
    assert up[2] < up[0] == up[1]
    noise = heights([1.0, 1.001, 0.999])
    assert max(noise) - min(noise) < 2.0
    assert heights([3.0]) == [HIGH / 2]
    assert sparkline([], "l") == ""
    assert "&lt;b&gt;" in sparkline([1.0], "<b>")
