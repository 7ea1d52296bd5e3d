"""Softmax over an axis that is not the last.

x is seen as [outer, M, inner] with the axis M in the middle; neighbouring threads read neighbours of `inner`, so every
access is whole. Traffic: every element read once and written once while M rows of a tile fit into registers; a longer
axis is read twice, largest value and sum together first, the second time from its end; where the columns alone are too
few programs for the GPU, it is cut into spans.
Takes f32, f16, bf16; the result is like x or f32.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.ops.shared.pairs import exp_of, rounded
from kernels.ops.shared.rows import DTYPES
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


# ---- a long axis in spans
# Softmax over an axis that is not the last, where the columns alone are too few programs: the axis is cut into spans.
#
# Two kernels: largest value and sum of every column of every span, then the result of every span, last span first,
# while the end of x is still in L2. x is read twice. Every program of the second kernel joins its columns' spans
# itself; what that reads is kept to a quarter of the program's own elements by their number.
@triton.jit
def seen_too(read, top, total, UNROLL: tl.constexpr):
    """Every lane's largest value and sum of exponentials relative to it, with UNROLL more tiles."""
    larger = top
    for i in tl.static_range(UNROLL):
        larger = tl.maximum(larger, read[i])
    shift = tl.where(larger == float("-inf"), 0.0, larger)  # a lane that has seen nothing stays at 0
    total = total * exp_of(top - shift)
    for i in tl.static_range(UNROLL):
        total += exp_of(read[i] - shift)
    return larger, total


@triton.jit
def span_statistics(
    x_ptr, top_ptr, total_ptr, inner, tiles, M, spans, SPAN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Largest value and sum of exponentials of BLOCK_N columns over SPAN rows, a multiple of BLOCK_M * UNROLL.

    top_ptr, total_ptr: [outer, spans, inner] in f32. Every lane keeps its own until the end.
    """
    program = tl.program_id(0).to(tl.int64)
    outer = program // (tiles * spans)
    span = program // tiles % spans
    row = tl.arange(0, BLOCK_M)[:, None]
    line = (program % tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    col = line[None, :]
    x_ptr += outer * M * inner
    start = span * SPAN
    top = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in tl.range(0, SPAN // (BLOCK_M * UNROLL), num_stages=STAGES):
        read = ()
        for i in tl.static_range(UNROLL):
            at_row = start + (step * UNROLL + i) * BLOCK_M + row
            x = tl.load(x_ptr + at_row * inner + col, mask=(at_row < M) & (col < inner), other=float("-inf"))
            read = read + (x.to(tl.float32),)  # noqa: RUF005 - Triton's tuples know only this
        top, total = seen_too(read, top, total, UNROLL)
    largest = tl.max(top, axis=0)
    # Lanes and spans of -inf alone add 0; one that saw NaN has it in its sum, though not in its largest value.
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    sums = tl.sum(total * exp_of(top - shift[None, :]), axis=0)
    into = (outer * spans + span) * inner + line
    tl.store(top_ptr + into, largest, mask=line < inner)
    tl.store(total_ptr + into, sums, mask=line < inner)


@triton.jit
def span_results(
    x_ptr, y_ptr, top_ptr, total_ptr, inner, tiles, M, spans, SPAN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """The result of BLOCK_N columns of one span, from what span_statistics left. MOST: spans joined at once."""
    program = tl.program_id(0).to(tl.int64)
    outer = program // (tiles * spans)
    span = spans - 1 - program // tiles % spans
    col = ((program % tiles) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    tops = tl.full((MOST, BLOCK_N), float("-inf"), tl.float32)
    totals = tl.zeros((MOST, BLOCK_N), tl.float32)
    for first in range(0, spans, MOST):
        part = first + tl.arange(0, MOST)[:, None]
        there = (part < spans) & (col < inner)
        at = (outer * spans + part) * inner + col
        top = tl.load(top_ptr + at, mask=there, other=float("-inf"), eviction_policy="evict_last")
        total = tl.load(total_ptr + at, mask=there, other=0.0, eviction_policy="evict_last")
        larger = tl.maximum(tops, top)
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        totals = totals * exp_of(tops - shift) + total * exp_of(top - shift)
        tops = larger
    largest = tl.max(tops, axis=0, keep_dims=True)
    # A column of -inf alone has no result: -inf - -inf is NaN, as in torch.
    scale = 1.0 / tl.sum(totals * exp_of(tops - largest), axis=0, keep_dims=True)
    row = tl.arange(0, BLOCK_M)[:, None]
    x_ptr += outer * M * inner
    y_ptr += outer * M * inner
    steps = SPAN // (BLOCK_M * UNROLL)
    for back in tl.range(0, steps, num_stages=STAGES):
        for i in tl.static_range(UNROLL):
            at_row = span * SPAN + ((steps - 1 - back) * UNROLL + i) * BLOCK_M + row
            inside = (at_row < M) & (col < inner)
            at = at_row * inner + col
            x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = rounded(exp_of(x - largest) * scale, y_ptr)
            tl.store(y_ptr + at, y, mask=inside, eviction_policy="evict_first")


def split_space(outer: int, length: int, inner: int, itemsize: int, processors: int) -> list[Variant]:
    """Variants worth timing: as many programs as are resident, or twice as many; lines of 64 to 256 bytes.

    For sm_90 ptxas needs 68 to 78 registers with loads ahead, 24 warps a multiprocessor, and 64 without (12.8).
    """
    shapes = ((64, 8, 3, 3), (64, 8, 3, 6), (128, 8, 3, 3), (64, 8, 1, 4), (32, 4, 2, 6))
    variants = [_spans(outer, length, inner, itemsize, processors, *shape) for shape in shapes]
    return list(dict.fromkeys(v for v in variants if v["SPAN"] < length))


def _spans(
    outer: int, length: int, inner: int, itemsize: int, processors: int, columns: int, warps: int, stages: int,
    programs: int,
) -> Variant:  # fmt: skip
    columns = min(columns, triton.next_power_of_2(inner))
    step, unroll = max(32 * warps * 16 // itemsize // columns, 1), 4  # one 128-bit access a thread and tile
    wanted = programs * processors // (outer * triton.cdiv(inner, columns))
    # Of x a span has columns * (length / spans) * itemsize bytes: four times columns * spans * 8, what is joined.
    most = math.isqrt(length * itemsize // 32)
    rows = step * unroll
    span = triton.cdiv(triton.cdiv(length, max(1, min(wanted, most))), rows) * rows
    joined = min(triton.next_power_of_2(triton.cdiv(length, span)), max(2048 // columns, 1))
    constants = (("SPAN", span), ("BLOCK_M", step), ("BLOCK_N", columns), ("UNROLL", unroll), ("STAGES", stages),
                 ("MOST", joined))  # fmt: skip
    shared = (stages - 1) * rows * columns * itemsize + 8192
    return Variant(span_statistics, constants, warps, shared_bytes=shared)


def launch_split(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Both kernels on contiguous x [outer, M, inner] into y of the same shape."""
    outer, length, inner = x.shape
    tiles, spans = triton.cdiv(inner, variant["BLOCK_N"]), triton.cdiv(length, variant["SPAN"])
    top, total = torch.empty((2, outer, spans, inner), device=x.device)
    grid, sizes = (outer * spans * tiles,), (inner, tiles, length, spans)
    span_statistics[grid](x, top, total, *sizes, **variant.meta)
    span_results[grid](x, y, top, total, *sizes, **variant.meta)


_SIGNATURE = {
    **dict.fromkeys(("x_ptr", "y_ptr"), "*bf16"), **dict.fromkeys(("top_ptr", "total_ptr"), "*fp32"),
    **dict.fromkeys(("inner", "tiles", "M", "spans"), "i32"),
}  # fmt: skip


def split_builds() -> tuple[Build, ...]:
    """One of each kernel."""
    first = split_space(1, 65536, 1024, 2, 132)[0]
    return tuple(
        Build(Variant(kernel, first.constants, first.warps),
              {k: t for k, t in _SIGNATURE.items() if k in kernel.arg_names}, divisible=("inner",))
        for kernel in (span_statistics, span_results)
    )  # fmt: skip


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
    variants: list[Variant] = []
    if length <= LONGEST_HELD:
        for columns, warps in ((128, 1), (128, 4), (256, 2), (256, 4), (512, 4), (512, 8), (64, 4), (32, 8), (8, 8)):
            columns = min(columns, widest)
            if 8 <= rows * columns // (32 * warps) <= 128:
                variants.append(_held(length, inner, rows, columns, warps))
    if length > 256 or not variants:
        # A line of 32 bytes is the least that memory reads; narrow tiles only where wide ones are too few.
        narrow = outer * triton.cdiv(inner, 128) < processors
        shapes = ((32, 8, 3), (16, 8, 1), (8, 8, 3)) if narrow else ((128, 8, 1), (128, 8, 3), (64, 4, 3), (32, 8, 1))
        for columns, warps, stages in shapes:
            columns = min(columns, widest)
            # One 128-bit access a thread and tile.
            step = min(max(32 * warps * 16 // itemsize // columns, 1), rows)
            constants = (("BLOCK_M", step), ("BLOCK_N", columns), ("UNROLL", 4), ("STAGES", stages))
            shared = 4 * (stages - 1) * step * columns * itemsize + 4096
            variants.append(Variant(softmax_axis_loop, constants, warps, shared_bytes=shared))
    if length > LONGEST_WHOLE and outer * triton.cdiv(inner, 64) < 4 * processors:
        variants += split_space(outer, length, inner, itemsize, processors)
    return list(dict.fromkeys(variants))[:8]


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
    after it, goes to `softmax`. Raises TypeError for other dtypes, ValueError for an axis that is not
    there and for more than 2^31 - 1 tiles.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"softmax_axis takes f32, f16 or bf16, not {x.dtype}")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"a tensor of {x.dim()} axes has no axis {dim}")
    dim %= x.dim()
    outer, length, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    if inner == 1:
        from kernels.ops.softmax.softmax import softmax

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
