"""A landscape for drawing: made-up figures of a GPU that is none, in the form that the worker answers with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernels.measure.landscape.model import Landscape, Order, Point, axes_of, best_of, ranked, worst_to_best
from kernels.measure.model import Interval, to_json

DEVICE = "test data, no GPU"
REGION = "x: bf16[64, 128]\nw: bf16[128, 64]\nreturn gelu(x @ w)\n"
TILES = ((16, 16, 16), (32, 32, 32), (64, 64, 64), (128, 128, 64), (128, 256, 64))
NAME = "<b>matmul_kernel</b>"
"""A name that a page must not take for markup."""


def spread(median: float) -> Interval:
    return Interval(median, 0.98 * median, 1.03 * median)


def points() -> list[Point]:
    collected = []
    for bm, bn, bk in TILES:
        for warps in (1, 2, 4, 8):
            for stages in (2, 3, 4):
                time_us = 4e5 / (bm * bn) ** 0.75 * (1 + 0.2 * abs(warps - 4)) * (1 + 0.1 * abs(stages - 3))
                point = Point(
                    key=f"{bm} {bn} {bk} {warps} {stages}", kernel=NAME, tile=f"BM={bm} BN={bn} BK={bk} GROUP_M=8",
                    constants={"BM": bm, "BN": bn, "BK": bk, "GROUP_M": 8}, warps=warps, stages=stages,
                    own=bm >= 64 and warps >= 4, status="ok", time_us=spread(time_us), registers=32 + bm * bn // 512,
                    spill_bytes=64 if bm * bn // warps > 8000 else 0, shared_bytes=stages * (bm + bn) * bk * 2,
                    occupancy=0.25,
                )  # fmt: skip
                if bn == 256 and stages == 4:
                    reason = "the kernel's model: 196,608 bytes of shared memory, a program may have 101,376"
                    point = blank(point, "pruned", reason)
                if bn == 256 and warps == 1 and stages < 4:
                    point = blank(point, "refused", "out of resource: registers")
                if bm == 16 and warps == 8:
                    point = blank(point, "wrong", "output 0 (bf16), normal inputs: relative error 0.5")
                if bm == 32 and warps == 8 and stages > 2:
                    point = blank(point, "not_run", "the budget of 60 s was spent")
                collected.append(point)
    return collected


def blank(point: Point, status: str, reason: str) -> Point:
    return replace(
        point, status=status, reason=reason, time_us=None, registers=None, spill_bytes=None, shared_bytes=None,
        occupancy=None,
    )  # fmt: skip


def sample(candidate: str = "triton:matmul_epilogue") -> dict[str, Any]:
    """The API's landscape, as a child answers with it."""
    made = ranked(points())
    best = best_of(made)
    assert best is not None
    landscape = Landscape(
        outcome="measured", candidate=candidate, region=REGION, kernel="matmul_epilogue", beside=("softmax",),
        points=made, axes=axes_of(made), chosen="128 128 64 4 3", best=best.key, worst_to_best=worst_to_best(made),
        chosen_to_best=Interval(1.68, 1.66, 1.71),
        order=Order(8, spread(94.0), spread(100.0), Interval(0.94, 0.93, 0.95)),
        device=DEVICE, software={"triton": "0"}, conditions={"warnings": []}, budget_s=60.0, seconds=12.5,
        date="2026-01-01",
    )  # fmt: skip
    body: dict[str, Any] = to_json(landscape)
    return body
