"""Reads the per-shape kernel times of TraceLens's performance reports: the CSVs next to the traces of its tests.

Kept are operations of eager PyTorch that ran at least three times and whose operands lie in memory as a region of this
project's language says: factors of products row by row, or the right one column by column.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from app.accuracy.published.model import Row, Table
from app.accuracy.published.tracelens import DTYPES

DEVICES = {"h100": "NVIDIA H100 80GB HBM3", "mi300": "AMD Instinct MI300X"}
"""Folder of traces -> the device, whole; most of the MI300X name it as a virtual function."""
REPORTS = "tests/traces"
LEAST = 3
TIME = "Kernel Time (µs)_median"
Config = dict[str, int | float | str]


def read_tracelens(checkout: Path, commit: str) -> Table:
    """The rows of every report, by device and model. FileNotFoundError where the checkout has no report."""
    csv.field_size_limit(2**30)  # a row lists the kernels of every run
    rows = [
        row
        for folder, device in DEVICES.items()
        for report in sorted((checkout / REPORTS / folder).glob("*_perf_report_csvs"))
        for row in _rows(report, device)
    ]
    if not rows:
        raise FileNotFoundError(f"{checkout / REPORTS} has no *_perf_report_csvs of {', '.join(DEVICES)}")
    return Table("TraceLens", commit, f"{REPORTS}/{{h100,mi300}}/*_perf_report_csvs", "MIT", tuple(rows))


def _rows(report: Path, device: str) -> Iterator[Row]:
    model = report.name.partition("__")[0]
    for name, read in _FILES.items():
        path = report / name
        if not path.is_file():
            continue
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                made = read(line) if int(line["name_count"]) >= LEAST else None
                if made is not None:
                    kernel, config = made
                    size = int(config["M"])
                    yield Row(kernel, "torch", "forward", size, config, device, float(line[TIME]), model)


def _product(line: Mapping[str, str]) -> tuple[str, Config] | None:
    kernel = line["name"].removeprefix("aten::")
    dtype = _dtype(line)
    if kernel not in ("mm", "addmm", "bmm") or not dtype:
        return None
    batch, rows, columns, inner = (int(line[f"param: {p}"]) for p in "BMNK")
    first = 1 if kernel == "addmm" else 0
    left, right = _lists(line["Input Strides_first"])[first : first + 2]
    along = [rows * inner] if kernel == "bmm" else []
    across = [columns * inner] if kernel == "bmm" else []
    turned = right == [*across, 1, inner]
    if left != [*along, inner, 1] or not (turned or right == [*across, columns, 1]):
        return None
    config: Config = {"M": rows, "N": columns, "K": inner, "dtype": dtype, "turned": int(turned)}
    return kernel, {**config, "B": batch} if kernel == "bmm" else config


def _attention(line: Mapping[str, str]) -> tuple[str, Config] | None:
    same = line["param: H_Q"] == line["param: H_KV"] and line["param: d_h_qk"] == line["param: d_h_v"]
    flash = line["name"] == "aten::_scaled_dot_product_flash_attention"
    if not (same and flash) or float(line["param: dropout"]) or not _dtype(line):
        return None
    sizes = {"B": "B", "H": "H_Q", "M": "N_Q", "N": "N_KV", "K": "d_h_qk"}
    config: Config = {ours: int(line[f"param: {theirs}"]) for ours, theirs in sizes.items()}
    return "attention", {**config, "dtype": _dtype(line), "causal": int(line["param: causal"] == "True")}


def _layer_norm(line: Mapping[str, str]) -> tuple[str, Config] | None:
    if line["name"] != "aten::native_layer_norm" or not _dtype(line):
        return None
    x, over, *weights = _lists(line["Input Dims_first"])[:4]
    if over or weights != [x[-1:], x[-1:]] or _lists(line["Input Strides_first"])[0] != _packed(x):
        return None
    rows = 1
    for size in x[:-1]:
        rows *= size
    return "layer_norm", {"M": rows, "N": x[-1], "dtype": _dtype(line)}


_FILES: Mapping[str, Callable[[Mapping[str, str]], tuple[str, Config] | None]] = {
    "GEMM.csv": _product, "SDPA_fwd.csv": _attention, "Normalization.csv": _layer_norm,
}  # fmt: skip


def _packed(sizes: list[int]) -> list[int]:
    """Strides of a tensor without gaps, its last dimension the innermost."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return strides


def _lists(text: str) -> list[list[int]]:
    """[[4, 197, 768], [], [768]]; written with brackets or with parentheses."""
    lists: list[list[int]] = json.loads(text.replace("(", "[").replace(",)", "]").replace(")", "]"))
    return lists


def _dtype(line: Mapping[str, str]) -> str:
    """Of all the operation's tensors, by this project's name; "" for several and for others."""
    quoted = line["Input type_first"].strip("[]()").replace("'", "").split(",")
    types = {t.strip() for t in quoted} - {"", "Scalar", "ScalarList"}
    return DTYPES.get(next(iter(types)), "") if len(types) == 1 else ""
