"""What the server draws of a figure: labels are inside the picture, on a page and a phone; marks say what they are."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.accuracy.figures import load_committed
from app.web.charts import accuracy, plotly
from app.web.charts.figure import Chart, bar, chart
from app.web.charts.svg import LETTER, NARROW, WIDE, can_draw, drawing, drawings
from tests.app import samples

TEXT = re.compile(r'<text class="[^"]*" x="([-\d.]+)" y="([-\d.]+)" text-anchor="(\w+)"([^>]*)>([^<]*)</text>')


def candidates() -> Chart:
    drawn = plotly.candidates(samples.validation())
    assert drawn
    return drawn


def bars(texts: list[str], names: list[str], **more: Any) -> Chart:
    traces = [{"type": "bar", "orientation": "h", "name": "a", "y": names, "x": [3.0] * len(names), "text": texts,
               "textposition": "outside", "marker": bar("triton"), "hovertemplate": "%{y}<br>%{text}<extra></extra>",
               **more}]  # fmt: skip
    axis = {"type": "category", "autorange": "reversed", "tickvals": names}
    return chart(traces, {"yaxis": axis, "xaxis": {"range": [0, 4.0], "title": {"text": "ms"}}}, 200)


def labels(svg: str) -> Iterator[tuple[float, float, str]]:
    """(left, right, text) of each label that stands upright, by the width of an average letter."""
    for x, _, anchor, turned, text in TEXT.findall(svg):
        said = html.unescape(text)
        wide = len(said) * LETTER * 0.93  # an estimate for the widest of fonts
        if not turned:
            left = float(x) - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
            yield left, left + wide, said


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(
    "figure",
    [
        bars(["1.23 ms, predicted 1.20 ms", "8.00 µs"], ["triton:matmul_epilogue with a long name", "eager"]),
        candidates(),
    ],
    ids=["long labels", "candidates"],
)
def test_no_label_is_cut_off_by_the_edge(figure: Chart, width: float) -> None:
    told = list(labels(str(drawing(figure, "t", width))))
    assert told
    assert [t for t in told if t[0] < -1 or t[1] > width + 1] == []


def test_marks_on_an_axis_do_not_touch() -> None:
    figure = accuracy.calibration_chart(load_committed())
    assert figure
    for width in (WIDE, NARROW):
        svg = str(drawing(figure, "t", width))
        ticks = re.findall(r'<text class="tick" x="([\d.]+)" y="([\d.]+)" text-anchor="middle">([^<]+)<', svg)
        places = sorted((float(x), len(t)) for x, _, t in ticks)
        assert len(places) > 3
        gaps = [b[0] - a[0] - 6.0 * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(places)]
        assert min(gaps) > 0


def test_a_mark_says_what_it_is_where_it_is_pointed_at() -> None:
    svg = str(drawing(bars(["1 < 2", "x"], ["GEMM &amp; GELU", "b"]), "t"))
    assert "<title>GEMM &amp; GELU\n1 &lt; 2</title></rect>" in svg
    figure = accuracy.calibration_chart(load_committed())
    assert figure
    told = re.findall(r"<title>([^<]+)</title>", str(drawing(figure, "t")))
    assert len(told) == len(accuracy.list_points(load_committed()))
    assert all(re.search(r"predicted [\d.]+×, measured [\d.]+×$", t) for t in told)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_label_of_a_bar_that_goes_left_stands_on_the_names(width: float) -> None:
    texts, names = ["−4.21 ms, no verdict", "+77.0 µs, slower"], ["idle: waiting for launches", "layout copy (heads)"]
    figure = bars(texts, names, x=[-4.21, 0.077])
    figure["figure"]["layout"]["xaxis"]["range"] = [-8.0, 8.0]
    told = {text.strip(): (left, right) for left, right, text in labels(str(drawing(figure, "t", width)))}
    edge = max(right for text, (_, right) in told.items() if text.startswith(("idle", "layout")))
    for text in texts:
        assert edge <= told[text][0] and told[text][1] <= width, text


def test_bars_begin_where_they_are_said_to_and_may_go_left() -> None:
    svg = str(drawing(bars(["", ""], ["a", "b"], base=1.0, x=[1.0, -0.5]), "t"))
    wide = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="(?!11")', svg)
    (right, longer), (left, shorter) = ((float(x), float(w)) for x, w in wide)
    assert longer == pytest.approx(2 * shorter, abs=0.2)
    assert left + shorter == pytest.approx(right, abs=0.2), "both begin at the base"


def test_a_line_of_steps_goes_along_and_then_up() -> None:
    figure = accuracy.distribution_chart(load_committed())
    assert figure
    points = re.findall(r'<polyline points="([^"]+)"', str(drawing(figure, "t")))
    longest = [tuple(map(float, p.split(","))) for p in max(points, key=len).split()]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(longest))


def test_both_widths_stand_in_the_page_with_hatchings_of_their_own() -> None:
    both = str(drawings(bars(["", ""], ["a", "b"]), "t"))
    assert re.findall(r'class="drawn (\w+)" viewBox="0 0 (\d+)', both) == [("wide", "880"), ("narrow", "380")]
    defined = re.findall(r'<pattern id="(\w+)"', both)
    assert len(defined) == len(set(defined)) == 2
    assert set(re.findall(r"url\(#(\w+)\)", both)) == set(defined)


def test_what_it_cannot_draw_is_known() -> None:
    assert can_draw(candidates())
    cost = samples.region("a")["cost"]
    assert (figure := plotly.bytes_moved(cost)) and can_draw(figure)
    survey = {"type": "heatmap", "x": ["a"], "y": ["b"], "z": [[1.0]]}
    assert not can_draw(chart([survey], {}, 100))
    upright = {"type": "bar", "x": ["a"], "y": [1.0], "marker": bar("triton")}
    assert not can_draw(chart([upright], {}, 100))
    grouped = {"type": "bar", "orientation": "h", "y": ["a"], "x": [1.0], "marker": bar("triton")}
    assert not can_draw(chart([grouped], {"barmode": "group"}, 100))
