"""Softmax over an axis that is not the last, where the columns alone are too few programs: the axis is cut into spans.

Two kernels: largest value and sum of every column of every span, then the result of every span, last span first, while
the end of x is still in L2. x is read twice. Every program of the second kernel joins its columns' spans itself; what
that reads is kept to a quarter of the program's own elements by their number.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.device import exp_of
from kernels.pairs import rounded
from kernels.spec import Build
from kernels.tuning import Variant


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
    found = [_spans(outer, length, inner, itemsize, processors, *shape) for shape in shapes]
    return list(dict.fromkeys(v for v in found if v["SPAN"] < length))


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
