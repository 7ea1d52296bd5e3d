"""The report of a trace: shares that add up, the step's parts, graphs, ranks; on the page, in the API and the shell."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.trace_report.companions import Companion
from app.trace_report.ranks import report_ranks
from app.trace_report.report import report
from app.trace_report.step import IDLE_WORDS
from app.web.templating import environment
from app.web.views import trace_page
from app.web.views.trace.step import step_section
from profiler.trace import TraceError
from profiler.trace.analyze.idle_breakdown import StepParts
from tests.app.trace_report.reports import reported
from tests.profiler.trace.analyze.test_ranks import rank_file
from tests.profiler.trace.files import EXPECTED, TRACES

GRAPH, EAGER = "handrolled_blocks_bf16_cudagraph.json.gz", "handrolled_blocks_bf16_eager.json.gz"
QUICK = [
    EAGER, GRAPH, "tl_vllm_decode_full_exec.json.gz", "tl_mi300_resnet_actckpt.json.gz",
    "hta_step_based_trace_2543932.json.gz",
    "handrolled_blocks_noshapes.json.gz", "tl_mi210_gpu_only.json.gz", "hta_nccl.json.gz",
]  # fmt: skip


PARTS = [field.name for field in fields(StepParts) if field.name != "wall_us"]


def page(trace: dict[str, Any], group: list[dict[str, Any]] | None = None) -> str:
    shown = {"id": "t", "status": "ready", **trace}
    return environment().get_template("partials/trace/body.html").render(**trace_page.trace_page(shown, group or []))


@pytest.mark.parametrize("name", QUICK)
def test_shares_of_regions_and_rests_add_up_to_one(name: str) -> None:
    answer = reported(name)
    parts = answer["step_parts"]
    total = sum(r["share_of_step"] for r in (*answer["regions"], *answer["rests"]))
    assert total == pytest.approx(1.0, abs=1e-6)
    idle = sum(r["share_of_step"] for r in answer["rests"] if r["kind"] == "idle")
    assert idle == pytest.approx(parts["idle_share"], abs=1e-9)
    assert answer["gpu_busy_share"] == pytest.approx(1 - parts["idle_share"], abs=1e-6)
    assert answer["step_time_us"] == pytest.approx(parts["wall_us"])
    assert answer["kernels"] == EXPECTED[name]["kernels"]
    for region in answer["regions"]:
        assert region["busy_us_per_step"] <= region["time_us_per_step"] * (1 + 1e-9)
        assert region["share_of_step"] == pytest.approx(region["busy_us_per_step"] / answer["step_time_us"])


def test_the_page_shows_parts_spread_critical_resource_and_idle_without_a_script() -> None:
    answer = reported("llama_decode_bf16_eager.json.gz")
    text = page(answer)
    assert '<span class="kicker">Bottleneck:</span> kernel launches</h2>' in text
    assert "Idle: waiting for launches" in text
    assert "one step measured" in text
    assert "idle: waiting for the host" in text
    assert "reduce-overhead" in next(n["remedy"] for n in answer["notes"] if n["code"] == "gpu-idle")
    sections = step_section(answer)
    assert sum(row["share"] for row in sections["part_rows"]) == pytest.approx(1.0, abs=1e-9)
    # The chart has the idle rests once, and nothing is left over.
    names = [row["name"] for row in trace_page.trace_page({"id": "t", "status": "ready", **answer})["step_rows"]]
    assert "GPU idle" not in names


def test_what_is_only_to_be_recorded_anew_has_no_bottleneck() -> None:
    answer = reported("kineto_docs_before_fix.json")
    assert {action["tool"] for action in answer["actions"]} == {"record"}
    assert step_section(answer)["resource"] == "not known"
    known = reported(EAGER)
    assert step_section(known)["because"] == known["critical"]["because"]


def test_of_two_unequal_steps_every_figure_is_of_their_mean() -> None:
    """217 and 183 µs: the shorter alone is the best case, and no figure is of it."""
    answer = reported("tl_moe_01_many_experts_few_tokens.json.gz")
    times, parts = answer["step_times"], answer["step_parts"]
    assert (times["count"], times["of"], times["steps"]) == (2, "median", 2)
    assert (round(times["shortest_us"]), round(times["longest_us"])) == (183, 217)
    for figure in (answer["step_time_us"], parts["wall_us"], times["median_us"]):
        assert figure == pytest.approx((times["shortest_us"] + times["longest_us"]) / 2)
    with gzip.open(TRACES / answer["name"]) as file:
        kernels = sorted((e["ts"], e["dur"]) for e in json.load(file)["traceEvents"] if e.get("cat") == "kernel")
    both = sum(time_us for _, time_us in kernels[12:])  # 12 of each step, the first of which warms up
    assert sum(row["time_us"] for row in answer["where"]["kernels"]) == pytest.approx(both / 2, rel=1e-3)
    assert sum(region["time_us_per_step"] for region in answer["regions"]) == pytest.approx(both / 2, rel=1e-3)
    assert "200 µs, the median of 2 steps: the mean of both (shortest and longest 183 µs and 217 µs)" in page(answer)


def test_every_figure_of_a_step_is_of_the_step_that_is_named() -> None:
    """The median, to the digit, or the mean of steps whose sizes differ, and that is said."""
    for name in sorted(EXPECTED):
        if not EXPECTED[name]["kernels"]:
            continue
        answer = reported(name)
        times, step_us = answer["step_times"], answer["step_time_us"]
        assert step_us == pytest.approx(answer["step_parts"]["wall_us"]), name
        assert step_us == pytest.approx(sum(answer["step_parts"][field] for field in PARTS))
        if times["of"] == "mean":
            assert "sizes differ; the median of" in page(answer), name
        else:
            assert step_us == pytest.approx(times["median_us"]), name


def test_the_mean_of_steps_of_differing_sizes_is_said_to_be_one() -> None:
    answer = reported("bert_train_varlen_fp16_eager.json.gz")
    text = page(answer)
    assert answer["step_times"]["of"] == "mean"
    assert "164 ms, the mean of 6 steps, whose sizes differ; the median of 6 steps is 158 ms (quartiles" in text
    assert ">Mean step</span>" in text


def test_a_trace_stored_before_there_were_parts_still_has_its_page() -> None:
    answer = reported(EAGER)
    old = {k: v for k, v in answer.items() if k not in ("step_parts", "step_times", "critical", "graphs", "rank")}
    assert "Where the step" not in page(old)
    assert "attention by hand" in page(old)


def test_a_graph_is_shown_with_what_it_hides_and_another_trace_lends_what_is_missing() -> None:
    alone = reported(GRAPH)
    assert alone["regions"] == []
    (graph,) = alone["graphs"]
    assert (graph["kernels_per_replay"], graph["replays_per_step"], graph["hidden_share"]) == (136, 1.0, 1.0)
    assert "--companion" in graph["remedy"]
    assert "Graph launches" in page(alone)
    lent = report(TRACES / GRAPH, GRAPH, companion=Companion(TRACES / EAGER, EAGER))
    assert lent["graphs"][0]["hidden_share"] == 0.0
    assert "attention by hand" in {r["title"] for r in lent["regions"]}
    assert all(r["text"] for r in lent["regions"] if r["share_of_step"] > 0.05)


def test_the_shell_takes_the_old_name_of_companion_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for option in ("--companion", "--beside"):
        assert main(["advise", str(TRACES / GRAPH), option, str(TRACES / EAGER), "--oracle", "off"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "attention by hand" in printed[1]


def test_the_shell_takes_a_trace_beside_and_refuses_it_for_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", str(TRACES / GRAPH), "--companion", str(TRACES / EAGER), "--oracle", "off"]) == 0
    printed = capsys.readouterr().out
    assert "step: 16.02 ms" in printed
    assert "attention by hand" in printed
    text = tmp_path / "region.txt"
    text.write_text("x: f32[8]\nreturn x + 1\n")
    assert main(["advise", str(text), "--companion", str(TRACES / EAGER)]) == 1
    assert main(["advise", str(TRACES / GRAPH), "--companion", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err


def test_ranks_are_reported_each_and_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [rank_file(tmp_path, rank, compute) for rank, compute in ((2, 500.0), (0, 600.0), (1, 880.0))]
    assert main(["advise", "--json", *map(str, files)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert all(t["oracle"]["done"] for t in answer["ranks"]), "each rank's regions are asked about"
    assert [t["rank"] for t in answer["ranks"]] == [0, 1, 2]
    assert answer["spread"]["slowest"] == 1
    assert [r["wait_us"] for r in answer["spread"]["ranks"]] == pytest.approx([280.0, 0.0, 380.0])
    assert main(["advise", "--oracle", "off", *map(str, files)]) == 0
    assert "slowest: rank 1" in capsys.readouterr().out
    group = [{"id": f"t{t['rank']}", "status": "ready", **t} for t in report_ranks(files)["ranks"]]
    shown = page({**group[0]}, group)
    assert "Ranks side by side" in shown
    assert 'href="/traces/t1"' in shown
    assert "r1.json, slowest" in shown
    assert "Ranks side by side" not in page(group[0], group[:1])


def test_several_files_that_are_no_traces_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "region.txt"
    text.write_text("x: f32[8]\nreturn x + 1\n")
    assert main(["advise", str(TRACES / EAGER), str(text)]) == 1
    assert "no trace" in capsys.readouterr().err


def test_both_passes_of_a_region_have_their_time_and_a_gradient_of_its_own_names_its_forward() -> None:
    answer = json.loads(json.dumps(reported("llama_train_bf16_eager.json.gz")))
    for place, region in enumerate(answer["regions"]):
        region["id"] = f"id{place}"
        both = region["forward_time_us_per_step"] + region["backward_time_us_per_step"]
        assert both == pytest.approx(region["time_us_per_step"])
        assert sum(s["time_us_per_step"] for s in region["shapes"]) == pytest.approx(region["time_us_per_step"])
        assert bool(region["text"]) != bool(region["missing"])
    by_key = {r["key"]: r for r in answer["regions"]}
    gradient = next(r for r in answer["regions"] if r["forward_of"])
    forward = by_key[gradient["forward_of"]]
    assert gradient["forward_time_us_per_step"] == pytest.approx(0.0, abs=1e-6)
    shown = page(answer)
    assert f'Gradient of <a href="/regions/{forward["id"]}">' in shown
    assert "stands with its forward" in shown


def test_what_is_wrong_with_one_of_several_files_names_it(tmp_path: Path) -> None:
    rank, broken = rank_file(tmp_path, 0, 10.0), TRACES / "hta_cpu_only.json.gz"
    with pytest.raises(TraceError, match=r"^hta_cpu_only\.json\.gz: The trace has no GPU kernels"):
        report_ranks([rank, broken])
    trace, no_execution = TRACES / EAGER, TRACES / "expected.json"
    with pytest.raises(TraceError, match=r"^expected\.json: This is no execution trace"):
        report(trace, EAGER, execution=Companion(no_execution, no_execution.name))


def test_every_kind_of_idle_time_has_its_words() -> None:
    assert list(IDLE_WORDS) == [f.name for f in fields(StepParts) if f.name.startswith("idle_")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt2_train_autocast_eager.json.gz", None),
        ("kineto_resnet50_workers0.json.gz", "the data loader"),
        ("tl_h100_owlv2.json.gz", "the data loader"),
        ("tl_h100_timesformer.json.gz", "before inputs are copied to the GPU"),
        ("hta_alexnet.json.gz", "what begins once, such as `aten::empty_strided`"),
    ],
)
def test_a_bottleneck_on_the_host_is_said_by_what_the_host_does(name: str, words: str | None) -> None:
    critical = reported(name)["critical"]
    assert (critical["resource"] == "host") is (words is not None)
    assert words is None or words in critical["because"]
