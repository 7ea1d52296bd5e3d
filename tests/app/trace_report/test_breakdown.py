"""Where the kernel time goes and the timeline, held to a plain loop over the file's events."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from app.trace_report.breakdown import module_class
from app.trace_report.timeline import ELSEWHERE, MAX_GAPS, MAX_SPANS, Span, fit_lanes, merge
from app.web.templating import environment
from app.web.views import trace_page
from tests.app.trace_report.reports import reported
from tests.conftest import DATA

TRACES = DATA / "traces"
NAMES = ("gpt2_train_autocast_eager_stack", "t5_train_autocast_eager", "hta_nccl")


def read(name: str) -> dict[str, Any]:
    return reported(f"{name}.json.gz")


@cache
def events(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))["traceEvents"]
    return found


def of_one_step(name: str) -> list[dict[str, Any]]:
    """Kernels of a trace that holds one step only."""
    return [e for e in events(name) if e.get("cat") == "kernel"]


def test_kernels_have_the_calls_and_the_time_of_the_file() -> None:
    """gpt2's trace is one step: every kernel of the file is in it."""
    name = NAMES[0]
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in of_one_step(name):
        times[event["name"]] += event["dur"]
        calls[event["name"]] += 1
    rows = read(name)["where"]["kernels"]
    assert sum(r["time_us"] for r in rows) == pytest.approx(times.total(), rel=1e-6)
    assert sum(r["calls_per_step"] for r in rows) == calls.total()
    for row in rows[:20]:
        full = [n for n in times if n[:160] == row["name"]]
        assert row["time_us"] == pytest.approx(sum(times[n] for n in full), rel=1e-5) or len(full) > 1
        assert row["label"]


@pytest.mark.parametrize("name", NAMES[:1])
def test_modules_share_out_all_of_the_kernel_time_and_each_regions(name: str) -> None:
    answer = read(name)
    rows = answer["where"]["modules"]
    assert sum(r["time_us"] for r in rows) == pytest.approx(
        sum(k["time_us"] for k in answer["where"]["kernels"]), rel=1e-5
    )
    by_region: Counter[int] = Counter()
    for row in rows:
        for place, time in row["regions"]:
            by_region[place] += time
    for place, region in enumerate(answer["regions"]):
        assert by_region[place] == pytest.approx(region["time_us_per_step"], rel=1e-4, abs=0.1)
    # A region that ran in modules lends its backward's time to them: nothing of it is left without one.
    unplaced = {place for row in rows if not row["path"] for place, _ in row["regions"] if place >= 0}
    assert not unplaced & {i for i, r in enumerate(answer["regions"]) if r["source"]["module"]}


def test_layers_that_repeat_are_one_class() -> None:
    assert module_class("Model_0/Block_17/Linear_2") == "Model/Block/Linear"
    rows = {r["path"]: r for r in read(NAMES[0])["where"]["modules"]}
    mlp = rows["GPT2LMHeadModel/GPT2Model/GPT2Block/GPT2MLP/NewGELUActivation"]
    assert mlp["modules"] == 6, "gpt2's six layers"


def test_a_trace_without_stacks_has_no_modules() -> None:
    assert read(NAMES[1])["where"]["modules"] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_timeline_holds_every_kernel_of_the_step_once(name: str) -> None:
    answer = read(name)
    line = answer["timeline"]
    spans = [
        (stream["stream"], a, length, region, busy, kernels)
        for stream in line["streams"]
        for a, length, region, busy, kernels in zip(
            *(stream[c] for c in ("start_us", "length_us", "region", "busy_us", "kernels")), strict=True
        )
    ]
    assert len(spans) <= MAX_SPANS
    assert len(line["gaps"]["cause"]) <= MAX_GAPS
    assert all(a >= -0.1 and a + length <= line["wall_us"] + 0.2 for _, a, length, *_ in spans)
    assert all(busy <= length + 0.2 for _, _, length, _, busy, _ in spans)
    for stream in line["streams"]:
        assert stream["start_us"] == sorted(stream["start_us"])
    own = [s for s in spans if s[3] != ELSEWHERE]
    windows = {
        e["name"]: (e["ts"], e["ts"] + e["dur"])
        for e in events(name)
        if e.get("cat") in ("user_annotation", "cpu_op", None) and str(e.get("name", "")).startswith("ProfilerStep")
        and "dur" in e
    }  # fmt: skip
    low, high = windows[line["step"]]
    launched = {
        e["args"]["correlation"]
        for e in events(name)
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
        and low <= e["ts"] < high
        and "correlation" in e.get("args", {})
    }
    kinds = {"kernel", "gpu_memcpy", "gpu_memset"}
    work = [
        e for e in events(name) if e.get("cat") in kinds and e["args"].get("correlation") in launched and e["dur"] > 0
    ]
    assert sum(s[5] for s in own) == len(work)
    assert sum(s[4] for s in own) == pytest.approx(sum(e["dur"] for e in work), rel=2e-3)
    assert {s[0] for s in own} == {e["args"]["stream"] for e in work}


def test_the_gaps_of_the_timeline_are_the_steps_idle_time() -> None:
    answer = read(NAMES[0])
    idle = sum(answer["timeline"]["gaps"]["idle_us"])
    assert idle == pytest.approx(answer["step_parts"]["idle_us"], rel=1e-3)


def spans_of(*rows: tuple[float, float, int]) -> list[Span]:
    return [Span(a, b, of, b - a, 1, 0, b - a, {of: b - a}) for a, b, of in rows]


def test_neighbours_of_one_region_become_one_span_and_a_long_one_swallows_nothing() -> None:
    spans = merge(spans_of((0, 4, 1), (4, 8, 1), (8, 8.5, 2), (8.5, 30, 3), (60, 61, 3)), 1.0)
    assert [(s.start_us, s.end_us, s.owner, s.count) for s in spans] == [
        (0, 8, 1, 2), (8, 8.5, 2, 1), (8.5, 30, 3, 1), (60, 61, 3, 1),
    ]  # fmt: skip


def test_short_spans_together_are_named_by_who_has_most() -> None:
    spans = merge(spans_of((0, 1, 1), (1, 3, 2), (3, 4, 1), (4, 6, 2), (6, 7, 3)), 10.0)
    assert [(s.owner, s.count, s.busy_us) for s in spans] == [(2, 5, 7)]


def test_as_many_spans_as_are_allowed_and_no_time_lost() -> None:
    many = spans_of(*((i * 2.0, i * 2.0 + 1.0, i % 7) for i in range(5000)))
    spans = fit_lanes([many], 300, 10000.0)[0]
    assert len(spans) <= 300
    assert sum(s.busy_us for s in spans) == 5000.0
    assert sum(s.count for s in spans) == 5000


def test_a_report_of_before_opens_without_them() -> None:
    found = {k: v for k, v in read(NAMES[1]).items() if k not in ("where", "timeline")}
    regions = [{k: v for k, v in r.items() if k != "streams"} | {"id": str(i)} for i, r in enumerate(found["regions"])]
    old = {"id": "t", "status": "ready", **found, "regions": regions}
    html = environment().get_template("partials/trace/body.html").render(**trace_page.trace_page(old))
    assert 'id="timeline"' not in html
    assert 'id="where"' not in html
    assert html.count('href="/regions/') >= len(regions)


@pytest.mark.parametrize("name", NAMES)
def test_both_stay_small_in_the_stored_report(name: str) -> None:
    answer = read(name)
    assert len(json.dumps(answer["where"])) < 40_000
    assert len(json.dumps(answer["timeline"])) < 60_000


def test_what_the_script_shows_of_a_hostile_name_is_visible() -> None:
    answer = read(NAMES[1])
    evil = "a\u202eb\u2066<b>\x00"
    regions = [{**r, "id": str(i), "name": evil} for i, r in enumerate(answer["regions"])]
    line = {**answer["timeline"], "names": [evil for _ in answer["timeline"]["names"]]}
    trace = {"id": "t", "status": "ready", **answer, "regions": regions, "timeline": line}
    page = trace_page.trace_page(trace)
    told = json.dumps(page["timeline"]["data"], ensure_ascii=False)
    assert "\\\\u{202e}" in told
    html = environment().get_template("partials/trace/body.html").render(**page)
    for text in (told, html):
        assert not set(text) & set("\u202e\u2066\x00")
    assert "<b>" not in html
