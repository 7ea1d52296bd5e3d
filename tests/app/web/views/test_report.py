"""A report is one file: nothing to load, every region's advice in it, charts that agree with the numbers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from app.advice.evidence import without_figures
from app.analysis.service import advise_region
from app.cli import main
from app.trace_report.report import report
from app.web.charts import plotly
from app.web.charts.figure import chart, escape
from app.web.charts.svg import Scale, drawing, ticks
from app.web.views.report import region_report, trace_report
from tests.conftest import ROOT

EXAMPLES = ROOT / "app" / "examples"
EVIL = "</style></svg><script>alert(1)</script><a href='javascript:alert(2)'>k</a>"


class Seen(HTMLParser):
    """Elements, what they point to, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("href", "src", "action", "srcset", "data", "xlink:href")]
        self.handlers += [k for k, _ in attrs if k.startswith(("on", "hx-"))]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def trace() -> dict[str, Any]:
    return {"status": "ready", **report(EXAMPLES / "handrolled_blocks.json.gz", "handrolled_blocks.json.gz")}


@pytest.fixture(scope="module")
def region() -> dict[str, Any]:
    return advise_region((EXAMPLES / "gemm_gelu_mask.txt").read_text(encoding="utf-8"), share_of_step=0.12)


def stands_alone(page: str) -> Seen:
    seen = Seen(page)
    assert not {"script", "link", "form", "button", "input", "iframe", "img", "object"} & set(seen.tags)
    assert [link for link in seen.links if not link.startswith("#")] == []
    assert seen.handlers == []
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in seen.links} <= set(ids)
    return seen


def test_a_trace_with_every_regions_advice_in_one_file(trace: dict[str, Any]) -> None:
    page = trace_report(trace, written="today")
    seen = stands_alone(page)
    for found in trace["regions"]:
        assert without_figures(found["advice"]["headline"].replace("`", "")) in seen.text
        for line in (found["text"] or "").splitlines():
            assert line in seen.text
    assert page.count('<svg class="drawn wide"') == 1
    assert page.count('<div class="lane"') == len(trace["timeline"]["streams"]) and 'id="where"' in page


def test_a_region_with_its_charts_and_criteria_in_one_file(region: dict[str, Any]) -> None:
    page = region_report(region, written="today")
    seen = stands_alone(page)
    for criterion in region["advice"]["criteria"]:
        assert (
            f'data-criterion="{criterion["name"]}"' in page and criterion["because"][1:-1].replace("`", "") in seen.text
        )
    figures = re.findall(r"<figure class=\"chart.*?</figure>", page, re.S)
    assert len(figures) >= 3
    assert all('<svg class="drawn wide"' in f and "<table" in f for f in figures)


def test_names_with_markup_stay_text(trace: dict[str, Any], region: dict[str, Any]) -> None:
    worst = {**trace, "name": EVIL, "device": EVIL, "regions": [{**r, "name": EVIL} for r in trace["regions"]]}
    page = trace_report(worst, written="today")
    assert EVIL in stands_alone(page).text
    stands_alone(region_report({**region, "name": EVIL, "notes": [EVIL]}, written="today"))


def test_bars_are_as_long_as_their_numbers(trace: dict[str, Any]) -> None:
    figure = plotly.step_by_region(plotly.step_rows(trace))
    assert figure
    svg = drawing(figure, "The step")
    times = [row["time_us"] for row in plotly.step_rows(trace)]
    wide = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)" height="(?!11")', svg)]
    assert len(wide) == len(times)
    ratios = [w / t for w, t in zip(sorted(wide), sorted(times), strict=True) if w > 20]
    assert max(ratios) / min(ratios) < 1.02


def test_a_label_is_escaped_once() -> None:
    figure = chart(
        [{"type": "bar", "orientation": "h", "y": [escape("a<b> & c")], "x": [1.0], "marker": {"color": "#000"}}],
        {"yaxis": {"type": "category"}, "xaxis": {"range": [0, 1], "title": {"text": "ms"}}}, 100,
    )  # fmt: skip
    assert ">a&lt;b&gt; &amp; c</text>" in drawing(figure, "<t>")
    assert "&amp;lt;" not in drawing(figure, "t")


@pytest.mark.parametrize(
    ("scale", "texts"),
    [
        (Scale("linear", 0, 10, 0, 100), ["0", "2", "4", "6", "8", "10"]),
        (Scale("log", 0, 2, 0, 100), ["1", "10", "100"]),
        (Scale("linear", 0, 3248, 0, 100), ["0", "500", "1,000", "1,500", "2,000", "2,500", "3,000"]),
    ],
)
def test_an_axis_is_marked_at_round_numbers_inside_it(scale: Scale, texts: list[str]) -> None:
    assert [text for _, text in ticks(scale, {})] == texts
    assert min(at for at, _ in ticks(scale, {})) == 0


@pytest.mark.parametrize("span", [0.07, 1.0, 4.05, 6.99, 9.9, 123.0])
@pytest.mark.parametrize("most", [2, 3, 4, 7, 12])
def test_an_axis_of_any_length_has_marks_and_no_more_than_it_asks_for(span: float, most: int) -> None:
    marks = ticks(Scale("linear", 0.0, span, 0.0, 100.0), {"nticks": most})
    assert 1 <= len(marks) <= most + 1


def test_the_command_writes_a_region_with_the_nearest_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(EXAMPLES / "gemm_gelu_mask.txt"), "--share", "0.12", "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert "Measured on H200: agrees" in stands_alone(out.read_text(encoding="utf-8")).text


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err
    text = EXAMPLES / "gemm_gelu_mask.txt"
    assert main(["report", str(text), "--out", str(tmp_path / "no" / "folder.html")]) == 2
    assert "folder.html" in capsys.readouterr().err
