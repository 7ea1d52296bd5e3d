"""Claims: numbers that the sources give, next to what was measured here. Agreeing or not, both are shown.

The measured side is the Archive and tests/records/kernels-h200.json (`make bench-kernels`), nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.accuracy.case import Case
from app.accuracy.split import program
from app.accuracy.totals import BAND
from app.objects.accuracy import KernelTable, TableRow

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gemm_gelu_mask.txt"
SOFTMAX = ("softmax", "softmax_long")
TUNED = {"matmul": "eager", "flash_attention": "SDPA cuDNN"}
"""Kernel -> what it is compared with, by experts, in CUDA: cuBLAS behind torch's product, cuDNN's attention."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value and where it was seen."""

    where: str
    value: float


@dataclass(frozen=True, slots=True)
class Claim:
    """claim: in words. low, high: as claimed, equal for one number. figures: ours, in the same unit. middle: their
    median. agrees: the middle lies between low and high (within 20 % of a single number); None unmeasured."""

    name: str
    source: str
    claim: str
    low: float
    high: float
    unit: str
    figures: tuple[Figure, ...]
    middle: float | None
    agrees: bool | None


def claims(cases: Sequence[Case], kernels: KernelTable | None) -> list[Claim]:
    """Every claim. kernels: the body of kernels-h200.json, None where it is not at hand."""
    rows = list(kernels["rows"]) if kernels else []
    shown = dict(kernels["demonstrations_us"]) if kernels else {}
    return [
        _claim("the four-line example, fused", "S0", "2 to 4 times as fast", 2, 4, "×",
               [*_example(cases), *_against(rows, ("matmul_epilogue",), "eager", "m=8192 k=4096 n=16384", exact=True)]),
        _claim("softmax in Triton over PyTorch", "S1", "3 to 4 times as fast", 3, 4, "×",
               _against(rows, SOFTMAX, "eager")),
        _claim("matrix product in Triton compared with cuBLAS", "S0, S1", "5 to 15 % slower", 1.05, 1.15, "× the time",
               [Figure(f.where, 1 / f.value) for f in _against(rows, ("matmul",), "eager")]),
        _claim("Triton compared with hand-tuned CUDA", "S0, S2, S3", "80 to 95 % of its speed", 0.80, 0.95,
               "of its speed", [f for op, peer in TUNED.items() for f in _against(rows, (op,), peer)]),
        _claim("the tile: BLOCK_SIZE 4 against the best", "S3", "up to 95 times slower", 95, 95, "×",
               _over(shown, "vector_add f32 n=2^26 BLOCK=4", "vector_add f32 n=2^26 BLOCK=1024")),
        _claim("grouped program order in a matrix product", "S3", "220 to 245 TFLOP/s", 245 / 220, 245 / 220, "×",
               _over(shown, "matmul bf16 8192^3 plain order", "matmul bf16 8192^3 grouped order")),
    ]  # fmt: skip


def _claim(name: str, source: str, claim: str, low: float, high: float, unit: str, figures: Sequence[Figure]) -> Claim:
    middle = statistics.median(f.value for f in figures) if figures else None
    agrees = None
    if middle is not None:
        agrees = low <= middle <= high if low < high else abs(middle / low - 1) <= BAND
    return Claim(name, source, claim, low, high, unit, tuple(figures), middle, agrees)


def _example(cases: Iterable[Case]) -> list[Figure]:
    """Eager over the best candidate, wherever the Archive has the example's program."""
    wanted = program(EXAMPLE.read_text())
    seen = []
    for case in cases:
        eager = case.contender("eager")
        if case.program == wanted and eager is not None:
            seen.append(Figure(f"Archive, {case.record}", eager.time_us / case.least))
    return seen


def _against(
    rows: Iterable[TableRow], operations: Sequence[str], peer: str, case: str = "", *, exact: bool = False
) -> list[Figure]:
    """Peer's time over our kernel's, where both were measured. exact: the case is this after its dtype."""
    seen = []
    for row in rows:
        _, _, sizes = row["case"].partition(" ")
        if row["operation"] not in operations or (exact and sizes != case):
            continue
        ours, other = (row["candidates"].get(name, {}).get("median_us") for name in ("triton", peer))
        if ours and other:
            seen.append(Figure(f"{row['operation']}, {row['case']}", other / ours))
    return seen


def _over(shown: Mapping[str, float], slow: str, fast: str) -> list[Figure]:
    return [Figure(slow, shown[slow] / shown[fast])] if slow in shown and fast in shown else []
