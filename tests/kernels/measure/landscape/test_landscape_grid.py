"""Which points a landscape has, in which order, what is pruned and why."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernels.measure.landscape.grid import cells, constants_of, stages_of, tile_of
from kernels.measure.landscape.model import axes_of
from kernels.measure.landscape.tiles import FAMILIES, remade
from kernels.ops.attention import flash_attention, hopper_variants
from kernels.ops.matmul import matmul, matmul_epilogue
from kernels.ops.norm import forward as norms
from kernels.ops.norm.forward import Form
from kernels.ops.softmax import softmax, softmax_backward
from kernels.ops.softmax.softmax import softmax_team
from kernels.tuning import Limits, Variant, misfit


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


BF16 = torch.bfloat16
A, B = meta(8192, 4096), meta(4096, 8192)
Q, K = meta(1, 8, 1024, 128), meta(1, 8, 1024, 128)
NONE = (("BIAS", False), ("ACTIVATION", ""), ("MASK", False), ("RESIDUAL", False), ("SHORT", True))
SPACES: dict[str, tuple[list[Variant], tuple[Any, ...]]] = {
    "rms norm": (norms.space(2048, 4096, BF16, 2, Form()), (meta(2048, 4096),)),
    "rms norm and sum": (norms.space(2048, 8192, BF16, 2, Form(residual=True)), (meta(2048, 8192),)),
    "rms norm of f32": (norms.space(64, 2048, torch.float32, 1, Form()), (meta(64, 2048, dtype=torch.float32),)),
    "short rows": (norms.space(4096, 200, BF16, 2, Form()), (meta(4096, 200),)),
    "long rows": (norms.space(64, 100_000, BF16, 0, Form()), (meta(64, 100_000),)),
    "softmax": (softmax.space(4096, 4096, BF16, True), (meta(4096, 4096),)),
    "long softmax": (softmax.space(4096, 65536, BF16, True), (meta(4096, 65536),)),
    "longer softmax": (softmax.space(4096, 131072, BF16, True, True), (meta(4096, 131072),)),
    "odd softmax": (softmax.space(4096, 50257, torch.float32, False), (meta(4096, 50257, dtype=torch.float32),)),
    "matmul": (matmul.space(A, B, True), (A, B)),
    "matmul of f32": (matmul.space(A.float(), B.float(), False), (A.float(), B.float())),
    "thin matmul": (matmul.space(meta(16, 4096), B, True), (meta(16, 4096), B)),
    "tail": (matmul_epilogue.space(A, B, NONE, True), (A, B)),
    "attention": (flash_attention.space(Q, K, None, False, None, None, 0.1, False, True), (Q, K)),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_variant_made_anew_is_what_the_kernels_file_makes(name: str) -> None:
    """Constants that follow, and the model of registers and shared memory: both are the file's own."""
    space, arguments = SPACES[name]
    for variant in space:
        if variant.kernel.__name__ in FAMILIES:
            assert remade(variant, {}, arguments, variant.warps, stages_of(variant)) == variant


@pytest.mark.parametrize("name", SPACES)
def test_the_own_space_comes_first_and_whole_and_no_point_twice(name: str) -> None:
    space, arguments = SPACES[name]
    grid_cells = cells(space, space[-1], arguments, Limits(), most=len(space) + 5)
    assert grid_cells[0].variant == space[-1]
    assert {str(c.variant) for c in grid_cells if c.own} == {str(v) for v in space}
    assert [c.own for c in grid_cells] == sorted((c.own for c in grid_cells), reverse=True)
    assert len(grid_cells) <= len(space) + 5
    places = [
        (c.variant.kernel.__name__, tile_of(c.variant), c.variant.warps, stages_of(c.variant)) for c in grid_cells
    ]
    wide = [p for p, c in zip(places, grid_cells, strict=True) if not c.own]
    assert len(set(wide)) == len(wide)
    assert not set(wide) & {p for p, c in zip(places, grid_cells, strict=True) if c.own}


def test_the_wider_grid_reaches_from_tiny_to_large() -> None:
    space, arguments = SPACES["rms norm"]
    grid_cells = cells(space, space[0], arguments, Limits(), most=10_000)
    loop = {c.variant["BLOCK"] for c in grid_cells if c.variant.kernel.__name__ == "norm_loop"}
    assert {4, 16, 64, 4096} <= loop
    assert {1, 2, 4, 8, 16} <= {c.variant.warps for c in grid_cells}
    assert {1, 2, 3, 4, 5} <= {stages_of(c.variant) for c in grid_cells if "STAGES" in c.variant.tuned}


def test_one_thing_is_changed_before_two_and_the_smallest_tile_is_among_the_first() -> None:
    space, arguments = SPACES["matmul"]
    chosen = next(v for v in space if not v["TMA"])
    found = [c.variant for c in cells(space, chosen, arguments, Limits(), most=10_000) if not c.own]
    assert found[0]["BM"] == found[0]["BN"] == found[0]["BK"] == 16

    def changed(v: Variant) -> int:
        if v.kernel is not chosen.kernel:
            return 9
        ours, theirs = constants_of(v), constants_of(chosen)
        tile = any(ours[k] != theirs[k] for k in ("BM", "BN", "BK"))
        switches = sum(ours[k] != theirs[k] for k in ("TMA", "FLATTEN", "GROUP_M"))
        return tile + switches + (v.warps != chosen.warps) + (v.stages != chosen.stages)

    counts = [changed(v) for v in found]
    assert counts == sorted(counts)


def test_what_does_not_fit_is_pruned_with_the_resource_and_the_amount() -> None:
    space, arguments = SPACES["matmul"]
    small = Limits(shared_bytes=99 * 1024)
    grid_cells = cells(space, space[1], arguments, small, most=10_000)
    pruned = [c for c in grid_cells if c.reason]
    assert pruned
    for cell in grid_cells:
        v = cell.variant
        # The bytes of the pipeline's tiles, counted here.
        needs = (v["BM"] + v["BN"]) * v["BK"] * 2 * v.stages
        if needs > small.shared_bytes and v != space[1]:
            assert "bytes of shared memory, a program may have 101,376" in cell.reason
            assert int(cell.reason.split(": ")[1].split(" ")[0].replace(",", "")) >= needs
    points = [c.point for c in pruned]
    assert {p.status for p in points} == {"pruned"}
    registers = Variant(space[0].kernel, space[0].constants, 8, 3, registers=300)
    assert misfit(registers, Limits()) == "300 registers a thread, it may have 255"
    file = Variant(space[0].kernel, space[0].constants, 16, 3, registers=200)
    assert misfit(file, Limits()) == "102,400 registers for 16 warps, a multiprocessor has 65,536"


def test_what_was_chosen_runs_even_where_the_model_says_that_it_does_not_fit() -> None:
    space, arguments = SPACES["matmul"]
    grid_cells = cells(space, space[0], arguments, Limits(shared_bytes=1024))
    assert grid_cells[0].variant == space[0]
    assert grid_cells[0].reason == ""


def test_kernels_whose_programs_wait_for_each_other_keep_to_their_own_space() -> None:
    space, arguments = SPACES["long softmax"]
    own = [v for v in space if v.kernel is softmax_team]
    assert own, "the space has no such kernel any more"
    grid_cells = cells(space, space[0], arguments, Limits(), most=10_000)
    assert [c.variant for c in grid_cells if c.variant.kernel is softmax_team and not c.own] == []
    assert {str(c.variant) for c in grid_cells if c.variant.kernel is softmax_team} == {str(v) for v in own}


@pytest.mark.parametrize(
    ("space", "arguments"),
    [
        (softmax_backward.space(4096, 65536, BF16, True, True), (meta(4096, 65536), meta(4096, 65536))),
        (softmax.space(4096, 65536, BF16, True, False, True), (meta(4096, 65536),)),
        (norms.space(4096, 65536, BF16, 2, Form(residual=True), True), (meta(4096, 65536), meta(4096, 65536))),
        (hopper_variants.space(128, 1024, True, False) + SPACES["attention"][0], SPACES["attention"][1]),
    ],
    ids=["softmax backward", "softmax", "add and norm", "Gluon"],
)
def test_kernels_that_say_themselves_what_each_warp_does_keep_to_their_own_space(
    space: list[Variant], arguments: tuple[Any, ...]
) -> None:
    own = [v for v in space if v.kernel is space[0].kernel]
    assert 1 <= len(own) <= 2
    grid_cells = cells(space, space[0], arguments, Limits(), most=10_000)
    assert {str(c.variant) for c in grid_cells if c.variant.kernel is own[0].kernel} == {str(v) for v in own}


def test_axes_go_from_small_to_large() -> None:
    space, arguments = SPACES["matmul"]
    axes = axes_of(c.point for c in cells(space, space[1], arguments, Limits(), most=10_000))
    assert list(axes.warps) == sorted(set(axes.warps))
    assert list(axes.stages) == sorted(s for s in axes.stages if s is not None)
    plain = [t for t in axes.tiles if t.endswith("GROUP_M=8") and "SPLIT" not in t]
    sizes = [math.prod(int(part.split("=")[1]) for part in t.split()) for t in plain]
    assert sizes == sorted(sizes)
