"""tools.checks.answers: what two commits answer, field by field; ids and times are no difference, everything else
is."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.conftest import DATA
from tools.checks.answers import differences, region_texts, trace_files

BEFORE: dict[str, Any] = {
    "traces": {
        "a.json.gz": {
            "id": "9zxznfngar5v58cflmxcuq8kbu",
            "created_at": "2026-11-23T20:07:12.831Z",
            "step_us": 12.3456789,
            "regions": [{"name": "norm", "advice": {"tool": "triton"}}, {"name": "mlp", "advice": None}],
        }
    },
    "regions": {"x.txt, off": {"status": 200, "answer": {"headline": "Use it"}}},
}


def test_ids_times_and_the_last_digits_of_a_sum_are_no_difference() -> None:
    after = copy.deepcopy(BEFORE)
    after["traces"]["a.json.gz"] |= {
        "id": "p9xd9u68ul37lld9o414u01m4n",
        "created_at": "2026-11-24T08:00:00Z",
        "step_us": 12.3456790,
    }
    assert differences(BEFORE, after) == []


def test_what_is_gone_new_or_different_is_told_with_its_place_and_how_often() -> None:
    after = copy.deepcopy(BEFORE)
    trace = after["traces"]["a.json.gz"]
    for region in trace["regions"]:
        region["title"] = region.pop("name")
    trace["regions"][0]["advice"]["tool"] = "compile"
    after["regions"]["x.txt, off"]["status"] = 422
    told = {(d.what, d.place): d for d in differences(BEFORE, after)}
    assert {key: d.count for key, d in told.items()} == {
        ("gone", "/traces/*/regions/N/name"): 2,
        ("new", "/traces/*/regions/N/title"): 2,
        ("different", "/traces/*/regions/N/advice/tool"): 1,
        ("different", "/regions/*/status"): 1,
    }
    tool = told["different", "/traces/*/regions/N/advice/tool"]
    assert tool.example == "/traces/a.json.gz/regions/0/advice/tool: 'triton' -> 'compile'"


def test_an_empty_list_that_was_filled_is_a_difference() -> None:
    after = copy.deepcopy(BEFORE)
    after["traces"]["a.json.gz"]["regions"] = []
    assert {d.what for d in differences(BEFORE, after)} == {"gone", "new"}


def test_every_trace_and_text_of_the_project_is_asked_about(tmp_path: Path) -> None:
    traces = trace_files([DATA / "traces", DATA / "attacks" / "traces"])
    assert len(traces) > 50 and "llama_train_bf16_eager.json.gz" in traces
    assert not any(".et." in name for name in traces)
    texts = region_texts([])
    assert len(texts) > 100
    assert all("return" in text for text in texts.values())
