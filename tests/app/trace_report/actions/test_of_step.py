"""Figures of launches say which step they are of where a trace's steps differ, and no small saving is told as none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.trace_report.actions.listed import saving_words
from app.trace_report.actions.of_step import which_step
from app.trace_report.speedup import with_actions
from app.web.templating import environment
from app.web.views.trace_page import trace_page
from tests.app.trace_report.reports import reported

Json = dict[str, Any]


def times(low: float, high: float, count: int = 6, **more: Any) -> Json:
    return {"count": count, "left_out": 0, "median_us": 0.5 * (low + high), "low_us": low, "high_us": high,
            "shortest_us": low, "longest_us": high, "of": "median", **more}  # fmt: skip


def test_steps_that_are_alike_need_no_word_and_others_have_one() -> None:
    assert which_step(None) == "" == which_step(times(10_000.0, 11_000.0))  # type: ignore[arg-type]
    assert which_step(times(10_000.0, 10_000.0, 1, of="one")) == ""  # type: ignore[arg-type]
    told = which_step(times(10_000.0, 25_000.0))  # type: ignore[arg-type]
    assert told == "of the median of 6 steps, which differ: half of them take 10.0 to 25.0 ms"
    assert which_step(times(10_000.0, 25_000.0, 3, of="mean", steps=3)).startswith("of the mean of 3 steps")  # type: ignore[arg-type]


def test_the_graphs_of_a_step_that_differs_say_of_which_step_they_are() -> None:
    plain = reported("llama_decode_bf16_eager.json.gz")
    differing = with_actions({**plain, "step_times": times(4_000.0, 90_000.0)})  # type: ignore[typeddict-item]
    became = [next(a for a in t["actions"] if a["id"] == "cuda-graphs")["because"] for t in (plain, differing)]
    words = "of the median of 6 steps, which differ: half of them take 4.0 to 90.0 ms"
    assert words not in became[0] and f"The launches and the waiting are {words}" in became[1]


def test_a_trace_whose_steps_differ_tells_it_next_to_its_bottleneck() -> None:
    told = reported("bert_train_varlen_fp16_eager.json.gz")
    assert told["critical"]["resource"] != "launches" or "which differ" in told["critical"]["because"]
    page = rendered(told)
    assert "which differ" in page


def rendered(trace: Json) -> str:
    regions = [{**r, "id": f"{n:026d}"} for n, r in enumerate(trace["regions"])]
    page = trace_page({**trace, "id": "t" * 26, "status": "ready", "regions": regions})  # type: ignore[typeddict-item]
    return environment().get_template("partials/trace/body.html").render(**page)


def action(saved: float, adds: float | None, wall: float = 100_000.0) -> Json:
    saves = {"low": 0.0, "mid": saved, "high": 2 * saved + 10.0}
    after = {"low": wall - saves["high"], "mid": wall - saved, "high": wall}
    return {"id": "x", "saves_us": saves, "step_time_us": after, "adds_us": adds,
            "evidence": {"kind": "predicted", "text": ""}}  # fmt: skip


@pytest.mark.parametrize(("saved", "adds", "words"), [
    (2_000.0, 2_000.0, "saves 2.00 ms (0.00 to 4.01) of a step, which then takes 98.00"),
    (20.0, 20.0, "saves less than 1 % of a step of 100.00 ms (up to 0.05)"),
    (0.0, 4_000.0, "saves nothing by itself of a step of 100.00 ms (up to 0.01); adds 4.00 to those above"),
    (2_000.0, 0.5, "saves 2.00 ms (0.00 to 4.01) of a step, which then takes 98.00; adds less than 1 % to those above"),
    (2_000.0, -1.0, "saves 2.00 ms (0.00 to 4.01) of a step, which then takes 98.00; adds nothing to those above"),
])  # fmt: skip
def test_a_saving_that_is_next_to_nothing_is_told_as_that(saved: float, adds: float, words: str) -> None:
    assert saving_words(action(saved, adds)) == words  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["llama_eager_attention_prefill.json.gz", "t5_train_autocast_eager.json.gz"])
def test_no_page_shows_a_change_of_minus_nothing(name: str) -> None:
    trace = reported(name)
    small = {**trace, "actions": [a if a["saves_us"] is None else next_to_nothing(a, n) for n, a in
                                  enumerate(trace["actions"])]}  # fmt: skip
    for shown in (rendered(trace), rendered(small)):
        text = re.sub(r"<[^>]+>", "", shown)
        assert not re.search(r"−\s*(?:0(?:\.0+)? %|&lt; 0\.1 %|< 0\.1 %|0 (?:ns|µs|ms))", text)
    if any(a["saves_us"] for a in trace["actions"]):
        assert "nothing by itself" in rendered(small)


def next_to_nothing(action: Json, number: int) -> Json:
    wall = action["saves_us"]["mid"] + action["step_time_us"]["mid"]
    saved = 0.0004 * wall * (number % 2)
    saves = {"low": 0.0, "mid": saved, "high": 0.001 * wall}
    ends = (("low", "high"), ("mid", "mid"), ("high", "low"))
    return {**action, "saves_us": saves, "step_time_us": {end: wall - saves[other] for end, other in ends}}
