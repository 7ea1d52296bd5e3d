"""Two traces: what is called faster, and when nothing may be."""

from __future__ import annotations

from typing import Any

import pytest

from app.trace_report.comparison.compare import compare_traces, step_headline
from app.web.charts.trace_comparison import change_chart
from tests.app import samples
from tests.app.trace_report.reports import reported

Json = dict[str, Any]


def times(median: float, spread: float = 0.01, count: int = 5) -> Json:
    low, high = median * (1 - spread / 2), median * (1 + spread / 2)
    return {"count": count, "left_out": 0, "median_us": median, "low_us": low, "high_us": high, "shortest_us": low,
            "longest_us": high}  # fmt: skip


def region(name: str, time_us: float, key: str = "", module: str = "") -> Json:
    return samples.region(name, time_us=time_us) | {"key": key or name, "source": {"module": module}}


def trace(*regions: Json, median: float = 1000.0, **more: Any) -> Json:
    return samples.trace([*regions]) | {"rests": [], "step_times": times(median), "device": "NVIDIA H200"} | more


def verdicts(left: Json, right: Json) -> dict[str, str]:
    return {r["name"]: r["verdict"] for r in compare_traces(left, right)["rows"]}


def test_faster_slower_new_gone_and_the_same() -> None:
    before = trace(region("a", 100), region("b", 100), region("c", 100), region("gone", 50))
    after = trace(region("a", 80), region("b", 130), region("c", 102), region("new", 9), median=900.0)
    assert verdicts(before, after) == {
        "a": "faster", "b": "slower", "c": "no difference", "gone": "gone", "new": "new"
    }  # fmt: skip
    comparison = compare_traces(before, after)
    assert comparison["step"]["verdict"] == "faster"
    assert "1 faster, 1 slower, 1 new, 1 gone" in comparison["verdict"]
    assert sum(r["change_us"] for r in comparison["rows"]) == pytest.approx(80 + 130 + 102 + 9 - 350)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"device": "NVIDIA A100-SXM4-80GB"}, "the devices differ"),
        ({"device": None}, "does not name its GPU"),
    ],
)
def test_no_verdict_without_ground_for_one(more: Json, words: str) -> None:
    comparison = compare_traces(trace(region("a", 100)), trace(region("a", 10), **more))
    assert comparison["refused"] and words in comparison["verdict"]
    assert {r["verdict"] for r in comparison["rows"]} == {"no verdict"}
    assert comparison["step"]["verdict"] == "no verdict"


@pytest.mark.parametrize(
    ("other", "verdict", "sure", "words"),
    [
        (
            times(600.0),
            "faster",
            "sure",
            "B takes 40 % less time (1.67× as fast): 1.00 ms to 600 µs. Sure: every step of one is shorter",
        ),
        (times(980.0, 0.01), "faster", "likely", "B takes 2.0 % less time (1.02× as fast)"),
        (times(600.0, count=1), "faster", "likely", "Likely: B has one step"),
        (times(900.0, count=1), "no difference", "unsure", "less than 15 % is not told from chance"),
        (times(1000.0), "no difference", "unsure", "the ranges of their steps overlap"),
        (times(1500.0), "slower", "sure", "B takes 50 % more time (0.67× as fast)"),
    ],
)
def test_how_sure_a_step_is_faster_goes_by_its_steps_and_their_spread(
    other: Json, verdict: str, sure: str, words: str
) -> None:
    comparison = compare_traces(trace(region("a", 100)), trace(region("a", 100), step_times=other))
    assert (comparison["step"]["verdict"], comparison["step"]["sure"]) == (verdict, sure)
    assert words in comparison["verdict"]


def test_training_against_a_forward_pass_is_called_other_work_and_nothing_is_faster() -> None:
    inference, training = (
        trace(region("a", 100), backward_time_us=0.0),
        trace(region("a", 40), median=300.0, backward_time_us=120.0),
    )
    for left, right in ((inference, training), (training, inference)):
        comparison = compare_traces(left, right)
        assert comparison["refused"] and step_headline(comparison) == "Not the same work"
        assert comparison["step"]["verdict"] == "no verdict"
        assert {r["verdict"] for r in comparison["rows"]} == {"no verdict"}
    optimizing = trace(region("a", 100), region("Adam", 5) | {"kind": "optimizer"})
    assert "A has none" in compare_traces(inference, optimizing)["verdict"]
    assert not compare_traces(training, training)["refused"]
    assert not compare_traces(trace(region("a", 100)), training)["refused"], "an old trace does not tell"


def test_steps_that_share_little_are_called_other_work() -> None:
    shared, others = region("a", 100), [region("other", 150)]
    assert "only 20 % of" in compare_traces(trace(shared), trace(shared, *others, region("b", 650)))["verdict"]
    assert not compare_traces(trace(shared), trace(shared, *others))["refused"]


def test_an_eager_step_of_one_recording_against_the_compiled_one_is_faster_and_likely() -> None:
    eager, compiled = (reported(f"handrolled_blocks_bf16_{how}.json.gz") for how in ("eager_stack", "compiled"))
    comparison = compare_traces(eager, compiled)
    assert comparison["verdict"].startswith(
        "B takes 42 % less time (1.72× as fast): 16.8 ms to 9.76 ms. Likely: A has one step"
    )
    assert step_headline(comparison) == "B likely takes 42 % less time (1.72× as fast)"


def test_another_name_of_the_same_gpu_is_no_other_device() -> None:
    comparison = compare_traces(trace(region("a", 100)), trace(region("a", 50), device="H200"))
    assert not comparison["refused"]


def test_a_change_within_the_spread_of_the_steps_is_none() -> None:
    noisy = trace(region("a", 100), step_times=times(1000.0, spread=0.3))
    assert verdicts(noisy, trace(region("a", 80))) == {"a": "no difference"}
    assert compare_traces(noisy, trace(region("a", 80)))["step"]["verdict"] == "no difference"


def test_parts_of_one_name_are_told_apart_by_module_or_taken_together() -> None:
    before = trace(region("GEMM", 10, "k1", "m.up"), region("GEMM", 30, "k2", "m.down"))
    after = trace(region("GEMM", 31, "k4", "m.down"), region("GEMM", 5, "k3", "m.up"))
    rows = {r["module"]: r for r in compare_traces(before, after)["rows"]}
    assert (rows["m.up"]["a"], rows["m.up"]["b"]) == (10, 5)
    nameless = trace(region("GEMM", 5, "k5"), region("GEMM", 7, "k6"), region("GEMM", 8, "k7"))
    (row,) = compare_traces(before, nameless)["rows"]
    assert (row["a"], row["b"], row["a_count"], row["b_count"]) == (40, 20, 2, 3)


def test_the_chart_escapes_names_and_is_not_there_without_a_change() -> None:
    before, after = trace(region("<b>a</b>", 100)), trace(region("<b>a</b>", 10))
    chart = change_chart(compare_traces(before, after))
    assert chart is not None and chart["figure"]["data"][0]["y"] == ["&lt;b&gt;a&lt;/b&gt;"]
    assert change_chart(compare_traces(before, before)) is None


CAUSAL = """q: bf16[4, 32, 2048, 64]
k: bf16[4, 8, 2048, 64]
v: bf16[4, 8, 2048, 64]
y = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.125, enable_gqa=True)
return y
"""
MASKED = """q: bf16[4, 32, 2048, 64]
k: bf16[4, 32, 2048, 64]
v: bf16[4, 32, 2048, 64]
mask: bf16[4, 1, 2048, 2048]
y = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.125)
return y
"""


def test_a_mask_that_the_other_recording_does_without_is_said_whichever_comes_first() -> None:
    plain, stored = trace(region("SDPA attention", 1450, "a")), trace(region("SDPA attention", 4560, "b"))
    plain["regions"][0]["text"], stored["regions"][0]["text"] = CAUSAL, MASKED
    for left, right, said in (
        (plain, stored, ("A (1.45 ms)", "B (4.56 ms)")),
        (stored, plain, ("B (1.45 ms)", "A (4.")),
    ):
        comparison = compare_traces(left, right)
        assert len(comparison["rows"]) == 1
        assert all(words in comparison["verdict"] for words in (*said, "pass is_causal=True there and no mask"))


@pytest.mark.parametrize(
    ("ours", "theirs", "time_us"),
    [(CAUSAL, CAUSAL, 4560), (MASKED, MASKED, 4560), (CAUSAL, MASKED, 1400),
     (CAUSAL, MASKED.replace("q: bf16[4, 32, 2048", "q: bf16[4, 32, 1024"), 4560)],
)  # fmt: skip
def test_no_mask_is_blamed_that_both_read_or_that_costs_nothing(ours: str, theirs: str, time_us: float) -> None:
    plain, stored = trace(region("SDPA attention", 1450, "a")), trace(region("SDPA attention", time_us, "b"))
    plain["regions"][0]["text"], stored["regions"][0]["text"] = ours, theirs
    assert "mask" not in compare_traces(plain, stored)["verdict"]


def test_the_compiled_llama_is_told_that_its_attention_reads_a_mask() -> None:
    eager, compiled = (reported(f"llama_prefill_bf16_{how}.json.gz") for how in ("eager", "compiled"))
    comparison = compare_traces(eager, compiled, ("eager", "compiled"))
    attention = next(r for r in comparison["rows"] if r["name"] == "SDPA attention")
    assert attention["verdict"] == "slower"
    assert "reads a stored mask in compiled" in comparison["verdict"]
