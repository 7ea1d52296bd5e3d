"""Router of a mixture of experts: softmax over the experts' logits, the k largest, their weights made to sum to 1.

Traffic: logits read once; weights (f32) and expert indices (i64) written once: tokens * (experts * itemsize + 12 k)
bytes. With `renormalise` the sum over all experts cancels, and only k exponentials a token are left.
Takes up to 1024 experts and k up to 64. A top-k is no part of what torch.compile fuses: it calls torch's sort.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES, rows_of
from kernels.ops.shared.sort_keys import best_of, column_of, key_of, number_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

MAX_EXPERTS, MAX_K, ROUNDS = 1024, 64, 16

tuner = Tuner("router")


def reference(logits: torch.Tensor, k: int, renormalise: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights, in f32, and indices of the k likeliest experts."""
    weights, experts = torch.topk(torch.softmax(wide(logits), -1), k, -1)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), experts


@triton.jit
def router_kernel(
    x_ptr, w_ptr, i_ptr, rows, x_stride, N: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, DTYPE: tl.constexpr, RENORMALISE: tl.constexpr, SORTED: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS tokens a program. SORTED: by a bitonic network instead of K maxima. WHOLE: no element is outside."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    if WHOLE:
        x = tl.load(x_ptr + row * x_stride + col)
    else:
        x = tl.load(x_ptr + row * x_stride + col, mask=(row < rows) & (col < N), other=float("-inf"))
    key = key_of(x, col, DTYPE)
    slot = tl.arange(0, SLOTS)[None, :]
    best = tl.topk(key, SLOTS) if SORTED else best_of(key, slot, K)
    value = number_of(best, DTYPE).to(tl.float32)
    # The largest of all keys is any NaN that there is, so that it reaches every weight.
    top = number_of(tl.max(key, axis=1, keep_dims=True), DTYPE).to(tl.float32)
    weight = tl.exp2((value - top) * 1.4426950408889634)
    if RENORMALISE:
        total = tl.sum(tl.where(slot < K, weight, 0.0), axis=1, keep_dims=True)
    else:
        total = tl.sum(tl.exp2((x.to(tl.float32) - top) * 1.4426950408889634), axis=1, keep_dims=True)
    inside = (row < rows) & (slot < K)
    tl.store(w_ptr + row * K + slot, weight / total, mask=inside)
    tl.store(i_ptr + row * K + slot, column_of(best, DTYPE).to(tl.int64), mask=inside)


def space(rows: int, experts: int, k: int, dtype: torch.dtype, renormalise: bool) -> list[Variant]:
    """8 to 64 logits a thread, a row within one warp where it can be; few rows make small programs."""
    block, slots = max(16, triton.next_power_of_2(experts)), triton.next_power_of_2(k)
    variants: list[Variant] = []
    for elements, warps in ((1024, 2), (512, 1), (1024, 1), (2048, 2), (2048, 4), (4096, 4)):
        count = max(1, min(elements // block, triton.next_power_of_2(rows)))
        for by_sorting in (False, True) if 8 <= k <= ROUNDS and elements == 512 else (k > ROUNDS,):
            constants = (
                ("N", experts), ("K", k), ("SLOTS", slots), ("BLOCK", block), ("ROWS", count), ("DTYPE", DTYPES[dtype]),
                ("RENORMALISE", renormalise), ("SORTED", by_sorting),
                ("WHOLE", block == experts and rows % count == 0),
            )  # fmt: skip
            variants.append(Variant(router_kernel, constants, warps, tuned=("ROWS", "SORTED")))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, logits: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor) -> None:
    """Run one variant on logits [T, E] with contiguous rows into contiguous weights and experts [T, k]."""
    rows = logits.shape[0]
    grid = (triton.cdiv(rows, variant["ROWS"]),)
    router_kernel[grid](logits, weights, experts, rows, logits.stride(0), **variant.meta)


def router(logits: torch.Tensor, k: int, renormalise: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights f32 [..., k], largest first, and experts i64 [..., k] of logits [..., E] in f32, f16 or bf16.

    Of equal logits the lower expert comes first; torch.topk promises no order there. renormalise: the k weights sum
    to 1; otherwise they are their shares among all experts. Raises TypeError for other dtypes, ValueError for
    more than 1024 experts and for k that is not from 1 to the smaller of 64 and E.
    """
    if logits.dtype not in DTYPES:
        raise TypeError(f"router takes f32, f16 or bf16, not {logits.dtype}")
    count = logits.shape[-1] if logits.dim() else 0
    if not 1 <= k <= min(MAX_K, count) or count > MAX_EXPERTS:
        raise ValueError(f"router takes up to {MAX_EXPERTS} experts and 1 to {MAX_K} of them, not {k} of {count}")
    shape = (*logits.shape[:-1], k)
    weights = torch.empty(shape, dtype=torch.float32, device=logits.device)
    experts = torch.empty(shape, dtype=torch.int64, device=logits.device)
    if weights.numel():
        flat = rows_of(logits)
        rows, stride = flat.shape[0], flat.stride(0)
        key = (rows, count, k, logits.dtype, renormalise, stride, flat.data_ptr() % 16 == 0)
        variant = tuner.pick(
            key, lambda: space(rows, count, k, logits.dtype, renormalise), launch, flat, weights, experts
        )
        launch(variant, flat, weights, experts)
    return weights, experts


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, int, bool]:
    """Arguments to try it on; few values are alike in f32, many in bf16."""
    return make.normal((c["tokens"], c["experts"]), c.torch_dtype, scale=2.0), c["k"], c.get("renormalise", True)


def agree(outputs: Sequence[torch.Tensor], arguments: Sequence[Any]) -> None:
    """The experts of a token are different ones, and their shares are the weights. Raises AssertionError."""
    (weights, experts), (logits, _, renormalise) = outputs, arguments
    if not weights.numel():
        return
    assert int(experts.min()) >= 0, "an expert below 0"
    assert int(experts.max()) < logits.shape[-1], "an expert beyond the last"
    assert bool((experts.sort(-1).values.diff(dim=-1) > 0).all()), "an expert twice"
    share = torch.softmax(logits.double(), -1).gather(-1, experts)
    share = share / share.sum(-1, keepdim=True) if renormalise else share
    far = (share - weights.double()).abs() > 1e-5 * share.abs() + 1e-30
    assert not bool(far.any()), f"{int(far.sum())} weights belong to other experts"


def _cost(c: Case) -> Cost:
    return Cost(bytes=c["tokens"] * (c["experts"] * c.itemsize + 12 * c["k"]))


SIGNATURE = {"x_ptr": "*bf16", "w_ptr": "*fp32", "i_ptr": "*i64", "rows": "i32", "x_stride": "i32"}
OPERATIONS = (
    Operation(
        name="router", run=router, reference=reference, inputs=inputs, cost=_cost, indices=(1,), agree=agree,
        beyond=case("bf16", tokens=16_800_000, experts=128, k=8),
        checks=(
            *(case(d, tokens=t, experts=e, k=k) for d in ("f32", "f16", "bf16")
              for t, e, k in ((0, 8, 2), (1, 8, 1), (5, 60, 4), (17, 128, 8))),
            case("bf16", tokens=1, experts=1, k=1),
            case("bf16", tokens=3, experts=20, k=17),
            case("f32", tokens=3, experts=20, k=20),
            case("bf16", tokens=9, experts=64, k=6, renormalise=False),
            case("f32", tokens=6, experts=100, k=8, renormalise=False),
            case("bf16", tokens=7, experts=128, k=8),
        ),
        cases=(
            case("bf16", region="moe_router_softmax_topk", tokens=16384, experts=128, k=8),
            case("bf16", tokens=1, experts=128, k=8),
            case("f32", tokens=16384, experts=256, k=8),
        ),
        builds=tuple(
            Build(v, SIGNATURE, divisible=("rows", "x_stride")) for v in space(16384, 128, 8, torch.bfloat16, True)[:3]
        ),
        forms=("plain", "strided", "misaligned", "special"),
    ),
)  # fmt: skip
