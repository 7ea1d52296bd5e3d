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
from tests.app.trace_report.findings import OPEN, OTHERWISE, ROWS, STEP, Open, Otherwise, Want
from tests.app.trace_report.reports import reported
from tests.profiler.region.mining.test_findings import GLOBS, NAMES, rows

Json = dict[str, Any]

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
    advice = region["advice"]
    said = json.dumps({k: v for k, v in advice.items() if k != "criteria"}, ensure_ascii=False)
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
