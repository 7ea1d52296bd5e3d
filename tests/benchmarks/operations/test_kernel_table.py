"""The recorded H200 table is held to its claims, and the page to the record."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("triton")

from app.accuracy.tables import LATER
from app.accuracy.totals import geomean
from benchmarks.operations.kernel_peers import UNLIKE
from benchmarks.operations.kernel_table import (
    ASKED,
    ASKED_OF_FIRST,
    DOC,
    F32,
    FASTEST,
    FASTEST_PLAIN,
    RECORD,
    Row,
    behind_published,
    counts,
    current,
    lost_rows,
    memory_bound_geomean,
    rows_of,
    verdict,
)
from kernels.operations import operation, operations
from kernels.ops.matmul import bf16_parts

ROWS = rows_of(json.loads(RECORD.read_text()))


def row(ours: float, **others: float) -> Row:
    return Row("softmax", "case", "", "", {"triton": ours, **others}, 1.0, True)


def test_a_tie_is_within_3_percent_either_way() -> None:
    assert [verdict(t, 100.0) for t in (96.9, 97.1, 102.9, 103.1)] == ["won", "tied", "tied", "lost"]


def test_eager_alone_is_no_peer() -> None:
    rows = [row(1.0, eager=9.0), row(1.0, eager=9.0, compile=0.5), row(1.0, compile=2.0)]
    assert counts(rows)[FASTEST_PLAIN] == {"won": 1, "tied": 0, "lost": 1}
    assert counts(rows)["eager"] == {"won": 2, "tied": 0, "lost": 0}
    assert memory_bound_geomean(rows, has_peer=False) == pytest.approx(1.0)
    assert lost_rows(rows) == [rows[1]]


def test_a_reference_that_nobody_would_run_is_no_peer() -> None:
    alone = Row("selective_scan", "case", "", "", {"triton": 1.0, "eager": 90.0, "compile": 60.0}, 1.0, True)
    beside = Row("selective_scan", "case", "", "", {"triton": 1.0, "compile": 60.0, "mamba_ssm": 2.0}, 1.0, True)
    assert alone.fastest is None
    assert beside.fastest == ("mamba_ssm", 2.0)
    assert memory_bound_geomean([alone, beside]) == pytest.approx(0.5)
    assert counts([alone]) == {}


def test_a_row_without_a_library_s_call_is_not_won_against_one() -> None:
    rows = [row(1.0, eager=9.0, compile=9.0), row(1.0, eager=9.0, compile=9.0, liger=0.5)]
    assert counts(rows)[FASTEST] == {"won": 0, "tied": 0, "lost": 1}
    assert memory_bound_geomean(rows) == pytest.approx(2.0)
    assert memory_bound_geomean(rows[:1]) is None


def test_the_page_is_what_the_record_says() -> None:
    assert DOC.read_text() == current(), "python benchmarks/operations/kernel_table.py"


def test_every_recorded_row_is_a_case_of_an_operation() -> None:
    cases = {(o.name, str(c)) for o in operations() for c in o.cases}
    assert {(r.operation, r.case) for r in ROWS} <= cases


@pytest.mark.parametrize("has_peer", [True, False])
def test_memory_bound_rows_are_no_slower_than_the_fastest_beside_them(has_peer: bool) -> None:
    mean = memory_bound_geomean(ROWS, has_peer)
    assert mean is not None
    assert mean <= 1.0


def test_no_row_of_the_first_set_is_slower_than_asked() -> None:
    assert [(r.operation, r.case) for r in ROWS if r.operation not in LATER and (r.ratio or 0.0) > ASKED_OF_FIRST] == []


def test_a_peer_that_multiplies_otherwise_is_held_against_the_row_of_its_like() -> None:
    """FlagGems's f32 product is of TF32 parts, as far from cuBLAS's as ours by parts of bf16, which is faster."""
    rows = {r.case: r for r in ROWS if r.operation == "matmul"}
    exact, parts = (rows[f"f32 m=4096 k=4096 n=4096{end}"] for end in ("", " precision=bf16x6"))
    assert "flag_gems" in exact.times_us and "flag_gems" not in exact.others_us
    assert parts.fastest is not None and parts.fastest[0] == "flag_gems"
    assert verdict(parts.ours_us, parts.fastest[1]) == "won"
    (recorded,) = (r for r in json.loads(RECORD.read_text())["rows"] if r["case"] == parts.case)
    distances = {n: recorded["candidates"][n]["distance"] for n in ("triton", "flag_gems")}
    assert distances["triton"] == pytest.approx(distances["flag_gems"], rel=0.01)
    assert set(UNLIKE) <= {(r.operation, r.case) for r in ROWS}


def test_f32_products_by_parts_are_faster_than_cublas_and_no_less_exact() -> None:
    rows = json.loads(F32.read_text())["rows"]
    exact, *others = [r for r in rows if (r["m"], r["k"], r["n"]) == (4096, 4096, 4096)]
    assert exact["what"] == "cuBLAS"
    offered = bf16_parts._variant(128, 256, 64, 8, 4, 256)
    ours = next(r for r in others if r["what"].startswith(str(offered).split(", A_K_ROWS")[0]))
    assert ours["median_us"] < 0.5 * exact["median_us"]
    assert ours["error"] <= exact["error"] and ours["error_of_one_sign"] <= exact["error_of_one_sign"]


def test_over_all_memory_bound_rows_the_mean_is_what_was_asked() -> None:
    ratios = [r.ratio for r in ROWS if r.memory and r.ratio is not None]
    assert geomean(ratios) <= ASKED


def test_every_lost_row_is_explained_in_its_kernels_file_and_nothing_else_is() -> None:
    explained = {(o.name, case) for o in operations() for case in o.loses}
    published = {(r.operation, r.case) for r, *_ in behind_published(ROWS)}
    assert {(r.operation, r.case) for r in lost_rows(ROWS)} | published == explained


@pytest.mark.parametrize(
    ("name", "case", "at_most_us"),
    [
        ("rms_norm_backward", "bf16 rows=8192 columns=16384", 280),
        ("cross_entropy_with_gradient", "bf16 rows=8192 columns=128256", 1650),
        ("router", "bf16 tokens=16384 experts=128 k=8", 12),
        ("matmul_epilogue", "bf16 m=8192 k=4096 n=16384", 1750),
    ],
)
def test_what_was_set_out_to_reach_was_reached(name: str, case: str, at_most_us: float) -> None:
    assert case in {str(c) for c in operation(name).cases}
    (found,) = [r for r in ROWS if (r.operation, r.case) == (name, case)]
    assert found.ours_us <= at_most_us
