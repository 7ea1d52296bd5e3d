"""Backward of softmax over the last axis: dx = y * (dy - sum(dy * y)).

Traffic: y and dy read once, dx written once, while a row of both fits into one program's registers. Of longer rows
the first part is held and the rest read twice, the second time from its end, which is what the L2 cache still has; or
teams or clusters of programs hold it between them and read it once (softmax_backward_team, softmax_backward_cluster).
Takes f32, f16, bf16, y and dy alike.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton import knobs

from kernels.ops.shared.cluster import NO_CLUSTERS, takes
from kernels.ops.shared.pairs import (
    WORDS,
    chunks_of,
    high_half,
    kept,
    low_half,
    pair_of,
    pairs_at,
    registers,
    rounded,
    store_pairs,
)
from kernels.ops.shared.rows import DTYPES, HELD, paired, rows_of
from kernels.ops.softmax.softmax_backward_cluster import launch_cluster, softmax_backward_cluster
from kernels.ops.softmax.softmax_backward_cluster import variant_of as cluster_variant
from kernels.ops.softmax.softmax_backward_cluster import variants as cluster_variants
from kernels.ops.softmax.softmax_backward_team import launch_team, softmax_backward_team, team, teams
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("softmax_backward")


def reference(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What autograd runs for torch.softmax(x, -1)."""
    return torch._softmax_backward_data(dy, y, -1, y.dtype)


@triton.jit
def softmax_backward_rows(
    dy_ptr, y_ptr, dx_ptr, rows, dy_stride, y_stride, dx_stride, N: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program, both inputs held in registers. WHOLE: no element of the tile is outside."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < N)
    if WHOLE:
        y = tl.load(y_ptr + row * y_stride + col).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + col).to(tl.float32)
    else:
        y = tl.load(y_ptr + row * y_stride + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
    dx = rounded(y * (dy - tl.sum(dy * y, axis=1, keep_dims=True)), dx_ptr)
    if WHOLE:
        tl.store(dx_ptr + row * dx_stride + col, dx)
    else:
        tl.store(dx_ptr + row * dx_stride + col, dx, mask=inside)


@triton.jit
def _gradient(dy, y, dot, DTYPE: tl.constexpr):
    """y * (dy - dot) of pairs, as pairs."""
    low = low_half(y, DTYPE) * (low_half(dy, DTYPE) - dot)
    high = high_half(y, DTYPE) * (high_half(dy, DTYPE) - dot)
    return pair_of(low, high, DTYPE)


@triton.jit
def softmax_backward_packed(
    dy_ptr, y_ptr, dx_ptr, dy_stride, y_stride, dx_stride, zero, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
    HELD: tl.constexpr, DTYPE: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row a program: HELD pieces of BLOCK pairs of both in registers, the rest read twice; strides in pairs."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * dx_stride
    REST: tl.constexpr = HELD * BLOCK
    STEP: tl.constexpr = UNROLL * BLOCK
    STEPS: tl.constexpr = (PAIRS - REST + STEP - 1) // STEP if PAIRS > REST else 0
    EVEN: tl.constexpr = (PAIRS - REST) % STEP == 0
    gradients, results = (), ()
    for i in tl.static_range(HELD):
        y = pairs_at(y_ptr, i * BLOCK, BLOCK, PAIRS, 0, (i + 1) * BLOCK <= PAIRS, "evict_first")
        dy = pairs_at(dy_ptr, i * BLOCK, BLOCK, PAIRS, 0, (i + 1) * BLOCK <= PAIRS, "evict_first")
        results = results + (y,)  # noqa: RUF005 - Triton's tuples know only this
        gradients = gradients + (dy,)  # noqa: RUF005
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        for i in tl.static_range(UNROLL):
            start = REST + step * STEP + i * BLOCK
            y = pairs_at(y_ptr, start, BLOCK, PAIRS, 0, EVEN, "evict_last")
            dy = pairs_at(dy_ptr, start, BLOCK, PAIRS, 0, EVEN, "evict_last")
            total += low_half(dy, DTYPE) * low_half(y, DTYPE) + high_half(dy, DTYPE) * high_half(y, DTYPE)
    for i in tl.static_range(HELD):
        y, dy = results[i], gradients[i]
        total += low_half(dy, DTYPE) * low_half(y, DTYPE) + high_half(dy, DTYPE) * high_half(y, DTYPE)
    dot = tl.sum(total, 0)
    for i in tl.static_range(HELD):
        dx = _gradient(kept(gradients[i], dot, zero), kept(results[i], dot, zero), dot, DTYPE)
        store_pairs(dx_ptr, i * BLOCK, dx, BLOCK, PAIRS, (i + 1) * BLOCK <= PAIRS)
    for back in tl.range(0, STEPS, num_stages=STAGES):
        for i in tl.static_range(UNROLL):
            start = REST + (STEPS - 1 - back) * STEP + i * BLOCK
            y = pairs_at(y_ptr, start, BLOCK, PAIRS, 0, EVEN, "evict_first")
            dy = pairs_at(dy_ptr, start, BLOCK, PAIRS, 0, EVEN, "evict_first")
            store_pairs(dx_ptr, start, _gradient(dy, y, dot, DTYPE), BLOCK, PAIRS, EVEN)


@triton.jit
def softmax_backward_loop(
    dy_ptr, y_ptr, dx_ptr, dy_stride, y_stride, dx_stride, N: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """One row a program in two walks: the dot product, then the result from the end."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * dx_stride
    col = tl.arange(0, BLOCK)
    STEPS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        at = step * BLOCK + col
        y = tl.load(y_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        total += dy * y
    dot = tl.sum(total, 0)
    for back in tl.range(0, STEPS, num_stages=STAGES):
        at = (STEPS - 1 - back) * BLOCK + col
        y = tl.load(y_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_ptr + at, rounded(y * (dy - dot), dx_ptr), mask=at < N, eviction_policy="evict_first")


def space(rows: int, columns: int, dtype: torch.dtype, packable: bool, clustered: bool = False) -> list[Variant]:
    """Variants worth timing: a row as f32 tile while both inputs are up to 32 elements a thread, packed or walked.

    clustered: clusters of programs compute these rows as well (shared/cluster.py).
    """
    block = triton.next_power_of_2(max(1, columns))
    variants = cluster_variants(columns, dtype, 4 // dtype.itemsize) if clustered else []
    if block <= 2048:
        for elements, warps in ((1024, 2), (2048, 4), (4096, 8)):
            count = max(1, min(elements // block, triton.next_power_of_2(rows)))
            variants.append(_rows(columns, block, count, rows, warps))
    elif block <= HELD:
        variants += [_rows(columns, block, 1, rows, w) for w in (4, 8, 16, 32) if 8 <= block // (32 * w) <= 32]
        if block >= 8192:  # twice from L1 or L2, by so few registers that many rows are under way
            variants += [_loop(columns, width, warps, 1, dtype) for width, warps in ((2048, 8), (4096, 16), (4096, 8))]
    if packable and block >= 4096:
        variants += _packed(columns // 2, dtype)
        if columns > HELD and not knobs.runtime.interpret:  # there programs run one after another: none can wait
            variants += teams(columns, dtype)
    if all(v.kernel is softmax_backward_cluster for v in variants) or (block > HELD and not packable):
        variants += [
            _loop(columns, min(width, block), warps, stages, dtype)
            for width, warps, stages in ((4096, 8, 1), (8192, 16, 2), (8192, 32, 3))
        ]
    return list(dict.fromkeys(variants))


def _rows(columns: int, block: int, count: int, rows: int, warps: int) -> Variant:
    whole = columns == block and rows % count == 0
    constants = (("N", columns), ("BLOCK", block), ("ROWS", count), ("WHOLE", whole))
    return Variant(softmax_backward_rows, constants, warps, tuned=("ROWS",))


def _loop(columns: int, width: int, warps: int, stages: int, dtype: torch.dtype) -> Variant:
    constants = (("N", columns), ("BLOCK", width), ("STAGES", stages))
    shared = 2 * (stages - 1) * width * dtype.itemsize + 1024
    return Variant(softmax_backward_loop, constants, warps, tuned=("BLOCK", "STAGES"), shared_bytes=shared)


def _packed(pairs: int, dtype: torch.dtype) -> list[Variant]:
    """Rows held whole where they fit twice, else the share that fits and the rest read again from L2."""
    whole = [(w, chunks_of(pairs, w)) for w in (4, 8, 16, 32)]
    fitting = [(w, h) for w, h in whole if 2 <= h <= 12 and registers(2 * h) * w * 32 <= 65536]
    if fitting:
        return [_held(pairs, dtype, w, h) for w, h in fitting]
    shares = ((8, 24, 1, 3), (16, 10, 1, 3), (16, 8, 2, 2), (32, 4, 1, 3), (16, 0, 2, 3))
    return [_held(pairs, dtype, w, min(h, pairs // (w * 32 * WORDS)), u, s) for w, h, u, s in shares]


def _held(pairs: int, dtype: torch.dtype, warps: int, held: int, unroll: int = 1, stages: int = 1) -> Variant:
    block = warps * 32 * WORDS
    constants = (
        ("PAIRS", pairs), ("BLOCK", block), ("HELD", held), ("DTYPE", DTYPES[dtype]), ("UNROLL", unroll),
        ("STAGES", stages),
    )  # fmt: skip
    whole = held * block >= pairs  # HELD follows from the row's length then
    return Variant(
        softmax_backward_packed, constants, warps, tuned=("BLOCK",) if whole else ("HELD", "UNROLL", "STAGES"),
        shared_bytes=8 * (stages - 1) * unroll * block + 1024, registers=registers(2 * held),
    )  # fmt: skip


def launch(variant: Variant, dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor) -> None:
    """Run one variant on dy and y [rows, N] into dx of the same shape; rows contiguous, strides as they are."""
    rows = y.shape[0]
    if variant.kernel is softmax_backward_rows:
        grid = (triton.cdiv(rows, variant["ROWS"]),)
        softmax_backward_rows[grid](dy, y, dx, rows, dy.stride(0), y.stride(0), dx.stride(0), **variant.meta)
    elif variant.kernel is softmax_backward_packed:
        a, b, c = dy.view(torch.int32), y.view(torch.int32), dx.view(torch.int32)
        softmax_backward_packed[(rows,)](a, b, c, a.stride(0), b.stride(0), c.stride(0), 0, **variant.meta)
    elif variant.kernel is softmax_backward_cluster:
        launch_cluster(variant, dy, y, dx)
    elif variant.kernel is softmax_backward_team:
        launch_team(variant, dy, y, dx)
    else:
        softmax_backward_loop[(rows,)](dy, y, dx, dy.stride(0), y.stride(0), dx.stride(0), **variant.meta)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Gradient of x for y = softmax(x) over the last axis, from dy; [..., N], one dtype of f32, f16, bf16, in f32.

    The result is contiguous. Inputs are copied where their rows are not contiguous or their leading dimensions are not
    one stride. Raises TypeError for other dtypes, ValueError for two shapes.
    """
    if y.dtype not in DTYPES or dy.dtype != y.dtype:
        raise TypeError(f"softmax_backward takes two of f32, f16 or bf16, not {dy.dtype} and {y.dtype}")
    if dy.shape != y.shape:
        raise ValueError(f"dy has shape {[*dy.shape]}, y {[*y.shape]}")
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if y.numel() == 0:
        return dx
    a, b, c = rows_of(dy), rows_of(y), dx.view(-1, y.shape[-1])
    rows, columns = b.shape
    packable = y.element_size() == 2 and paired(a) and paired(b)
    clustered = takes((a, b, c))
    key = (rows, columns, y.dtype, a.stride(0), b.stride(0), packable, clustered)
    variant = tuner.pick(key, lambda: space(rows, columns, y.dtype, packable, clustered), launch, a, b, c)
    launch(variant, a, b, c)
    return dx


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor]:
    """dy, and the softmax of normal numbers in memory of the maker's form."""
    shape = (c["rows"], c["columns"])
    dy, y = make.normal(shape, c.torch_dtype), make.normal(shape, c.torch_dtype, scale=2.0)
    return dy, y.copy_(torch.softmax(y, -1))


_ROWS = {"dy_ptr": "*bf16", "y_ptr": "*bf16", "dx_ptr": "*bf16", "rows": "i32", "dy_stride": "i32", "y_stride": "i32",
         "dx_stride": "i32"}  # fmt: skip
_PAIRS = {**{k: v.replace("bf16", "i32") for k, v in _ROWS.items() if k != "rows"}, "zero": "i32"}
_LOOP = {k: v.replace("bf16", "fp32") for k, v in _ROWS.items() if k != "rows"}
_TEAM = {
    **dict.fromkeys(("dy_ptr", "y_ptr", "dx_ptr"), "*bf16"), "sync_ptr": "*i64",
    **dict.fromkeys(("rows", "dy_stride", "y_stride", "dx_stride", "zero"), "i32"),
}  # fmt: skip
_CLUSTER = {**_ROWS, "zero": "i32"}
_STRIDES = ("dy_stride", "y_stride", "dx_stride")
OPERATIONS = (
    Operation(
        name="softmax_backward", run=softmax_backward, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=32_800, columns=65536),
        cost=lambda c: Cost(bytes=3 * c["rows"] * c["columns"] * c.itemsize),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16")
              for r, n in ((0, 5), (1, 1), (5, 1000), (7, 130), (3, 4096), (1, 33001))),
            case("bf16", rows=1, columns=66002), case("f16", rows=1, columns=40000), case("f32", rows=7, columns=320),
            *(case(d, rows=3, columns=n) for d, n in (("bf16", 65536 - 32), ("f16", 32800), ("f32", 32768))),
        ),
        cases=(
            case("bf16", rows=16384, columns=4096, peer="softmax_bwd"),
            case("bf16", rows=8192, columns=16384, peer="softmax_bwd"),
            case("bf16", rows=4096, columns=65536, peer="softmax_bwd"),
            case("f32", rows=8192, columns=8192),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        builds=(
            Build(_rows(4096, 4096, 1, 1 << 14, 4), _ROWS, divisible=_STRIDES),
            Build(_held(8192, torch.bfloat16, 8, 8), _PAIRS, divisible=_STRIDES),
            Build(_held(32768, torch.bfloat16, 16, 10, 1, 3), _PAIRS, divisible=_STRIDES),
            Build(space(1, 1 << 16, torch.float32, False)[0], _LOOP, divisible=_STRIDES),
            *(Build(team(65536, torch.bfloat16, *size), _TEAM, divisible=(*_STRIDES, "rows"))
              for size in ((4096, 2, 3), (8192, 4, 3))),
            *(Build(cluster_variant(65536, torch.bfloat16, 2, ctas), _CLUSTER, divisible=_STRIDES, without=NO_CLUSTERS)
              for ctas in (8, 4)),
        ),
    ),
)  # fmt: skip
