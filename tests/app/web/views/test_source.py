"""Files and functions of a trace's stacks with their times, against the regions' own source lines."""

from __future__ import annotations

import pytest

from app.web.views.source import source_section
from tests.app.trace_report.reports import reported

TRACE = "llama_prefill_bf16_eager_stack.json.gz"


def section(name: str = TRACE):  # type: ignore[no-untyped-def]
    trace = reported(name)
    names = [str(place) for place in range(len(trace["regions"]))]
    return trace, source_section(trace, names, [""] * len(names))  # type: ignore[arg-type]


def test_what_functions_launch_by_themselves_adds_up_to_the_kernel_time() -> None:
    trace, source = section()
    kernels_us = sum(row["time_us"] for row in trace["where"]["kernels"])
    assert sum(f["own_us"] for f in source["source_files"]) == pytest.approx(kernels_us, rel=0.01)
    assert source["source_files"][0]["file"] == "transformers/models/llama/modeling_llama.py"
    assert all(r["own_us"] <= r["time_us"] + 0.01 for f in source["source_files"] for r in f["lines"])


def test_a_region_stands_at_the_function_that_its_own_page_names() -> None:
    trace, source = section()
    lines = {
        f"{f['file']}:{r['line']} {r['function']}": {g["name"] for g in r["regions"]}
        for f in source["source_files"]
        for r in f["lines"]
    }
    for place, region in enumerate(trace["regions"][:8]):
        assert str(place) in lines[region["source"]["line"]], region["name"]


def test_a_function_has_what_it_calls_in_its_time_once() -> None:
    _, source = section()
    llama = {r["line"]: r for r in source["source_files"][0]["lines"]}
    assert llama[137]["function"] == "apply_rotary_pos_emb"
    assert llama[137]["time_us"] == pytest.approx(llama[137]["own_us"] + llama[130]["own_us"], rel=0.01)


def test_the_margin_says_time_and_advice() -> None:
    _, source = section()
    margin = {line: words for line, _, words, *_ in source["source_files"][0]["margin"]["lines"]}
    assert margin[62].startswith("3.89 ms, 21.3 %") and "torch.compile: 0 (3.89 ms)" in margin[62]


def test_without_stacks_it_is_said_how_to_record_them() -> None:
    _, source = section("handrolled_blocks_bf16_eager.json.gz")
    assert source["source_files"] == [] and "with_stack=True" in source["source_missing"]
