"""The published comparison is what the shipped table and today's estimate give, and its shares are counted right."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from app.accuracy.published import liger, tracelens
from app.accuracy.published.compare import predictor
from app.accuracy.published.model import TABLES, Compared, Comparison, comparison, comparisons, table
from app.accuracy.published.section import section
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tools.records.published_measurements import PAGE, read_liger

EVERY = 37
"""So many rows apart are those that are predicted anew."""


@pytest.mark.parametrize("source", TABLES)
def test_todays_estimate_gives_what_is_shipped(source: str) -> None:
    shipped = {(r.kernel, r.provider, r.mode, r.size, r.device, r.measured_us): r for r in comparison(source).rows}
    predicted = predictor(source)
    anew = [predicted(row) for row in table(source).rows[::EVERY]]
    compared = [r for r in anew if isinstance(r, Compared)]
    assert len(compared) > 3
    for row in compared:
        same = shipped[row.kernel, row.provider, row.mode, row.size, row.device, row.measured_us]
        assert row.predicted_us == pytest.approx(same.predicted_us, rel=1e-6), (
            "run: tools.records.published_measurements"
        )


@pytest.mark.parametrize(
    ("source", "devices"),
    [("Liger-Kernel", {"NVIDIA B200", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"}),
     ("TraceLens", {"AMD Instinct MI300X", "NVIDIA H100 80GB HBM3"})],
)  # fmt: skip
def test_every_row_is_compared_or_counted_as_left_out(source: str, devices: set[str]) -> None:
    compared = comparison(source)
    assert len(compared.rows) + sum(compared.left_out.values()) == len(table(source).rows)
    assert {r.device for r in compared.rows} >= devices
    assert len(compared.commit) == 40


def test_a_source_that_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="'Elsewhere'"):
        predictor("Elsewhere")


def test_every_kernels_region_can_be_read() -> None:
    texts = {row.kernel: liger.region_of(row) for row in table("Liger-Kernel").rows if liger.region_of(row)}
    assert len(texts) == 7
    operations = {row.kernel: tracelens.region_of(row) for row in table("TraceLens").rows}
    assert set(operations) == {"mm", "addmm", "bmm", "attention", "layer_norm"}
    for text in (*texts.values(), *operations.values()):
        assert lower(parse(text)).operations


def test_the_page_has_the_shipped_figures() -> None:
    assert section(comparisons()) in PAGE.read_text(encoding="utf-8"), (
        "run: tools.records.published_measurements --page"
    )


def test_shares_are_of_the_measured_time() -> None:
    def row(predicted_us: float) -> Compared:
        return Compared("k", "torch", "forward", 1, "GPU", "eager", 100.0, predicted_us)

    rows = (row(119), row(81), row(129), row(250))
    counted = section([Comparison("TraceLens", "c" * 40, "f", "L", rows, {"why": 2})])
    assert "| GPU | 4 | 50.0 % | 75.0 % |" in counted and "why (2)" in counted


def test_of_several_times_for_one_shape_the_last_is_taken(tmp_path: Path) -> None:
    line = {
        "kernel_name": "softmax", "kernel_provider": "torch", "kernel_operation_mode": "forward",
        "metric_name": "speed", "metric_unit": "ms", "x_value": "128", "y_value_50": "0.5",
        "extra_benchmark_config_str": '{"M": 4, "dtype": "torch.float32"}', "gpu_name": "GPU", "liger_version": "1",
    }  # fmt: skip
    lines = [line, {**line, "y_value_50": "0.25"}, {**line, "metric_name": "memory"}, {**line, "kernel_name": "jsd"}]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        writer.writeheader()
        writer.writerows(lines)
    (row,) = read_liger(tmp_path / "t.csv", "c" * 40).rows
    assert (row.time_us, row.size, row.config["M"]) == (250.0, 128, 4)
