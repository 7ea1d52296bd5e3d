"""Charts that are read without colour, names that stay distinct, and the roof that a region truly has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.accuracy.figures import load_committed
from app.analysis.cost_json import cost_json
from app.web.charts import accuracy as accuracy_charts
from app.web.charts import plotly, roofline
from app.web.charts.figure import BY_COLOUR, COLOURS, HATCHES, ORDER, SEGMENTS, SYMBOLS, bars, symbol
from app.web.charts.names import shorten, shorten_uniquely
from app.web.charts.svg import drawing
from app.web.learning import tiles
from app.web.views import predicted_vs_measured
from app.web.views.region import region_page as views
from app.web.views.validation_page import condition_rows as conditions
from profiler.hardware import find_device
from profiler.region.graph.cost import cost
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.app import samples

H200 = find_device("H200")
assert H200 is not None

FP8 = "a: f8e4m3[8192, 4096]\nb: f8e4m3[8192, 4096]\nreturn (a.to(f32) @ b.to(f32).t()).to(bf16)\n"

TOOLS = ("eager", "library", "compile", "triton", "cuda")


def test_every_tool_and_every_segment_has_a_look_of_its_own() -> None:
    assert len({HATCHES[t] for t in TOOLS}) == len(TOOLS)
    assert len({SYMBOLS[t] for t in TOOLS}) == len(TOOLS)
    assert len(set(ORDER)) == len(SEGMENTS) == len(BY_COLOUR)
    assert symbol("triton", hollow=True) == "triangle-up-open"
    assert symbol("something new") == "circle"


def patterned(figure: dict[str, Any]) -> list[Any]:
    """Each bar's hatching."""
    collected: list[Any] = []
    for trace in figure["figure"]["data"]:
        if trace["type"] == "bar":
            shape = trace["marker"]["pattern"]["shape"]
            collected += [shape] if isinstance(shape, str) else list(shape)
    return collected


def test_bars_of_every_chart_are_hatched() -> None:
    regret = accuracy_charts.regret_chart(load_committed())
    assert regret is not None
    assert {HATCHES[t] for t in ("library", "compile", "triton")} <= set(patterned(regret))
    assert not [n for n in regret["figure"]["layout"]["yaxis"]["tickvals"] if n.endswith("(2)")]
    moved = plotly.bytes_moved(samples.cost())
    assert moved is not None
    shown = [t for t in moved["figure"]["data"] if t.get("xaxis") != "x2"]
    assert len({t["marker"]["pattern"]["shape"] for t in shown}) > 2
    assert set(patterned(tiles.tile_chart(tiles.tile_rows(1024, H200)))) == {HATCHES["library"], HATCHES["triton"]}


def test_a_report_draws_the_same_hatchings_and_shapes() -> None:
    moved = plotly.bytes_moved(samples.cost())
    assert moved is not None
    svg = drawing(moved, "Bytes")
    assert svg.count("<pattern") >= 2
    for name in {n.split('"')[0] for n in svg.split('<pattern id="')[1:]}:
        assert f'fill="url(#{name})"' in svg
    dots = plotly.candidates(samples.validation())
    assert dots is not None
    assert "<polygon" in drawing(dots, "Candidates")
    assert "<pattern" not in drawing(dots, "Candidates")


def test_one_trace_of_several_tools_gives_each_bar_its_own() -> None:
    marker = bars(["compile", "eager"])
    assert marker["color"] == [COLOURS["compile"], COLOURS["eager"]]
    assert marker["pattern"]["shape"] == [HATCHES["compile"], ""]


def test_long_names_keep_both_ends_and_stay_distinct() -> None:
    one = "library:flash_attn_interface.flash_attn_varlen_func_with_kvcache"
    other = "library:flash_attn_interface.flash_attn_varlen_qkvpacked_with_kvcache"
    assert shorten(one, 30).startswith("library:flash_attn")
    assert shorten(one, 30).endswith("h_kvcache")
    cut = shorten_uniquely([one, other, "eager"], 30)
    assert len(set(cut)) == 3
    assert "(2)" not in "".join(cut)
    assert shorten_uniquely(["softmax", "softmax"]) == ["softmax", "softmax (2)"]
    assert shorten_uniquely(["a<b>"]) == ["a&lt;b&gt;"]


def test_predicted_and_measured_share_a_row_with_the_candidates_whole_name() -> None:
    name = "library:flash_attn_interface.flash_attn_varlen_func_with_kvcache"
    span = {"low": 9.0, "mid": 10.0, "high": 11.0}
    seen = {"low": 9.5, "median": 9.8, "high": 10.2}
    rows = [{"name": n, "tool": "library", "predicted": span, "measured": seen} for n in (name, name + "_v2")]
    figure = predicted_vs_measured.prediction_chart(rows)
    assert figure is not None
    labels = figure["figure"]["layout"]["yaxis"]["tickvals"]
    assert len(set(labels)) == 2
    marks = [t for t in figure["figure"]["data"] if t["mode"] == "markers" and t["y"] == [labels[0]]]
    assert [t["marker"]["symbol"] for t in marks] == ["square-open", "square"]
    assert [t["x"][0] for t in marks] == [10.0, 9.8]


def test_eight_bit_inputs_have_the_roof_of_their_own_units_and_the_lower_one_of_what_is_written() -> None:
    counted = cost_json(cost(lower(parse(FP8))), H200)
    assert (counted["matmul_dtype"], counted["limit_dtype"]) == ("f32", "f8e4m3")
    device = views.device_rates(H200, counted["matmul_dtype"], counted["limit_dtype"])
    assert roofline.compute_rate(counted, device) == pytest.approx(H200.matmul_rate("f8e4m3"))
    assert roofline.written_rate(counted, device) == pytest.approx(H200.f32_rate)
    points = {p["name"]: p["rate"] for p in roofline.roofline_points(counted, device)}
    assert points["unfused, at best"] == pytest.approx(H200.f32_rate)
    # The floor's rate is the one that the floor's time is made of.
    assert points["floor"] == pytest.approx(counted["ideal"]["flops"] / counted["floor_us"] * 1e6, rel=0.01)
    figure = roofline.roofline(counted, device)
    assert figure is not None
    text = json.dumps(figure)
    assert "f8e4m3 matrix units" in text
    assert "as written, f32 vector units" in text
    plain = cost_json(cost(lower(parse(FP8.replace("f8e4m3", "bf16").replace(".to(f32)", "")))), H200)
    one_roof = json.dumps(roofline.roofline(plain, views.device_rates(H200, "bf16")))
    assert "bf16 matrix units" in one_roof
    assert "as written" not in one_roof


def test_conditions_are_told_with_units_and_warnings_apart() -> None:
    said = dict(
        conditions(
            {
                "before": {"sm_clock_mhz": 1980, "sm_clock_max_mhz": 1980, "temperature_c": 40, "throttle": []},
                "after": {"sm_clock_mhz": 1530, "throttle": ["power cap"], "other_processes": 1},
                "warnings": ["the GPU was slowed"],
                "phases_s": {"plan": 6.41},
                "new_key": 3,
            }
        )
    )
    assert said["GPU before"] == "clock 1,980 of at most 1,980 MHz, 40 °C, not slowed"
    assert said["GPU after"] == "clock 1,530 MHz, slowed by power cap, 1 other process"
    assert said["Time it took"] == "plan 6.41 s"
    assert said["New key"] == "3"
    assert "Warnings" not in said
