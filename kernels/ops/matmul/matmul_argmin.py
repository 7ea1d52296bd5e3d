"""Nearest row of a codebook: argmin_j |a_i - b_j|², of A [M, K] and a codebook B [N, K], without the distances.

|a|² is the same for every j, so what is compared is |b_j|² - 2 a_i . b_j: a matrix product whose M N results never
leave registers. Traffic: A and B read once (B once more for its norms), eight bytes a row written; 2 M N K
floating-point operations. Each program walks over STRIP tiles of its rows; a second kernel joins the strips.
Ties go to the lowest index; a row that has NaN among its distances gets the first of those, as torch.argmin has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import build_of, checked, descriptor, product, strips, tma_takes
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("matmul_argmin")


def reference(a: torch.Tensor, codebook: torch.Tensor) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return (wide(codebook).square().sum(1) - 2 * wide(a @ codebook.T)).argmin(1)


@triton.jit
def squared_norms(
    b, norms, turned, N, K, b_row, b_col, ROWS: tl.constexpr, BLOCK: tl.constexpr, TURN: tl.constexpr
):  # fmt: skip
    """Sums of squares of ROWS rows of b [N, K], in f32. TURN: and the same rows as columns of turned [K, N]."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    at = b + rows.to(tl.int64)[:, None] * b_row + cols.to(tl.int64)[None, :] * b_col
    for k in range(0, K, BLOCK):
        inside = (rows[:, None] < N) & (k + cols[None, :] < K)
        value = tl.load(at, mask=inside, other=0.0)
        if TURN:
            tl.store(turned + (k + cols).to(tl.int64)[None, :] * N + rows[:, None], value, mask=inside)
        x = value.to(tl.float32)
        total += x * x
        at += BLOCK * tl.cast(b_col, tl.int64)
    tl.store(norms + rows, tl.sum(total, 1), mask=rows < N)


@triton.jit
def matmul_argmin_kernel(
    a, b, norms, lows, where, M, N, K, a_row, a_col, b_row, b_col, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, STRIP: tl.constexpr, FLATTEN: tl.constexpr, TMA: tl.constexpr, A_T: tl.constexpr,
    B_T: tl.constexpr, EVEN_K: tl.constexpr, WHOLE_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """STRIP tiles of BM rows: the least of norms[j] - 2 a . b_j and its j. b is the codebook's transpose, [K, N]."""
    down = tl.cdiv(M, BM)
    row, strip = tl.program_id(0) % down * BM, tl.program_id(0) // down
    first = strip * STRIP * BN
    low = tl.full((BM,), float("inf"), tl.float32)
    index = tl.zeros((BM,), tl.int32) + first
    for col in tl.range(first, tl.minimum(first + STRIP * BN, N), BN, flatten=FLATTEN):
        x = product(
            a, b, row, col, M, N, K, a_row, a_col, b_row, b_col, BM, BN, BK, TMA, A_T, B_T, EVEN_K, PRECISION
        )  # fmt: skip
        cols = col + tl.arange(0, BN)
        x = tl.load(norms + cols, mask=cols < N, other=float("inf"))[None, :] - 2.0 * x
        x = tl.where(x != x, float("-inf"), x)  # NaN comes before all
        if not WHOLE_N:
            x = tl.where(cols[None, :] < N, x, float("inf"))
        least = tl.min(x, 1)
        at = tl.min(tl.where(x == least[:, None], cols[None, :], 2147483647), 1)
        index = tl.where(least < low, at, index)
        low = tl.minimum(low, least)
    rows = row + tl.arange(0, BM)
    into = strip.to(tl.int64) * M + rows
    tl.store(lows + into, low, mask=rows < M)
    tl.store(where + into, index, mask=rows < M)


@triton.jit
def join_strips(lows, where, y, M, strips, BLOCK: tl.constexpr):
    """y [M] of lows and where [strips, M], the first strip of the least."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < M
    low = tl.load(lows + rows, mask=inside, other=0.0)
    index = tl.load(where + rows, mask=inside, other=0)
    at = rows.to(tl.int64)
    for _ in range(1, strips):
        at += M
        mine = tl.load(lows + at, mask=inside, other=0.0)
        index = tl.where(mine < low, tl.load(where + at, mask=inside, other=0), index)
        low = tl.minimum(low, mine)
    tl.store(y + rows, index.to(tl.int64), mask=inside)


def space(a: torch.Tensor, b: torch.Tensor, tma: bool, precision: str = "ieee") -> list[Variant]:
    """Variants worth timing for A [M, K] and the codebook's transpose [K, N], the likeliest first."""
    variants = strips(matmul_argmin_kernel, a, b, tma, precision, ())
    if a.element_size() > 2:
        small = replace(_with(variants[0], BK=16, EVEN_K=a.shape[1] % 16 == 0), stages=4)
        variants = [_with(v, STRIP=strip) for strip in (8, 16) for v in (*variants, small)]
    return variants


def _with(variant: Variant, **constants: Any) -> Variant:
    return replace(variant, constants=tuple((dict(variant.constants) | constants).items()))


def launch(variant: Variant, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on A [M, K] and the codebook's transpose [K, N] into y [M] of int64."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    count = triton.cdiv(n, bn * variant["STRIP"])
    norms = torch.empty((n,), dtype=torch.float32, device=a.device)
    # Without tensor cores, threads read the codebook from shared memory along N: along K they meet in the same banks.
    turn = a.element_size() > 2 and b.stride(1) != 1
    turned = torch.empty((k, n), dtype=b.dtype, device=b.device) if turn else b
    squared_norms[(triton.cdiv(n, 16),)](
        b, norms, turned, n, k, b.stride(1), b.stride(0), ROWS=16, BLOCK=64 if turn else 128, TURN=turn, num_warps=4
    )
    b = turned
    lows = torch.empty((count, m), dtype=torch.float32, device=a.device)
    where = torch.empty((count, m), dtype=torch.int32, device=a.device)
    x, z = (descriptor(a, (bm, bk)), descriptor(b, (bk, bn))) if variant["TMA"] else (a, b)
    matmul_argmin_kernel[(triton.cdiv(m, bm) * count,)](
        x, z, norms, lows, where, m, n, k, *a.stride(), *b.stride(), **variant.meta
    )
    join_strips[(triton.cdiv(m, 128),)](lows, where, y, m, count, BLOCK=128, num_warps=4)


def matmul_argmin(a: torch.Tensor, codebook: torch.Tensor, precision: str = "ieee") -> torch.Tensor:
    """Index of the nearest row of the codebook [N, K] for every row of A [M, K], as int64 [M].

    Both f32, f16 or bf16, in any strides; compared in f32. precision: of products of f32. Raises TypeError for other
    dtypes, ValueError for shapes that do not fit and for an empty codebook.
    """
    if codebook.dim() != 2 or codebook.shape[0] == 0:
        raise ValueError(f"matmul_argmin takes a codebook [N, K] of one row or more, not {[*codebook.shape]}")
    b = codebook.T
    m, n, k = checked(a, b, precision, "matmul_argmin")
    y = torch.empty((m,), dtype=torch.int64, device=a.device)
    if m == 0:
        return y
    tma = k > 0 and tma_takes(a, b)
    key = (m, n, k, a.dtype, precision, tma, *(min(s, 2) for s in (*a.stride(), *b.stride())))
    variant = tuner.pick(key, lambda: space(a, b, tma, precision), launch, a, b, y)
    launch(variant, a, b, y)
    return y


def agree(outputs: Sequence[torch.Tensor], arguments: Sequence[Any]) -> None:
    """The distance at each index is the least one, but for what f32 loses in a sum of K products."""
    a, codebook = (x.double() for x in arguments[:2])
    (index,) = outputs
    assert index.numel() == a.shape[0] and bool(((index >= 0) & (index < codebook.shape[0])).all()), "out of range"
    # Rows at a time: the distances in float64 of a whole case would not fit.
    for start in range(0, a.shape[0], 4096):
        part, at = a[start : start + 4096], index[start : start + 4096]
        size = codebook.square().sum(1)
        distance = size - 2 * part @ codebook.T
        chosen = distance.gather(1, at[:, None])[:, 0]
        room = 2e-6 * (size.max() + part.norm(dim=1) * size.max().sqrt())
        worse = chosen - distance.amin(1) - room
        assert bool((worse <= 0).all()), f"{int((worse > 0).sum())} rows have a nearer one, by {float(worse.max()):.2e}"


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments to try it on."""
    return make.normal((c["m"], c["k"]), c.torch_dtype), make.normal((c["n"], c["k"]), c.torch_dtype)


def cost(c: Case) -> Cost:
    """A and the codebook once, and the indices."""
    m, n, k = c["m"], c["n"], c["k"]
    return Cost((m + n) * k * c.itemsize + 8 * m, 2 * m * n * k)


A = torch.empty((65536, 256), dtype=torch.bfloat16, device="meta")
B = torch.empty((256, 8192), dtype=torch.bfloat16, device="meta").T.contiguous().T
BESIDE = {"norms": "*fp32", "lows": "*fp32", "where": "*i32"}
A_EXACT = torch.empty((65536, 64), dtype=torch.float32, device="meta")
B_EXACT = torch.empty((64, 1024), dtype=torch.float32, device="meta")


def _exact(variant: Variant) -> Build:
    made = build_of(variant, beside=BESIDE)
    return replace(made, signature={**made.signature, "a": "*fp32", "b": "*fp32"})


OPERATIONS = (
    Operation(
        name="matmul_argmin", run=matmul_argmin, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", m=8_400_000, k=256, n=64),
        checks=(
            *(case(d, m=m, k=k, n=n) for d in ("f32", "f16")
              for m, k, n in ((1, 1, 1), (5, 40, 300), (0, 4, 4), (70, 33, 65))),
            case("bf16", m=64, k=64, n=512), case("f16", m=40, k=72, n=1100),
        ),
        cases=(case("bf16", m=65536, k=256, n=8192), case("f32", m=65536, k=64, n=1024)),
        builds=(
            *(build_of(space(A, B, tma)[i], beside=BESIDE, b_transposed=True)
              for tma, i in ((True, 0), (True, 2), (False, 2))),
            *(_exact(v) for v in space(A_EXACT, B_EXACT, False)[:2]),
        ),
        wrong_interpreted=("bf16",), indices=(0,), agree=agree,
    ),
)  # fmt: skip
