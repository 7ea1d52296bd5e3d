"""Softmax over an axis that is not the last.

x is seen as [outer, M, inner] with the axis M in the middle; neighbouring threads read neighbours of `inner`, so every
access is whole. Traffic: every element read once and written once while M rows of a tile fit into registers; a longer
axis is read twice, largest value and sum together first, the second time from its end; where the columns alone are too
few programs for the GPU, it is cut into spans (softmax_axis_split.py).
Takes f32, f16, bf16; the result is like x or f32.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.device import exp_of
from kernels.pairs import rounded
from kernels.rows import DTYPES
from kernels.softmax_axis_split import launch_split, seen_too, span_statistics, split_builds, split_space
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("softmax_axis")
LONGEST_HELD = 1024
"""Longest axis that one tile holds: 8 columns of it are 8192 elements."""
LONGEST_WHOLE = 4096
"""Longest axis that is never cut into spans."""


def reference(x: torch.Tensor, dim: int, widen: bool = False) -> torch.Tensor:
    """Softmax over one axis as torch has it."""
    return torch.softmax(wide(x) if widen else x, dim)


@triton.jit
def softmax_axis_held(
    x_ptr, y_ptr, inner, tiles, M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WHOLE: tl.constexpr
):
    """BLOCK_N columns a program, all M elements of each in registers. WHOLE: no element of the tile is outside."""
    at_outer = (tl.program_id(0) // tiles).to(tl.int64) * M * inner
    row = tl.arange(0, BLOCK_M)[:, None]
    col = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    at = at_outer + row.to(tl.int64) * inner + col
    inside = (row < M) & (col < inner)
    if WHOLE:
        x = tl.load(x_ptr + at).to(tl.float32)
    else:
        x = tl.load(x_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
    x = exp_of(x - tl.max(x, axis=0, keep_dims=True))
    y = rounded(x * (1.0 / tl.sum(x, axis=0, keep_dims=True)), y_ptr)
    if WHOLE:
        tl.store(y_ptr + at, y)
    else:
        tl.store(y_ptr + at, y, mask=inside)


@triton.jit
def softmax_axis_loop(
    x_ptr, y_ptr, inner, tiles, M, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, UNROLL: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK_N columns a program in two walks, UNROLL tiles of BLOCK_M a step; M is no constant, the axis of any length.

    Every lane keeps its own largest value and sum, so that threads meet once and not in every step.
    """
    at_outer = (tl.program_id(0) // tiles).to(tl.int64) * M * inner
    x_ptr += at_outer
    y_ptr += at_outer
    row = tl.arange(0, BLOCK_M)[:, None]
    col = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    top = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    steps = tl.cdiv(M, BLOCK_M * UNROLL)
    for step in tl.range(0, steps, num_stages=STAGES):
        read = ()
        for i in tl.static_range(UNROLL):
            at_row = (step * UNROLL + i) * BLOCK_M + row
            inside = (at_row < M) & (col < inner)
            at = x_ptr + at_row.to(tl.int64) * inner + col
            x = tl.load(at, mask=inside, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
            read = read + (x,)  # noqa: RUF005 - Triton's tuples know only this
        top, total = seen_too(read, top, total, UNROLL)
    largest = tl.max(top, axis=0, keep_dims=True)
    # A lane of -inf alone adds 0 * exp(-inf); one that saw NaN has it in its sum, though not in its largest value.
    scale = 1.0 / tl.sum(total * exp_of(top - largest), axis=0, keep_dims=True)
    for back in tl.range(0, steps, num_stages=STAGES):
        for i in tl.static_range(UNROLL):
            at_row = ((steps - 1 - back) * UNROLL + i) * BLOCK_M + row
            inside = (at_row < M) & (col < inner)
            at = at_row.to(tl.int64) * inner + col
            x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = rounded(exp_of(x - largest) * scale, y_ptr)
            tl.store(y_ptr + at, y, mask=inside, eviction_policy="evict_first")


def space(outer: int, length: int, inner: int, itemsize: int, processors: int) -> list[Variant]:
    """Variants worth timing: 8 to 128 elements a thread, no tile wider than `inner`, enough programs for all."""
    rows, widest = triton.next_power_of_2(length), triton.next_power_of_2(inner)
    found: list[Variant] = []
    if length <= LONGEST_HELD:
        for columns, warps in ((128, 1), (128, 4), (256, 2), (256, 4), (512, 4), (512, 8), (64, 4), (32, 8), (8, 8)):
            columns = min(columns, widest)
            if 8 <= rows * columns // (32 * warps) <= 128:
                found.append(_held(length, inner, rows, columns, warps))
    if length > 256 or not found:
        # A line of 32 bytes is the least that memory reads; narrow tiles only where wide ones are too few.
        narrow = outer * triton.cdiv(inner, 128) < processors
        shapes = ((32, 8, 3), (16, 8, 1), (8, 8, 3)) if narrow else ((128, 8, 1), (128, 8, 3), (64, 4, 3), (32, 8, 1))
        for columns, warps, stages in shapes:
            columns = min(columns, widest)
            # One 128-bit access a thread and tile.
            step = min(max(32 * warps * 16 // itemsize // columns, 1), rows)
            constants = (("BLOCK_M", step), ("BLOCK_N", columns), ("UNROLL", 4), ("STAGES", stages))
            shared = 4 * (stages - 1) * step * columns * itemsize + 4096
            found.append(Variant(softmax_axis_loop, constants, warps, shared_bytes=shared))
    if length > LONGEST_WHOLE and outer * triton.cdiv(inner, 64) < 4 * processors:
        found += split_space(outer, length, inner, itemsize, processors)
    return list(dict.fromkeys(found))[:8]


def _held(length: int, inner: int, rows: int, columns: int, warps: int) -> Variant:
    whole = rows == length and inner % columns == 0
    constants = (("M", length), ("BLOCK_M", rows), ("BLOCK_N", columns), ("WHOLE", whole))
    elements = rows * columns // (32 * warps)
    return Variant(softmax_axis_held, constants, warps, tuned=("BLOCK_N",), registers=min(255, elements + 48))


def launch(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on contiguous x [outer, M, inner] into y of the same shape."""
    outer, length, inner = x.shape
    tiles = triton.cdiv(inner, variant["BLOCK_N"])
    if variant.kernel is softmax_axis_held:
        softmax_axis_held[(outer * tiles,)](x, y, inner, tiles, **variant.meta)
    elif variant.kernel is span_statistics:
        launch_split(variant, x, y)
    else:
        softmax_axis_loop[(outer * tiles,)](x, y, inner, tiles, length, **variant.meta)


def softmax_axis(x: torch.Tensor, dim: int, widen: bool = False) -> torch.Tensor:
    """Softmax over axis `dim` of x in f32, f16 or bf16; computed in f32, the result is contiguous.

    widen: the result is f32. x is copied where it is not contiguous. The last axis, and one with only axes of size 1
    after it, goes to `kernels.softmax.softmax`. Raises TypeError for other dtypes, ValueError for an axis that is not
    there and for more than 2^31 - 1 tiles.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"softmax_axis takes f32, f16 or bf16, not {x.dtype}")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"a tensor of {x.dim()} axes has no axis {dim}")
    dim %= x.dim()
    outer, length, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    if inner == 1:
        from kernels.softmax import softmax

        return softmax(x.reshape(outer, length), widen).view(x.shape)
    y = torch.empty(x.shape, dtype=torch.float32 if widen else x.dtype, device=x.device)
    if x.numel() == 0:
        return y
    flat, into = x.contiguous().view(outer, length, inner), y.view(outer, length, inner)
    key = (outer, length, inner, x.dtype, y.dtype)
    processors = multiprocessors(x.device)
    variants = space(outer, length, inner, x.element_size(), processors)
    if outer * triton.cdiv(inner, min(v["BLOCK_N"] for v in variants)) >= 1 << 31:
        raise ValueError(f"softmax_axis takes fewer tiles than {[*x.shape]} over axis {dim} has")
    variant = tuner.pick(key, variants, launch, flat, into)
    launch(variant, flat, into)
    return y


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, int, bool]:
    """x of `shape`, the axis, and whether the result is f32."""
    return make.normal(c["shape"], c.torch_dtype, scale=3.0), c["dim"], bool(c.get("widen", False))


def cost(c: Case) -> Cost:
    """Read and written once."""
    return Cost(bytes=math.prod(c["shape"]) * (c.itemsize + (4 if c.get("widen") else c.itemsize)))


_HELD = {"x_ptr": "*fp32", "y_ptr": "*fp32", "inner": "i32", "tiles": "i32"}
_LOOP = {"x_ptr": "*bf16", "y_ptr": "*bf16", "inner": "i32", "tiles": "i32", "M": "i32"}
_LOOPED = Variant(softmax_axis_loop, (("BLOCK_M", 16), ("BLOCK_N", 128), ("UNROLL", 4), ("STAGES", 3)), 8)
OPERATIONS = (
    Operation(
        name="softmax_axis", run=softmax_axis, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", shape=(2100, 1024, 1024), dim=1),
        checks=(
            *(case(d, shape=s, dim=i) for d in ("f32", "f16", "bf16")
              for s, i in (((32, 700), 0), ((3, 5, 64), 1), ((1, 1, 4), 0), ((1, 1100, 20), -2), ((7, 33), 1))),
            case("f32", shape=(4, 0, 3), dim=1), case("bf16", shape=(100, 3), dim=0, widen=True),
            case("f16", shape=(3, 200, 17, 2), dim=1), case("f32", shape=(5000, 2), dim=0),
            case("bf16", shape=(40, 1), dim=0), case("f32", shape=(6, 24, 80), dim=1),
        ),
        cases=(
            case("f32", shape=(32, 1 << 21), dim=0, region="outer_dim_softmax_short"),
            case("bf16", shape=(64, 512, 4096), dim=1), case("bf16", shape=(65536, 1024), dim=0),
            case("f32", shape=(16, 1 << 22), dim=0), case("bf16", shape=(24, 1 << 21), dim=0),
            case("f32", shape=(8, 48, 1 << 17), dim=1), case("bf16", shape=(4, 128, 1 << 18), dim=1),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        builds=(
            Build(_held(32, 1 << 21, 32, 128, 1), _HELD, divisible=("inner",)),
            Build(_held(32, 1 << 21, 32, 512, 8), _HELD, divisible=("inner",)),
            Build(_LOOPED, _LOOP, divisible=("inner",)), *split_builds(),
        ),
    ),
)  # fmt: skip
