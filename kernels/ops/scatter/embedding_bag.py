"""Embedding bag: the sum, mean or largest of the rows of a table that each bag's indices select; and its gradients.

Reference: F.embedding_bag with offsets that hold the end as well; an empty bag gives 0. Traffic forward: a row of the
table for each index, a row written for each bag.

Backward: the table's gradient is written once, zeros included, (indices + rows of the table) * columns * itemsize
bytes. Indices are sorted (torch.sort) and the rows of dy summed by segments of equal ones, in f32 and in a fixed order.
Atomics would save the sort and the order; but indices of real bags repeat (a few rows get most of them), where atomics
queue, and 16-bit tables would need a second one in f32 that is cleared, added to and converted: 12 bytes an element of
the table more. Rows of the table are summed segment by segment, or, where samples are few a row, sample by sample
(`table_gradient`). Of a maximum a number counts where its index's place is what the forward gave. The gradient of
sample weights comes with the table's, up to 256 columns, where each row of the table is read once; or before it, a row
for each index, which leaves the sums by segments less to do and writes in order. The tuner chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.scatter import bag_order, table_gradient
from kernels.ops.scatter import segment_reduce as segments
from kernels.ops.scatter.bag_order import Samples
from kernels.ops.scatter.segment_reduce import FORM, INDEXES, MODES, WIDEST
from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

NAME = "triton:embedding_bag"
NOWHERE = 0x7FFFFFFF
"""The place of the largest number of a bag without any."""

tuner = Tuner("embedding_bag")
backward_tuner = Tuner("embedding_bag_backward")
weights_tuner = Tuner("embedding_bag_sample_weights")


def reference(
    table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, sample_weights: torch.Tensor | None, mode: str
) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return F.embedding_bag(
        indices, table, offsets, mode=mode, per_sample_weights=sample_weights, include_last_offset=True
    )


def reference_backward(
    dy: torch.Tensor, table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
    sample_weights: torch.Tensor | None, places: torch.Tensor | None, mode: str,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """The gradients of table and sample weights, in plain PyTorch. places: of the forward, for "max"."""
    g, zeros = wide(dy), torch.zeros(table.shape, dtype=wide(table).dtype, device=table.device)
    if mode == "max":
        assert places is not None
        taken = places != NOWHERE
        rows = indices[places.long().where(taken, 0)] if len(indices) else torch.zeros_like(places, dtype=torch.int64)
        return (zeros.scatter_add_(0, rows.long(), g.where(taken, 0.0)).to(table.dtype),)
    bag = bags_of(offsets, len(indices))
    g = g[bag]
    if mode == "mean":
        g = g / (offsets[1:] - offsets[:-1])[bag][:, None]
    if sample_weights is None:
        return (zeros.index_add(0, indices, g).to(table.dtype),)
    of_samples = (g * wide(table)[indices]).sum(-1).to(sample_weights.dtype)
    return zeros.index_add(0, indices, g * wide(sample_weights)[:, None]).to(table.dtype), of_samples


def bags_of(offsets: torch.Tensor, count: int) -> torch.Tensor:
    """The bag of each index, int64."""
    bags = torch.arange(len(offsets) - 1, device=offsets.device)
    return torch.repeat_interleave(bags, offsets[1:] - offsets[:-1], output_size=count)


@triton.jit
def bag_rows(
    table_ptr, index_ptr, offsets_ptr, scale_ptr, y_ptr, place_ptr, rows, columns, stride, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, MODE: tl.constexpr, SCALED: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """One bag and BLOCK columns a program, ROWS rows of the table at a time. PLACES: where each largest number was."""
    bag = tl.program_id(0).to(tl.int64)
    begin = tl.load(offsets_ptr + bag).to(tl.int64)
    stop = tl.load(offsets_ptr + bag + 1).to(tl.int64)
    row = tl.arange(0, ROWS)
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    low: tl.constexpr = float("-inf") if MODE == "max" else 0.0
    total = tl.full((ROWS, BLOCK), low, tl.float32)
    place = tl.full((ROWS, BLOCK), 0x7FFFFFFF, tl.int32)
    head = tl.zeros((BLOCK,), tl.float32)
    if MODE == "max":
        top = tl.load(index_ptr + begin, mask=begin < stop, other=-1).to(tl.int64)
        there = (top >= 0) & (top < rows) & (col < columns)
        head = tl.load(table_ptr + top * stride + col, mask=there, other=0.0).to(tl.float32)
    for start in range(begin, stop, ROWS):
        at = start + row
        index = tl.load(index_ptr + at, mask=at < stop, other=0).to(tl.int64)
        valid = (at < stop) & (index >= 0) & (index < rows)
        inside = valid[:, None] & (col < columns)[None, :]
        x = tl.load(table_ptr + index[:, None] * stride + col[None, :], mask=inside, other=low).to(tl.float32)
        if SCALED:
            x *= tl.load(scale_ptr + at, mask=at < stop, other=0.0).to(tl.float32)[:, None]
        if MODE == "max":
            # Behind a NaN any number is one more: whether it counts is seen below.
            larger = inside & ((x > total) | (place == 0x7FFFFFFF) | (total != total))
            total = tl.where(larger, x, total)
            place = tl.where(larger, at.to(tl.int32)[:, None], place)
        else:
            total += x
    if MODE == "max":
        number = (place != 0x7FFFFFFF) & (total == total)
        result = tl.max(tl.where(number, total, float("-inf")), 0)
        first = tl.min(tl.where(number & (total == result[None, :]), place, 0x7FFFFFFF), 0)
        # As torch has it: the bag's first number stays where it is NaN, later NaN are passed over.
        nothing = first == 0x7FFFFFFF
        first = tl.where(nothing, tl.min(place, 0), first)
        first = tl.where(head != head, begin.to(tl.int32), first)
        result = tl.where((head != head) | (nothing & (first != 0x7FFFFFFF)), float("nan"), result)
        result = tl.where(first != 0x7FFFFFFF, result, 0.0)
        if PLACES:
            tl.store(place_ptr + bag * columns + col, first, mask=col < columns)
    else:
        result = tl.sum(total, 0)
        if MODE == "mean":
            result /= tl.maximum(stop - begin, 1).to(tl.float32)
    tl.store(y_ptr + bag * columns + col, rounded(result, y_ptr), mask=col < columns)


@triton.jit
def sample_products(
    dy_ptr, table_ptr, index_ptr, bag_ptr, out_ptr, count, columns, dy_stride, stride, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of ROWS sample weights: the product of the bag's dy and the index's row."""
    sample = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    index = tl.load(index_ptr + sample, mask=sample < count, other=0).to(tl.int64)
    bag = tl.load(bag_ptr + sample, mask=sample < count, other=0).to(tl.int64)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, columns, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = (sample < count)[:, None] & (col < columns)[None, :]
        g = tl.load(dy_ptr + bag[:, None] * dy_stride + col[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(table_ptr + index[:, None] * stride + col[None, :], mask=inside, other=0.0).to(tl.float32)
        total += g * x
    result = tl.sum(total, 1)
    tl.store(out_ptr + sample, rounded(result, out_ptr), mask=sample < count)


TILES = ((4, 1), (8, 1), (8, 2), (16, 2), (16, 4), (32, 4), (16, 1), (32, 2))
"""Rows of 128 columns, warps."""


def space(columns: int, mode: str, scaled: bool, places: bool) -> list[Variant]:
    """Variants worth timing: a row whole up to 512 columns, 4 to 32 rows of the table under way."""
    block = min(512, max(triton.next_power_of_2(columns), 16))
    fixed = (("MODE", mode), ("SCALED", scaled), ("PLACES", places))
    return list(dict.fromkeys(
        Variant(bag_rows, (("ROWS", max(2, min(r * 128 // block, 64))), ("BLOCK", block), *fixed), w, tuned=("ROWS",))
        for r, w in TILES
    ))  # fmt: skip


def launch(
    variant: Variant, table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale: torch.Tensor,
    y: torch.Tensor, places: torch.Tensor,
) -> None:  # fmt: skip
    """Run one variant into contiguous y, places [bags, columns]."""
    bags, columns = y.shape
    grid = (bags, triton.cdiv(columns, variant["BLOCK"]))
    bag_rows[grid](
        table, indices, offsets, scale, y, places, len(table), columns, table.stride(0), **variant.meta
    )  # fmt: skip


def checked(
    table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, sample_weights: torch.Tensor | None, mode: str
) -> torch.Tensor:
    """The table with contiguous rows. Raises TypeError and ValueError for what the kernels do not take."""
    if table.dtype not in DTYPES or indices.dtype not in INDEXES or offsets.dtype not in INDEXES:
        raise TypeError(
            f"embedding_bag takes a table in f32, f16 or bf16 and integers in i32 or i64, not {table.dtype}, "
            f"{indices.dtype}, {offsets.dtype}"
        )
    if table.dim() != 2 or indices.dim() != 1 or offsets.dim() != 1 or not len(offsets):
        raise ValueError(
            f"embedding_bag takes [rows, columns], [indices], [bags + 1], not {[*table.shape]}, {[*indices.shape]}, "
            f"{[*offsets.shape]}"
        )
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    if len(indices) >= NOWHERE:
        raise ValueError(f"embedding_bag takes fewer than {NOWHERE:,} indices")
    if sample_weights is not None:
        if mode != "sum":
            raise ValueError(f'weights of samples are for "sum" alone, not {mode!r}')
        if sample_weights.shape != indices.shape or sample_weights.dtype not in DTYPES:
            raise ValueError(f"weights are {sample_weights.dtype}{[*sample_weights.shape]} for {len(indices)} indices")
    return table if table.stride(1) == 1 else table.contiguous()


def _forward(
    table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, sample_weights: torch.Tensor | None, mode: str,
    placed: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    table = checked(table, indices, offsets, sample_weights, mode)
    indices, offsets = indices.contiguous(), offsets.contiguous()
    y = torch.empty((len(offsets) - 1, table.shape[1]), dtype=table.dtype, device=table.device)
    places = torch.empty(y.shape, dtype=torch.int32, device=y.device) if placed else y
    if y.numel():
        scaled = sample_weights is not None
        scale = table if sample_weights is None else sample_weights.contiguous()
        arguments = (table, indices, offsets, scale, y, places)
        key = (*table.shape, len(indices), len(y), table.dtype, indices.dtype, offsets.dtype, scale.dtype, mode, scaled,
               placed, table.stride(0))  # fmt: skip
        variant = tuner.pick(
            key, lambda: space(y.shape[1], mode, scaled, placed), launch, *arguments, uncopied=arguments[:4]
        )
        launch(variant, *arguments)
    return y, places


def embedding_bag(
    table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, sample_weights: torch.Tensor | None = None,
    mode: str = "sum", include_last_offset: bool = True,
) -> torch.Tensor:  # fmt: skip
    """Sum, mean or max of table[indices[offsets[i] : offsets[i + 1]]] for each bag i: [bags, columns], like the table.

    table [rows, columns] in f32, f16 or bf16; indices and offsets [bags + 1], the last one their number, in i32 or i64;
    include_last_offset False: offsets [bags], without that one. sample_weights [indices] or None, for "sum". Computed
    in f32. An index that is not in the table adds nothing. A NaN is the largest where it is a bag's first number, as in
    torch, else it is passed over.
    Raises TypeError for other dtypes, ValueError for other shapes and modes.
    """
    offsets = offsets if include_last_offset else with_end(offsets, indices)
    return _forward(table, indices, offsets, sample_weights, mode, False)[0]


def with_end(offsets: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Offsets of bags, and where the last one ends."""
    return F.pad(offsets, (0, 1), value=len(indices))


def embedding_bag_with_places(
    table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """embedding_bag of "max", and for each result which of the indices selected it, i32; 2^31 - 1 where none did."""
    return _forward(table, indices, offsets, None, "max", True)


def embedding_bag_backward(
    dy: torch.Tensor, table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
    sample_weights: torch.Tensor | None = None, places: torch.Tensor | None = None, mode: str = "sum",
    asked: tuple[bool, bool] = (True, True),
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """The gradients of the table, like it, and of the sample weights if there are any; None for one not asked for.

    dy [bags, columns] in the table's dtype; places: of embedding_bag_with_places, for "max". Every index has to be in
    the table. Raises as embedding_bag does, and ValueError for other shapes of dy or places.
    """
    table = checked(table, indices, offsets, sample_weights, mode)
    shape = (len(offsets) - 1, table.shape[1])
    if dy.shape != shape or dy.dtype != table.dtype:
        raise ValueError(f"dy is {dy.dtype}{[*dy.shape]} for results of {table.dtype}{[*shape]}")
    if (places is None) == (mode == "max") or (places is not None and places.shape != shape):
        raise ValueError(f"places of shape {[*shape]} are given for max, and for max alone")
    dy = dy.contiguous()
    indices, offsets = indices.contiguous(), offsets.contiguous()
    samples = bag_order.samples_of(indices, offsets)
    ds = None
    if sample_weights is not None and asked[1]:
        ds = torch.zeros(indices.shape, dtype=sample_weights.dtype, device=dy.device)
    # Rows of the table that are read for both gradients are read once, if a program holds whole ones.
    together = asked[0] and 0 < table.shape[1] <= WIDEST
    dw = None
    if asked[0]:
        dw = _of_table(dy, table, samples, offsets, sample_weights, places, mode, ds if together else None)
    if sample_weights is None:
        return (dw,)
    if ds is not None and not together:
        _of_weights(Products(dy, table, indices, samples.bags, ds))
    return dw, ds


class Products(NamedTuple):
    """What the gradient ds of sample weights is made of, where it is not made with the table's."""

    dy: torch.Tensor
    table: torch.Tensor
    indices: torch.Tensor
    bags: torch.Tensor
    ds: torch.Tensor


def _of_table(
    dy: torch.Tensor, table: torch.Tensor, samples: Samples, offsets: torch.Tensor,
    sample_weights: torch.Tensor | None, places: torch.Tensor | None, mode: str, ds: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """The table's gradient; ds, where it is given, is filled with that of the sample weights."""
    dw = torch.empty(table.shape, dtype=table.dtype, device=table.device)
    if not dw.numel():
        return dw
    ordered = bag_order.by_row(samples, len(table), offsets, sample_weights, mode == "mean")
    scale = dy if ordered.scale is None else ordered.scale
    pick = ordered.keys if places is None else places.contiguous()
    given = {"GATHER": True, "SCALED": scale is not dy, "PICKED": places is not None, "PRODUCTS": ds is not None}
    form = tuple((name, given.get(name, False)) for name, _ in FORM)
    gather = segments.Gather(ordered.bags, ordered.order, scale, pick, dy if ds is None else ds)
    products = None if ds is None else Products(dy, table, samples.rows, samples.bags, ds)
    arguments = (dy, gather, dy if ds is None else table, ordered.edges, dw, len(samples.rows), products)
    key = (*table.shape, len(samples.rows), len(dy), table.dtype, scale.dtype, form)
    variant = backward_tuner.pick(
        key, lambda: table_space(len(samples.rows), table.shape[1], len(table), form), launch_table, *arguments,
        uncopied=(*arguments[:4], products),
    )  # fmt: skip
    launch_table(variant, *arguments)
    return dw


def table_space(count: int, columns: int, rows: int, form: segments.Form) -> list[Variant]:
    """Variants of the table's gradient worth timing: with products in it, where there are some, or before it."""
    forms = [form]
    if dict(form)["PRODUCTS"]:
        forms.append(tuple((name, value and name != "PRODUCTS") for name, value in form))
    made = [v for f in forms for v in segments.space(count, columns, rows, "sum", f)]
    return [replace(v, tuned=(*v.tuned, "PRODUCTS")) for v in made + table_gradient.space(count, columns, rows, form)]


@lru_cache(maxsize=256)  # batches differ in how many samples they have
def split_rows(count: int, columns: int, rows: int, scaled: bool, products: bool) -> Variant:
    """What takes the rows with so many samples that they are split, which `table_gradient` leaves out."""
    given = {"GATHER": True, "SCALED": scaled, "PRODUCTS": products}
    return segments.space(count, columns, rows, "sum", tuple((name, given.get(name, False)) for name, _ in FORM))[0]


def launch_table(
    variant: Variant, dy: torch.Tensor, gather: segments.Gather, top: torch.Tensor, edges: torch.Tensor,
    dw: torch.Tensor, count: int, products: Products | None,
) -> None:  # fmt: skip
    """Run one variant into dw, and fill products.ds where there are products."""
    if products is not None and not variant["PRODUCTS"] and count:
        launch_products(product_space(dw.shape[1])[1], *products)
    if variant.kernel is table_gradient.table_rows:
        table_gradient.launch(variant, dy, gather, top, edges, dw)
        split = split_rows(count, dw.shape[1], len(dw), variant["SCALED"], variant["PRODUCTS"])
        segments.launch(split, dy, gather, top, edges, dw, count, split_alone=True)
        return
    segments.launch(variant, dy, gather, top, edges, dw, count)


def _of_weights(products: Products) -> None:
    """Fill ds [indices]."""
    table, indices, ds = products.table, products.indices, products.ds
    if len(indices) and table.shape[1]:
        key = (*table.shape, len(indices), table.dtype, indices.dtype, ds.dtype)
        variant = weights_tuner.pick(
            key, lambda: product_space(table.shape[1]), launch_products, *products, uncopied=products[:4]
        )
        launch_products(variant, *products)


def product_space(columns: int) -> list[Variant]:
    """Variants of the products worth timing: a row whole up to 256 columns."""
    block = min(WIDEST, max(triton.next_power_of_2(columns), 16))
    return [Variant(sample_products, (("ROWS", max(1, r * 128 // block)), ("BLOCK", block)), w)
            for r, w in ((8, 2), (16, 4), (32, 4))]  # fmt: skip


def launch_products(
    variant: Variant, dy: torch.Tensor, table: torch.Tensor, indices: torch.Tensor, bags: torch.Tensor,
    ds: torch.Tensor,
) -> None:  # fmt: skip
    """Run one variant into ds [indices]."""
    sample_products[(triton.cdiv(len(ds), variant["ROWS"]),)](
        dy, table, indices, bags, ds, len(ds), table.shape[1], dy.stride(0), table.stride(0),
        **variant.meta,
    )  # fmt: skip


def inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on. skewed: a quarter of the indices select one row."""
    count = c["indices"]
    indices = make.integers(c["rows"], (count,), torch.int32 if c.get("short") else torch.int64)
    if c.get("skewed"):
        indices[make.integers(4, (count,)) == 0] = c["rows"] - 1
    offsets = make.offsets(c["bags"], count, indices.dtype)
    table = make.normal((c["rows"], c["columns"]), c.torch_dtype)
    weights = make.normal((count,), c.torch_dtype) if c.get("weights") else None
    return table, indices, offsets, weights, c["mode"]


def backward_inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try the backward on; places by plain PyTorch, one bag after another where it is small."""
    table, indices, offsets, weights, mode = inputs(c, make)
    assert isinstance(table, torch.Tensor)
    assert isinstance(indices, torch.Tensor)
    assert isinstance(offsets, torch.Tensor)
    dy = make.normal((c["bags"], c["columns"]), c.torch_dtype)
    places = _places(table, indices, offsets) if mode == "max" else None
    return dy, table, indices, offsets, weights, places, mode


def _places(table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """For each bag and column the first of the places whose number is the largest."""
    count = len(indices)
    bags = bags_of(offsets, count)
    values = table[indices].float()
    spread = bags[:, None].expand(values.shape)
    largest = torch.full((len(offsets) - 1, table.shape[1]), -torch.inf, device=table.device)
    largest.scatter_reduce_(0, spread, values, "amax")
    place = torch.arange(count, dtype=torch.int32, device=table.device)[:, None].expand(values.shape)
    taken = torch.where(values == largest[bags], place, NOWHERE)
    return torch.full(largest.shape, NOWHERE, dtype=torch.int32, device=table.device).scatter_reduce_(
        0, spread, taken, "amin"
    )


def _cost(c: Case) -> Cost:
    return Cost(bytes=(c["indices"] + c["bags"]) * c["columns"] * c.itemsize + (c["indices"] + c["bags"]) * 8)


def _backward_cost(c: Case) -> Cost:
    """dy once (a bag's row stays in the cache), the table's gradient once; the table's rows where weights are given."""
    rows = c["bags"] + c["rows"] + (c["indices"] if c.get("weights") else 0)
    return Cost(bytes=rows * c["columns"] * c.itemsize + c["indices"] * 8)


def deciding(arguments: Sequence[Any], part: slice) -> tuple[Any, ...]:
    """The arguments that give these bags: of the table the rows that they read."""
    table, indices, offsets, weights, mode = arguments
    own = offsets[part.start : part.stop + 1]
    inside = slice(int(own[0]), int(own[-1]))
    rows = table[indices[inside].long()]
    kept = None if weights is None else weights[inside]
    return rows, torch.arange(len(rows), device=rows.device, dtype=indices.dtype), own - own[0], kept, mode


def backward_deciding(arguments: Sequence[Any], part: slice) -> tuple[Any, ...]:
    """The arguments that give these rows' gradients, of sums: of the indices those that name them."""
    dy, table, indices, offsets, weights, places, mode = arguments
    named = (indices >= part.start) & (indices < part.stop)
    before = torch.cat((named.new_zeros(1, dtype=offsets.dtype), named.cumsum(0, dtype=offsets.dtype)))
    kept = None if weights is None else weights[named]
    return dy, table[part].clone(), indices[named] - part.start, before[offsets.long()], kept, places, mode


_SIGNATURE = {
    **dict.fromkeys(("table_ptr", "scale_ptr", "y_ptr", "dy_ptr", "out_ptr"), "*bf16"), "index_ptr": "*i64",
    "offsets_ptr": "*i64", "bag_ptr": "*i32", "place_ptr": "*i32",
    **dict.fromkeys(("rows", "count", "columns", "stride", "dy_stride"), "i32"),
}  # fmt: skip


def _build(variant: Variant) -> Build:
    names = variant.kernel.arg_names
    divisible = tuple(n for n in ("columns", "dy_stride", "stride") if n in names)
    return Build(variant, {k: _SIGNATURE[k] for k in names if k in _SIGNATURE}, divisible)


SIZES = ((50, 33, 200, 20), (7, 130, 90, 5), (3, 1, 5, 9))
FORMS = ("plain", "strided", "misaligned")


def _large(mode: str, skewed: bool = False) -> Case:
    return case("bf16", rows=1 << 20, columns=128, indices=1 << 20, bags=1 << 15, mode=mode, skewed=skewed)


BEYOND = case("bf16", rows=(1 << 23) + 77, columns=256, indices=1 << 20, bags=1 << 12, mode="sum")
OPERATIONS = (
    Operation(
        name="embedding_bag", run=embedding_bag, reference=reference, inputs=inputs, cost=_cost, forms=FORMS,
        beyond=BEYOND, deciding=deciding,
        checks=(
            *(case(d, rows=r, columns=n, indices=i, bags=b, mode=m) for d in ("f32", "bf16") for m in MODES
              for r, n, i, b in SIZES),
            case("f16", rows=9, columns=600, indices=40, bags=3, mode="sum", weights=True),
            case("f32", rows=9, columns=16, indices=0, bags=3, mode="max"),
            case("bf16", rows=30, columns=64, indices=300, bags=20, mode="sum", weights=True, short=True),
        ),
        cases=(
            *(_large(m) for m in MODES),
            case("f32", rows=1 << 20, columns=64, indices=1 << 21, bags=1 << 16, mode="sum", weights=True),
        ),
        builds=(
            *(_build(space(128, m, False, m == "max")[2]) for m in MODES), _build(space(64, "sum", True, False)[1]),
        ),
    ),
    Operation(
        name="embedding_bag_backward", run=embedding_bag_backward, reference=reference_backward,
        inputs=backward_inputs, cost=_backward_cost, forms=FORMS,
        beyond=BEYOND, deciding=backward_deciding,
        checks=(
            *(case(d, rows=r, columns=n, indices=i, bags=b, mode=m) for d in ("f32", "bf16") for m in MODES
              for r, n, i, b in SIZES),
            case("f16", rows=9, columns=600, indices=40, bags=3, mode="sum", weights=True),
            case("f32", rows=9, columns=16, indices=0, bags=3, mode="max"),
            case("bf16", rows=30, columns=64, indices=700, bags=20, mode="sum", skewed=True, weights=True, short=True),
        ),
        cases=(
            *(_large(m) for m in MODES), _large("sum", skewed=True),
            case("f32", rows=1 << 20, columns=64, indices=1 << 21, bags=1 << 16, mode="sum", weights=True),
        ),
        builds=(*bag_order.builds(), *table_gradient.builds(),
                _build(Variant(sample_products, (("ROWS", 8), ("BLOCK", 128)), 2)),
                *(segments.build(segments.space(1 << 20, 128, 1 << 20, "sum", tuple((name, name in ("GATHER", given))
                    for name, _ in FORM))[4], offsets_ptr="*i32", rows_ptr="*i32")
                  for given in ("GATHER", "PICKED", "PRODUCTS"))),
    ),
)  # fmt: skip
