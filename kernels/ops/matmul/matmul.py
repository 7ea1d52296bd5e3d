"""Matrix product: C = A @ B, A [M, K] and B [K, N] in any strides, accumulated in f32.

Traffic: A and B read once, C written once: (M K + K N + M N) itemsize bytes; 2 M N K floating-point operations. Large
products are bound by the matrix units, and cuBLAS is what to use for them: this file is the base of those that add
something to a product, and shows what tiles and their order are worth.

Variants: tiles of every useful size; pointers or TMA; one program a tile, or as many programs as multiprocessors
that walk over all tiles and load the next while they store the last (FLATTEN). GROUP_M: see `gemm.tile_at`.
Large products of f32, exactly: by FMA with every register placed by hand (`fma.py`), or by tl.dot; on tensor cores with
f32's accuracy ("bf16x6"): of parts that are made once (`bf16_parts.py`), whose largest tile keeps what is added in f32
every 256 steps in spilled registers.
Few rows and few tiles: K is split over programs (SPLIT_K), whose f32 parts the last of them to end adds
(JOIN), or a second kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.matmul import bf16_parts, fma, gemm
from kernels.ops.matmul.gemm import (
    build_of,
    checked,
    columns,
    descriptor,
    product,
    shared_bytes,
    tile_at,
    tma_takes,
    transposed,
)  # fmt: skip
from kernels.ops.shared.tickets import tickets
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("matmul")
PRECISIONS = (*gemm.PRECISIONS, "bf16x6")


def reference(a: torch.Tensor, b: torch.Tensor, precision: str = "ieee") -> torch.Tensor:
    """What is computed, in plain PyTorch, to the accuracy of the operands' dtype."""
    return a @ b


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, a_row, a_col, b_row, b_col, c_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP_M: tl.constexpr, FLATTEN: tl.constexpr, TMA: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr,
    EVEN_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles BM x BN of C, each by one program. TMA: a, b, c are descriptors, c's block is half a tile wide."""
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        row, col = tile_at(tile, M, N, BM, BN, GROUP_M)
        acc = product(
            a, b, row, col, M, N, K, a_row, a_col, b_row, b_col, BM, BN, BK, TMA, A_T, B_T, EVEN_K, PRECISION
        )  # fmt: skip
        if TMA:
            # In halves, so that the copy on its way out needs half the shared memory and a stage more fits.
            left, right = columns(acc, BM, BN, 2)
            c.store([row, col], left.to(c.dtype))
            c.store([row, col + BN // 2], right.to(c.dtype))
        else:
            rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
            cols = (col + tl.arange(0, BN))[None, :]
            tl.store(c + rows * c_row + cols, acc.to(c.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def matmul_split(
    a, b, parts, c, counters, M, N, K, a_row, a_col, b_row, b_col, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, SPLIT_K: tl.constexpr, GROUP_M: tl.constexpr, JOIN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One part of K of one tile, into parts [SPLIT_K, M, N] of f32.

    JOIN: the last program of a tile adds its parts, in their order, into c. counters: of `tickets`, one a tile.
    """
    tile = tl.program_id(0)
    row, col = tile_at(tile, M, N, BM, BN, GROUP_M)
    part = tl.program_id(1).to(tl.int64)
    share = tl.cdiv(tl.cdiv(K, SPLIT_K), BK) * BK
    first = part * share
    mine = tl.minimum(K - first, share).to(tl.int32)  # none left, or less, for the last ones
    acc = product(
        a + first * a_col, b + first * b_row, row, col, M, N, mine, a_row, a_col, b_row, b_col, BM, BN, BK,
        False, False, False, False, PRECISION,
    )  # fmt: skip
    rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
    cols = (col + tl.arange(0, BN))[None, :]
    inside = (rows < M) & (cols < N)
    tl.store(parts + (part * M + rows) * N + cols, acc, mask=inside)
    if JOIN:
        tl.debug_barrier()  # the part is written before any thread of this program says so
        before = tl.atomic_add(counters + tile, 1, sem="acq_rel", scope="gpu")
        if before % SPLIT_K == SPLIT_K - 1:
            tl.debug_barrier()
            total = tl.zeros((BM, BN), tl.float32)
            for i in tl.static_range(SPLIT_K):
                at = parts + (tl.cast(i, tl.int64) * M + rows) * N + cols
                total += tl.load(at, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(c + rows * N + cols, total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def add_parts(parts, c, n, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    """c = the sum of parts [SPLIT_K, n], in their order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts + part * n + at, mask=at < n, other=0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < n)


def _tile(
    bm: int, bn: int, bk: int, warps: int, stages: int, *, precision: str, even_k: bool, itemsize: int,
    group: int = 8, flatten: bool = False, tma: bool = False, a_t: bool = False, b_t: bool = False,
) -> Variant:  # fmt: skip
    constants: tuple[tuple[str, Any], ...] = (
        ("BM", bm), ("BN", bn), ("BK", bk), ("GROUP_M", group), ("FLATTEN", flatten), ("TMA", tma),
        ("A_T", a_t), ("B_T", b_t), ("EVEN_K", even_k), ("PRECISION", precision),
    )  # fmt: skip
    return Variant(
        matmul_kernel, constants, warps, stages, ("BM", "BN", "BK", "GROUP_M", "FLATTEN", "TMA"),
        shared_bytes(bm, bn, bk, stages, itemsize, bm * bn if tma else 0), bm * bn // (32 * warps) + 40,
    )  # fmt: skip


def space(a: torch.Tensor, b: torch.Tensor, tma: bool, precision: str = "ieee") -> list[Variant]:
    """Variants worth timing for these operands, the likeliest first; tma: whether TMA takes all three matrices."""
    (m, k), n, size = a.shape, b.shape[1], a.element_size()

    def tile(bm: int, bn: int, bk: int, warps: int, stages: int, **more: Any) -> Variant:
        if more.get("tma"):
            more |= {"a_t": transposed(a), "b_t": transposed(b)}
        return _tile(bm, bn, bk, warps, stages, precision=precision, even_k=k % bk == 0, itemsize=size, **more)

    if size == 4:
        parts = bf16_parts.tiles(a, b) if precision == "bf16x6" else []
        dots = [tile(64, 64, 32, 4, 3), tile(128, 64, 32, 4, 3), tile(128, 128, 16, 8, 3), tile(32, 32, 32, 4, 4)]
        return [*parts, *dots, *(fma.tiles(a, b) if precision == "ieee" else ())]
    if m <= 64:
        bm = 16 if m <= 16 else 32 if m <= 32 else 64
        variants = [tile(bm, 64, 128, 4, 3), tile(bm, 64, 64, 4, 5), tile(bm, 32, 128, 4, 4), tile(bm, 128, 64, 4, 4)]
        variants += [tile(bm, 64, 128, 4, 3, tma=True), tile(bm, 128, 64, 4, 4, tma=True)] if tma else []
        # Below a tile for every other multiprocessor of an H200 the parts of K must make up for them.
        variants += [_split(bm, 64, 128, parts, precision) for parts in (2, 4, 8) if n // 64 * parts <= 512]
        joined = ((64, 128, 4), (64, 128, 8), (64, 128, 16), (128, 64, 8), (128, 64, 16), (128, 64, 32), (64, 64, 16))
        return variants + [
            _split(bm, bn, bk, parts, precision, join=True)
            for bn, bk, parts in joined if n // bn * parts <= 512 and k >= 256 * parts
        ]  # fmt: skip
    if m * n < 132 * 64 * 128:
        variants = [tile(64, 64, 64, 4, 4), tile(64, 128, 64, 4, 4), tile(128, 128, 64, 8, 3)]
        return variants + [_split(64, 64, 64, parts, precision) for parts in (4,) if k >= 2048]
    variants = [tile(128, 256, 64, 8, 3), tile(128, 128, 64, 4, 3)]
    if tma:
        variants += [
            tile(128, 256, 64, 8, 4, tma=True, flatten=True), tile(128, 256, 64, 8, 3, tma=True, flatten=True),
            tile(256, 128, 64, 8, 4, tma=True, flatten=True), tile(128, 256, 64, 8, 4, tma=True),
            tile(128, 128, 64, 4, 3, tma=True), tile(128, 256, 64, 8, 4, tma=True, flatten=True, group=16),
        ]  # fmt: skip
    else:
        variants += [tile(256, 128, 64, 8, 3), tile(128, 128, 32, 4, 4)]
    return variants


def _split(bm: int, bn: int, bk: int, parts: int, precision: str, join: bool = False) -> Variant:
    constants = (
        ("BM", bm), ("BN", bn), ("BK", bk), ("SPLIT_K", parts), ("GROUP_M", 8), ("JOIN", join),
        ("PRECISION", precision),
    )  # fmt: skip
    shared = shared_bytes(bm, bn, bk, 4, 2)
    return Variant(matmul_split, constants, 4, 4, ("BM", "BN", "BK", "SPLIT_K", "JOIN"), shared)


def order_of_programs(a: torch.Tensor, b: torch.Tensor) -> dict[str, Variant]:
    """The same tiles in plain and in grouped order, and the smallest tile: what the choice of either is worth."""
    size, k = a.element_size(), a.shape[1]

    def tile(bm: int, bn: int, bk: int, warps: int, group: int) -> Variant:
        return _tile(bm, bn, bk, warps, 3, precision="ieee", even_k=k % bk == 0, itemsize=size, group=group)

    return {
        "plain order": tile(128, 256, 64, 8, 1),
        "grouped order": tile(128, 256, 64, 8, 8),
        "smallest tile": tile(16, 16, 16, 1, 8),
    }


def launch(variant: Variant, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Run one variant on A [M, K] and B [K, N] into C [M, N], whose rows are contiguous."""
    (m, k), n = a.shape, b.shape[1]
    if variant.kernel is fma.fma_product:
        fma.launch(variant, a, b, c)
        return
    if variant.kernel is bf16_parts.parts_product:
        bf16_parts.launch(variant, a, b, c)
        return
    bm, bn = variant["BM"], variant["BN"]
    tiles = triton.cdiv(m, bm) * triton.cdiv(n, bn)
    strides = (*a.stride(), *b.stride())
    if variant.kernel is matmul_split:
        count = variant["SPLIT_K"]
        parts = torch.empty((count, m, n), dtype=torch.float32, device=a.device)
        join = variant["JOIN"]
        counters = tickets(a.device, count, tiles) if join else parts
        matmul_split[(tiles, count)](a, b, parts, c, counters, m, n, k, *strides, **variant.meta)
        if join:
            return
        add_parts[(triton.cdiv(m * n, 1024),)](parts, c, m * n, SPLIT_K=count, BLOCK=1024, num_warps=4)
        return
    grid = (min(tiles, multiprocessors(a.device)),) if variant["FLATTEN"] else (tiles,)
    operands: tuple[Any, ...] = (a, b, c)
    if variant["TMA"]:
        bk = variant["BK"]
        operands = (descriptor(a, (bm, bk)), descriptor(b, (bk, bn)), descriptor(c, (bm, bn // 2)))
    matmul_kernel[grid](*operands, m, n, k, *strides, c.stride(0), **variant.meta)


def matmul(a: torch.Tensor, b: torch.Tensor, precision: str = "ieee") -> torch.Tensor:
    """A [M, K] @ B [K, N], both f32, f16 or bf16, in any strides; accumulated in f32, the result contiguous.

    precision: of products of f32, one of PRECISIONS; "bf16x6", six products of bf16 parts, takes 6 bytes of workspace
    for an element of A and B, and keeps fewer bits of numbers below 2^-110. Raises TypeError for other dtypes,
    ValueError for shapes that do not fit or another precision.
    """
    m, n, k = checked(a, b, precision, "matmul", PRECISIONS)
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if c.numel() == 0:
        return c
    tma = k > 0 and tma_takes(a, b, c)
    exact = a.dtype == torch.float32 and precision == "ieee"
    key = (m, n, k, a.dtype, precision, tma, *(min(s, 2) for s in (*a.stride(), *b.stride())))
    if exact:  # by which `fma.tiles` are offered
        key = (*key, fma.copy_of_a(a, b))
    variant = tuner.pick(key, lambda: space(a, b, tma, precision), launch, a, b, c)
    launch(variant, a, b, c)
    return c


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on: results of size 1. transposed: of which matrices the columns are contiguous."""
    m, n, k, across = c["m"], c["n"], c["k"], c.get("transposed", "")
    scale = max(k, 1) ** -0.5
    a = make.normal((k, m), c.torch_dtype).T if "a" in across else make.normal((m, k), c.torch_dtype)
    b = make.normal((n, k), c.torch_dtype, scale).T if "b" in across else make.normal((k, n), c.torch_dtype, scale)
    return (a, b, c["precision"]) if c.get("precision") else (a, b)


def cost(c: Case) -> Cost:
    """Every matrix once."""
    m, n, k = c["m"], c["n"], c["k"]
    return Cost((m * k + k * n + m * n) * c.itemsize, 2 * m * n * k)


A = torch.empty((8192, 4096), dtype=torch.bfloat16, device="meta")
B = torch.empty((4096, 16384), dtype=torch.bfloat16, device="meta")


def _build(v: Variant) -> Build:
    return build_of(v, ("a", "b", "c"), {"c": (v["BM"], v["BN"] // 2)}, None, ("c_row",))


def _build_split(v: Variant) -> Build:
    return build_of(v, ("a", "b"), None, {"parts": "*fp32", "c": "*bf16", "counters": "*i64"})


SHAPES = ((8192, 4096, 16384), (4096, 4096, 4096), (64, 4096, 14336))
OPERATIONS = (
    Operation(
        name="matmul", run=matmul, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", m=65_600, k=64, n=32768),
        # Of parts: C, and A with its parts.
        also_beyond=(
            case("f32", m=65_600, k=64, n=32768, precision="bf16x6"),
            case("f32", m=270_000, k=8192, n=64, precision="bf16x6"),
        ),
        checks=(
            # Tiles enough for those of `fma.py`, which the interpreter does not have.
            case("f32", m=1301, k=37, n=2064), case("f32", m=1296, k=21, n=2064, transposed="a"),
            *(case(d, m=m, k=k, n=n) for d in ("f32", "f16")
              for m, k, n in ((1, 1, 1), (0, 3, 4), (3, 0, 4), (3, 4, 0), (33, 35, 70), (64, 64, 64))),
            *(case("f32", m=m, k=k, n=n, transposed=t, precision="bf16x6")
              for m, k, n, t in ((70, 100, 67, ""), (40, 48, 72, "a"), (33, 70, 40, "b"), (600, 520, 484, "ab"))),
            case("f16", m=1, k=300, n=40), case("f16", m=16, k=4096, n=192),
            case("f16", m=5, k=64, n=3, transposed="b"),
            case("f16", m=40, k=48, n=72, transposed="a"), case("f32", m=40, k=33, n=65, transposed="ab"),
            case("bf16", m=130, k=72, n=264), case("bf16", m=64, k=64, n=64, transposed="b"),
            case("f16", m=130, k=72, n=136, transposed="b"),
        ),
        cases=(
            *(case("bf16", "mm", m=m, k=k, n=n) for m, k, n in SHAPES),
            case("bf16", region="square_gemm_8k", m=8192, k=8192, n=8192),
            case("f32", region="fp32_matmul_no_tf32", m=4096, k=4096, n=4096),
            case("f32", region="fp32_matmul_no_tf32", m=4096, k=4096, n=4096, precision="bf16x6"),
            case("bf16", m=16, k=16384, n=1024), case("f16", m=8192, k=4096, n=16384, transposed="b"),
        ),
        builds=(
            *(_build(v) for v in (space(A, B, True)[2], space(A, B, True)[5], space(A, B, False)[3])),
            *(_build_split(v) for v in (_split(16, 64, 128, 16, "ieee", True), _split(16, 128, 64, 16, "ieee", True))),
            *fma.builds(), *bf16_parts.builds(),
        ),
        forms=("plain", "strided", "misaligned", "special"), wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
