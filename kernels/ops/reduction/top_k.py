"""The k largest of every row, largest first, with their columns.

Traffic: x read once, k values and k i64 columns written a row: rows * (columns * itemsize + k * (itemsize + 8)) bytes.
Arithmetic is the limit for k beyond a few: torch sorts, others run a bitonic network of the whole row. Here a row is
cut to little more than k candidates first. Of the largest numbers of groups of columns the k-th is at most the row's
k-th largest, so what lies below it is out; only the rest, k to 2 k numbers, is sorted. Rows that leave more than 2 k
(most numbers alike, or the largest side by side) are searched to the last bit in the same program.
Takes f32, f16, bf16 and k up to 256. Rows longer than 8192 are cut in pieces, whose best are searched in turn.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES, rows_of
from kernels.ops.shared.sort_keys import best_of, column_of, key_of, number_of, rank_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

MAX_K = 256
ROUNDS = 16
"""Up to this k a maximum is taken k times."""
PIECE = 8192
"""Longest row that one program holds."""
SEARCHED = 16
"""Bits of the candidates' bound that are searched: sign, exponent and 7 bits more of an f32."""

tuner = Tuner("top_k")


def reference(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices as torch has them."""
    values, indices = torch.topk(x, k, -1)
    return values, indices


@triton.jit
def top_k_rounds(
    x_ptr, y_ptr, i_ptr, rows, x_stride, N, PIECES: tl.constexpr, WIDTH: tl.constexpr, K: tl.constexpr,
    SLOTS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DTYPE: tl.constexpr, SORTED: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS pieces of rows a program, by K maxima. SORTED: by a bitonic network instead."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    first = (row % PIECES).to(tl.int32) * WIDTH
    at = x_ptr + (row // PIECES) * x_stride + first + col
    if WHOLE:
        x = tl.load(at)
    else:
        x = tl.load(at, mask=(row < rows) & (col < WIDTH) & (first + col < N), other=float("-inf"))
    key = key_of(x, col, DTYPE)
    slot = tl.arange(0, SLOTS)[None, :]
    best = tl.topk(key, SLOTS) if SORTED else best_of(key, slot, K)
    inside = (row < rows) & (slot < K)
    tl.store(y_ptr + row * K + slot, number_of(best, DTYPE), mask=inside)
    tl.store(i_ptr + row * K + slot, (first + column_of(best, DTYPE)).to(tl.int64), mask=inside)


@triton.jit
def count_of(mask):
    """How many of [G, N] hold."""
    return tl.sum(tl.sum(mask.to(tl.int32), 1), 0)


@triton.jit
def chosen(rank, col, K: tl.constexpr, BITS: tl.constexpr, DTYPE: tl.constexpr):
    """Which of rank [G, N] are the K largest, of equal ones the first columns: the K-th is found bit by bit."""
    bound = tl.full((), 0, tl.uint32)
    bit = tl.full((), 1 << 31, tl.uint32)
    for _ in range(32):
        bound = tl.where(count_of(rank >= (bound | bit)) >= K, bound | bit, bound)
        bit = bit >> 1
    if DTYPE == tl.float32:  # noqa: SIM300 - f32 may be alike; the keys of 16-bit floats hold their columns
        missing = K - count_of(rank > bound)
        last = tl.full((), 0, tl.int32)
        step = tl.full((), 1 << (BITS - 1), tl.int32)
        for _ in range(BITS):
            last = tl.where(count_of((rank == bound) & (col < (last | step))) < missing, last | step, last)
            step = step >> 1
        taken = (rank > bound) | ((rank == bound) & (col <= last))
    else:
        taken = rank >= bound
    return taken


@triton.jit
def listed(list_ptr, place, rank, bound, first, STEP: tl.constexpr):
    """Columns first + STEP * j of rank [G, W] that reach the bound, to list_ptr + place on; the places after them.

    One column of the tile after the other: a scattered store of the whole is moved through shared memory to another
    layout, and needs a sum over each row before it.
    """
    G: tl.constexpr = rank.shape[0]
    W: tl.constexpr = rank.shape[1]
    if W == 2:
        a, b = tl.split(rank)
        tl.store(list_ptr + place, first, mask=a >= bound)
        place += (a >= bound).to(tl.int32)
        tl.store(list_ptr + place, first + STEP, mask=b >= bound)
        place += (b >= bound).to(tl.int32)
    else:
        a, b = tl.split(tl.reshape(rank, (G, W // 2, 2)))
        place = listed(list_ptr, place, a, bound, first, 2 * STEP)
        place = listed(list_ptr, place, b, bound, first + STEP, 2 * STEP)
    return place


@triton.jit
def top_k_select(
    x_ptr, y_ptr, i_ptr, x_stride, N, PIECES: tl.constexpr, WIDTH: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr, FOLD: tl.constexpr, LANES: tl.constexpr,
    SEARCHED: tl.constexpr, DTYPE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """One piece of a row a program, cut to 2 K candidates, then sorted. BLOCK is 1 << BITS.

    GROUP columns, those of one load, and FOLD such groups far apart have one maximum.
    """
    piece = tl.program_id(0).to(tl.int64)
    first = (piece % PIECES).to(tl.int32) * WIDTH
    x_ptr += (piece // PIECES) * x_stride + first
    y_ptr += piece * K
    i_ptr += piece * K
    n = tl.minimum(N - first, WIDTH)
    col = tl.arange(0, BLOCK // GROUP)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    if WHOLE:
        x = tl.load(x_ptr + col)
    else:
        x = tl.load(x_ptr + col, mask=col < n, other=float("-inf"))
    if DTYPE == tl.float32:  # noqa: SIM300 - DTYPE is the variable
        rank = rank_of(x, DTYPE)
    else:
        rank = key_of(x, col, DTYPE)
    tops = tl.max(tl.reshape(tl.max(rank, axis=1), (FOLD, BLOCK // GROUP // FOLD)), axis=0)
    bound = tl.full((), 0, tl.uint32)
    for i in tl.static_range(SEARCHED):
        higher = bound | (1 << (31 - i))
        bound = tl.where(tl.sum((tops >= higher).to(tl.int32), 0) >= K, higher, bound)
    each = tl.sum((rank >= bound).to(tl.int32), 1)
    if tl.sum(each, 0) > 2 * K:
        rank = chosen(rank, col, K, BITS, DTYPE).to(tl.uint32)
        bound = tl.full((), 1, tl.uint32)
        each = tl.sum(rank.to(tl.int32), 1)
    # Places in any order do: first along the registers of a thread, then once across threads.
    each = tl.reshape(each, (BLOCK // GROUP // LANES, LANES))
    whole = tl.sum(each, 0)
    place = tl.reshape((tl.cumsum(whole, 0) - whole)[None, :] + tl.cumsum(each, 0) - each, (BLOCK // GROUP,))
    count = tl.sum(whole, 0)
    # Triton scatters to no shared memory: the row's own indices, 2 K words of 32 bits, hold the candidates' columns.
    list_ptr = i_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    listed(list_ptr, place, rank, bound, tl.arange(0, BLOCK // GROUP) * GROUP, 1)
    tl.debug_barrier()
    slot = tl.arange(0, 2 * SLOTS)
    column = tl.load(list_ptr + slot, mask=slot < count, other=0)
    value = tl.load(x_ptr + column, mask=(slot < count) & (column < n), other=float("-inf"))
    key = key_of(value, column, DTYPE)
    best = tl.topk(tl.where(slot < count, key, tl.zeros_like(key)), SLOTS)
    tl.debug_barrier()
    place = tl.arange(0, SLOTS)
    tl.store(y_ptr + place, number_of(best, DTYPE), mask=place < K)
    tl.store(i_ptr + place, (first + column_of(best, DTYPE)).to(tl.int64), mask=place < K)


def space(rows: int, columns: int, k: int, dtype: torch.dtype) -> list[Variant]:
    """Maxima for a small k, one sort for short rows, else candidates first; 16 to 64 numbers a thread."""
    pieces = triton.cdiv(columns, PIECE)
    width = min(columns, PIECE)
    block, slots = max(16, triton.next_power_of_2(width)), triton.next_power_of_2(k)
    fixed = (
        ("PIECES", pieces),
        ("WIDTH", width),
        ("K", k),
        ("SLOTS", slots),
        ("BLOCK", block),
        ("DTYPE", DTYPES[dtype]),
    )
    filled = block == width and columns % width == 0
    variants: list[Variant] = []
    group = 16 // dtype.itemsize
    if k <= ROUNDS or block < 4 * group * slots or block <= 256:
        by_sorting = k > ROUNDS
        for elements, warps in ((1024, 1), (2048, 2), (2048, 4), (4096, 4), (8192, 4), (8192, 8)):
            count = max(1, min(elements // block, triton.next_power_of_2(rows)))
            choice = (("ROWS", count), ("SORTED", by_sorting), ("WHOLE", filled and rows % count == 0))
            if 8 <= count * block // (32 * warps) <= 64 or count * block <= 256:
                variants.append(Variant(top_k_rounds, (*fixed, *choice), warps, tuned=("ROWS", "SORTED")))
    for fold in (8 // group, 16 // group) if k > ROUNDS else (8 // group,):
        if block >= 2 * group * fold * slots and block >= 512 and k >= ROUNDS // 2:
            rest = (("BITS", block.bit_length() - 1), ("GROUP", group), ("FOLD", fold), ("SEARCHED", SEARCHED))
            constants = (*fixed, *rest, ("WHOLE", filled))
            for warps in (1, 2, 4, 8):
                held = block // (32 * warps)
                if 16 <= held <= 64:
                    lanes = (*constants, ("LANES", 32 * warps))
                    variants.append(Variant(top_k_select, lanes, warps, tuned=("FOLD",)))
                    if held == 64 and group == 4 and not torch.version.hip:
                        # ptxas takes 227 registers for 64 f32 a thread, and spills none with 168 (sm_90).
                        fewer = (("maxnreg", 168),)
                        variants.append(Variant(top_k_select, lanes, warps, tuned=("FOLD",), options=fewer))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> None:
    """Run one variant on x [rows, N] with contiguous rows; values and indices [rows * pieces, K] are contiguous."""
    rows, columns = values.shape[0], x.shape[1]
    if variant.kernel is top_k_select:
        top_k_select[(rows,)](x, values, indices, x.stride(0), columns, **variant.meta)
    else:
        grid = (triton.cdiv(rows, variant["ROWS"]),)
        top_k_rounds[grid](x, values, indices, rows, x.stride(0), columns, **variant.meta)


def _pieces(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Best of every piece of x [rows, N]: values and columns [rows, pieces * k]; of a piece with fewer, -inf beyond."""
    rows, columns = x.shape
    pieces = triton.cdiv(columns, PIECE)
    values = torch.empty((rows * pieces, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((rows * pieces, k), dtype=torch.int64, device=x.device)
    key = (rows, columns, k, x.dtype, x.stride(0), x.data_ptr() % 16 == 0)
    variant = tuner.pick(key, lambda: space(rows * pieces, columns, k, x.dtype), launch, x, values, indices)
    launch(variant, x, values, indices)
    return values.view(rows, pieces * k), indices.view(rows, pieces * k)


def top_k(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [..., k] of x's dtype, largest first, and their i64 columns, of x [..., N] in f32, f16 or bf16.

    NaN counts as the largest, as in torch.topk; of equal numbers the lower column is taken and comes first, which
    torch.topk does not promise. Raises TypeError for other dtypes and ValueError unless 1 <= k <= min(256, N).
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"top_k takes f32, f16 or bf16, not {x.dtype}")
    columns = x.shape[-1] if x.dim() else 0
    if not 1 <= k <= min(MAX_K, columns):
        raise ValueError(f"top_k takes k from 1 to {MAX_K} and to the row's length, not {k} of {columns}")
    shape = (*x.shape[:-1], k)
    if x.numel() == 0:
        return x.new_empty(shape), torch.empty(shape, dtype=torch.int64, device=x.device)
    values, indices = _pieces(rows_of(x), k)
    while values.shape[1] > k:
        values, places = _pieces(values, k)
        indices = indices.gather(1, places)
    return values.view(shape), indices.view(shape)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, int]:
    """Arguments to try it on. `few`: only so many different numbers."""
    x = make.normal((c["rows"], c["columns"]), c.torch_dtype)
    return (x.mul_(c["few"]).round_() if c.get("few") else x), c["k"]


def agree(outputs: Sequence[torch.Tensor], arguments: Sequence[Any]) -> None:
    """The columns of a row are different ones, and hold the values. Raises AssertionError."""
    (values, indices), (x, _) = outputs, arguments
    if not values.numel():
        return
    assert int(indices.min()) >= 0, "an index below 0"
    assert int(indices.max()) < x.shape[-1], "an index beyond the row"
    assert bool((indices.sort(-1).values.diff(dim=-1) > 0).all()), "a column twice"
    there = x.gather(-1, indices)
    same = (there == values) | (there.isnan() & values.isnan())
    assert bool(same.all()), f"{int((~same).sum())} indices of other values"


def _cost(c: Case) -> Cost:
    return Cost(bytes=c["rows"] * (c["columns"] * c.itemsize + c["k"] * (c.itemsize + 8)))


def _signature(dtype: str, select: bool) -> dict[str, str]:
    rows = {} if select else {"rows": "i32"}
    return {"x_ptr": dtype, "y_ptr": dtype, "i_ptr": "*i64", **rows, "x_stride": "i32", "N": "i32"}


OPERATIONS = (
    Operation(
        name="top_k", run=top_k, reference=reference, inputs=inputs, cost=_cost, indices=(1,), agree=agree,
        beyond=case("bf16", rows=1_050_000, columns=2048, k=64),
        checks=(
            *(case(d, rows=r, columns=n, k=k) for d in ("f32", "f16", "bf16")
              for r, n, k in ((0, 9, 3), (1, 1, 1), (3, 100, 5), (2, 33, 20), (5, 2048, 2))),
            case("f32", rows=2, columns=600, k=17),
            case("f16", rows=2, columns=513, k=20),
            case("f32", rows=2, columns=512, k=17, few=2),
            case("bf16", rows=2, columns=700, k=17, few=1),
            case("bf16", rows=2, columns=8200, k=10),
            case("f32", rows=1, columns=20_000, k=3),
            case("bf16", rows=6, columns=520, k=17),
        ),
        cases=(
            case("f32", peer="topk64", rows=32768, columns=2048, k=64),
            case("bf16", rows=32768, columns=2048, k=64),
            case("bf16", rows=32768, columns=2048, k=8),
            case("f32", rows=64, columns=131_072, k=50),
        ),
        builds=(
            *(Build(space(32768, 2048, 64, d)[0], _signature(t, True), divisible=("x_stride", "N"))
              for d, t in ((torch.float32, "*fp32"), (torch.bfloat16, "*bf16"))),
            Build(space(32768, 2048, 8, torch.bfloat16)[1], _signature("*bf16", False), divisible=("x_stride", "N")),
        ),
        forms=("plain", "strided", "misaligned", "special"),
    ),
)  # fmt: skip
