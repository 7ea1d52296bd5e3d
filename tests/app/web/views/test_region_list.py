"""The list of a trace's regions: what the address asks for is what is shown, and any address is harmless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.web.charts.names import distinct_names
from app.web.views.region_list import (
    EVIDENCE,
    SORTS,
    TAB_NAMES,
    TOOLS,
    View,
    describe_filters,
    evidence_level,
    parse_view,
    select,
    write_query,
)
from tests.app import samples

Json = dict[str, Any]

views = st.builds(
    View,
    q=st.text(max_size=40).map(str.strip),
    tool=st.lists(st.sampled_from(TOOLS), max_size=4, unique=True).map(lambda t: tuple(x for x in TOOLS if x in t)),
    evidence=st.sampled_from(["", *dict(EVIDENCE)]),
    min_share=st.integers(0, 1000).map(lambda n: n / 1000),
    stream=st.none() | st.integers(0, 10**6),
    rank=st.none() | st.integers(0, 4096),
    sort=st.sampled_from([s for s, _ in SORTS]),
    tab=st.sampled_from(list(TAB_NAMES)),
)


@given(views)
def test_an_address_holds_the_whole_view(view: View) -> None:
    back = parse_view(parse_qsl(write_query(view)))
    assert replace(back, min_share=0.0) == replace(view, min_share=0.0)
    assert back.min_share == pytest.approx(view.min_share)


FIELDS = ("tab", "q", "tool", "evidence", "min_share", "stream", "rank", "sort", "start", "end", "other")


@given(st.lists(st.tuples(st.sampled_from(FIELDS), st.text(max_size=30))))
def test_no_address_is_an_error(query: list[tuple[str, str]]) -> None:
    view = parse_view(query)
    assert 0.0 <= view.min_share <= 1.0
    assert select([], view) == []
    assert parse_view(parse_qsl(write_query(view))).sort == view.sort


def test_numbers_that_are_none_filter_nothing() -> None:
    for text in ("nan", "inf", "-inf", "1e999", "x", "-5"):
        view = parse_view([("min_share", text), ("start", text), ("end", text)])
        assert view.min_share == 0.0
        assert view.window is None
    assert parse_view([("start", "50"), ("end", "20")]).window is None
    assert parse_view([("min_share", "2,5")]).min_share == pytest.approx(0.025)


def regions() -> list[Json]:
    found = [
        samples.region("softmax by hand", "triton", time_us=500.0),
        samples.region("GEMM", "skip", time_us=4000.0),
        samples.region("GELU tail", "compile", time_us=900.0),
    ]
    extra = (
        {"saves_us": 300.0, "share_of_step": 0.05, "streams": [7], "kernel_names": ["softmax_warp_forward"]},
        {"saves_us": 0.0, "share_of_step": 0.40, "streams": [7, 20], "kernel_names": ["nvjet_tst"]},
        {"saves_us": 600.0, "share_of_step": 0.09, "streams": [20], "source": {"module": "Net_0/MLP_1", "ops": []}},
    )
    return [{**r, "distinct_name": r["name"], **more} for r, more in zip(found, extra, strict=True)]


def names(view: View) -> list[str]:
    return [r["name"] for r in select(regions(), view)]


def test_each_filter_leaves_what_it_says() -> None:
    assert names(View(tool=("triton", "compile"))) == ["GELU tail", "softmax by hand"]
    assert names(View(min_share=0.06)) == ["GELU tail", "GEMM"]
    assert names(View(stream=20)) == ["GELU tail", "GEMM"]
    assert names(View(stream=3)) == []
    assert names(View(q="NVJET")) == ["GEMM"]
    assert names(View(q="mlp_1")) == ["GELU tail"]
    assert names(View(q="softmax warp")) == ["softmax by hand"], "every word, in any of its places"
    assert names(View(q="softmax nvjet")) == []


def test_each_order_is_what_it_says() -> None:
    assert names(View()) == ["GELU tail", "softmax by hand", "GEMM"]
    assert names(View(sort="time")) == ["GEMM", "GELU tail", "softmax by hand"]
    assert names(View(sort="share")) == ["GEMM", "GELU tail", "softmax by hand"]
    assert names(View(sort="name")) == ["GELU tail", "GEMM", "softmax by hand"]


def test_evidence_is_the_best_that_there_is() -> None:
    predicted = samples.region("a", "compile")
    measured = {**predicted, "advice": {**predicted["advice"], "validation": {"outcome": "confirmed"}}}
    checked = {**predicted, "advice": {**predicted["advice"], "validation": {"outcome": "unmeasured"}}}
    timeless = {**predicted, "advice": {**predicted["advice"], "region_speedup": None}}
    assert evidence_level(predicted) == "predicted"
    assert evidence_level(predicted, "NVIDIA H200") == "recorded"
    assert evidence_level(measured, "NVIDIA H200") == "measured"
    assert evidence_level(checked, None) == "predicted"
    assert evidence_level(timeless) == "rule"
    assert evidence_level({"name": "x"}) == ""


def test_every_filter_can_be_taken_away_alone() -> None:
    view = View(q="x", tool=("triton",), evidence="predicted", min_share=0.1, stream=7, sort="name", rank=2)
    for told in describe_filters(view):
        assert write_query(view, **told["without"]) != write_query(view)
        assert len(describe_filters(replace(view, **told["without"]))) == len(describe_filters(view)) - 1
    assert len(describe_filters(view)) == 5


def test_regions_of_one_name_say_what_they_differ_in() -> None:
    def region(module: str, *operands: str) -> Json:
        return {"name": "GEMM", "source": {"module": module}, "shapes": [{"operands": list(operands)}]}

    assert distinct_names([region("N_0/L_1"), region("N_0/L_2"), {"name": "other"}]) == [
        "GEMM · L_1", "GEMM · L_2", "other",
    ]  # fmt: skip
    sizes = [region("", "x: bf16[8, 4]", "w: bf16[4, 2]"), region("", "x: bf16[16, 4]", "w: bf16[4, 2]")]
    assert distinct_names(sizes) == ["GEMM · 8×4, 4×2", "GEMM · 16×4, 4×2"]
    assert distinct_names([region(""), region("")]) == ["GEMM", "GEMM (2)"], "nothing is known of them"


@given(st.lists(st.sampled_from(["a", "b", "GEMM"]), max_size=8), st.data())
def test_no_two_names_are_alike(given_names: list[str], data: st.DataObject) -> None:
    modules = [data.draw(st.sampled_from(["", "M_0", "M_0/L_1", "M_1/L_1"])) for _ in given_names]
    found = distinct_names([{"name": n, "source": {"module": m}} for n, m in zip(given_names, modules, strict=True)])
    assert len(set(found)) == len(found)
