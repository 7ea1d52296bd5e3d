"""Briefs of all real traces: within the bound, in the API's order and figures, with commands that the parser takes."""

from __future__ import annotations

import json
import shlex
from copy import deepcopy
from typing import Any

import pytest

from app import cli
from app.agents.brief.commands import AFTER
from app.agents.brief.ranks import ranks_brief
from app.agents.brief.tokens import MAX_TOKENS, json_text, token_bound
from app.agents.brief.trace import trace_brief
from app.objects.brief import Brief
from app.program.named import words_of
from app.trace_report.ranks import RankReports
from profiler.program.request import Request
from tests.app.objects.exact import differences
from tests.app.trace_report.reports import reported
from tests.profiler.trace.files import TRACES

UNREAD = ("hta_cpu_only", "hta_cupti_profiler")
"""Without a GPU's kernels."""
NAMES = sorted(
    p.name
    for p in TRACES.iterdir()
    if p.name.endswith((".json", ".json.gz")) and ".et." not in p.name and p.name != "expected.json"
    and not p.name.startswith(UNREAD)
)  # fmt: skip
STEPS = "gpt2_train_autocast_eager_stack.json.gz"


def test_all_traces_are_asked_about() -> None:
    assert len(NAMES) == 45


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_is_told_within_the_bound_by_its_own_figures(name: str) -> None:
    trace = reported(name)
    brief = trace_brief(trace, f"traces/{name}")
    assert token_bound(json_text(brief)) <= MAX_TOKENS
    assert differences(Brief, json.loads(json_text(brief))) == []
    first = trace["actions"][: len(brief["do"])]
    assert [a["title"][:20] for a in first] == [a["title"][:20] for a in brief["do"]]
    assert brief["do"] or not trace["actions"]
    assert len(brief["do"]) + brief["left_out"]["do"] == len(trace["actions"])
    for told, action in zip(brief["do"], first, strict=True):
        kind = action["evidence"]["kind"]
        assert told["tool"] == action["tool"]
        assert told["evidence"] == kind if kind != "measured" else told["evidence"].startswith("measured on")
        if action["saves_us"]:
            assert told["saves_us"]["mid"] == pytest.approx(action["saves_us"]["mid"], rel=1e-3, abs=1e-3)
        assert told["edit"]["after"] in (action["call"], "")
        if told["region"]:
            assert trace["regions"][told["region"] - 1]["key"] == action["region"]
            assert told["edit"]["before"].strip() in ((trace["regions"][told["region"] - 1]["text"] or "").strip(), "")
        if told["instead_of"]:
            assert trace["actions"][told["instead_of"] - 1]["id"] == action["instead_of"]
    if brief["step"]:
        assert brief["step"]["time_us"] == pytest.approx(trace["step_time_us"], rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_left_and_why_is_the_regions_own_advice(name: str) -> None:
    trace = reported(name)
    for entry in trace_brief(trace, name, most=10**6)["do_not"]:
        what = entry["what"].removeprefix("a Triton kernel for ").partition(" (")[0]
        named = [r for r in trace["regions"] if r["name"].startswith(what.removesuffix("...")[:25])]
        if "more region" in what:
            continue
        assert any(r["advice"]["tool"] not in ("triton", "cuda") for r in named), entry
        assert entry["because"]
        assert (entry["share_of_step"] or 0.0) <= sum(r["share_of_step"] or 0.0 for r in named) + 1e-3 or "(" in what


def test_a_step_of_which_little_is_told_has_no_made_up_figures() -> None:
    brief = trace_brief(reported("tl_nv_attn_05_slow_flash_gqa.json"), "x.json")
    assert brief["step"] is not None and brief["step"]["after_us"] is None
    assert [a["tool"] for a in brief["do"]] == ["record"]
    assert brief["do"][0]["saves_us"] is None and brief["do_not"] == []
    assert [proof["command"] for proof in brief["verify"]] == [f"tritonworthy check {AFTER} --baseline x.json"]


def test_every_command_of_a_brief_is_one_of_ours() -> None:
    brief = trace_brief(reported(STEPS), "a folder/step one.json.gz")
    commands = [*(proof["command"] for proof in brief["verify"]), brief["more"]]
    assert len(commands) == 4
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "tritonworthy"
        parsed = cli._parser().parse_args(arguments)
        assert "a folder/step one.json.gz" in map(
            str, (*(getattr(parsed, "file", None) or ()), getattr(parsed, "trace", ""), getattr(parsed, "baseline", ""))
        )


def predicted(gaps: int = 0) -> Any:
    """A step that nobody recorded, with notes on what was assumed."""
    trace: Any = deepcopy(reported(STEPS))
    trace["origin"] = {"kind": "module", "name": "m.py:make", "device": "NVIDIA H100", "gaps": []}
    assumed = {"code": "not-recorded", "level": "warning", "message": "m.py:3: a value is read", "remedy": ""}
    told = {"code": "predicted", "level": "info", "message": "From the module, predicted", "remedy": ""}
    trace["notes"] = [*trace["notes"], *[assumed] * gaps, told]
    return trace


@pytest.mark.parametrize("saved", ["", "kept.json.gz"])
def test_commands_of_a_program_are_ours_and_take_no_program_for_a_trace(saved: str) -> None:
    words = words_of(Request("a b/m.py:make", True, "bf16"), "H100")
    brief = trace_brief(predicted(), saved, program=words)
    assert (brief["of"], brief["name"]) == ("module", "a b/m.py:make")
    told = [*(proof["command"] for proof in brief["verify"]), brief["more"]]
    assert len(told) == (4 if saved else 5)
    for command in told:
        _, *arguments = shlex.split(command)
        parsed = cli._parser().parse_args(arguments)
        if arguments[0] == "advise":
            assert parsed.file == ["a b/m.py:make"] and parsed.training and parsed.dtype == "bf16"
        elif arguments[0] == "validate":
            assert str(parsed.trace) == (saved or "PREDICTED.json.gz")
        else:
            assert arguments == ["check", "AFTER.json.gz", "--baseline", "BEFORE.json.gz"]
    assert any("--save PREDICTED.json.gz" in command for command in told) != bool(saved)


def test_that_a_step_is_predicted_is_told_first_and_then_what_was_not_recorded() -> None:
    warnings = trace_brief(predicted(3), "", program=("m.py:make",), most=10**6)["warnings"]
    assert [text.partition(":")[0][:9] for text in warnings[:4]] == ["From the ", "m.py", "m.py", "m.py"]
    assert trace_brief(predicted(300), "", program=("m.py:make",))["warnings"][0].startswith("From the module")


def test_a_program_with_many_options_does_not_outgrow_the_bound() -> None:
    words = words_of(Request("d" * 5000 + ".json", sizes={f"AXIS_{i}": i for i in range(500)}), "H100")
    assert token_bound(json_text(trace_brief(predicted(), "", program=words))) <= MAX_TOKENS


def test_names_from_a_trace_neither_hide_nor_outgrow_the_bound() -> None:
    trace: Any = deepcopy(reported(STEPS))
    trace["name"] = "\u202eevil\u0000" + "x" * 100_000
    for region in trace["regions"]:
        region["name"] = region["advice"]["headline"] = "漢" * 5000
    for action in trace["actions"]:
        action["title"], action["because"] = "\u200b\n" * 900, "A" * 50_000
        action["call"], action["where"] = "y = f(x)\n" * 9000, {"module": "M" * 9999, "file": "f/" * 5000, "line": 3}
    trace["notes"] = [{"code": "x", "level": "error", "message": "m " * 5000, "remedy": ""}] * 200
    brief = trace_brief(trace, "f" * 4000)
    text = json_text(brief)
    assert token_bound(text) <= MAX_TOKENS
    assert not set(text) & set("\u202e\u0000\u200b")
    assert all(action["edit"]["after"] == "" for action in brief["do"])
    assert brief["left_out"]["edits"] >= len(brief["do"]) > 0
    assert brief["left_out"]["warnings"] + len(brief["warnings"]) == 200


def test_the_rank_that_others_wait_for_is_told() -> None:
    one, two = (dict(reported(STEPS), rank=rank, name=f"rank{rank}.json.gz") for rank in (0, 1))
    spread: Any = {"ranks": [], "slowest": 1, "spread": 0.25, "waiting_share": 0.1}
    reports: RankReports = {"ranks": [one, two], "spread": spread}  # type: ignore[typeddict-item]
    brief = ranks_brief(reports, ["runs/rank0.json.gz", "runs/rank1.json.gz"])
    assert brief["name"] == "rank1.json.gz"
    assert brief["more"] == "tritonworthy advise runs/rank1.json.gz --json"
    assert brief["warnings"][0] == "this is rank 1 of 2"
