"""The gradients of an embedding table's rows and of sample weights, from samples sorted by row.

A program takes ROWS rows of the table and their samples, which stand one behind another, SAMPLES at a time whatever row
they are of: rows of real tables have one or two samples on average and some have ten, so that a tile that waits for the
longest of its rows is empty by half. A sample's row of dy, scaled, is added where its key says; its product with the
table's row, read here once for all of its samples, is the gradient of the sample's weight. In f32, in a fixed order.
Rows with more than LONG samples are left out: `segment_reduce` splits those.

On an H200, f32 with weights of samples, 2^20 rows of 64 columns, 2^21 samples: 303 us with the products, where
`segment_reduce` takes 487 after a pass for these; 372 after such a pass. Tried: 2, 4 and 8 rows by 4, 8 and 16 samples,
366 and more. Without products, bf16, 2^20 rows of 128 columns, as many samples: 188 us, `segment_reduce` 169 to 180.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.scatter.segment_reduce import SPLIT, WIDEST, Form, Gather
from kernels.ops.shared.pairs import rounded
from kernels.spec import Build
from kernels.tuning import Variant


@triton.jit
def table_rows(
    dy_ptr, table_ptr, key_ptr, bag_ptr, order_ptr, scale_ptr, edge_ptr, dw_ptr, ds_ptr, rows, columns, dy_stride,
    stride, ROWS: tl.constexpr, SAMPLES: tl.constexpr, BLOCK: tl.constexpr, LONG: tl.constexpr, SCALED: tl.constexpr,
    PRODUCTS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of dw [rows, columns] a program, and ds of their samples where PRODUCTS. BLOCK holds all columns."""
    first = tl.program_id(0) * ROWS
    row = first + tl.arange(0, ROWS)
    begins = tl.load(edge_ptr + row, mask=row < rows, other=0)
    stops = tl.load(edge_ptr + row + 1, mask=row < rows, other=0)
    mine = (row < rows) & (stops - begins <= LONG)
    begin = tl.load(edge_ptr + first)
    stop = tl.load(edge_ptr + tl.minimum(first + ROWS, rows))
    # One run of samples; with a long row among these, one run a row.
    runs = tl.where(tl.max(stops - begins, 0) > LONG, ROWS, 1)
    col = tl.arange(0, BLOCK)
    inside = (col < columns)[None, :]
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for run in range(runs):
        low = begin
        high = stop
        if runs > 1:
            low = tl.load(edge_ptr + tl.minimum(first + run, rows))
            high = tl.load(edge_ptr + tl.minimum(first + run + 1, rows))
            high = tl.where(high - low > LONG, low, high)
        for start in range(low, high, SAMPLES):
            at = start + tl.arange(0, SAMPLES)
            held = at < high
            key = tl.load(key_ptr + at, mask=held, other=-1)
            bag = tl.load(bag_ptr + at, mask=held, other=0).to(tl.int64)
            # All that is read is asked for before anything is written.
            if SCALED:
                scale = tl.load(scale_ptr + at, mask=held, other=0.0).to(tl.float32)
            if PRODUCTS:
                sample = tl.load(order_ptr + at, mask=held, other=0)
            here = held[:, None] & inside
            g = tl.load(dy_ptr + (bag * dy_stride)[:, None] + col[None, :], mask=here, other=0.0).to(tl.float32)
            if PRODUCTS:
                own = table_ptr + (key.to(tl.int64) * stride)[:, None] + col[None, :]
                x = tl.load(own, mask=here, other=0.0).to(tl.float32)
                tl.store(ds_ptr + sample, rounded(tl.sum(g * x, 1), ds_ptr), mask=held)
            if SCALED:
                g *= scale[:, None]
            same = key[:, None] == row[None, :]
            total += tl.sum(tl.where(same[:, :, None], g[:, None, :], 0.0), 0)
    into = dw_ptr + row.to(tl.int64)[:, None] * columns + col[None, :]
    tl.store(into, rounded(total, dw_ptr), mask=mine[:, None] & inside)


NUMBERS = 256
"""Of a tile of samples."""
MOST_ROWS = 8
"""Of a program: every one is compared with every sample."""


def space(count: int, columns: int, rows: int, form: Form) -> list[Variant]:
    """Twice as many rows as a tile's samples are of on average; none for wider tables."""
    given = dict(form)
    if columns > WIDEST or given["PICKED"]:
        return []
    block = max(triton.next_power_of_2(columns), 16)
    usual = triton.next_power_of_2(max(1, -(-count // max(1, rows))))
    samples = max(2, NUMBERS // block)
    constants = (
        ("ROWS", max(1, min(MOST_ROWS, 2 * samples // usual))), ("SAMPLES", samples), ("BLOCK", block),
        ("LONG", max(16, SPLIT // block)), ("SCALED", given["SCALED"]), ("PRODUCTS", given["PRODUCTS"]),
    )  # fmt: skip
    return [Variant(table_rows, constants, 1, None, ("ROWS", "SAMPLES"))]


def launch(
    variant: Variant, dy: torch.Tensor, gather: Gather, table: torch.Tensor, edges: torch.Tensor, dw: torch.Tensor
) -> None:
    """Run one variant into contiguous dw, and gather.out where there are products; gather.pick: the sorted keys."""
    rows, columns = dw.shape
    table_rows[(triton.cdiv(rows, variant["ROWS"]),)](
        dy, table, gather.pick, gather.rows, gather.order, gather.scale, edges, dw, gather.out, rows, columns,
        dy.stride(0), table.stride(0), **variant.meta,
    )  # fmt: skip


def builds() -> tuple[Build, ...]:
    """As compiled offline: f32 with weights of samples, 2 samples a row."""
    form: Form = (("GATHER", True), ("SCALED", True), ("PICKED", False), ("PRODUCTS", True), ("TIES", False))
    signature = {
        **dict.fromkeys(("dy_ptr", "table_ptr"), "*fp32"), "key_ptr": "*i32", "bag_ptr": "*i32", "order_ptr": "*i64",
        "scale_ptr": "*fp32", "edge_ptr": "*i32", "dw_ptr": "*fp32", "ds_ptr": "*fp32",
        **dict.fromkeys(("rows", "columns", "dy_stride", "stride"), "i32"),
    }  # fmt: skip
    return tuple(Build(v, signature, ("columns", "dy_stride", "stride")) for v in space(1 << 21, 64, 1 << 20, form))
