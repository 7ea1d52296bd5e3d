"""A recording that shows no steady step, or too little, is the first thing to mend, and one that does is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from app.trace_report.speedup import gain_and_actions
from tests.app.trace_report.actions.test_host import spent
from tests.app.trace_report.reports import reported
from tests.app.trace_report.test_speedup import region, trace

Json = dict[str, Any]


def listed(**more: Any) -> list[Json]:
    return gain_and_actions(trace([region("a", 500.0)], host=500.0, **more))[1]  # type: ignore[arg-type,return-value]


def note(code: str) -> Json:
    return {"code": code, "level": "warning", "message": f"the trace has {code}", "remedy": ""}


def test_a_step_that_is_half_a_start_says_nothing_of_any_other() -> None:
    (only,) = listed(host_times=[spent("start_up", 500.0, "aten::empty")])
    assert (only["tool"], only["title"], only["saves_us"]) == ("record", "Record a steady step", None)
    assert "50 % of the step" in only["because"] and "`aten::empty`" in only["because"]


def test_a_step_with_some_of_a_start_is_to_be_recorded_again_first_and_advised_on() -> None:
    first, second, *_ = listed(host_times=[spent("start_up", 250.0, "aten::empty")])
    assert first["tool"] == "record"
    assert second["tool"] == "compile"
    assert [a["tool"] for a in listed(host_times=[spent("start_up", 150.0)])].count("record") == 0


def test_a_step_of_a_few_launches_is_none() -> None:
    (only,) = listed(launches=1.0)
    assert only["title"] == "Record a whole step"


def test_what_the_trace_lacks_comes_first_only_where_nothing_can_be_predicted() -> None:
    assert "record" not in {a["tool"] for a in listed(notes=[note("no-shapes")])}
    blind = trace([region("a", 500.0, speedup=None)], notes=[note("no-stacks"), note("no-shapes")])
    actions = gain_and_actions(blind)[1]  # type: ignore[arg-type]
    assert [a["tool"] for a in actions] == ["record", "compile"]
    assert "record_shapes=True" in actions[0]["call"]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("hta_alexnet.json.gz", "Record a steady step"),
        ("hta_mi250_minitoy.json.gz", "Record a steady step"),
        ("tl_vllm_decode_full_capture.json.gz", "Record a step that replays the graph"),
        ("handrolled_blocks_bf16_cudagraph.json.gz", "Record the step without its CUDA graph too"),
        ("tl_mi210_gpu_only.json.gz", "Record again with what the CPU does"),
        ("handrolled_blocks_noshapes.json.gz", "Record again with shapes"),
    ],
)
def test_traces_that_show_no_step_or_too_little_of_it(name: str, title: str) -> None:
    assert reported(name)["actions"][0]["title"] == title


@pytest.mark.parametrize("name", ["gpt2_train_autocast_eager.json.gz", "timm_resnet50_train_fp32.json.gz"])
def test_a_good_recording_is_not_to_be_made_again(name: str) -> None:
    assert "record" not in {action["tool"] for action in reported(name)["actions"]}
