"""The shown step as trace events: every stored span and gap once, with the name and advice that the page shows."""

from __future__ import annotations

import pytest

from app.web.views.step_slice import step_slice
from tests.app.trace_report.reports import reported


def test_events_are_the_timelines_spans_with_the_regions_names_and_advice() -> None:
    trace = reported("handrolled_blocks_bf16_eager.json.gz")
    names = [r["name"] for r in trace["regions"]]
    made = step_slice(trace, names)  # type: ignore[arg-type]
    assert made is not None
    spans = [e for e in made["traceEvents"] if e["ph"] == "X"]
    timeline = trace["timeline"]
    stored = sum(len(s["start_us"]) for s in timeline["streams"]) + len(timeline["gaps"]["start_us"])
    assert len(spans) == stored
    by_name = {r["name"]: r["advice"]["tool"] for r in trace["regions"]}
    told = [e for e in spans if e["name"] in by_name]
    assert told and all(e["cat"] == by_name[e["name"]] and "advice" in e["args"] for e in told)
    attention = sum(e["dur"] for e in told if e["name"] == "attention by hand")
    region = next(r for r in trace["regions"] if r["name"] == "attention by hand")
    assert attention == pytest.approx(region["time_us_per_step"], rel=0.02)
    lanes = {e["tid"]: e["args"]["name"] for e in made["traceEvents"] if e["name"] == "thread_name"}
    assert lanes == {0: "GPU idle", 1: "GPU 0 stream 7"}
    assert all(e["ts"] + e["dur"] <= timeline["wall_us"] + 1 for e in spans)


def test_a_trace_without_a_timeline_has_no_slice() -> None:
    assert step_slice({"regions": []}, []) is None  # type: ignore[typeddict-item]
