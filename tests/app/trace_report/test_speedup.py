"""The step after following the advice: Amdahl by hand on made steps, bounds on real ones, and what is said with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.cli.text import trace_text
from app.estimate.rates import FITTED
from app.trace_report.speedup import gain
from app.trace_report.step_model import GRAPH_GAP_US, Change, Left, after, step_of, step_us
from app.web.templating import environment
from app.web.views import trace_page
from tests.app.trace_report.reports import reported

Json = dict[str, Any]


def region(name: str, busy: float, tool: str = "compile", speedup: float | None = 2.0, **more: Any) -> Json:
    """A region of ten launches a step; predicted from 3/4 of its speed-up to 5/4."""
    spans = None if speedup is None else {"low": 0.75 * speedup, "mid": speedup, "high": 1.25 * speedup}
    advice = {
        "tool": tool, "mode": more.pop("mode", "default"), "region_speedup": spans, "headline": name, "action": "",
        "call": "", "alternatives": [], "validation": None,
    }  # fmt: skip
    return {
        "name": name, "kind": "pointwise", "advice": advice, "time_us_per_step": busy, "busy_us_per_step": busy,
        "calls_per_step": 1.0,
        "gpu_paced_us_per_step": busy, "kernels_per_call": 10.0, "launches_left": {tool: 0.1}, **more,
    }  # fmt: skip


def trace(regions: list[Json], *, launch: float = 0.0, host: float = 0.0, gpu: float | None = None,
          lead: float = 1e9, launches: float = 100.0, **more: Any) -> Json:  # fmt: skip
    """A step of these regions and so much idle time; all of its kernels in the GPU's pace unless `gpu` is given."""
    busy = sum(r["busy_us_per_step"] for r in regions)
    parts = {
        "wall_us": busy + launch + host, "kernels_us": busy, "communication_us": 0.0, "copies_us": 0.0,
        "idle_launch_us": launch, "idle_host_us": host, "idle_communication_us": 0.0, "idle_device_us": 0.0,
    }  # fmt: skip
    pace = {"gpu_us": busy if gpu is None else gpu, "lead_us": lead, "launches": launches}
    return {"regions": regions, "rests": [], "step_parts": parts, "pace": pace, **more}


def followed(found: Json, which: str = "all") -> list[float]:
    result = gain(found)
    assert result is not None
    return [result[which]["step_time_us"][end] for end in ("low", "mid", "high")]


def test_where_the_gpu_sets_the_pace_it_is_amdahls_law_and_idle_time_stays() -> None:
    answer = trace([region("a", 600.0), region("b", 300.0, "skip")], launch=50.0, host=50.0)
    # 600 / 2.5, / 2, / 1.5, of a whole model times 1, 1.06, 1.25; launches in the host's part: no kernels, 50 of wait,
    # 90 of 100 launches of the other and of these 10, pointwise ones, none where they go into others' kernels, half of
    # the one that is left of ten in the middle, which takes 1.12 times its share.
    middle = 300 * 1.06 + 300 + 50 * (0.9 + 0.01 * 0.5 * 1.12) + 50
    assert followed(answer) == pytest.approx([240 + 300 + 45 + 50, middle, 400 * 1.25 + 300 + 100])


def test_the_host_sets_the_limit_that_it_was_ahead_by() -> None:
    answer = trace([region("a", 1000.0, "library", launches_left={})], lead=200.0)
    assert followed(answer) == pytest.approx([800.0, 800.0, 800.0])


def test_where_the_host_sets_the_pace_faster_kernels_save_nothing_and_fewer_launches_do() -> None:
    paced: Json = {"gpu_paced_us_per_step": 0.0}
    step = step_of(trace([region("a", 400.0, **paced)], launch=600.0, gpu=0.0))  # type: ignore[arg-type]
    assert step is not None
    faster = {0: Left(1 / 1.5, 1 / 2, 1 / 2.5)}
    # 91 of 100 launches are left; the slow end keeps them all.
    fewer = Change(time=faster, launches={0: Left(1.0, 0.1, 0.1)})
    assert step_us(step, [fewer]) == pytest.approx((910.0, 910.0, 1000.0))
    assert step_us(step, [Change(time=faster)]) == pytest.approx((1000.0,) * 3)


def test_what_the_gpu_needs_between_kernels_goes_with_their_launches() -> None:
    found = trace([region("a", 600.0), region("b", 300.0, "skip")])
    found["step_parts"]["idle_device_us"] = 100.0
    found["step_parts"]["wall_us"] += 100.0
    found["pace"]["gpu_us"] += 100.0
    step = step_of(found)  # type: ignore[arg-type]
    assert step is not None
    fewer = Change(launches={0: Left(1.0, 0.5, 0.1)})  # of 100 launches 95 are left, or 91
    assert step_us(step, [fewer]) == pytest.approx((991.0, 995.0, 1000.0))
    graphs = after(step, [Change(captured=frozenset({0, 1}))], "low")[0]  # 80 are left, and gaps of graphs
    assert graphs == pytest.approx(1000.0 - (20.0 - 20 * GRAPH_GAP_US))


def test_sets_that_an_operation_makes_go_with_its_launches_and_others_stay() -> None:
    """A sort's: ten kernels and ten sets of 4 µs; 20 µs of copies are no region's."""
    found = trace([region("a", 600.0, copies_per_step=10.0, copies_us_per_step=40.0), region("b", 300.0, "skip")])
    found["step_parts"] |= {"copies_us": 60.0, "wall_us": 960.0}
    found["pace"]["gpu_us"] = 960.0
    step = step_of(found)  # type: ignore[arg-type]
    assert step is not None
    assert step_us(step, [Change(launches={0: Left(1.0, 0.5, 0.1)})]) == pytest.approx((924.0, 940.0, 960.0))
    host = step_of({**found, "pace": {**found["pace"], "lead_us": 0.0}})  # type: ignore[arg-type]
    assert host is not None  # which then makes 90 of 100 launches
    assert after(host, [Change(time={0: Left(0, 0, 0)}, launches={0: Left(1, 0.5, 0.5)})], "mid")[0] == 960 * 0.9


def test_graphs_take_the_launches_away_and_what_the_host_does_meanwhile_does_not_add_up() -> None:
    paced: Json = {"gpu_paced_us_per_step": 0.0, "mode": "reduce-overhead", "speedup": None}
    regions = [region("a", 50.0, **paced), region("b", 30.0, **paced), region("c", 20.0, "skip")]
    answer = trace(regions, launch=800.0, host=100.0, gpu=0.0)
    # A replay's call, the kernels and 0.3 µs between any two of 100: longer than the host's pauses, which go on
    # meanwhile. At the slow end only the two regions' 20 launches vanish.
    once = FITTED.host.graphs + 100.0 + 100 * 0.3
    assert followed(answer) == pytest.approx([once, once, 0.8 * 900 + 100])
    waiting: Json = {"kind": "sync", "name": "", "time_us": 60.0, "longest_us": 60.0, "following": "", "module": ""}
    assert followed({**answer, "host_times": [waiting]})[1] == pytest.approx(once + 60.0)
    told = {u["code"]: u for u in gain(answer)["unknown"]}  # type: ignore[index]
    assert told["graphs"]["time_us"] == 100.0
    assert told["launches"]["time_us"] == 800.0


def test_what_overlaps_counts_at_the_slow_end_only_where_it_must_run_alone() -> None:
    # 1000 of kernels, even part 750: 500 while another stream runs, 500 alone.
    found = region("a", 750.0, "library", time_us_per_step=1000.0)
    answer = trace([found, region("b", 250.0, "skip", time_us_per_step=500.0)])
    assert followed(answer)[2] == pytest.approx(1000 - 500 / 3)
    assert followed(answer)[1] == pytest.approx(1000 - 375)
    assert [u["code"] for u in gain(answer)["unknown"]] == ["streams"]  # type: ignore[index]


def test_a_prediction_that_may_lose_makes_the_slow_end_slower_than_today() -> None:
    answer = trace([region("a", 1000.0, "library", speedup=1.2)])
    low, mid, high = followed(answer)
    assert low < mid < 1000 < high == pytest.approx(1000 / 0.9)


def test_the_best_three_are_those_that_save_most_and_save_no_more_than_all() -> None:
    times = (("a", 100.0), ("b", 400.0), ("c", 300.0), ("d", 200.0))
    regions = [region(name, busy, "library") for name, busy in times]
    found = gain(trace(regions))
    assert found is not None
    assert found["top"]["advice"] == ["b", "c", "d"]
    assert sorted(found["all"]["advice"]) == ["a", "b", "c", "d"]
    assert found["top"]["step_time_us"]["mid"] == pytest.approx(1000 - 450)
    assert found["all"]["step_time_us"]["mid"] == pytest.approx(500)
    assert found["top"]["speedup"]["mid"] == pytest.approx(1000 / 550)


def test_advice_without_a_predicted_time_is_counted_as_today_and_said() -> None:
    found = gain(trace([region("a", 500.0, "library"), region("b", 500.0, "library", None)], has_shapes=False))
    assert found is not None
    assert found["all"]["step_time_us"]["mid"] == pytest.approx(750)
    blind = next(u for u in found["unknown"] if u["code"] == "no-prediction")
    assert (blind["time_us"], "shapes were not recorded" in blind["text"]) == (500.0, True)
    none = gain(trace([region("a", 500.0, speedup=None)]))
    assert none is not None
    assert none["all"] is none["top"] is None


def test_a_trace_without_a_step_has_no_gain() -> None:
    assert gain({"regions": []}) is None
    assert gain(trace([])) is None


def ready(name: str) -> Json:
    return {"id": "t", "status": "ready", **json.loads(json.dumps(reported(name), allow_nan=False))}


@pytest.mark.parametrize(
    "name",
    [
        "handrolled_blocks_bf16_eager.json.gz", "handrolled_blocks_noshapes.json.gz",
        "handrolled_blocks_bf16_cudagraph.json.gz", "llama_decode_bf16_eager.json.gz",
        "tl_mi300_resnet_actckpt.json.gz", "hta_event_sync_multistream.json.gz", "llama_prefill_bf16_eager.json.gz",
    ],
)  # fmt: skip
def test_a_real_step_keeps_what_no_advice_is_on(name: str) -> None:
    answer = ready(name)
    result, parts = answer["gain"], answer["step_parts"]
    assert result == gain(answer)
    for which in ("all", "top"):
        if result[which] is None:
            continue
        times = result[which]["step_time_us"]
        about = {key for a in answer["actions"] if a["adds_us"] is not None for key in a["regions"]}
        untouched = sum(r["busy_us_per_step"] for r in answer["regions"] if r["key"] not in about)
        assert times["low"] <= times["mid"] <= times["high"]
        assert times["low"] >= untouched + parts["idle_host_us"] - 1e-6
        assert result[which]["idle_us"] >= 0.0
    if result["all"]:
        assert result["all"]["step_time_us"]["mid"] <= result["top"]["step_time_us"]["mid"] + 1e-6


def test_page_shell_and_json_say_the_same() -> None:
    answer = ready("llama_prefill_bf16_eager.json.gz")
    page = environment().get_template("partials/trace/body.html").render(**trace_page.trace_page(answer))
    assert "<h2>Estimated after all changes</h2>" in page
    assert ("What the trace cannot tell" in page) == bool(answer["gain"]["unknown"])
    mid = answer["gain"]["all"]["step_time_us"]["mid"]
    assert f"{mid / 1e3:.1f} ms" in page
    assert f"estimated after this change: {mid / 1e3:.2f} ms a step" in trace_text(answer)
    now = f"{answer['unprofiled_us'] / 1e3:.2f}"
    assert f"estimated to take {now} of the recorded" in trace_text(answer)
    assert "ms without the profiler)" in page


def test_without_shapes_no_time_is_predicted_and_the_page_says_why() -> None:
    answer = ready("handrolled_blocks_noshapes.json.gz")
    page = environment().get_template("partials/trace/body.html").render(**trace_page.trace_page(answer))
    assert "No time can be predicted for any of the advice" in page
    assert "shapes were not recorded" in page
    assert "shapes were not recorded" in trace_text(answer)
