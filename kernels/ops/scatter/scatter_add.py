"""Rows added where an index says: y[target[e]] += weight[e] * x[source[e]], y from zero. index_add, and graph messages.

Reference: gather, scale, index_add. Traffic: a row of x read for each edge, y written once, (edges + rows) * columns *
itemsize bytes. Edges are first put in the order of their targets, by counting (each edge's rank by an atomic on an
integer, a scan, a permutation: some twenty bytes an edge), then each program sums the rows of one target in f32 and
writes it once: no atomics on floats, nothing to clear, no sum beyond f32's error in bf16. A target with more edges
than a program takes gets partial sums by blocks of edges. Ranks come in no fixed order: `deterministic` sorts instead.
For f32 the atomic way is tried too: one launch and as many atomics as elements.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("scatter_add")

LIMIT = 512
"""Edges of one target that one program sums; also the block of edges of a partial sum."""


def reference(
    x: torch.Tensor, target: torch.Tensor, rows: int, source: torch.Tensor | None = None,
    weight: torch.Tensor | None = None, alpha: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch: summed in f32, since index_add in 16 bits would round every addition."""
    messages = wide(x if source is None else x[source])
    if weight is not None:
        messages = messages * wide(weight)[:, None]
    y = torch.zeros(rows, x.shape[1], dtype=messages.dtype, device=x.device)
    return y.index_add(0, target, messages, alpha=alpha).to(x.dtype)


@triton.jit
def rank_kernel(target_ptr, counts_ptr, ranks_ptr, edges, rows, BLOCK: tl.constexpr):
    """Each edge's place among those of its target, and how many each target has. Targets out of range are left out."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + e, mask=e < edges, other=-1).to(tl.int64)
    valid = (target >= 0) & (target < rows)
    rank = tl.atomic_add(counts_ptr + target, 1, mask=valid, sem="relaxed")
    tl.store(ranks_ptr + e, rank, mask=valid)


@triton.jit
def order_kernel(target_ptr, ends_ptr, ranks_ptr, order_ptr, edges, rows, BLOCK: tl.constexpr):
    """Edges in the order of their targets. ends: [rows], where the edges of each target end."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + e, mask=e < edges, other=-1).to(tl.int64)
    valid = (target >= 0) & (target < rows)
    end = tl.load(ends_ptr + target, mask=valid, other=0)
    rank = tl.load(ranks_ptr + e, mask=valid, other=0)
    tl.store(order_ptr + (end - 1 - rank), e.to(tl.int32), mask=valid)


@triton.jit
def sum_of_edges(
    x_ptr, order_ptr, source_ptr, weight_ptr, begin, stop, col, present, stride, EDGES: tl.constexpr,
    BLOCK: tl.constexpr, ORDERED: tl.constexpr, GATHERED: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Sum over the edges at places begin to stop, [BLOCK] in f32, EDGES rows at a time."""
    total = tl.zeros((EDGES, BLOCK), tl.float32)
    for start in range(begin, stop, EDGES):
        place = start + tl.arange(0, EDGES)
        inside = place < stop
        e = tl.load(order_ptr + place, mask=inside, other=0).to(tl.int64) if ORDERED else place.to(tl.int64)
        row = tl.load(source_ptr + e, mask=inside, other=0).to(tl.int64) if GATHERED else e
        at = x_ptr + row[:, None] * stride + col[None, :]
        x = tl.load(at, mask=inside[:, None] & present[None, :], other=0.0).to(tl.float32)
        if WEIGHTED:
            x *= tl.load(weight_ptr + e, mask=inside, other=0.0).to(tl.float32)[:, None]
        total += x
    return tl.sum(total, 0)


@triton.jit
def excess_kernel(
    x_ptr, order_ptr, source_ptr, weight_ptr, target_ptr, ends_ptr, parts_ptr, rows, columns, stride,
    LIMIT: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr, ORDERED: tl.constexpr, GATHERED: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """LIMIT places in order a program: the sum of those that belong to a target's edges beyond its first LIMIT."""
    first = tl.program_id(0) * LIMIT
    if first < tl.load(ends_ptr + rows - 1):
        e = tl.load(order_ptr + first).to(tl.int64) if ORDERED else first.to(tl.int64)
        target = tl.load(target_ptr + e).to(tl.int64)
        stop = tl.load(ends_ptr + target)
        begin = tl.load(ends_ptr + target - 1, mask=target > 0, other=0)
        begin = tl.maximum(begin + LIMIT, first)
        stop = tl.minimum(stop, first + LIMIT)
        if begin < stop:
            col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            total = sum_of_edges(
                x_ptr, order_ptr, source_ptr, weight_ptr, begin, stop, col, col < columns, stride, EDGES, BLOCK,
                ORDERED, GATHERED, WEIGHTED,
            )  # fmt: skip
            tl.store(parts_ptr + tl.program_id(0).to(tl.int64) * columns + col, total, mask=col < columns)


@triton.jit
def sum_kernel(
    x_ptr, order_ptr, source_ptr, weight_ptr, ends_ptr, parts_ptr, y_ptr, columns, stride, alpha, LIMIT: tl.constexpr,
    EDGES: tl.constexpr, BLOCK: tl.constexpr, ORDERED: tl.constexpr, GATHERED: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of one target a program: its first LIMIT edges, and the partial sums of the others."""
    target = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    stop = tl.load(ends_ptr + target)
    begin = tl.load(ends_ptr + target - 1, mask=target > 0, other=0)
    total = sum_of_edges(
        x_ptr, order_ptr, source_ptr, weight_ptr, begin, tl.minimum(stop, begin + LIMIT), col, col < columns, stride,
        EDGES, BLOCK, ORDERED, GATHERED, WEIGHTED,
    )  # fmt: skip
    if stop - begin > LIMIT:
        at = parts_ptr + (begin // LIMIT + 1).to(tl.int64) * columns + col
        for _ in range((stop - 1) // LIMIT - begin // LIMIT):
            total += tl.load(at, mask=col < columns, other=0.0)
            at += columns
    tl.store(y_ptr + target * columns + col, total * alpha, mask=col < columns)


@triton.jit
def atomic_kernel(
    x_ptr, source_ptr, weight_ptr, target_ptr, y_ptr, edges, rows, columns, stride, alpha, EDGES: tl.constexpr,
    BLOCK: tl.constexpr, GATHERED: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """EDGES edges a program, each element added where it belongs in a cleared f32 y."""
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    target = tl.load(target_ptr + e, mask=e < edges, other=-1).to(tl.int64)
    valid = (target >= 0) & (target < rows)
    row = tl.load(source_ptr + e, mask=valid, other=0).to(tl.int64) if GATHERED else e
    inside = valid[:, None] & (col < columns)
    x = alpha * tl.load(x_ptr + row[:, None] * stride + col, mask=inside, other=0.0)
    if WEIGHTED:
        x *= tl.load(weight_ptr + e, mask=valid, other=0.0).to(tl.float32)[:, None]
    tl.atomic_add(y_ptr + target[:, None] * columns + col, x, mask=inside, sem="relaxed")


TILES = ((16, 256, 4), (8, 256, 2), (16, 128, 2), (8, 256, 4), (32, 256, 4))
"""Edges at a time, columns, warps."""


def space(columns: int, gathered: bool, weighted: bool, atomic: bool, ordered: bool = True) -> list[Variant]:
    """Variants worth timing. atomic: the atomic way is allowed; ordered: edges need an order first."""
    variants = []
    given = (("GATHERED", gathered), ("WEIGHTED", weighted))
    for edges, width, warps in TILES:
        block = min(width, triton.next_power_of_2(columns))
        tile = (("EDGES", edges), ("BLOCK", block))
        constants = (("LIMIT", LIMIT), *tile, ("ORDERED", ordered), *given)
        variants.append(Variant(sum_kernel, constants, warps, tuned=("EDGES", "BLOCK")))
        if atomic and edges == 8:
            variants.append(Variant(atomic_kernel, (*tile, *given), warps, tuned=("EDGES", "BLOCK")))
    return list(dict.fromkeys(variants))


def _ends(target: torch.Tensor, rows: int, ordered: bool, deterministic: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each target's edges end, i32 [rows], and the edges in that order, i32 [edges]."""
    edges = target.shape[0]
    if ordered or deterministic:
        order = target
        if not ordered:
            target = torch.where((target >= 0) & (target < rows), target, rows)
            target, order = torch.sort(target, stable=True)
        all_rows = torch.arange(rows, device=target.device, dtype=target.dtype)
        return torch.searchsorted(target, all_rows, right=True, out_int32=True), order
    counts = torch.zeros(rows, dtype=torch.int32, device=target.device)
    ranks, order = torch.empty((2, edges), dtype=torch.int32, device=target.device)
    grid = (triton.cdiv(edges, 512),)
    rank_kernel[grid](target, counts, ranks, edges, rows, BLOCK=512)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    order_kernel[grid](target, ends, ranks, order, edges, rows, BLOCK=512)
    return ends, order


def launch(
    variant: Variant, x: torch.Tensor, target: torch.Tensor, source: torch.Tensor, weight: torch.Tensor,
    y: torch.Tensor, alpha: float, deterministic: bool,
) -> None:  # fmt: skip
    """Run one variant; source and weight are any tensor where its constants say that there is none."""
    edges, (rows, columns), block = target.shape[0], y.shape, variant["BLOCK"]
    wide_of, stride = triton.cdiv(columns, block), x.stride(0)
    if variant.kernel is atomic_kernel:
        y.zero_()
        grid = (triton.cdiv(edges, variant["EDGES"]), wide_of)
        atomic_kernel[grid](
            x, source, weight, target, y, edges, rows, columns, stride, alpha, **variant.meta
        )  # fmt: skip
        return
    ends, order = _ends(target, rows, not variant["ORDERED"], deterministic)
    blocks = triton.cdiv(edges, variant["LIMIT"])
    parts = torch.empty((blocks, columns), dtype=torch.float32, device=x.device)
    excess_kernel[(blocks, wide_of)](
        x, order, source, weight, target, ends, parts, rows, columns, stride, **variant.meta
    )  # fmt: skip
    sum_kernel[(rows, wide_of)](
        x, order, source, weight, ends, parts, y, columns, stride, alpha, **variant.meta
    )  # fmt: skip


def scatter_add(
    x: torch.Tensor, target: torch.Tensor, rows: int, source: torch.Tensor | None = None,
    weight: torch.Tensor | None = None, alpha: float = 1.0, *, ordered: bool = False, deterministic: bool = False,
) -> torch.Tensor:  # fmt: skip
    """y [rows, N]: y[target[e]] += alpha * weight[e] * x[source[e]] for all e, from zero; x [M, N], f32, f16 or bf16.

    target, source: [E] in i64 or i32; source None: edge e has row e, and M = E. weight: [E] in x's dtype, None for 1.
    Summed in f32, rounded once. ordered: target is sorted and within 0 to rows - 1, so that no order is made.
    deterministic: the same sum in every run. Targets outside of 0 to rows - 1 are left out, sources are not looked at.
    Raises TypeError for other dtypes, ValueError for other shapes and for 2^31 edges or more.
    """
    indices = (target,) if source is None else (target, source)
    if x.dtype not in DTYPES or (weight is not None and weight.dtype != x.dtype):
        raise TypeError(
            f"x and weight are f32, f16 or bf16 alike, not {x.dtype}, {weight is not None and weight.dtype}"
        )
    if any(i.dtype not in (torch.int64, torch.int32) for i in indices):
        raise TypeError(f"target and source are i64 or i32, not {', '.join(str(i.dtype) for i in indices)}")
    edges = target.shape[0] if target.dim() == 1 else -1
    given = (*indices, *(() if weight is None else (weight,)))
    if x.dim() != 2 or any(t.shape != (edges,) for t in given) or (source is None and x.shape[0] != edges):
        raise ValueError(f"x is [M, N], the others are [E], not {[*x.shape]} and {[[*t.shape] for t in given]}")
    if edges >= 2**31 or rows < 0:
        raise ValueError(f"{edges} edges to {rows} rows: edges are counted in 31 bits")
    y = torch.empty((rows, x.shape[1]), dtype=x.dtype, device=x.device)
    if not edges or not y.numel():
        return y.zero_()
    x = x if x.stride(1) == 1 else x.contiguous()
    made = (
        x, target.contiguous(), target if source is None else source.contiguous(),
        x if weight is None else weight.contiguous(), y, alpha, deterministic,
    )  # fmt: skip
    atomic = x.dtype == torch.float32 and not deterministic
    key = (edges, *y.shape, x.dtype, source is None, weight is None, ordered, deterministic, x.stride(0))
    variant = tuner.pick(
        key, lambda: space(x.shape[1], source is not None, weight is not None, atomic, not ordered), launch, *made
    )
    launch(variant, *made)
    return y


def index_add(x: torch.Tensor, target: torch.Tensor, rows: int, alpha: float = 1.0) -> torch.Tensor:
    """torch.zeros(rows, N).index_add(0, target, x, alpha=alpha): scatter_add of x alone, with its errors."""
    return scatter_add(x, target, rows, alpha=alpha)


def index_reference(x: torch.Tensor, target: torch.Tensor, rows: int, alpha: float = 1.0) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return reference(x, target, rows, alpha=alpha)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, int, torch.Tensor, torch.Tensor]:
    """Arguments to try it on: edges between `nodes` nodes."""
    x = make.normal((c["nodes"], c["columns"]), c.torch_dtype)
    ends = (make.integers(c["nodes"], (c["edges"],)) for _ in range(2))
    return x, next(ends), c["nodes"], next(ends), make.normal((c["edges"],), c.torch_dtype)


def index_inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, int, float]:
    """Arguments to try it on: one row an edge."""
    x = make.normal((c["edges"], c["columns"]), c.torch_dtype)
    return x, make.integers(c["nodes"], (c["edges"],)), c["nodes"], 2.0


def cost(c: Case) -> Cost:
    """A row read for each edge, every row of the result written, and the indices."""
    return Cost(bytes=(c["edges"] + c["nodes"]) * c["columns"] * c.itemsize + 8 * c["edges"])


SIZES = ((1, 1, 1), (5, 0, 4), (7, 30, 33), (40, 13, 8), (3, 60, 300))
CHECKS = (
    *(case(d, nodes=n, edges=e, columns=c) for d in ("f32", "f16", "bf16") for n, e, c in SIZES),
    case("f32", nodes=2, edges=1600, columns=4),
    case("f32", nodes=9, edges=50, columns=32),
)
SIGNATURES = dict.fromkeys(("x_ptr", "weight_ptr", "parts_ptr", "y_ptr"), "*fp32") | {
    "order_ptr": "*i32", "source_ptr": "*i64", "target_ptr": "*i64", "ends_ptr": "*i32", "counts_ptr": "*i32",
    "ranks_ptr": "*i32", "edges": "i32", "rows": "i32", "columns": "i32", "stride": "i32", "alpha": "fp32",
}  # fmt: skip


def build(variant: Variant) -> Build:
    """With the types that its kernel's arguments have for f32."""
    names = variant.kernel.arg_names
    signature = {n: SIGNATURES[n] for n in names if n in SIGNATURES}
    return Build(variant, signature, divisible=tuple(n for n in ("columns", "stride") if n in names))


SUMMED = space(256, True, True, True)
BUILDS = (
    *(build(v) for v in SUMMED[:3]),
    build(Variant(excess_kernel, SUMMED[0].constants, 4)),
    *(build(Variant(k, (("BLOCK", 512),), 4)) for k in (rank_kernel, order_kernel)),
)
OPERATIONS = (
    Operation(
        name="gather_scale_scatter", run=scatter_add, reference=reference, inputs=inputs, cost=cost, checks=CHECKS,
        cases=tuple(case(d, nodes=32768, edges=400_000, columns=256) for d in ("f32", "bf16")), builds=BUILDS,
    ),
    Operation(
        name="index_add", run=index_add, reference=index_reference, inputs=index_inputs, cost=cost, checks=CHECKS,
        cases=(
            case("f32", "gather_scale_scatter", nodes=32768, edges=400_000, columns=256),
            case("bf16", nodes=32768, edges=400_000, columns=256),
        ),
        builds=(build(space(256, False, False, False)[0]),),
    ),
)  # fmt: skip
