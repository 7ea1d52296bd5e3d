"""The samples of bags in the order of the table's rows: what a gradient by rows needs, in two launches and a sort.

One launch writes the bag of each sample, found in the offsets by halves, and its row as i32 to sort by. torch.sort puts
the rows in order, equal ones as they came. A second launch brings bags and scales into that order and finds by halves
where each row of the table begins. Neighbours look in the same places, so nearly all of these loads are L1's. The same
in plain PyTorch is ten launches, some of which move 8 bytes a sample twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.spec import Build
from kernels.tuning import Variant

BLOCK = 512
WARPS = 4


@triton.jit(do_not_specialize=("count", "bags"))
def bags_and_rows(
    index_ptr, offsets_ptr, bag_ptr, row_ptr, count, bags, STEPS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Of BLOCK samples a program the bag, which is the last whose offset is not beyond, and the row, both i32."""
    sample = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = sample < count
    bag = tl.zeros((BLOCK,), tl.int32)
    for step in tl.static_range(STEPS):
        ahead = bag + (1 << (STEPS - 1 - step))
        offset = tl.load(offsets_ptr + ahead, mask=inside & (ahead < bags), other=0).to(tl.int64)
        bag = tl.where((ahead < bags) & (offset <= sample), ahead, bag)
    tl.store(bag_ptr + sample, bag, mask=inside)
    tl.store(row_ptr + sample, tl.load(index_ptr + sample, mask=inside, other=0).to(tl.int32), mask=inside)


@triton.jit(do_not_specialize=("count", "rows", "searching"))
def samples_by_row(
    key_ptr, order_ptr, bag_ptr, offsets_ptr, weight_ptr, edge_ptr, sorted_ptr, scale_ptr, count, rows, searching,
    STEPS: tl.constexpr, SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first `searching` programs: edges [rows + 1], how many keys are below each row. The others: bags in order.

    SCALE: "none", "mean" for one over the bag's samples, or "weights" for the sample's weight; in order too.
    """
    program = tl.program_id(0).to(tl.int64)
    if program < searching:
        row = program * BLOCK + tl.arange(0, BLOCK)
        below = tl.zeros((BLOCK,), tl.int32)
        for step in tl.static_range(STEPS):
            more = below + (1 << (STEPS - 1 - step))
            key = tl.load(key_ptr + (more - 1), mask=(row <= rows) & (more <= count), other=0).to(tl.int64)
            below = tl.where((more <= count) & (key < row), more, below)
        tl.store(edge_ptr + row, below, mask=row <= rows)
    else:
        at = (program - searching) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        sample = tl.load(order_ptr + at, mask=inside, other=0)
        bag = tl.load(bag_ptr + sample, mask=inside, other=0)
        tl.store(sorted_ptr + at, bag, mask=inside)
        if SCALE == "mean":
            begin = tl.load(offsets_ptr + bag, mask=inside, other=0)
            stop = tl.load(offsets_ptr + bag + 1, mask=inside, other=1)
            tl.store(scale_ptr + at, 1.0 / (stop - begin).to(tl.float32), mask=inside)
        if SCALE == "weights":
            tl.store(scale_ptr + at, tl.load(weight_ptr + sample, mask=inside, other=0.0), mask=inside)


@dataclass(frozen=True, slots=True)
class Samples:
    """Bags and rows of the samples, i32 [samples], as they come."""

    bags: torch.Tensor
    rows: torch.Tensor


@dataclass(frozen=True, slots=True)
class Ordered:
    """Samples by rows: keys (their rows, i32), order (which sample, i64), bags (i32) and scale, each [samples].

    edges [rows of the table + 1], i32: where each row's samples begin. scale is None where there is none.
    """

    keys: torch.Tensor
    order: torch.Tensor
    bags: torch.Tensor
    scale: torch.Tensor | None
    edges: torch.Tensor


def samples_of(indices: torch.Tensor, offsets: torch.Tensor) -> Samples:
    """Of contiguous indices, and offsets that begin with 0 and end with their number."""
    made = Samples(*(torch.empty(indices.shape, dtype=torch.int32, device=indices.device) for _ in range(2)))
    bags = len(offsets) - 1
    if len(indices):
        bags_and_rows[(triton.cdiv(len(indices), BLOCK),)](
            indices, offsets, made.bags, made.rows, len(indices), bags, **_finding(bags).meta
        )
    return made


def by_row(
    samples: Samples, rows: int, offsets: torch.Tensor, weights: torch.Tensor | None, mean: bool
) -> Ordered:  # fmt: skip
    """These samples by the table's rows; scaled by weights, or by one over their bag's number of them, or not."""
    keys, order = torch.sort(samples.rows, stable=True)
    count, device = len(keys), keys.device
    edges = torch.empty(rows + 1, dtype=torch.int32, device=device)
    bags = torch.empty_like(keys)
    scale = None
    if mean or weights is not None:
        kind = torch.float32 if weights is None else weights.dtype
        scale = torch.empty(count, dtype=kind, device=device)
    variant = _ordering(count, "mean" if mean else "none" if weights is None else "weights")
    searching = triton.cdiv(rows + 1, BLOCK)
    samples_by_row[(searching + triton.cdiv(count, BLOCK),)](
        keys, order, samples.bags, offsets, bags if weights is None else weights, edges, bags,
        bags if scale is None else scale, count, rows, searching, **variant.meta,
    )  # fmt: skip
    return Ordered(keys, order, bags, scale, edges)


def _finding(bags: int) -> Variant:
    return Variant(bags_and_rows, (("STEPS", max(0, bags - 1).bit_length()), ("BLOCK", BLOCK)), WARPS)


def _ordering(count: int, scale: str) -> Variant:
    return Variant(samples_by_row, (("STEPS", count.bit_length()), ("SCALE", scale), ("BLOCK", BLOCK)), WARPS)


_SIGNATURE = {
    "index_ptr": "*i64", "offsets_ptr": "*i64", "order_ptr": "*i64", "weight_ptr": "*fp32", "scale_ptr": "*fp32",
    **dict.fromkeys(("bag_ptr", "row_ptr", "key_ptr", "edge_ptr", "sorted_ptr"), "*i32"),
    **dict.fromkeys(("count", "bags", "rows", "searching"), "i32"),
}  # fmt: skip


def builds() -> tuple[Build, ...]:
    """As compiled offline: 2^16 bags of 2^21 samples."""
    variants = (_finding(1 << 16), _ordering(1 << 21, "mean"), _ordering(1 << 21, "weights"))
    return tuple(Build(v, {k: _SIGNATURE[k] for k in v.kernel.arg_names if k in _SIGNATURE}) for v in variants)
