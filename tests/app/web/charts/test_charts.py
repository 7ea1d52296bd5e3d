"""Charts: what would mislead a reader, leak a name to another host, or break a label."""

from __future__ import annotations

import json
import math

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.web.charts import figure, roofline
from app.web.charts import plotly as charts
from app.web.views import predicted_vs_measured
from app.web.views.region import region_page as views
from profiler.hardware import find_device
from tests.app import samples

DEVICE = find_device("NVIDIA H200")
assert DEVICE is not None
H200 = views.device_rates(DEVICE, "bf16")


def all_charts() -> dict[str, figure.Chart | None]:
    trace = samples.trace([samples.region("a", "library"), samples.region("b", "skip"), samples.region("c", "triton")])
    done = samples.validation()
    return {
        "step": charts.step_by_region(charts.step_rows(trace)),
        "bytes": charts.bytes_moved(samples.cost()),
        "candidates": charts.candidates(done),
        "comparison": charts.comparison(done, done),
        "roofline": roofline.roofline(samples.cost(), H200, done),
        "accuracy": predicted_vs_measured.record_chart(predicted_vs_measured.record_rows([done])),
    }


@pytest.mark.parametrize("name", list(all_charts()))
def test_no_chart_offers_to_upload_itself(name: str) -> None:
    chart = all_charts()[name]
    assert chart is not None
    assert chart["config"]["showSendToCloud"] is False
    assert chart["config"]["plotlyServerURL"] == ""
    assert chart["config"]["displayModeBar"] is False
    assert chart["config"]["displaylogo"] is False


@pytest.mark.parametrize("name", list(all_charts()))
def test_every_chart_is_plain_json_that_plotly_accepts_again(name: str) -> None:
    chart = all_charts()[name]
    assert chart is not None
    again = json.loads(json.dumps(chart["figure"], allow_nan=False))
    assert go.Figure(again).to_plotly_json()["data"]


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        figure.chart([{"type": "bar", "colour": "red"}], {}, 100)


@given(st.text(max_size=80))
@settings(max_examples=200)
def test_a_label_never_holds_markup(text: str) -> None:
    shown = figure.escape(text)
    assert "<" not in shown
    assert ">" not in shown
    assert shown.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").count("&") == 0


def test_kernel_names_with_markup_are_shown_as_they_are() -> None:
    evil = '<a href="javascript:alert(1)">x</a> & void k<float, 4>(T*)'
    trace = samples.trace([samples.region(evil)])
    text = json.dumps(charts.step_by_region(charts.step_rows(trace))["figure"])  # type: ignore[index]
    assert "<a href" not in text
    assert "&lt;a href" in text


def test_the_steps_bars_and_its_named_rest_add_up_to_the_step() -> None:
    regions = [samples.region("a", time_us=3000.0), samples.region("b", time_us=4000.0)]
    rests = [{"name": "copies and sets", "time_us": 200.0}]
    rows = charts.step_rows(samples.trace(regions, rests=rests))
    assert [row["name"] for row in rows] == ["b", "a", "copies and sets", "kernels outside regions", "GPU idle"]
    assert sum(row["time_us"] for row in rows) == pytest.approx(10000.0)
    assert [row["share"] for row in rows] == pytest.approx([0.4, 0.3, 0.02, 0.08, 0.2])


def test_many_regions_become_one_named_bar_and_lose_no_time() -> None:
    regions = [samples.region(f"r{i}", time_us=100.0) for i in range(40)]
    rows = charts.step_rows(samples.trace(regions, gpu_busy_share=None))
    assert len(rows) == charts.MAX_BARS
    assert rows[-1]["name"] == "27 smaller regions"
    assert sum(row["time_us"] for row in rows) == pytest.approx(4000.0)


def test_small_regions_are_regions_still_each_advice_by_itself() -> None:
    regions = [samples.region(f"r{i}", ("skip", "triton")[i % 2], time_us=100.0) for i in range(40)]
    rows = charts.step_rows(samples.trace(regions, gpu_busy_share=None))
    assert "rest" not in {row["tool"] for row in rows}
    assert [row["name"] for row in rows[-2:]] == ["13 smaller regions: Leave it", "14 smaller regions: Triton"]
    assert sum(row["time_us"] for row in rows) == pytest.approx(4000.0)


def test_two_regions_of_one_name_stay_two_bars() -> None:
    rows = [samples.region("same", "skip"), samples.region("same", "skip")]
    chart = charts.step_by_region(charts.step_rows(samples.trace(rows)))
    assert chart is not None
    bars = [label for trace in chart["figure"]["data"] for label in trace["y"]]
    assert len(set(bars)) == len(bars)


def test_a_trace_without_times_or_regions_draws_nothing() -> None:
    assert charts.step_by_region(charts.step_rows(samples.trace([], gpu_busy_share=None))) is None
    assert charts.step_rows(samples.trace([samples.region("a", time_us=None)], step_time_us=None)) == []


def test_bars_of_bytes_are_as_long_as_their_parts() -> None:
    chart = charts.bytes_moved(samples.cost())
    assert chart is not None
    drawn: dict[str, float] = {}
    for trace in chart["figure"]["data"]:
        if trace.get("xaxis") != "x2":
            drawn[trace["y"][0]] = drawn.get(trace["y"][0], 0.0) + trace["x"][0] * 1e6
    cost = samples.cost()
    counts = [cost["unfused"], cost["fused"], cost["ideal"]]
    assert list(drawn.values()) == pytest.approx([c["bytes_read"] + c["bytes_written"] for c in counts])
    launches = next(t for t in chart["figure"]["data"] if t.get("xaxis") == "x2")
    assert list(launches["x"]) == [4, 2, 1]


def test_candidates_are_sorted_and_keep_their_intervals() -> None:
    rows = charts.candidate_rows(samples.validation())
    assert [row["name"] for row in rows] == ["triton:generated", "compile", "eager"]
    assert rows[0]["speedup"] == pytest.approx(2200 / 1750)
    chart = charts.candidates(samples.validation())
    assert chart is not None
    dots = [t for t in chart["figure"]["data"] if t["mode"] == "markers"]
    for row, dot in zip(rows, dots, strict=True):
        assert dot["x"][0] - dot["error_x"]["arrayminus"][0] == pytest.approx(row["time_us"]["low"])
        assert dot["x"][0] + dot["error_x"]["array"][0] == pytest.approx(row["time_us"]["high"])
    assert chart["figure"]["layout"]["shapes"][0]["x0"] == 1400.0


def test_where_wall_time_decides_the_chart_is_of_wall_times() -> None:
    """Next to ratios of wall times, device times of a launch-bound region would have another order."""
    eager, ours = samples.candidate("eager", "eager", 150.0), samples.candidate("triton:x", "triton", 158.0)
    ours = {**ours, "wall_us": 200.0, "ratio_to_eager": {"low": 0.4, "median": 0.5, "high": 0.6}}
    both = [{**eager, "wall_us": 400.0, "ratio_to_eager": {"low": 1.0, "median": 1.0, "high": 1.0}}, ours]
    unclocked = {**samples.candidate("compile", "compile", 5.0), "wall_us": None}
    assert (
        charts.candidate_rows(samples.validation(candidates=[unclocked], conditions={"decided_by": "wall time"})) == []
    )
    for by, order, shown in (
        ("wall time", ["triton:x", "eager"], {"low": 160.0, "median": 200.0, "high": 240.0}),
        ("device time", ["eager", "triton:x"], ours["time_us"]),
    ):
        validation = samples.validation(candidates=both, conditions={"decided_by": by})
        rows = charts.candidate_rows(validation)
        assert [row["name"] for row in rows] == order
        assert next(r for r in rows if r["name"] == "triton:x")["decided_us"] == pytest.approx(shown)
        chart = charts.candidates(validation)
        assert chart is not None
        assert chart["figure"]["layout"]["xaxis"]["title"]["text"].startswith(by)
        assert bool(chart["figure"]["layout"].get("shapes")) is (by == "device time")  # the floor is a device time


def test_a_wide_spread_gets_a_logarithmic_axis_that_shows_every_candidate() -> None:
    wide = samples.validation(
        candidates=[samples.candidate("eager", "eager", 90000.0), samples.candidate("triton:x", "triton", 900.0)]
    )
    chart = charts.candidates(wide)
    assert chart is not None
    axis = chart["figure"]["layout"]["xaxis"]
    assert axis["type"] == "log"
    assert axis["range"][0] < math.log10(900) < math.log10(90000) < axis["range"][1]


def test_nothing_timed_draws_no_chart_of_times() -> None:
    unmeasured = samples.validation(candidates=[samples.candidate("eager", "eager", None, status="correct")])
    assert charts.candidates(unmeasured) is None


def test_predicted_points_lie_on_the_roof_and_measured_ones_below() -> None:
    points = roofline.roofline_points(samples.cost(), H200, samples.validation())
    assert DEVICE is not None
    for point in points:
        roof = min(DEVICE.matmul_rate("bf16"), point["intensity"] * DEVICE.copy_rate)
        if point["measured"]:
            assert 0 < point["rate"] < roof
        else:
            assert point["rate"] == pytest.approx(roof)
    assert [p["name"] for p in points if p["measured"]] == ["triton:generated", "compile", "eager"]


def test_a_region_without_arithmetic_has_no_roofline() -> None:
    cost = samples.cost()
    for part in ("unfused", "fused", "ideal"):
        cost[part]["flops"] = 0
    assert roofline.roofline(cost, H200) is None


def test_ceilings_say_whether_they_were_measured() -> None:
    datasheet = find_device("NVIDIA A100")
    assert datasheet is not None
    measured = json.dumps(roofline.roofline(samples.cost(), H200))
    assert "(measured)" in measured
    assert "(datasheet)" not in measured
    assert "(datasheet)" in json.dumps(roofline.roofline(samples.cost(), views.device_rates(datasheet, "bf16")))


def test_accuracy_compares_speed_ups_and_not_times() -> None:
    rows = predicted_vs_measured.record_rows([samples.validation()])
    assert [(r["name"], r["predicted"], r["measured"]) for r in rows] == [
        ("compile", pytest.approx(2200 / 1800), pytest.approx(2200 / 1800)),
        ("triton:generated", pytest.approx(2200 / 1700), pytest.approx(2200 / 1750)),
    ]
    figures = predicted_vs_measured.summarize_records([samples.validation()])
    assert figures["within"] == 1.0
    assert figures["worst"] == pytest.approx(1800 / 1750)


def test_accuracy_of_nothing_claims_nothing() -> None:
    unmeasured = samples.validation(device=None, candidates=[])
    assert predicted_vs_measured.record_rows([unmeasured]) == []
    figures = predicted_vs_measured.summarize_records([unmeasured])
    assert figures["within"] is None
    assert figures["followed"] is None
    assert predicted_vs_measured.record_chart([]) is None
