"""Attention of one new query a sequence to keys and values that lie in pages, as servers keep them.

The cache is [pages, page, KV, D]; row b of the block table names the pages of sequence b in order, and lengths[b] says
how many keys it has. The query is the last of them: with a window it sees the last window + 1 keys.

Traffic: the keys and values that are seen, once; all else is small. A program reads a part of one sequence's keys for
all query heads that share them (as rows of one product, padded to 16). Sequences are cut into SPLITS parts, so that few
long ones fill a GPU: each part leaves its result and log-sum-exp, which a second kernel weighs together (as Flash
Decoding does). Where blocks of BN keys fit into pages, one page number is read for each.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.attention.flash_attention import tanh_of
from kernels.ops.matmul.gemm import DTYPES, SHARED_KIB
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

Tensor = torch.Tensor

tuner = Tuner("paged_decode")


def reference(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, window: int | None = None,
    cap: float | None = None, scale: float | None = None, logsumexp: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """What is computed, in plain PyTorch: pages gathered, then attention with a mask."""
    sharing = q.shape[1] // k.shape[2]
    keys, values = (x[table.long()].flatten(1, 2).transpose(1, 2).repeat_interleave(sharing, 1) for x in (k, v))
    s = wide(q[:, :, None] @ keys.transpose(-1, -2))[:, :, 0] * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None:
        s = cap * torch.tanh(s / cap)
    at = torch.arange(s.shape[-1], device=s.device)
    seen = at < lengths[:, None]
    if window is not None:
        seen = seen & (at >= lengths[:, None] - 1 - window)
    s = s.masked_fill(~seen[:, None], -math.inf)
    p = torch.where(seen.any(-1)[:, None, None], torch.softmax(s, -1), 0.0).to(v.dtype)
    values = values.masked_fill(~seen[:, None, :, None], 0.0)
    o = (p[:, :, None] @ values)[:, :, 0]
    return (o, torch.logsumexp(s, -1)) if logsumexp else o


def terms(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, window: int | None = None,
    cap: float | None = None, scale: float | None = None, logsumexp: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Of each result's elements, the sum of the absolute values that are added for it; None of the log-sum-exp."""
    added = reference(q, k, v.abs(), table, lengths, window, cap, scale)
    assert isinstance(added, Tensor)
    return (added, None) if logsumexp else (added,)


@triton.jit
def paged_kernel(
    q, k, v, table, lengths, o, lse, heads, sharing, most, window, factor, cap, q_batch, q_head, k_page, k_row, k_head,
    v_page, v_row, v_head, o_batch, o_head, table_row, D: tl.constexpr, DP: tl.constexpr, GROUP: tl.constexpr,
    BN: tl.constexpr, PAGE: tl.constexpr, SPLITS: tl.constexpr, ONE_PAGE: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, LSE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One of SPLITS parts of a sequence's keys, for the `sharing` query heads of one of `heads` key heads.

    most: keys that the table has room for. SPLITS above 1: o is [B, H, SPLITS, D] in f32 and lse [B, H, SPLITS] in
    units of log2. ONE_PAGE: a block of keys never crosses into another page.
    """
    part = tl.program_id(0) % SPLITS
    batch = (tl.program_id(0) // SPLITS // heads).to(tl.int64)
    key_head = (tl.program_id(0) // SPLITS % heads).to(tl.int64)
    length = tl.minimum(tl.load(lengths + batch), most).to(tl.int32)
    first = 0
    if WINDOW:
        first = tl.maximum(length - 1 - window, 0)
    span = tl.cdiv(tl.cdiv(length - first, SPLITS), BN) * BN
    lo = first + part * span
    hi = tl.minimum(lo + span, length)
    d = tl.arange(0, DP)
    row = tl.arange(0, GROUP)
    mine = row < sharing
    at = q + batch * q_batch + (key_head * sharing + row)[:, None] * q_head + d[None, :]
    tile = tl.load(at, mask=mine[:, None] & (d < D)[None, :], other=0.0)
    k += key_head * k_head
    v += key_head * v_head
    table += batch * table_row
    acc = tl.zeros((GROUP, DP), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    top = tl.full((GROUP,), float("-inf"), tl.float32)
    for n in range(lo, hi, BN):
        key = n + tl.arange(0, BN)
        there = key < hi
        if ONE_PAGE:
            page = tl.load(table + n // PAGE).to(tl.int64)
        else:
            page = tl.load(table + key // PAGE, mask=there, other=0).to(tl.int64)
        within = (key % PAGE).to(tl.int64)
        whole = there[:, None] & (d < D)[None, :]
        keys = tl.load(k + (page * k_page + within * k_row)[:, None] + d[None, :], mask=whole, other=0.0)
        values = tl.load(v + (page * v_page + within * v_row)[:, None] + d[None, :], mask=whole, other=0.0)
        s = tl.dot(tile, keys.T, input_precision=PRECISION) * factor
        if CAP:
            s = cap * tanh_of(s, tile.dtype == tl.bfloat16)
        s = tl.where(there[None, :], s, float("-inf"))
        larger = tl.maximum(top, tl.max(s, 1))  # finite, or NaN: a block has a key
        p = tl.exp2(s - larger[:, None])
        shrink = tl.exp2(top - larger)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
        top = larger
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    sums = top + tl.log2(total)
    head = key_head * sharing + row
    inside = mine[:, None] & (d < D)[None, :]
    if SPLITS == 1:
        tl.store(o + batch * o_batch + head[:, None] * o_head + d[None, :], result.to(o.dtype.element_ty), mask=inside)
        if LSE:
            tl.store(lse + batch * heads * sharing + head, sums * 0.6931471805599453, mask=mine)
    else:
        to = (batch * heads * sharing + head) * SPLITS + part
        tl.store(o + to[:, None] * D + d[None, :], result, mask=inside)
        tl.store(lse + to, sums, mask=mine)


@triton.jit
def join_kernel(
    parts, sums, o, lse, all_heads, heads, o_batch, o_head, D: tl.constexpr, DP: tl.constexpr, SPLITS: tl.constexpr,
    LSE: tl.constexpr,
):  # fmt: skip
    """One head: its parts [SPLITS, D], weighed by their log-sum-exps in units of log2. all_heads: B * H."""
    one = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, SPLITS)
    d = tl.arange(0, DP)
    sums = tl.load(sums + one * SPLITS + part)
    top = tl.max(sums, 0)
    top = tl.where(top == float("-inf"), 0.0, top)  # no key at all
    weights = tl.exp2(sums - top)
    total = tl.sum(weights, 0)
    at = parts + (one * SPLITS + part)[:, None] * D + d[None, :]
    results = tl.load(at, mask=(d < D)[None, :], other=0.0)
    result = tl.sum(results * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    to = o + one // heads * o_batch + one % heads * o_head + d
    tl.store(to, result.to(o.dtype.element_ty), mask=d < D)
    if LSE:
        tl.store(lse + one, (top + tl.log2(total)) * 0.6931471805599453)


BLOCKS = ((64, 4, 3), (128, 4, 2), (64, 2, 4), (32, 2, 4), (128, 8, 3), (32, 4, 2))
"""Keys of a block, warps, stages: several blocks of 16 bits have to be on their way for memory to be busy."""
PROGRAMS = (264, 528, 1056)
"""About as many in all: two, four or eight for each of 132 multiprocessors."""
MOST_SPLITS = 128


def space(
    q: Tensor, heads: int, page: int, most: int, window: int | None, cap: float | None, logsumexp: bool,
    precision: str = "ieee",
) -> list[Variant]:  # fmt: skip
    """Variants worth timing for q [B, H, D], `heads` key heads and tables of up to `most` keys."""
    batch, all_heads, d = q.shape
    dp, size = max(16, triton.next_power_of_2(d)), q.element_size()
    group = max(16, triton.next_power_of_2(all_heads // heads))
    seen = most if window is None else min(most, window + 1)
    variants = []
    for bn, warps, stages in ((32, 4, 2), (16, 2, 2)) if size == 4 else BLOCKS:
        block = min(bn, max(16, triton.next_power_of_2(seen)))
        cuts = {1, *(p // max(1, batch * heads) for p in PROGRAMS)}
        for cut in sorted({_power(min(c, triton.cdiv(seen, block), MOST_SPLITS)) for c in cuts if c}):
            constants: tuple[tuple[str, Any], ...] = (
                ("D", d), ("DP", dp), ("GROUP", group), ("BN", block), ("PAGE", page), ("SPLITS", cut),
                ("ONE_PAGE", page % block == 0 and window is None), ("WINDOW", window is not None),
                ("CAP", cap is not None), ("LSE", logsumexp), ("PRECISION", precision),
            )  # fmt: skip
            shared = (2 * stages * block + group) * dp * size
            registers = (group * dp + 2 * group * block) // (32 * warps) + 60
            variants.append(Variant(paged_kernel, constants, warps, stages, ("BN", "SPLITS"), shared, registers))
    return list(dict.fromkeys(variants))


def _power(count: int) -> int:
    """The largest power of two up to it."""
    return 1 << (max(1, count).bit_length() - 1)


def launch(
    variant: Variant, q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, o: Tensor, lse: Tensor,
    window: int | None, cap: float | None, scale: float,
) -> None:  # fmt: skip
    """Run one variant into o [B, H, D] and, where it writes it, lse f32 [B, H]; rows of D are contiguous."""
    (batch, all_heads, d), (_, page, heads, _) = q.shape, k.shape
    splits, log2e = variant["SPLITS"], math.log2(math.e)
    to, sums = o, lse
    if splits > 1:
        to = torch.empty((batch, all_heads, splits, d), dtype=torch.float32, device=q.device)
        sums = torch.empty((batch, all_heads, splits), dtype=torch.float32, device=q.device)
    paged_kernel[(batch * heads * splits,)](
        q, k, v, table, lengths, to, sums, heads, all_heads // heads, table.shape[1] * page, min(window or 0, 2**30),
        scale * log2e if cap is None else scale / cap, (cap or 0.0) * log2e, *q.stride()[:2], *k.stride()[:3],
        *v.stride()[:3], *o.stride()[:2], table.stride(0), **variant.meta,
    )  # fmt: skip
    if splits > 1:
        join_kernel[(batch * all_heads,)](
            to, sums, o, lse, batch * all_heads, all_heads, *o.stride()[:2], d, variant["DP"], splits, variant["LSE"],
            num_warps=4,
        )  # fmt: skip


def refuse(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, window: int | None, cap: float | None
) -> None:
    """Raises TypeError or ValueError for what paged_decode does not take."""
    if q.dtype not in DTYPES or q.dtype != k.dtype or q.dtype != v.dtype:
        raise TypeError(f"paged_decode takes f32, f16 or bf16 alike, not {q.dtype}, {k.dtype} and {v.dtype}")
    if any(t.dtype not in (torch.int32, torch.int64) for t in (table, lengths)):
        raise TypeError(f"table and lengths are 32- or 64-bit integers, not {table.dtype} and {lengths.dtype}")
    shapes = f"{[*q.shape]}, {[*k.shape]} and {[*v.shape]}"
    if q.dim() != 3 or k.dim() != 4 or k.shape != v.shape or q.shape[2] != k.shape[3]:
        raise ValueError(f"paged_decode takes q [B, H, D] and twice [pages, page, KV, D], not {shapes}")
    if not 1 <= q.shape[2] <= 256 or not k.shape[1]:
        raise ValueError(f"paged_decode takes D from 1 to 256 and pages of a key or more, not {shapes}")
    if k.shape[2] == 0 or q.shape[1] % k.shape[2]:
        raise ValueError(f"{q.shape[1]} query heads cannot share {k.shape[2]} key heads evenly")
    if table.dim() != 2 or lengths.dim() != 1 or len({table.shape[0], lengths.shape[0], q.shape[0]}) > 1:
        raise ValueError(
            f"{q.shape[0]} sequences have a table [B, pages] and lengths [B], not {[*table.shape]}, {[*lengths.shape]}"
        )
    if window is not None and window < 0:
        raise ValueError(f"the window is 0 keys or more, not {window}")
    if cap is not None and not 0 < cap < math.inf:
        raise ValueError(f"the cap is above 0, not {cap}")


def paged_decode(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, window: int | None = None,
    cap: float | None = None, scale: float | None = None, logsumexp: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of q [B, H, D] to caches [pages, page, KV, D], f32, f16 or bf16 alike; H a multiple of KV, D up to 256.

    table [B, N]: the pages of each sequence in order; lengths [B]: its keys, the query's own among them; integers. Both
    are trusted: page numbers are below `pages`; of a length beyond N * page only that many keys are read. window, cap
    and scale as in flash_attention. Returns [B, H, D], zeros for a length of 0; with `logsumexp` also the scores', f32
    [B, H]. Caches are taken in any strides whose last axis is contiguous. Raises TypeError, ValueError.
    """
    refuse(q, k, v, table, lengths, window, cap)
    q, k, v = (x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous() for x in (q, k, v))
    table, lengths = table if table.stride(1) == 1 else table.contiguous(), lengths.contiguous()
    batch, all_heads, d = q.shape
    scale = d**-0.5 if scale is None else scale
    o = torch.empty((batch, all_heads, d), dtype=q.dtype, device=q.device)
    lse = torch.full((batch, all_heads), -math.inf, device=q.device) if logsumexp else o
    page, heads, most = k.shape[1], k.shape[2], table.shape[1] * k.shape[1]
    if not most or not k.shape[0]:
        o.zero_()
    elif o.numel():
        key = (batch, all_heads, heads, d, page, most, window, cap is None, logsumexp, q.dtype)
        variant = tuner.pick(
            key, lambda: space(q, heads, page, most, window, cap, logsumexp), launch, q, k, v, table, lengths, o, lse,
            window, cap, scale, uncopied=(q, k, v, table, lengths),
        )  # fmt: skip
        launch(variant, q, k, v, table, lengths, o, lse, window, cap, scale)
    return (o, lse) if logsumexp else o


# ---- cases
# What it is tried on, what it costs at least, and how its variants are compiled offline.
def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. t: keys of a sequence; ragged: from none to t. Pages lie in any order."""
    b, kv, t, d, page = c["b"], c["kv"], c["t"], c["d"], c["page"]
    each = triton.cdiv(t, page)
    q = make.normal((b, kv * c.get("h", 1), d), c.torch_dtype, c.get("size", 1.0))
    k, v = (make.normal((b * each + 1, page, kv, d), c.torch_dtype) for _ in range(2))
    order = torch.randperm(b * each + 1, generator=make.generator)[: b * each]
    table = order.reshape(b, each).to(make.device, torch.int32)
    lengths = make.integers(t + 1, (b,), torch.int32) if c.get("ragged") else torch.full((b,), t, dtype=torch.int32)
    more = (c.get("window"), c.get("cap"), c.get("scale"), c.get("logsumexp", False))
    return q, k, v, table, lengths.to(make.device), *more


def cost(c: Case) -> Cost:
    """The keys and values that are seen, queries and results; two products. Sequences are of full length."""
    b, kv, t, d = c["b"], c["kv"], c["t"], c["d"]
    seen = t if c.get("window") is None else min(t, c["window"] + 1)
    h = kv * c.get("h", 1)
    return Cost((2 * b * seen * kv * d + 2 * b * h * d) * c.itemsize, 4 * b * h * d * seen)


SIZES = ("heads", "sharing", "most", "window")
STRIDES = ("q_batch", "q_head", "k_page", "k_row", "k_head", "v_page", "v_row", "v_head", "o_batch", "o_head")


def build_of(v: Variant, dtype: str = "bf16") -> Build:
    """A variant as it is compiled offline, its parts joined afterwards."""
    split = v["SPLITS"] > 1
    signature = dict.fromkeys(("q", "k", "v"), f"*{dtype}") | {"table": "*i32", "lengths": "*i32"}
    signature |= {"o": "*fp32" if split else f"*{dtype}", "lse": "*fp32"} | dict.fromkeys(SIZES, "i32")
    signature |= {"factor": "fp32", "cap": "fp32"} | dict.fromkeys((*STRIDES, "table_row"), "i32")
    refused = {
        target: f"its tiles are larger than {room} KiB of shared memory"
        for target, room in SHARED_KIB.items() if v.shared_bytes > room * 1024
    }  # fmt: skip
    return Build(v, signature, STRIDES, refused)


def join_build(d: int, splits: int) -> Build:
    """The second kernel as it is compiled offline."""
    variant = Variant(join_kernel, (("D", d), ("DP", d), ("SPLITS", splits), ("LSE", False)), 4)
    sizes = ("all_heads", "heads", "o_batch", "o_head")
    signature = {"parts": "*fp32", "sums": "*fp32", "o": "*bf16", "lse": "*fp32"} | dict.fromkeys(sizes, "i32")
    return Build(variant, signature, ("o_batch", "o_head"))


MANY = space(torch.empty((64, 32, 128), dtype=torch.bfloat16, device="meta"), 8, 16, 8192, None, None, False)
SMALL = next(v for v in MANY if v["BN"] == 32 and v.stages == 2)
FEW = space(torch.empty((1, 32, 128), dtype=torch.bfloat16, device="meta"), 8, 64, 131072, 4096, 30.0, True)
OPERATIONS = (
    Operation(
        name="paged_decode", run=paged_decode, reference=reference, inputs=inputs, cost=cost,
        terms=terms, beyond=case("bf16", b=128, kv=8, h=4, t=16448, d=128, page=64),
        checks=(
            *(case(d, b=b, kv=2, h=h, t=t, d=64, page=16) for d in ("f32", "f16")
              for b, h, t in ((1, 1, 1), (2, 3, 70), (0, 1, 5))),
            case("f16", b=3, kv=1, h=4, t=300, d=128, page=64, ragged=True, logsumexp=True),
            case("f32", b=2, kv=2, h=2, t=100, d=20, page=7, ragged=True),
            case("f16", b=2, kv=1, h=8, t=200, d=96, page=16, window=50, cap=5.0, logsumexp=True),
            case("f32", b=1, kv=1, h=20, t=130, d=32, page=64, window=0),
            case("f16", b=4, kv=2, h=1, t=90, d=256, page=16, ragged=True, scale=0.3),
            case("bf16", b=2, kv=2, h=4, t=150, d=128, page=16, ragged=True),
            case("f16", b=3, kv=2, h=4, t=260, d=64, page=32, ragged=True, cap=20.0, logsumexp=True),
        ),
        cases=(
            case("bf16", b=64, kv=8, h=4, t=8192, d=128, page=16),
            case("bf16", b=64, kv=8, h=4, t=8192, d=128, page=64),
            case("bf16", b=8, kv=8, h=8, t=32768, d=128, page=64),
            case("f16", b=1, kv=8, h=4, t=131072, d=128, page=16),
            case("bf16", b=128, kv=32, t=2048, d=128, page=16),
        ),
        builds=(*(build_of(v) for v in (MANY[0], MANY[1], SMALL)), build_of(FEW[-1]), join_build(128, 32)),
        wrong_interpreted=("bf16",), fixed=("d", "page"),
    ),
)  # fmt: skip
