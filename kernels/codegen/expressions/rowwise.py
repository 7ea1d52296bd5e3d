"""Scans along the columns, and rows in order: cumsum and its like, sort, topk."""

from __future__ import annotations

import torch.fx

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.values import Builder, Value
from kernels.codegen.index import Index, Unsupported, column
from kernels.codegen.nodes import Arguments, base, computed, dtype_of, fake

MAX_SORTED, MAX_SEARCHED = 1024, 8192
"""Columns of a row that one program puts in order, or of which it picks a few: more do not pay against a radix sort."""
FEW = 16
"""Elements of a row up to which the first ones are taken one by one, which costs less than a sort."""


def orders(node: torch.fx.Node, a: Arguments) -> bool:
    """One program can put the rows of this sort or topk in order."""
    source = fake(a["self"])
    width = source.shape[a["dim"]] if source.dim() else 1
    most = MAX_SEARCHED if base(node) == "topk" and a["k"] <= FEW else MAX_SORTED
    return 0 < width <= most and dtype_of(source) not in ("i64", "f64")


def scan(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """cumsum, cumprod, logcumsumexp."""
    dtype = dtype_of(fake(node))
    return b.rounded(_scanned(b, a, ops.SCANS[base(node)], index, dtype), dtype)


def part(b: Builder, node: torch.fx.Node, a: Arguments, place: int, index: Index) -> Value:
    """Values or places of cummax, cummin, sort and topk."""
    name, dtype = base(node), dtype_of(fake(a["self"]))
    if name in ops.PICKS:
        return _picked(b, node, a, place, index)
    if dtype == "bool":
        raise Unsupported(f"{name} of booleans")
    if place == 0:
        return _scanned(b, a, ops.SCANS[name], index, dtype)
    return b.cast(_scanned(b, a, ops.PLACED_SCANS[name], index, dtype), "i64")


def _scanned(b: Builder, a: Arguments, how: str, index: Index, dtype: str) -> Value:
    """how: of ops.SCANS, or of ops.PLACED_SCANS, whose result is the place."""
    source, placed = a["self"], how in ops.PLACED_SCANS.values()
    shape = tuple(fake(source).shape)
    if not shape or shape[a["dim"] % len(shape)] == 1:
        return b.number(0, "i64") if placed else b.cast(b.value(source, index), computed(dtype))
    _along(b, shape, a["dim"] % len(shape), index)
    value = b.spread_out(b.cast(b.whole_row(source, index), computed(dtype)))
    return b.scan(how, value, b.place(column(b.domain))) if placed else b.scan(how, value)


def _along(b: Builder, shape: tuple[int, ...], dim: int, index: Index) -> None:
    """Raises Unsupported where the dimension is not the kernel's columns, one after the other."""
    others = (part for d, part in enumerate(index) if d != dim)
    if shape[dim] != b.domain.width or index[dim] != column(b.domain) or any(b.reach(part)[0] for part in others):
        raise Unsupported("a walk along a row of which other elements are asked for")


def _picked(b: Builder, node: torch.fx.Node, a: Arguments, place: int, index: Index) -> Value:
    """Sorted values or their places: value and place are one integer, so that equal values keep their order."""
    source, dtype = a["self"], dtype_of(fake(a["self"]))
    shape = tuple(fake(source).shape)
    dim = a["dim"] % max(1, len(shape))
    if not shape or shape[dim] == 1:
        return b.number(0, "i64") if place else b.value(source, index)
    if not orders(node, a):
        raise Unsupported(f"an order of rows of {shape[dim]} elements of {dtype}")
    _along(b, shape, dim, index)
    count = a["k"] if base(node) == "topk" else shape[dim]
    down = a["largest"] if base(node) == "topk" else a["descending"]
    if count not in (shape[dim], b.picked):
        raise Unsupported("two numbers of elements that are picked from a row")
    value = b.spread_out(b.whole_row(source, index))
    spot = b.position(column(b.domain))
    if value.dtype == "f32":
        key = b.named(b.expression("sort_key({0})", "i32", value), "key")
    else:
        key = b.cast(value, "i32")
    text = "(~{0}).to(tl.int64) << 32 | {1}" if down else "{0}.to(tl.int64) << 32 | {1}"
    packed = b.named(b.expression(text, "i64", key, spot), "packed")
    how = f"{count}" if count <= FEW and count < shape[dim] else ""
    if how:
        b.helpers["first_of"] = None
    limit = count if count < shape[dim] else 0
    ordered = b.made(Value("sort", "i64", how, (packed, spot), limit=limit, columns=True, name="ordered"))
    if place:
        return b.expression("{0} & 0xFFFFFFFF", "i64", ordered)
    text = "(~({0} >> 32)).to(tl.int32)" if down else "({0} >> 32).to(tl.int32)"
    sorted_key = b.expression(text, "i32", ordered, name="key_in_order")
    if value.dtype == "f32":
        return b.expression("sorted_float({0})", "f32", sorted_key)
    return b.cast(sorted_key, value.dtype)
