"""The advice on the recorded traces against the table of what a performance engineer advises on them, cell by cell.

Where the advice is another, a measurement contradicts the cell, and it is named (`findings.OTHERWISE`): a record of the
Archive of the same program, whose fastest tool is the one advised; or what the trace itself has measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pytest

from app.advice.evidence import TOOLS
from app.archive import record_store
from tests.app.trace_report.findings import LATER, OPEN, OTHERWISE, ROWS, STEP, Later, Open, Otherwise, Want
from tests.app.trace_report.reports import reported
from tests.conftest import DATA
from tests.profiler.region.mining.test_findings import GLOBS, NAMES, rows

Json = dict[str, Any]

ADVISED = ("tool", "mode", "headline", "action", "call", "notes")
"""Of the advice what is told to be done."""
LEAST_SAVED = 0.01
"""Of a step: less is not worth a change."""


def key_of(row: tuple[str, str]) -> tuple[str, str]:
    """The key of the wants for a row of the table."""
    traces = "*_compiled" if row[0].startswith("handrolled_blocks_*_compiled") else row[0]
    return next((key for key in (*ROWS, *STEP) if key[0] == traces and row[1].startswith(key[1])), row)


def meant(key: tuple[str, str], want: Want) -> list[str]:
    """The traces that a want is about."""
    globs = GLOBS.get(key[0], (key[0],))
    return [n for n in NAMES if fnmatch(n, want.where) and any(fnmatch(n, g) for g in globs)]


def named(name: str, want: Want) -> list[Json]:
    """The regions of a trace that a want means."""
    found = reported(f"{name}.json.gz")["regions"]
    return [r for r in found if re.fullmatch(want.title, r["name"]) and (r["share_of_step"] or 0.0) >= want.share]


def exception(name: str, region: Json) -> Otherwise | None:
    """What contradicts the cell for this region; of several records the one of its program and sizes."""
    found = [o for o in OTHERWISE if fnmatch(name, o.trace) and re.fullmatch(o.title, region["name"])]
    nearest = record_store.nearest(region["text"], device="NVIDIA H200") if len(found) > 1 else None
    return next((o for o in found if nearest is None or o.record == nearest["id"]), None)


def still_open(name: str, want: Want) -> Open | None:
    return next((o for o in OPEN if fnmatch(name, o.trace) and o.title == want.title), None)


def as_written(region: Json, want: Want) -> bool:
    """By what is advised: its alternatives, and what would change it, are not."""
    advice = region["advice"]
    said = json.dumps({k: advice[k] for k in ADVISED}, ensure_ascii=False)
    right = advice["tool"] in want.tools and re.search(want.says, said) is not None
    return right and re.search(want.calls, advice["call"]) is not None


def cases() -> Iterator[Any]:
    for row in rows():
        key = key_of(row)
        for want in ROWS.get(key, ()):
            for name in meant(key, want):
                kept = still_open(name, want)
                marks = [pytest.mark.xfail(reason=kept.why, strict=True)] if kept else []
                yield pytest.param(name, want, id=f"{name}-{want.title}", marks=marks)


def test_the_table_has_no_row_without_wants_and_no_want_without_a_region() -> None:
    assert [row for row in rows() if key_of(row) not in ROWS and key_of(row) not in STEP] == []
    assert len(rows()) == len(ROWS) + len(STEP)
    for key, wants in ROWS.items():
        for want in wants:
            assert any(named(name, want) for name in meant(key, want)), (key, want.title)


@pytest.mark.parametrize(("name", "want"), list(cases()))
def test_the_advice_is_the_tables_or_a_measurement_contradicts_it(name: str, want: Want) -> None:
    for region in named(name, want):
        if as_written(region, want):
            continue
        advice = region["advice"]
        known = exception(name, region)
        assert known is not None, (region["share_of_step"], advice["tool"], advice["mode"], advice["headline"])
        if known.record:
            _measured(region, known.record)
            continue
        criterion = next(c for c in advice["criteria"] if c["name"] == known.criterion)
        assert criterion["holds"] is False
        assert known.criterion != "worth-it" or region["share_of_step"] < criterion["threshold"]


def _measured(region: Json, record_id: str) -> None:
    """The record is of this program, and its fastest candidate is of the tool that is advised.

    Or it would save so little of this trace's step that leaving it is right.
    """
    record = record_store.by_id(record_id)
    assert record is not None
    nearest = record_store.nearest(region["text"], device=record["device"])
    assert nearest is not None
    assert (nearest["id"], nearest["archived"]["match"]) == (record_id, "same")
    timed = {c["name"]: c for c in record["candidates"] if c["time_us"]}
    best = timed[record["best"]]
    if region["advice"]["tool"] == "skip":
        kept = best["time_us"]["median"] / timed["eager"]["time_us"]["median"]
        assert region["share_of_step"] * (1 - kept) < LEAST_SAVED
    else:
        assert TOOLS[best["tool"]] == region["advice"]["tool"]


def first_action(name: str, region: Json) -> Json | None:
    """Of the trace's list the first action that is about the region and stands in no other's place."""
    listed = reported(f"{name}.json.gz")["actions"]
    return next((a for a in listed if region["key"] in a["regions"] and not a["instead_of"]), None)


def is_first(action: Json | None, region: Json, want: Want) -> bool:
    """Whether it is the cell's. What is to be left as it is, or is not worth it alone, is in no action but the whole
    step's; what is to be done is in one, where a time is predicted of it."""
    if region["advice"]["tool"] == "skip" or "skip" in want.tools:
        return action is None or action["scope"] == "step" or action["tool"] in want.tools
    return action is not None and action["tool"] in want.tools


def later(name: str, region: Json) -> Later | None:
    return next((o for o in LATER if fnmatch(name, o.trace) and re.fullmatch(o.title, region["name"])), None)


@pytest.mark.parametrize(("name", "want"), list(cases()))
def test_the_first_action_about_a_region_is_the_tables_or_one_that_saves_more_of_the_step(
    name: str, want: Want
) -> None:
    listed = reported(f"{name}.json.gz")["actions"]
    for region in named(name, want):
        action = first_action(name, region)
        if is_first(action, region, want):
            continue
        known = later(name, region)
        assert known is not None and action is not None, (region["name"], action and action["title"])
        assert (action["id"], listed[0]["id"]) == (known.first, known.first)
        own = [a for a in listed if a["region"] == region["key"] and a["saves_us"]]
        assert all(a["saves_us"]["mid"] < action["saves_us"]["mid"] for a in own)


@pytest.mark.parametrize("known", LATER, ids=lambda o: f"{o.trace}-{o.title}")
def test_no_region_is_left_among_the_later_whose_own_action_is_first(known: Later) -> None:
    assert any(
        not is_first(first_action(name, region), region, want)
        for key, wants in ROWS.items()
        for want in wants
        for name in meant(key, want)
        if fnmatch(name, known.trace)
        for region in named(name, want)
        if re.fullmatch(known.title, region["name"])
    )


def test_the_page_lists_every_region_whose_own_action_is_not_first() -> None:
    page = " ".join((DATA.parent.parent / "docs" / "advice-review.md").read_text(encoding="utf-8").split())
    assert [known.title for known in LATER if known.title not in page] == []


FIRST = {
    "handrolled_blocks_*eager*": "flex_attention for attention by hand",
    "handrolled_blocks_*_cudagraph": "Record the step without its CUDA graph",
    "handrolled_blocks_noshapes": "Record again with shapes",
    "handrolled_blocks_*_compiled": "flex_attention for attention by hand",
    "llama_prefill_*_compiled": "SDPA attention at .* times its floor",
    "llama_prefill_*eager*": "Compile the whole model",
    "llama_train_*": "Compile the whole model",
    "llama_eager_*": "replay it as CUDA graphs",
    "llama_decode_*": "replay it as CUDA graphs",
    "gpt2_train_*": "Compile the whole model",
    "bert_train_varlen_*": "Keep cuDNN from planning attention for every new length",
    "mixtral_*": "replay it as CUDA graphs",
    "*t5_*": "replay it as CUDA graphs",
    "timm_convnext_*": "replay it as CUDA graphs",
    "timm_resnet50_*": "replay it as CUDA graphs",
    "timm_vit_*": "Compile the whole model",
    "pyg_*": "Compile the whole model",
}
"""Traces of the table -> what the first of all their actions says."""


@pytest.mark.parametrize("traces", FIRST)
def test_the_first_of_all_actions_is_this(traces: str) -> None:
    names = [n for n in NAMES if fnmatch(n, traces)]
    assert names
    for name in names:
        assert re.search(FIRST[traces], reported(f"{name}.json.gz")["actions"][0]["title"]), name


def test_every_trace_of_the_table_has_its_first_action() -> None:
    in_table = {
        n for row in rows() for g in GLOBS.get(key_of(row)[0], (key_of(row)[0],)) for n in NAMES if fnmatch(n, g)
    }
    assert {n for n in in_table if not any(fnmatch(n, traces) for traces in FIRST)} == set()


@pytest.mark.parametrize("known", OTHERWISE, ids=lambda o: f"{o.trace}-{o.title}")
def test_no_exception_is_left_that_nothing_needs(known: Otherwise) -> None:
    needed = [
        region
        for key, wants in ROWS.items()
        for want in wants
        for name in meant(key, want)
        if fnmatch(name, known.trace)
        for region in named(name, want)
        if re.fullmatch(known.title, region["name"]) and not as_written(region, want)
    ]
    assert needed


def test_a_graph_launch_is_said_to_hide_its_time_and_how_to_record_past_it() -> None:
    answer = reported("handrolled_blocks_bf16_cudagraph.json.gz")
    rest = next(r for r in answer["rests"] if r["name"].startswith("CUDA graph"))
    assert rest["share_of_step"] > 0.98
    assert "record_shapes" in rest["remedy"]
    assert answer["linked_share"] == 0.0
    assert {u["code"] for u in answer["gain"]["unknown"]} == {"no-operation"}


def test_decoding_is_launch_bound_before_any_kernel() -> None:
    answer = reported("llama_decode_bf16_eager.json.gz")
    assert answer["critical"]["resource"] == "launches"
    assert "reduce-overhead" in next(n["remedy"] for n in answer["notes"] if n["code"] == "gpu-idle")
    assert answer["gain"]["all"]["advice"] == ["Compile the whole model and replay it as CUDA graphs"]


def test_six_sequence_lengths_show_as_irregular() -> None:
    regions = [r for r in reported("bert_train_varlen_fp16_eager.json.gz")["regions"] if len(r["shapes"]) >= 6]
    assert len(regions) >= 4
    for region in regions[:4]:
        several = next(c for c in region["advice"]["criteria"] if c["name"] == "several-shapes")
        assert several["holds"] is True, region["name"]


def test_the_launch_bound_part_of_the_routing_is_said() -> None:
    regions = reported("mixtral_prefill_bf16_eager.json.gz")["regions"]
    routing = next(r for r in regions if r["name"] == "routing")
    assert routing["kernels_per_call"] > 20
    assert any(u["code"] == "launches" for u in reported("mixtral_prefill_bf16_eager.json.gz")["gain"]["unknown"])
