"""What would stop torch.compile, from a trace file to the trace's JSON, its regions' criteria and its page."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from app.trace_report.report import report
from app.web.templating import environment
from app.web.views import trace_page
from app.web.views.trace.notes import blocker_rows
from tests.app.samples import region
from tests.conftest import DATA


@cache
def of(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json.dumps(report(DATA / "traces" / name, name)))
    return answer


def fuses(region: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in region["advice"]["criteria"] if c["name"] == "compile-fuses")


def page(trace: dict[str, Any]) -> str:
    shown = {
        "id": "t", "status": "ready", "step_time_us": 4000.0, "gpu_busy_share": 0.9, "kernel_time_us": 3600.0,
        "kernels": 1, "steps": 1, "profiler_steps": 1, "linked_share": 1.0, "device": None, "notes": [], "rests": [],
        "estimates_for": "NVIDIA H200", "regions": [region("a")], **trace,
    }  # fmt: skip
    return environment().get_template("partials/trace/body.html").render(**trace_page.trace_page(shown))


def test_an_obstacle_has_its_module_its_function_and_a_remedy():
    [found] = of("tl_h100_bert_small.json.gz")["compile_obstacles"]
    assert found["op"] == "aten::is_nonzero"
    assert found["effect"] == "break"
    assert found["modules"] == ["BertLMHeadModel_0/BertModel_0"]
    assert found["sources"] == ["transformers/modeling_attn_mask_utils.py:429 _prepare_4d_attention_mask_for_sdpa"]
    assert "torch.cond" in found["remedy"]


def test_next_to_it_in_its_module_the_region_fuses_and_says_what_to_fix_first():
    regions = of("tl_h100_bert_small.json.gz")["regions"]
    [affected] = [r for r in regions if r["compile_obstacles"]]
    assert affected["source"]["module"] == "BertLMHeadModel_0/BertModel_0"
    assert not affected["compile_obstacles"][0]["inside"]
    assert fuses(affected)["holds"] is True
    assert "to fix first, in the same module: `aten::is_nonzero`" in fuses(affected)["because"]


def test_between_its_operations_the_region_does_not_fuse():
    """sum and eq on the mask, the `if` on the result, a cast: eight times in eight tokens."""
    regions = of("llama_decode_bf16_eager.json.gz")["regions"]
    [inside] = [r for r in regions if any(o["inside"] for o in r["compile_obstacles"])]
    assert inside["source"]["ops"] == ["to", "sum", "eq", "to"]
    assert inside["compile_obstacles"][0]["calls_per_step"] == 8.0
    assert fuses(inside)["holds"] is False
    assert "between its operations `aten::is_nonzero` (8 a step) breaks the graph" in fuses(inside)["because"]


def test_a_trace_without_obstacles_lists_none_and_shows_no_table():
    trace = of("handrolled_blocks_bf16_eager_stack.json.gz")
    assert trace["compile_obstacles"] == []
    assert all(r["compile_obstacles"] == [] for r in trace["regions"])
    assert "Before torch.compile" not in page({"compile_obstacles": []})
    assert "Before torch.compile" not in page({}), "traces read by an older version"


def test_the_page_lists_what_where_and_what_helps():
    shown = page({"compile_obstacles": of("tl_h100_bert_small.json.gz")["compile_obstacles"]})
    assert "Before torch.compile on the whole model" in shown
    for part in (
        "<code>aten::is_nonzero</code>",
        "breaks the graph",
        "_prepare_4d_attention_mask_for_sdpa",
        "torch.cond",
    ):
        assert part in shown


def test_operations_of_one_kind_are_one_row():
    one = of("tl_h100_bert_small.json.gz")["compile_obstacles"][0]
    many = [{**one, "kind": "custom-op", "op": f"mylib::op{i}", "calls_per_step": 2.0} for i in range(9)]
    rows = blocker_rows([*many, one])
    assert [(len(r["ops"]), r["more_ops"], r["calls"]) for r in rows] == [(5, 4, "18"), (1, 0, "1")]


def test_names_from_a_trace_are_text_on_the_page():
    one = of("tl_h100_bert_small.json.gz")["compile_obstacles"][0]
    evil = "<img src=x onerror=alert(1)>"
    shown = page({"compile_obstacles": [{**one, "op": evil, "sources": [evil], "operands": [evil], "remedy": evil}]})
    assert "<img" not in shown


def test_a_region_knows_its_source_line_where_stacks_were_recorded() -> None:
    from app.trace_report.report import report

    path = DATA / "traces" / "handrolled_blocks_bf16_eager_stack.json.gz"
    found = {r["name"]: r["source"]["line"] for r in report(path, path.name)["regions"]}

    found = {r["name"]: r["source"]["line"] for r in report(path, path.name, strict=False)["regions"]}
    assert all(line for line in found.values()), found
    assert len(set(found.values())) > 1
