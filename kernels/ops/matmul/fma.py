"""Exact product of f32 without tensor cores, in Gluon: "ieee" of `tl.dot`, with each register placed by hand.

Bound by the issue of FMA and by what they read. An H200's scheduler issues one instruction a clock, and its registers
lie in two banks that give one operand a clock each, of the three that an FMA takes: the third must be the one before
it read too. So a thread holds 16 rows by 8 columns of C: a step of K is 6 loads of 16 bytes from shared memory and 128
FMA, one of whose operands stays for many of them. `tl.dot` gives a thread 4 x 4 numbers of C in a place and reads A
along K, which costs more loads, and at 64 numbers a thread and less more reads of registers.

Both operands lie in shared memory step of K by step of K, so that both are read 16 bytes at a time. So are they copied
where memory has them so, as B's rows and those of A's transpose are. What is contiguous along K goes 4 bytes at a time:
a warp's copy occupies the path to shared memory for about 16 clocks, as fitted to the times of seven tiles, and for
less where its lanes are 2 steps of K by 16 rows. On an H200 with M, N, K = 4096 the whole takes 2.73 ms so, 2.78 and
2.80 by 8 x 4 and 4 x 8 lanes, `tl.dot`'s best 3.01. Tried beside it: 16 bytes along K through registers (2.78), as they
lie (3.09), and a kernel before this that turns A into memory of its own (2.68, of it 0.03 to turn).
Lanes of a warp alternate between rows and columns: loads of 16 bytes by neighbours in pairs then meet in one place, and
half as many passes through shared memory do.

Gluon is an experimental part of Triton: where it is not there, or does not build this, `BuildError` is raised and the
kernels of `tl.dot` are left. It has no interpreter, so none is offered there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
from triton import knobs

from kernels.spec import Build
from kernels.tuning import BuildError, Variant

try:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language.nvidia.ampere import async_copy
except ImportError:
    gluon = gl = async_copy = None


def _jit(function: Callable[..., Any]) -> Any:
    """A Gluon kernel, or the function as it is where there is no Gluon."""
    return function if gluon is None else gluon.jit(function)


def _constant(function: Callable[..., Any]) -> Any:
    """What kernels may call for a constant, as layouts are."""
    return function if gluon is None else gluon.constexpr_function(function)


@_constant
def accumulator(BM: int, BN: int, WARPS_M: int, WARPS_N: int) -> Any:
    """Where the numbers of a tile BM x BN of C are: 4 x 4 in a place, as many places a thread as it takes.

    A warp's lanes are 4 x 8 places, its tile is contiguous. Registers count rows first: the compiler then keeps a
    column's operand through all rows of a thread.
    """
    down, across = 16, 32
    rows, columns = [[1, 0], [2, 0]], [[0, 1], [0, 2]]
    while down * WARPS_M < BM:
        rows.append([down, 0])
        down *= 2
    while across * WARPS_N < BN:
        columns.append([0, across])
        across *= 2
    warps = []
    while across < BN:
        warps.append([0, across])
        across *= 2
    while down < BM:
        warps.append([down, 0])
        down *= 2
    lanes = [[4, 0], [0, 4], [0, 8], [0, 16], [8, 0]]
    return gl.DistributedLinearLayout(rows + columns, lanes, warps, [], [BM, BN])


@_constant
def copies(ROWS: int, WARPS: int, COPY: str) -> Any:
    """Which thread copies what of [steps of K, ROWS].

    COPY: "wide", 16 bytes along the rows; "depth", 4 bytes along K.
    """
    if COPY == "wide":
        lanes = min(32, ROWS // 4)
        return gl.BlockedLayout([1, 4], [32 // lanes, lanes], [WARPS, 1], [1, 0])
    return gl.BlockedLayout([1, 1], [2, 16], [1, WARPS], [0, 1])


@_jit
def addresses(
    x, first, count, row_stride, k_stride, ROWS: gl.constexpr, BK: gl.constexpr, COPY: gl.constexpr,
    LAYOUT: gl.constexpr,
):  # fmt: skip
    """Addresses [BK, ROWS] of the first steps of K. Rows beyond `count` wrap around: they need no mask."""
    k = gl.arange(0, BK, gl.SliceLayout(1, LAYOUT))
    row = (first + gl.arange(0, ROWS, gl.SliceLayout(0, LAYOUT))) % count
    if COPY == "wide":  # count is a multiple of 4, as `first` is, so no four of them are torn
        row = gl.max_contiguous(gl.multiple_of(row, 4), 4)
    return x + row.to(gl.int64)[None, :] * row_stride + k.to(gl.int64)[:, None] * k_stride


@_jit
def fma_product(
    a, b, c, M, N, K, a_row, a_col, b_row, b_col, c_row, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    WARPS_M: gl.constexpr, WARPS_N: gl.constexpr, SLOTS: gl.constexpr, GROUP_M: gl.constexpr, A_COPY: gl.constexpr,
):  # fmt: skip
    """A tile BM x BN of C [M, N] a program; rows of C contiguous. SLOTS: tiles of A and B in shared memory."""
    ACC: gl.constexpr = accumulator(BM, BN, WARPS_M, WARPS_N)
    A_LAYOUT: gl.constexpr = copies(BM, WARPS_M * WARPS_N, A_COPY)
    B_LAYOUT: gl.constexpr = copies(BN, WARPS_M * WARPS_N, "wide")
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    # As gemm.tile_at: rows of tiles in groups, to reuse B in L2.
    tile = gl.program_id(0)
    columns = gl.cdiv(N, BN)
    group = tile // (GROUP_M * columns) * GROUP_M
    height = gl.minimum(gl.cdiv(M, BM) - group, GROUP_M)
    within = tile % (GROUP_M * columns)
    row = (group + within % height) * BM
    col = within // height * BN
    at_a = addresses(a, row, M, a_row, a_col, BM, BK, A_COPY, A_LAYOUT)
    at_b = addresses(b, col, N, b_col, b_row, BN, BK, "wide", B_LAYOUT)
    ka = gl.arange(0, BK, gl.SliceLayout(1, A_LAYOUT))[:, None]
    kb = gl.arange(0, BK, gl.SliceLayout(1, B_LAYOUT))[:, None]
    step_a = gl.cast(a_col, gl.int64) * BK
    step_b = gl.cast(b_row, gl.int64) * BK
    # Buffers of their own: the compiler then sees that a copy into one needs no barrier for loads from another.
    of_a = ()
    of_b = ()
    for _ in gl.static_range(SLOTS):
        of_a = of_a + (gl.allocate_shared_memory(gl.float32, [BK, BM], PLAIN),)  # noqa: RUF005 (Triton has no *)
        of_b = of_b + (gl.allocate_shared_memory(gl.float32, [BK, BN], PLAIN),)  # noqa: RUF005
    for i in gl.static_range(SLOTS):  # what is masked off is filled with zeros
        async_copy.async_copy_global_to_shared(of_a[i], at_a, mask=ka < K - i * BK)
        async_copy.async_copy_global_to_shared(of_b[i], at_b, mask=kb < K - i * BK)
        async_copy.commit_group()
        at_a += step_a
        at_b += step_b
    acc = gl.zeros([BM, BN], gl.float32, ACC)
    async_copy.wait_group(SLOTS - 1)
    x = of_a[0].slice(0, 1, 0).permute([1, 0]).load(ACC)  # type: ignore[misc]
    y = of_b[0].slice(0, 1, 0).load(ACC)  # type: ignore[misc]
    for k in range(0, K, BK * SLOTS):
        for s in gl.static_range(SLOTS):
            for i in gl.static_range(BK):
                # Numbers of the next step are loaded before those of this one are used.
                u = x
                v = y
                if i == BK - 1:
                    async_copy.wait_group(SLOTS - 2)
                    x = of_a[(s + 1) % SLOTS].slice(0, 1, 0).permute([1, 0]).load(ACC)
                    y = of_b[(s + 1) % SLOTS].slice(0, 1, 0).load(ACC)
                    # Behind the barrier that follows the wait nobody reads this slot any more.
                    left = K - k - (SLOTS + s) * BK
                    async_copy.async_copy_global_to_shared(of_a[s], at_a, mask=ka < left)
                    async_copy.async_copy_global_to_shared(of_b[s], at_b, mask=kb < left)
                    async_copy.commit_group()
                    at_a += step_a
                    at_b += step_b
                else:
                    x = of_a[s].slice(i + 1, 1, 0).permute([1, 0]).load(ACC)
                    y = of_b[s].slice(i + 1, 1, 0).load(ACC)
                acc += u * v
    async_copy.wait_group(0)
    rows = row + gl.arange(0, BM, gl.SliceLayout(1, ACC))[:, None]
    cols = col + gl.arange(0, BN, gl.SliceLayout(0, ACC))[None, :]
    gl.store(c + rows.to(gl.int64) * c_row + cols, acc, mask=(rows < M) & (cols < N))


def tile(bm: int, bn: int, bk: int, warps: tuple[int, int], slots: int, a_copy: str) -> Variant:
    """A variant: warps down and across a tile."""
    constants: tuple[tuple[str, Any], ...] = (
        ("BM", bm), ("BN", bn), ("BK", bk), ("WARPS_M", warps[0]), ("WARPS_N", warps[1]), ("SLOTS", slots),
        ("GROUP_M", 8), ("A_COPY", a_copy),
    )  # fmt: skip
    count = warps[0] * warps[1]
    shared = slots * (bm + bn) * bk * 4
    return Variant(fma_product, constants, count, None, ("BM", "BN", "BK", "WARPS_M", "SLOTS"), shared,
                   bm * bn // (32 * count) + 96)  # fmt: skip


FASTER = {"depth": (tile(128, 256, 8, (4, 2), 2, "depth"),),
          "wide": (tile(128, 256, 8, (4, 2), 3, "wide"), tile(128, 256, 8, (4, 2), 2, "wide"))}  # fmt: skip
"""By how A is copied: what took less time than `tl.dot` on an H200, at 4096 x 4096 x 4096 or 2000 x 4096 x 2000."""
LEAST_TILES = 96
"""Fewer tiles than this leave too many multiprocessors without work: smaller ones of `tl.dot` are better."""


def tiles(a: torch.Tensor, b: torch.Tensor) -> list[Variant]:
    """Variants worth timing for A [M, K] @ B [K, N] in f32, the likeliest first; none where they can't be run."""
    if gluon is None or knobs.runtime.interpret or not _copies_itself(a.device):
        return []
    (m, k), n = a.shape, b.shape[1]
    return [
        v for v in FASTER.get(copy_of_a(a, b), ())
        if k >= v["BK"] and triton.cdiv(m, v["BM"]) * triton.cdiv(n, v["BN"]) >= LEAST_TILES
    ]  # fmt: skip


def copy_of_a(a: torch.Tensor, b: torch.Tensor) -> str:
    """How A is copied (see `copies`) where B's rows are, 16 bytes at a time; "" where one of them can't be."""
    if not _wide(b, b.shape[1], b.stride(1), b.stride(0)):
        return ""
    if _wide(a, a.shape[0], a.stride(0), a.stride(1)):
        return "wide"
    return "depth" if a.stride(1) == 1 else ""


def _wide(x: torch.Tensor, count: int, row_stride: int, k_stride: int) -> bool:
    """Whether 16 bytes along `count` rows are in one place: of strides Triton knows only whether 16 divides them."""
    return row_stride == 1 and count % 4 == 0 and k_stride % 16 == 0 and x.data_ptr() % 16 == 0


def _copies_itself(device: torch.device) -> bool:
    """Whether this is a GPU with cp.async."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def builds() -> tuple[Build, ...]:
    """As compiled offline: A's rows contiguous, and its columns; sizes and strides that 16 divides."""
    made = []
    for variant, ones in ((FASTER["depth"][0], ("a_col", "b_col")), (FASTER["wide"][0], ("a_row", "b_col"))):
        strides = tuple(s for s in ("a_row", "a_col", "b_row", "b_col", "c_row") if s not in ones)
        signature = {**dict.fromkeys(("a", "b", "c"), "*fp32"), **dict.fromkeys(("M", "N", "K", *strides), "i32")}
        made.append(Build(
            replace(variant, constants=variant.constants + tuple((s, 1) for s in ones)), signature,
            ("M", "N", "K", *strides), dict.fromkeys(("gfx942", "gfx950"), "has no cp.async"),
        ))  # fmt: skip
    return tuple(made)


_built: set[tuple[Variant, torch.device]] = set()
"""What was built for a GPU, and need not be asked for again."""


def launch(variant: Variant, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Run one variant into C [M, N], whose rows are contiguous.

    Raises BuildError where this Triton does not build it.
    """
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, variant["BM"]) * triton.cdiv(n, variant["BN"]),)
    arguments = (a, b, c, m, n, k, *a.stride(), *b.stride(), c.stride(0))
    if (variant, a.device) not in _built:
        try:
            fma_product.warmup(*arguments, grid=grid, **variant.meta)
        except Exception as fault:  # Triton raises many kinds; each means that it does not take this
            raise BuildError(f"{variant}: {type(fault).__name__}: {str(fault)[:200]}") from fault
        _built.add((variant, a.device))
    fma_product[grid](*arguments, **variant.meta)
