"""Everything to do about a step in one list: what comes first, what is followed together, and sums that agree."""

from __future__ import annotations

from typing import Any

import pytest

from app.advice.off_floor import AMD, NVIDIA, Libraries
from app.trace_report import step_model
from app.trace_report.actions import ranking
from app.trace_report.actions.listed import saved_by_region
from app.trace_report.actions.ranking import WORTH
from app.trace_report.speedup import gain_and_actions
from app.trace_report.step_model import Change, Left, after, step_of
from profiler.trace import TraceError
from tests.app.trace_report.reports import reported
from tests.app.trace_report.test_speedup import region, trace
from tests.profiler.trace.files import TRACES

Json = dict[str, Any]
WITHOUT_KERNELS = ("hta_cpu_only.json.gz", "hta_cupti_profiler.json.gz")
READABLE = sorted(
    p.name
    for p in TRACES.glob("*.json*")
    if ".et." not in p.name and p.name != "expected.json" and p.name not in WITHOUT_KERNELS
)
"""Every trace in the folder but those that are refused."""
WITHOUT_OPTIONS = {
    "handrolled_blocks_bf16_compiled.json.gz": "compiled",
    "llama_prefill_bf16_compiled.json.gz": "compiled",
    "tl_sglang_prefilldecode.json.gz": "library-kernels",
}
"""Traces without an option for the whole step, and the code of the note that says why."""
WITHOUT_LAUNCHES = ("reduce-overhead", "max-autotune", "graphs")
"""Modes in which launches outside of regions go away too."""
IDLE_FOR_LAUNCHES = ("t5_train_autocast_eager.json.gz", "llama_decode_bf16_eager.json.gz", "tl_h100_bert_small.json.gz")


def with_compile(name: str, busy: float, left: float, **more: Any) -> Json:
    """A region that is left as it is, of whose time torch.compile would leave this share."""
    made = region(name, busy, "skip", None, **more)
    now, then = ({"low": t, "mid": t, "high": t} for t in (busy, busy * left))
    made["advice"]["alternatives"] = [
        {"candidate": "eager", "time_us": now, "admitted": True},
        {"candidate": "compile", "time_us": then, "admitted": True},
    ]
    made["launches_left"] = {"compile": 0.5}
    return made


def listed(found: Json) -> list[Json]:
    return gain_and_actions(found)[1]  # type: ignore[arg-type,return-value]


def test_what_the_whole_model_saves_is_the_sum_of_all_regions_that_it_takes_in() -> None:
    found = trace([with_compile("a", 500.0, 0.8), with_compile("b", 400.0, 0.9), region("c", 100.0, "skip", None)])
    (action,) = listed(found)
    assert (action["scope"], action["tool"], action["call"]) == ("step", "compile", "model = torch.compile(model)")
    # Each takes 1.06 times what it would alone: 500 x 0.152 + 400 x 0.046.
    assert action["saves_us"]["mid"] == pytest.approx(94.4)
    assert len(action["regions"]) == 2


def test_an_optimizer_is_no_part_of_the_model() -> None:
    found = trace([with_compile("a", 500.0, 0.5), with_compile("b", 500.0, 0.5, kind="optimizer")])
    assert listed(found)[0]["saves_us"]["mid"] == pytest.approx(500 * 0.47)


def test_a_library_call_stands_in_the_place_of_what_compiling_makes_of_its_region() -> None:
    call = with_compile("a", 600.0, 0.5)
    call["advice"] |= {"tool": "library", "region_speedup": {"low": 6.0, "mid": 6.0, "high": 6.0}}
    found, actions = gain_and_actions(trace([call, with_compile("b", 400.0, 0.5)]))  # type: ignore[arg-type]
    assert [a["scope"] for a in actions] == ["region", "step"]
    assert [a["saves_us"]["mid"] for a in actions if a["saves_us"]] == pytest.approx([500.0, 470.0])
    assert [a["adds_us"] for a in actions] == pytest.approx([500.0, 188.0])  # 100 + 400 x 0.53 are left
    assert found is not None
    assert found["all"] is not None
    assert found["all"]["saved_us"]["mid"] == pytest.approx(688.0)


def test_a_model_that_loses_by_compiling_has_its_regions_compiled_alone() -> None:
    found = trace([region("a", 500.0), with_compile("b", 500.0, 1.9)])
    actions = listed(found)
    assert [(a["scope"], a["adds_us"] is None) for a in actions] == [("region", False)]


@pytest.mark.parametrize("name", IDLE_FOR_LAUNCHES)
def test_a_step_that_waits_for_launches_has_graphs_as_its_first_line(name: str) -> None:
    first = reported(name)["actions"][0]
    assert (first["scope"], first["mode"]) == ("step", "reduce-overhead")
    assert "the GPU waits for launches in" in first["because"]


@pytest.mark.parametrize("name", READABLE)
def test_what_the_actions_promise_adds_up_to_what_all_of_them_save(name: str) -> None:
    answer = reported(name)
    actions, gain = answer["actions"], answer["gain"]
    promised = sum(a["adds_us"] for a in actions if a["adds_us"] is not None)
    if gain is None:
        assert not actions
        return
    saved = gain["all"]["saved_us"]["mid"] if gain["all"] else 0.0
    assert promised == pytest.approx(saved, rel=0.01, abs=0.01)
    wall = answer["unprofiled_us"] or answer["step_parts"]["wall_us"]
    followed = [a for a in actions if a["adds_us"] is not None]
    if followed:
        most = max(a["saves_us"]["mid"] for a in followed)
        assert followed[0]["saves_us"]["mid"] >= 0.9 * most - 1e-6, (
            "what saves most, or as much for less to do, is first"
        )
    named = {a["instead_of"] for a in actions}
    adding = [a for a in actions if a["region"] and a["adds_us"] is not None and a["id"] not in named]
    assert all(a["adds_us"] >= WORTH * wall for a in adding), "what adds next to nothing is nothing to do"
    keys = {r["key"] for r in answer["regions"]}
    for action in actions:
        assert set(action["regions"]) <= keys
        if action["adds_us"] is not None and action["regions"]:
            assert len(action["parts_us"]) == len(action["regions"])
            given = sum(action["parts_us"])
            beyond = action["adds_us"] - given  # launches outside of regions, and the host's own, are no region's
            of_host = action["mode"] in WITHOUT_LAUNCHES or answer["pace"]["gpu_us"] < 0.01 * wall
            assert beyond >= -1e-6 and (beyond <= 0.01 * action["adds_us"] or of_host)
        if (saves := action["saves_us"]) is not None:
            assert saves["low"] <= saves["mid"] <= saves["high"] <= wall + 1e-6
            assert action["step_time_us"]["mid"] == pytest.approx(wall - saves["mid"])
        if action["instead_of"]:
            other = next(a for a in actions if a["id"] == action["instead_of"])
            assert other["adds_us"] is not None
    assert len({a["id"] for a in actions}) == len(actions)


FOR_ALL = "CUDA graphs for all of it"


@pytest.mark.parametrize("name", READABLE)
def test_regions_that_want_a_graph_of_the_step_are_told_as_one_action_for_it(name: str) -> None:
    answer = reported(name)
    asking = [r["key"] for r in answer["regions"] if r["advice"] and FOR_ALL in r["advice"]["headline"]]
    told = [a for a in answer["actions"] if a["id"] == "cuda-graphs"]
    if asking:
        assert len(told) == 1 and told[0]["scope"] == "step"
        assert {r for r in asking if _captured(answer, r)} <= set(told[0]["regions"])
    again = [a for a in answer["actions"] if a["scope"] == "region" and a["mode"] == "reduce-overhead"]
    assert not [a for a in again if FOR_ALL in a["title"]], "what is done to the step once is no region's own"


def _captured(answer: Json, key: str) -> bool:
    """An optimizer's step runs behind what is compiled."""
    return next(r for r in answer["regions"] if r["key"] == key)["kind"] != "optimizer"


def asking_for_graphs(name: str, busy: float) -> Json:
    """A region that is told of CUDA graphs for all of the step, by the recorded waiting."""
    made = region(name, busy, "compile", None, mode="reduce-overhead", gpu_paced_us_per_step=0.0)
    made["advice"]["headline"] = f"Launch-bound step: {FOR_ALL}, {name} among it"
    return made


def test_waiting_that_the_profiler_may_have_made_is_told_once_and_without_a_time() -> None:
    """Recorded, launches take 110 of 200 µs; a host that the profiler slowed four times would wait for none."""
    slows = {"low": 2.8, "mid": 4.0, "high": 4.9}
    regions = [asking_for_graphs("a", 60.0), asking_for_graphs("b", 30.0)]
    found = trace(regions, launch=110.0, gpu=0.0, launches=12.0, profiler_slows=slows)
    found["step_parts"]["idle_us"] = 110.0
    gained, (action,) = gain_and_actions(found)  # type: ignore[arg-type]
    assert (action["id"], action["scope"], action["saves_us"], action["adds_us"]) == ("cuda-graphs", "step", None, None)
    assert "55.0 % of the step" in action["because"] and "2.8 to 4.9 times" in action["evidence"]["text"]
    assert gained is not None and gained["all"] is None


def test_graphs_that_save_by_the_estimate_too_are_told_with_their_time() -> None:
    regions = [asking_for_graphs("a", 60.0), asking_for_graphs("b", 30.0)]
    found = trace(regions, launch=1110.0, gpu=0.0, launches=12.0)
    (action,) = listed(found)
    assert action["id"] == "cuda-graphs" and action["saves_us"] is not None and action["saves_us"]["mid"] > 900.0


def test_graphs_without_a_time_stand_in_the_place_of_compiling_the_model() -> None:
    slows = {"low": 2.8, "mid": 4.0, "high": 4.9}
    regions = [with_compile("a", 600.0, 0.5), asking_for_graphs("b", 30.0)]
    found = trace(regions, launch=700.0, launches=12.0, profiler_slows=slows, gpu=0.0)
    found["step_parts"]["idle_us"] = 700.0
    by_id = {a["id"]: a for a in listed(found)}
    assert by_id["cuda-graphs"]["saves_us"] is None and by_id["cuda-graphs"]["instead_of"] == "compile-model"


@pytest.mark.parametrize("name", READABLE)
def test_no_region_gives_more_than_its_kernels_time_that_goes_and_the_waits_for_its_launches(name: str) -> None:
    answer = reported(name)
    planned = ranking.plan(answer)  # type: ignore[arg-type]
    if planned is None:
        assert answer["actions"] == []
        return
    step, priced = planned
    parts = step.parts
    each_us = (parts["idle_launch_us"] + parts["idle_device_us"]) / max(1.0, step.pace["launches"])
    of_own: dict[int, float] = {}
    of_all: dict[int, float] = {}
    for change in ranking.changes(ranking.followed(priced)):
        for place, left in {**change.time, **change.padded}.items():
            of = of_own if change.own else of_all
            of[place] = min(of.get(place, 1.0), left.mid) if change.own else of.get(place, 1.0) - (1.0 - left.mid)
    given: dict[str, float] = {}
    for action in answer["actions"]:
        for key, part in zip(action["regions"], action["parts_us"], strict=False):
            assert part >= 0.0
            given[key] = given.get(key, 0.0) + part
    for place, one in enumerate(answer["regions"]):
        best = max(0.0, min(of_own.get(place, 1.0), of_all.get(place, 1.0)))
        launched = one["kernels_per_call"] * one["calls_per_step"] + (one.get("copies_per_step") or 0.0)
        waits_us = launched * each_us + (one.get("copies_us_per_step") or 0.0)
        most = one["busy_us_per_step"] * max(0.0, 1.0 - best) + waits_us
        assert given.get(one["key"], 0.0) <= 1.001 * most + 1e-3, one["name"]


def test_what_a_later_change_adds_falls_on_the_regions_where_it_adds() -> None:
    """Attention whose own call leaves 0.2 of it has nothing more to give to compiling that would leave 0.4."""
    call = with_compile("a", 1000.0, 0.4)
    call["advice"] |= {"tool": "library", "region_speedup": {"low": 5.0, "mid": 5.0, "high": 5.0}}
    own, whole = listed(trace([call, with_compile("b", 500.0, 0.5)]))
    assert (own["adds_us"], own["parts_us"]) == (pytest.approx(800.0), [pytest.approx(800.0)])
    assert whole["parts_us"] == pytest.approx([0.0, whole["adds_us"]])


def test_attention_of_ten_kernels_gives_its_rows_back_to_norm_and_gelu() -> None:
    """Four calls of 137 GFLOP were promised to take 172 us: 3.2 PFLOP/s, of 0.99 that there are."""
    answer = reported("handrolled_blocks_bf16_eager.json.gz")
    regions = {r["name"]: r for r in answer["regions"]}
    saved = saved_by_region(answer["actions"])
    attention = regions["attention by hand"]
    rate = attention["calls_per_step"] * 137e9 / ((attention["busy_us_per_step"] - saved[attention["key"]]) * 1e-6)
    assert rate < 0.99e15
    assert saved[regions["RMSNorm by hand"]["key"]] > 1_300
    assert saved[regions["GEMM with GELU and mask tail"]["key"]] > 700


@pytest.mark.parametrize("name", READABLE)
def test_every_trace_lists_what_to_do_about_its_step_or_a_region(name: str) -> None:
    """An option for all of it, or where there is none the reason why: it is compiled or captured already, nothing of
    it can be compiled, or its own call is all that is left."""
    answer = reported(name)
    of_step = [a for a in answer["actions"] if a["scope"] == "step"]
    assert of_step or name in WITHOUT_OPTIONS, [a["title"] for a in answer["actions"]]
    assert not (of_step and name in WITHOUT_OPTIONS)
    if name in WITHOUT_OPTIONS:
        assert WITHOUT_OPTIONS[name] in {n["code"] for n in answer["notes"]}


@pytest.mark.parametrize("name", WITHOUT_KERNELS)
def test_a_trace_without_kernels_is_refused_and_has_no_list(name: str) -> None:
    with pytest.raises(TraceError, match="no GPU kernels"):
        reported(name)


def test_where_the_graph_breaks_no_launch_is_taken_away_for_certain() -> None:
    paced: Json = {"gpu_paced_us_per_step": 0.0}
    whole = trace([with_compile("a", 100.0, 1.0, **paced)], launch=900.0, gpu=0.0, launches=10.0)
    broken = {**whole, "compile_obstacles": [{"effect": "break", "kind": "tensor-branch", "op": "aten::is_nonzero",
                                              "sources": [], "modules": [], "remedy": ""}]}  # fmt: skip

    def graphs(found: Json) -> Json:
        return next(a for a in listed(found) if a["id"] == "cuda-graphs")

    assert graphs(whole)["saves_us"]["low"] > 800.0
    assert graphs(broken)["saves_us"]["low"] == pytest.approx(0.0)
    assert graphs(broken)["saves_us"]["mid"] == graphs(whole)["saves_us"]["mid"]
    assert "breaks its graph" in graphs(broken)["because"]


def test_few_launches_that_take_long_are_no_matter_for_graphs() -> None:
    paced: Json = {"gpu_paced_us_per_step": 0.0}
    found = trace([with_compile("a", 100.0, 1.0, **paced)], launch=1e6, gpu=0.0, launches=10.0)
    assert all(a["saves_us"]["high"] < 0.01e6 for a in listed(found) if a["evidence"]["kind"] != "bound")


def test_what_nobody_can_see_into_is_not_compiled_with_the_model() -> None:
    opaque = with_compile("custom operation mylib::norm", 500.0, 0.5)
    assert listed(trace([opaque, with_compile("Triton kernel", 500.0, 0.5, kind="compiled")])) == []


def test_precision_and_fusion_take_off_other_parts_of_a_region() -> None:
    step = step_of(trace([region("a", 1000.0, "skip", None)]))  # type: ignore[arg-type]
    assert step is not None
    fused, narrow = (Change(time={0: Left(x, x, x)}) for x in (0.6, 0.7))
    assert after(step, [fused, narrow], "mid")[0] == pytest.approx(300.0)


def test_where_sizes_change_from_step_to_step_no_graph_is_promised() -> None:
    actions = {a["id"]: a for a in reported("bert_train_varlen_fp16_eager.json.gz")["actions"]}
    assert "cuda-graphs" not in actions
    assert "dynamic=True" in actions["compile-model"]["call"]
    assert "sizes change" in actions["compile-model"]["because"]
    assert "cuda-graphs" in {a["id"] for a in reported("t5_train_autocast_eager.json.gz")["actions"]}


def test_graphs_that_save_little_more_than_fusion_stand_in_its_place() -> None:
    def stands(idle_us: float, launches: int) -> tuple[str, str]:
        made = trace([region("a", 40_000.0)], launch=idle_us, launches=launches)
        of = {a["id"]: a["instead_of"] for a in gain_and_actions(made)[1]}  # type: ignore[arg-type]
        return of["compile-model"], of["cuda-graphs"]

    assert stands(2_200.0, 20) == ("", "compile-model")
    assert stands(90_000.0, 1_000) == ("cuda-graphs", "")


def test_communication_that_ends_sooner_saves_nothing_where_launches_are_later() -> None:
    titles = [a["title"] for a in reported("hta_nccl.json.gz")["actions"]]
    assert not any("communication" in title for title in titles)
    assert any("communication" in a["title"] for a in reported("hta_trace_diff_control.json.gz")["actions"])


def test_attention_in_compiled_code_is_not_to_be_compiled_again() -> None:
    actions = reported("handrolled_blocks_bf16_compiled.json.gz")["actions"]
    assert [a["tool"] for a in actions] == ["library"]


def test_a_gpu_that_triton_does_not_know_is_not_told_to_compile() -> None:
    """A Quadro GP100: compute capability 6.0."""
    answer = reported("hta_step_based_trace_2543932.json.gz")
    assert answer["compute_capability"] == "6.0"
    graphs, *others = answer["actions"]
    assert "make_graphed_callables" in graphs["call"]
    assert not {"compile", "triton"} & {a["tool"] for a in others}
    assert "torch.compile" not in graphs["call"]


def advised_layout(name: str, busy: float, by: Libraries, faster: float | None) -> Json:
    made = with_compile(name, busy, 0.9)
    ends = {"low": faster, "mid": faster, "high": faster} if faster else None
    made["advice"] |= {"tool": "library", "mode": "layout", "call": by.layout_call, "region_speedup": ends}
    return made


def test_one_change_to_the_whole_model_is_one_action_and_saves_what_its_regions_save() -> None:
    regions = [advised_layout("a", 500.0, NVIDIA, 5.0), advised_layout("b", 300.0, NVIDIA, 3.0)]
    actions = listed(trace([*regions, region("c", 200.0, "skip", None)]))
    (layout,) = [a for a in actions if a["mode"] == "layout"]
    assert len(layout["regions"]) == 2 and "1 more region" in layout["title"]
    assert layout["saves_us"]["mid"] == layout["adds_us"] == pytest.approx(400 + 200)
    assert layout["parts_us"] == pytest.approx([400, 200])


def test_one_change_of_which_no_time_is_predicted_stands_once_as_well() -> None:
    regions = [advised_layout(name, 300.0, AMD, None) for name in "abc"]
    actions = listed(trace(regions))
    (layout,) = [a for a in actions if a["mode"] == "layout"]
    assert len(layout["regions"]) == 3 and layout["saves_us"] is None and layout["adds_us"] is None


def test_code_for_one_place_is_not_taken_for_the_same_change_elsewhere() -> None:
    regions = [advised_layout(name, 400.0, NVIDIA, 4.0) for name in "ab"]
    for made in regions:
        made["advice"]["call"] = "y = F.linear(patches, w.flatten(1), b)"
    assert len([a for a in listed(trace(regions)) if a["tool"] == "library"]) == 2


def test_what_saves_only_once_the_host_sets_no_pace_says_so() -> None:
    paced: Json = {"gpu_paced_us_per_step": 0.0}
    slow = advised_layout("a", 500.0, NVIDIA, 5.0) | paced
    found = trace([slow, with_compile("b", 100.0, 1.0, **paced)], launch=900.0, gpu=0.0, launches=10.0)
    actions = listed(found)
    layout = next(a for a in actions if a["mode"] == "layout")
    graphs = next(a for a in actions if a["id"] == "cuda-graphs")
    alone = layout["saves_us"]["mid"] > 0.1 * layout["adds_us"]
    assert ("once the host no longer sets the pace" in layout["because"]) is not alone
    assert not alone, (layout["saves_us"], layout["adds_us"], graphs["adds_us"])
    assert "once the host" not in graphs["because"]


def test_what_is_less_to_do_stands_first_where_it_saves_as_much() -> None:
    """SDPA by hand instead of a compiler that finds it: 124 and 132 of 158 ms."""
    titles = [a["title"] for a in reported("tl_h100_timesformer.json.gz")["actions"]]
    assert titles[0].startswith("Call F.scaled_dot_product_attention")


def test_no_gap_of_a_sampled_trace_is_the_hosts() -> None:
    actions = reported("hta_sampled_rank0.json.gz")["actions"]
    assert [a["tool"] for a in actions] == ["communication", "record"]


def test_a_cache_that_grows_is_made_static_with_the_graph() -> None:
    first = reported("llama_decode_bf16_eager.json.gz")["actions"][0]
    assert first["id"] == "cuda-graphs" and '"static"' in first["call"]
    assert '"static"' not in reported("t5_train_autocast_eager.json.gz")["actions"][0]["call"]


def test_a_step_of_slow_communication_has_that_first_and_little_of_its_kernels() -> None:
    first, second = reported("tl_mi300_resnet_actckpt.json.gz")["actions"][:2]
    assert first["tool"] == "communication" and "no overlap hides it" in first["because"]
    assert second["saves_us"]["mid"] < 0.1 * second["step_time_us"]["mid"]


def test_a_kernel_that_nobody_has_proven_is_followed_with_nothing() -> None:
    for name in ("timm_convnext_train_channels_last.json.gz", "kineto_resnet50_workers0.json.gz"):
        assert all(a["adds_us"] is None for a in reported(name)["actions"] if a["mode"] == "custom")


def test_what_makes_the_step_longer_once_others_are_followed_is_not_counted() -> None:
    """A graph that saves 60 of 240 µs by itself: the regions' own calls leave 172, and replaying them takes 175.7."""
    calls = [region("a", 20.0, "library", speedup=3.0), region("b", 100.0, "library", speedup=1.5)]
    gained, actions = gain_and_actions(trace(calls, launch=120.0, gpu=120.0, lead=60.0, launches=100.0))  # type: ignore[arg-type]
    adding = {a["id"]: a["adds_us"] for a in actions if a["adds_us"] is not None}
    assert set(adding) == {"region-0", "region-1"} and min(adding.values()) > 0
    assert gained is not None and gained["all"] is not None
    assert gained["all"]["step_time_us"]["mid"] == pytest.approx(172.0, abs=0.1)


def test_hundreds_of_regions_are_not_ranked_by_trying_each_behind_each(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, many = 0, 200

    def counted(*given: Any) -> tuple[float, float]:
        nonlocal calls
        calls += 1
        return after(*given)

    monkeypatch.setattr(ranking, "after", counted)
    monkeypatch.setattr(step_model, "after", counted)
    found = trace([region(f"r{i}", 1_000.0 + i, "library") for i in range(many)])
    assert ranking.plan(found) is not None  # type: ignore[arg-type]
    assert ranking.GREEDY * many / 2 < calls <= (ranking.GREEDY + 8) * many
