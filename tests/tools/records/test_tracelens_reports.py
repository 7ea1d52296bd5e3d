"""TraceLens's reports are read by what they say of sizes and layouts, and what a region cannot say is left."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.records.tracelens_reports import read_tracelens

COMMIT = "c" * 40
BF16 = "['c10::BFloat16', 'c10::BFloat16']"
PRODUCT = {
    "name": "aten::mm", "param: B": "1", "param: M": "8", "param: N": "3", "param: K": "5", "name_count": "4",
    "Input Dims_first": "[[8, 5], [5, 3]]", "Input Strides_first": "[[5, 1], [1, 5]]", "Input type_first": BF16,
    "Kernel Time (µs)_median": "6.5",
}  # fmt: skip
WITH_BIAS = {
    **PRODUCT, "name": "aten::addmm", "Input Strides_first": "[[1], [5, 1], [3, 1], [], []]",
    "Input type_first": "['c10::BFloat16', 'c10::BFloat16', 'c10::BFloat16', 'Scalar', 'Scalar']",
}  # fmt: skip
BATCHED = {**PRODUCT, "name": "aten::bmm", "param: B": "2", "Input Strides_first": "[[40, 5, 1], [15, 3, 1]]"}
ATTENTION = {
    "name": "aten::_scaled_dot_product_flash_attention", "param: B": "2", "param: H_Q": "4", "param: H_KV": "4",
    "param: N_Q": "16", "param: N_KV": "32", "param: d_h_qk": "64", "param: d_h_v": "64", "param: dropout": "0.0",
    "param: causal": "True", "name_count": "12", "Input type_first": BF16, "Kernel Time (µs)_median": "9",
}  # fmt: skip
LAYER_NORM = {
    "name": "aten::native_layer_norm", "name_count": "3", "Kernel Time (µs)_median": "4",
    "Input Dims_first": "[[4, 197, 768], [], [768], [768], []]",
    "Input Strides_first": "[[151296, 768, 1], [], [1], [1], []]",
    "Input type_first": "['c10::BFloat16', 'ScalarList', 'c10::BFloat16', 'c10::BFloat16', 'Scalar']",
}  # fmt: skip


def _checkout(folder: Path, file: str, line: Mapping[str, str]) -> Path:
    report = folder / "tests" / "traces" / "mi300" / "Model__1_perf_report_csvs"
    report.mkdir(parents=True)
    with (report / file).open("w", newline="", encoding="utf-8") as written:
        writer = csv.DictWriter(written, list(line))
        writer.writeheader()
        writer.writerow(line)
    return folder


@pytest.mark.parametrize(
    ("file", "line", "kernel", "config"),
    [("GEMM.csv", PRODUCT, "mm", {"M": 8, "N": 3, "K": 5, "dtype": "bf16", "turned": 1}),
     ("GEMM.csv", WITH_BIAS, "addmm", {"M": 8, "N": 3, "K": 5, "dtype": "bf16", "turned": 0}),
     ("GEMM.csv", BATCHED, "bmm", {"M": 8, "N": 3, "K": 5, "dtype": "bf16", "turned": 0, "B": 2}),
     ("SDPA_fwd.csv", ATTENTION, "attention",
      {"B": 2, "H": 4, "M": 16, "N": 32, "K": 64, "dtype": "bf16", "causal": 1}),
     ("Normalization.csv", LAYER_NORM, "layer_norm", {"M": 788, "N": 768, "dtype": "bf16"})],
)  # fmt: skip
def test_sizes_and_layouts_are_the_reports(
    tmp_path: Path, file: str, line: dict[str, str], kernel: str, config: dict[str, object]
) -> None:
    (row,) = read_tracelens(_checkout(tmp_path, file, line), COMMIT).rows
    assert (row.kernel, row.config, row.device, row.version) == (kernel, config, "AMD Instinct MI300X", "Model")
    assert row.time_us == float(line["Kernel Time (µs)_median"])


@pytest.mark.parametrize(
    ("file", "line"),
    [("GEMM.csv", {**PRODUCT, "name_count": "2"}),
     ("GEMM.csv", {**PRODUCT, "Input Strides_first": "[[1, 8], [1, 5]]"}),
     ("GEMM.csv", {**PRODUCT, "Input type_first": "['c10::BFloat16', 'float']"}),
     ("SDPA_fwd.csv", {**ATTENTION, "param: H_KV": "1"}), ("SDPA_fwd.csv", {**ATTENTION, "param: dropout": "0.1"}),
     ("Normalization.csv", {**LAYER_NORM, "name": "aten::batch_norm"}),
     ("Normalization.csv", {**LAYER_NORM, "Input Dims_first": "[[4, 197, 768], [], [], [], []]"})],
)  # fmt: skip
def test_what_a_region_cannot_say_is_left(tmp_path: Path, file: str, line: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError, match="perf_report_csvs"):
        read_tracelens(_checkout(tmp_path, file, line), COMMIT)
